//! Translates one function of the kernel IR to Cranelift: signatures, parameters, and what is known about values.
use super::parts::{Form, Parts, lane_type};
use cranelift::codegen::ir::{
    AbiParam, ExtFuncData, ExternalName, FuncRef, Function as Clif, Inst, MemFlagsData, SigRef, Signature, StackSlot,
    StackSlotData, StackSlotKind, UserExternalName, UserFuncName,
};
use cranelift::codegen::isa::{CallConv, TargetIsa};
use cranelift::frontend::{FuncInstBuilder, FunctionBuilder, FunctionBuilderContext};
use cranelift::prelude::{InstBuilder, Type, Value, types};
use numrsc_ir::kernel::{Elem, FuncId, Function, Kind, Module, Ty, V};
use std::collections::HashMap;

/// CPU features that change the code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Every 128-bit vector operation that is used here.
    pub(super) packed: bool,
    /// Fused multiply-add.
    pub(super) fused: bool,
    /// Rounding to integers.
    pub(super) rounds: bool,
    /// Vector registers.
    pub(super) registers: u32,
}

/// Why a function cannot be compiled.
pub(super) type Refused<T> = Result<T, String>;

/// An integer or pointer as a value plus a constant, so that constants end up in address operands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub(super) base: Option<Value>,
    pub(super) offset: i64,
}

pub(super) struct Emitter<'a> {
    pub(super) b: FunctionBuilder<'a>,
    pub(super) abilities: Abilities,
    pub(super) module: &'a Module,
    pub(super) function: &'a Function,
    /// The run context; only in the entry.
    pub(super) context: Option<Value>,
    /// Where a helper writes a result of several values.
    pub(super) result_pointer: Option<Value>,
    convention: CallConv,
    values: Vec<Option<Parts>>,
    sums: Vec<Option<Sum>>,
    splats: Vec<Option<Value>>,
    functions: HashMap<FuncId, FuncRef>,
    signatures: HashMap<(Vec<Type>, Type), SigRef>,
    slots: HashMap<Slot, StackSlot>,
}

/// Scratch stack memory, shared because it is used only briefly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Slot {
    /// The arguments of a launch.
    Arguments,
    /// The result of a helper.
    Result,
    /// Where masked-off lanes are read and written instead of memory.
    Nowhere,
}

pub(super) fn emit(
    isa: &dyn TargetIsa,
    abilities: Abilities,
    module: &Module,
    id: FuncId,
) -> Refused<cranelift::codegen::ir::Function> {
    let function = module.functions.get(id.0 as usize).ok_or_else(|| format!("there is no function {}", id.0))?;
    let convention = isa.default_call_conv();
    let mut clif = Clif::new();
    clif.name = UserFuncName::user(0, id.0);
    let mut context = FunctionBuilderContext::new();
    let mut emitter = Emitter {
        b: FunctionBuilder::new(&mut clif, &mut context),
        abilities,
        module,
        function,
        context: None,
        result_pointer: None,
        convention,
        values: vec![None; function.types.len()],
        sums: vec![None; function.types.len()],
        splats: vec![None; function.types.len()],
        functions: HashMap::new(),
        signatures: HashMap::new(),
        slots: HashMap::new(),
    };
    emitter.b.func.signature = emitter.signature_of(function)?;
    emitter.begin()?;
    emitter.body()?;
    emitter.b.seal_all_blocks();
    emitter.b.finalize(isa.frontend_config());
    Ok(clif)
}

impl<'a> Emitter<'a> {
    pub(super) fn ins(&mut self) -> FuncInstBuilder<'_, 'a> {
        self.b.ins()
    }

    pub(super) fn type_of(&self, v: Value) -> Type {
        self.b.func.dfg.value_type(v)
    }

    // Values.

    pub(super) fn get(&self, v: V) -> Refused<Parts> {
        let parts = self.values.get(v.0 as usize).and_then(Clone::clone);
        parts.ok_or_else(|| format!("{v} is used before it is defined"))
    }

    pub(super) fn set(&mut self, v: V, parts: Parts) {
        // An unrolled loop defines its values once per round.
        self.sums[v.0 as usize] = None;
        self.splats[v.0 as usize] = None;
        self.values[v.0 as usize] = Some(parts);
    }

    pub(super) fn set_sum(&mut self, v: V, sum: Sum) {
        self.sums[v.0 as usize] = Some(sum);
    }

    pub(super) fn set_splat(&mut self, v: V, scalar: Value) {
        self.splats[v.0 as usize] = Some(scalar);
    }

    /// The number in every lane, if it is a known constant.
    pub(super) fn splat_of(&self, v: V) -> Option<Value> {
        self.splats[v.0 as usize]
    }

    /// The only lane of a scalar.
    pub(super) fn scalar(&self, v: V) -> Refused<Value> {
        match self.get(v)?.form {
            Form::Lanes(lanes) if lanes.len() == 1 => Ok(lanes[0]),
            _ => Err(format!("{v} is a vector where a scalar is needed")),
        }
    }

    /// An `i64` or a pointer.
    pub(super) fn sum(&self, v: V) -> Refused<Sum> {
        match self.sums[v.0 as usize] {
            Some(sum) => Ok(sum),
            None => Ok(Sum { base: Some(self.scalar(v)?), offset: 0 }),
        }
    }

    pub(super) fn constant_of(&self, v: V) -> Option<i64> {
        self.sums[v.0 as usize].filter(|s| s.base.is_none()).map(|s| s.offset)
    }

    /// The value of a sum, computed at its use rather than kept in a register since its definition.
    pub(super) fn sum_value(&mut self, sum: Sum) -> Value {
        match sum.base {
            None => self.ins().iconst(types::I64, sum.offset),
            Some(base) if sum.offset == 0 => base,
            Some(base) => self.ins().iadd_imm_s(base, sum.offset),
        }
    }

    pub(super) fn constant(&mut self, elem: Elem, bits: u64) -> Value {
        match elem {
            Elem::F32 => self.ins().f32const(f32::from_bits(bits as u32)),
            Elem::F64 => self.ins().f64const(f64::from_bits(bits)),
            _ => {
                let mask = if elem.bits() < 64 && elem != Elem::Ptr { (1 << elem.bits()) - 1 } else { u64::MAX };
                self.ins().iconst(lane_type(elem), (bits & mask) as i64)
            }
        }
    }

    // Functions.

    fn signature(&self, params: impl IntoIterator<Item = Type>, result: Option<Type>) -> Signature {
        let mut signature = Signature::new(self.convention);
        signature.params.extend(params.into_iter().map(AbiParam::new));
        signature.returns.extend(result.map(AbiParam::new));
        signature
    }

    fn signature_of(&self, function: &Function) -> Refused<Signature> {
        match function.kind {
            Kind::Entry => Ok(self.signature([types::I64], Some(types::I32))),
            Kind::Kernel => Ok(self.signature([types::I64; 4], Some(types::I32))),
            Kind::Helper => {
                let [result] = function.body.results[..] else {
                    return Err(format!("helper `{}` does not have one result", function.name));
                };
                let result = self.fixed_types(function.ty(result));
                let mut params: Vec<Type> =
                    function.params.iter().flat_map(|&p| self.fixed_types(function.ty(p))).collect();
                // A result of several values is written to memory of the caller.
                if let [single] = result[..] {
                    return Ok(self.signature(params, Some(single)));
                }
                params.insert(0, types::I64);
                Ok(self.signature(params, None))
            }
        }
    }

    /// A function of the module.
    pub(super) fn function_ref(&mut self, id: FuncId) -> Refused<FuncRef> {
        if let Some(&known) = self.functions.get(&id) {
            return Ok(known);
        }
        let module = self.module;
        let callee = module.functions.get(id.0 as usize).ok_or_else(|| format!("there is no function {}", id.0))?;
        let signature = self.signature_of(callee)?;
        let signature = self.b.import_signature(signature);
        let name = self.b.func.declare_imported_user_function(UserExternalName::new(0, id.0));
        // Near, so that the code refers to it PC-relative.
        let data = ExtFuncData { name: ExternalName::user(name), signature, colocated: true, patchable: false };
        let reference = self.b.import_function(data);
        self.functions.insert(id, reference);
        Ok(reference)
    }

    /// Calls a function by its address.
    pub(super) fn call_pointer(&mut self, callee: Value, args: &[Value], result: Type) -> Value {
        let key = (args.iter().map(|&a| self.type_of(a)).collect::<Vec<_>>(), result);
        let signature = match self.signatures.get(&key) {
            Some(&known) => known,
            None => {
                let signature = self.signature(key.0.iter().copied(), Some(result));
                let reference = self.b.import_signature(signature);
                self.signatures.insert(key, reference);
                reference
            }
        };
        let call = self.ins().call_indirect(signature, callee, args);
        self.first_result(call)
    }

    pub(super) fn first_result(&self, call: Inst) -> Value {
        self.b.inst_results(call)[0]
    }

    /// Shared stack memory of at least this many bytes.
    pub(super) fn slot(&mut self, which: Slot, bytes: u32) -> StackSlot {
        if let Some(&slot) = self.slots.get(&which) {
            let data = &mut self.b.func.sized_stack_slots[slot];
            data.size = data.size.max(bytes);
            return slot;
        }
        let slot = self.b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 4));
        self.slots.insert(which, slot);
        slot
    }

    /// The first block, with the parameters as values.
    fn begin(&mut self) -> Refused<()> {
        let block = self.b.create_block();
        self.b.append_block_params_for_function_params(block);
        self.b.switch_to_block(block);
        let given = self.b.block_params(block).to_vec();
        let function = self.function;
        match function.kind {
            Kind::Entry => {
                let [context] = function.params[..] else {
                    return Err("an entry takes the run context only".into());
                };
                self.context = Some(given[0]);
                self.set(context, Parts::scalar(Elem::Ptr, given[0]));
            }
            Kind::Kernel => {
                let [begin, end, worker, ref own @ ..] = function.params[..] else {
                    return Err("a kernel takes its range and worker first".into());
                };
                for (v, value) in [begin, end, worker].into_iter().zip(&given[1..]) {
                    self.set(v, Parts::scalar(Elem::I64, *value));
                }
                for (i, &v) in own.iter().enumerate() {
                    let ty = scalar_argument(function, v)?;
                    let value = self.ins().load(lane_type(ty.elem), flags(), given[0], 8 * i as i32);
                    self.set(v, Parts::scalar(ty.elem, value));
                }
            }
            Kind::Helper => {
                let mut given = given.into_iter();
                let result = function.body.results.first().map_or(0, |&r| self.fixed_types(function.ty(r)).len());
                if result != 1 {
                    self.result_pointer = given.next();
                }
                for &v in &function.params {
                    let ty = function.ty(v);
                    let count = self.fixed_types(ty).len();
                    let parts = self.parts_of_fixed(ty, given.by_ref().take(count).collect());
                    self.set(v, parts);
                }
            }
        }
        Ok(())
    }
}

/// Memory that is always present, though vectors are aligned only to their elements.
pub(super) fn flags() -> MemFlagsData {
    MemFlagsData::new().with_notrap()
}

/// Arguments of a launch are slots of 8 bytes.
pub(super) fn scalar_argument(function: &Function, v: V) -> Refused<Ty> {
    let ty = function.ty(v);
    if ty.lanes == 1 { Ok(ty) } else { Err(format!("a kernel cannot take the vector {v}: {ty}")) }
}
