//! Single instructions of kernel IR as LLVM's textual IR, with what a target lacks written out.
use super::text::{Emitter, ll};
use crate::Result;
use numrsc_ir::kernel::{Binary, Compare, Convert, Elem, Inst, Ty, Unary, V};

impl Emitter<'_> {
    pub(super) fn inst(&mut self, out: V, inst: &Inst) -> Result<()> {
        let ty = self.ty(out);
        match inst {
            Inst::Const(bits) => self.alias(out, constant(ty, *bits)),
            Inst::Iota => self.alias(out, iota(ty)),
            Inst::Unary(op, a) => {
                let right = self.unary(*op, *a);
                self.set(out, &right);
            }
            Inst::Binary(op, a, b) => {
                let (a, b) = (self.name(*a), self.name(*b));
                let right = self.binary(*op, ty, &a, &b);
                self.set(out, &right);
            }
            Inst::MulAdd(a, b, c) => self.muladd(out, *a, *b, *c),
            Inst::Dot4(a, b, c) => {
                let right = self.dot4(*a, *b, *c)?;
                self.set(out, &right);
            }
            Inst::Compare(op, a, b) => {
                let right = format!("{} {}, {}", comparison(*op, self.ty(*a).elem), self.typed(*a), self.name(*b));
                self.set(out, &right);
            }
            Inst::Select(cond, a, b) => {
                let right = format!("select {}, {}, {}", self.typed(*cond), self.typed(*a), self.typed(*b));
                self.set(out, &right);
            }
            Inst::Convert(op, a) => {
                let right = self.convert(*op, *a, ty);
                self.set(out, &right);
            }
            Inst::Splat(a) => {
                let (elem, vector) = (self.typed(*a), ll(ty));
                let one = self.temp(&format!("insertelement {vector} poison, {elem}, i32 0"));
                let mask = ll(ty.with(Elem::I32));
                self.set(out, &format!("shufflevector {vector} {one}, {vector} poison, {mask} zeroinitializer"));
            }
            Inst::Extract(a, lane) => {
                let right = format!("extractelement {}, i32 {lane}", self.typed(*a));
                self.set(out, &right);
            }
            Inst::Insert(a, b, lane) => {
                let right = format!("insertelement {}, {}, i32 {lane}", self.typed(*a), self.typed(*b));
                self.set(out, &right);
            }
            Inst::Shuffle(a, b, lanes) => self.shuffle(out, *a, *b, lanes),
            Inst::Reduce(op, a) => self.reduce(out, *op, *a)?,
            Inst::Load { ptr, index, mask } => self.load(out, *ptr, *index, *mask),
            Inst::Offset(ptr, bytes) => {
                let right = format!("getelementptr i8, {}, {}", self.typed(*ptr), self.typed(*bytes));
                self.set(out, &right);
            }
            Inst::Buffer { shared: true, .. } => return Err(self.unsupported("its shared buffer needs a GPU")),
            Inst::Buffer { elem, count, shared: false } => self.allocate(u64::from(*count) * elem.size() as u64, out),
            Inst::Call(helper, args) => {
                let (callee, args) = (self.calls(*helper), self.arguments(args));
                self.set(out, &format!("call {} @{callee}({args})", ll(ty)));
            }
            Inst::Host(function, args) => {
                let Some(ctx) = args.first() else {
                    return Err(self.unsupported("a function of the run context needs the context"));
                };
                let at = self.temp(&format!("getelementptr i64, {}, i64 {}", self.typed(*ctx), function.slot()));
                let target = self.temp(&format!("load ptr, ptr {at}, align 8"));
                let args = self.arguments(args);
                self.set(out, &format!("call {} {target}({args})", ll(ty)));
            }
        }
        Ok(())
    }

    pub(super) fn store(&mut self, ptr: V, index: V, value: V, mask: Option<V>) {
        let ty = self.ty(value);
        let at = self.address(ptr, index, ty.elem);
        let align = ty.elem.size();
        let mut value = self.typed(value);
        if ty.elem == Elem::Ptr && self.facts.small_pointers {
            value = format!("i64 {}", self.temp(&format!("ptrtoint {value} to i64")));
        }
        match mask {
            None => self.line(&format!("store {value}, ptr {at}, align {align}")),
            Some(mask) if ty.lanes == 1 => {
                let n = self.fresh();
                self.line(&format!("br i1 {}, label %store{n}, label %stored{n}", self.name(mask)));
                self.begin(&format!("store{n}"));
                self.line(&format!("store {value}, ptr {at}, align {align}"));
                self.line(&format!("br label %stored{n}"));
                self.begin(&format!("stored{n}"));
            }
            Some(mask) => {
                let (mask_type, vector) = (ll(self.ty(mask)), ll(ty));
                let name = format!("llvm.masked.store.{}.p0", overload(ty));
                self.needs.intrinsics.insert(format!("declare void @{name}({vector}, ptr, {mask_type})"));
                let mask = self.typed(mask);
                self.line(&format!("call void @{name}({value}, ptr align {align} {at}, {mask})"));
            }
        }
    }

    pub(super) fn prefetch(&mut self, ptr: V, bytes: V) {
        let at = self.address(ptr, bytes, Elem::I8);
        self.needs.intrinsics.insert("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)".into());
        // To read, kept near, data.
        self.line(&format!("call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 2, i32 1)"));
    }

    fn load(&mut self, out: V, ptr: V, index: V, mask: Option<V>) {
        let ty = self.ty(out);
        let at = self.address(ptr, index, ty.elem);
        let (align, kind) = (ty.elem.size(), ll(ty));
        match mask {
            None => self.set(out, &format!("load {kind}, ptr {at}, align {align}")),
            Some(mask) if ty.lanes == 1 => {
                let (n, before) = (self.fresh(), self.current_label());
                self.line(&format!("br i1 {}, label %load{n}, label %loaded{n}", self.name(mask)));
                self.begin(&format!("load{n}"));
                let value = self.temp(&format!("load {kind}, ptr {at}, align {align}"));
                self.line(&format!("br label %loaded{n}"));
                self.begin(&format!("loaded{n}"));
                let zero = constant(ty, 0);
                self.set(out, &format!("phi {kind} [ {value}, %load{n} ], [ {zero}, %{before} ]"));
            }
            Some(mask) => {
                let mask_type = ll(self.ty(mask));
                let name = format!("llvm.masked.load.{}.p0", overload(ty));
                self.needs.intrinsics.insert(format!("declare {kind} @{name}(ptr, {mask_type}, {kind})"));
                let mask = self.typed(mask);
                let right = format!("call {kind} @{name}(ptr align {align} {at}, {mask}, {kind} zeroinitializer)");
                self.set(out, &right);
            }
        }
    }

    fn address(&mut self, ptr: V, index: V, elem: Elem) -> String {
        // Pointers take 8 bytes also where they have 4.
        let unit = if elem == Elem::Ptr { Elem::I64 } else { elem };
        let right = format!("getelementptr {}, {}, {}", ll(Ty::scalar(unit)), self.typed(ptr), self.typed(index));
        self.temp(&right)
    }

    fn arguments(&self, args: &[V]) -> String {
        args.iter().map(|v| self.typed(*v)).collect::<Vec<_>>().join(", ")
    }

    /// A call of an intrinsic whose operands all have the type of its result.
    fn intrinsic(&mut self, name: &str, ty: Ty, args: &[&str]) -> String {
        let (name, ty) = (format!("llvm.{name}.{}", overload(ty)), ll(ty));
        self.needs.intrinsics.insert(format!("declare {ty} @{name}({})", vec![&ty[..]; args.len()].join(", ")));
        let args: Vec<String> = args.iter().map(|a| format!("{ty} {a}")).collect();
        format!("call {ty} @{name}({})", args.join(", "))
    }

    fn unary(&mut self, op: Unary, a: V) -> String {
        let (ty, x) = (self.ty(a), self.name(a));
        match op {
            Unary::Neg if ty.elem.is_float() => format!("fneg {} {x}", ll(ty)),
            Unary::Neg => format!("sub {} {}, {x}", ll(ty), constant(ty, 0)),
            Unary::Not => format!("xor {} {x}, {}", ll(ty), constant(ty, u64::MAX)),
            Unary::Abs => self.intrinsic("fabs", ty, &[&x]),
            Unary::Sqrt => self.intrinsic("sqrt", ty, &[&x]),
            Unary::Floor if self.facts.rounds => self.intrinsic("floor", ty, &[&x]),
            Unary::Ceil if self.facts.rounds => self.intrinsic("ceil", ty, &[&x]),
            Unary::Trunc if self.facts.rounds => self.intrinsic("trunc", ty, &[&x]),
            Unary::Round if self.facts.rounds => self.intrinsic("roundeven", ty, &[&x]),
            Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round => self.rounded(op, ty, &x),
        }
    }

    /// Rounding to an integer by adding and subtracting a number so large that the sum has no fraction. Numbers as large, infinities and
    /// NaN stay as they are, and zeros keep their sign.
    fn rounded(&mut self, op: Unary, ty: Ty, x: &str) -> String {
        let kind = ll(ty);
        let large = float(ty, if ty.elem == Elem::F32 { 8_388_608.0 } else { 4_503_599_627_370_496.0 });
        let one = float(ty, 1.0);
        let magnitude = self.intrinsic("fabs", ty, &[x]);
        let magnitude = self.temp(&magnitude);
        let sum = self.temp(&format!("fadd {kind} {magnitude}, {large}"));
        let nearest = self.temp(&format!("fsub {kind} {sum}, {large}"));
        // Toward zero is down for magnitudes; the others are corrected after the sign is back.
        let (compare, correct, value) = match op {
            Unary::Round => ("", "", nearest),
            Unary::Trunc => ("ogt", "fsub", nearest),
            _ => {
                let signed = self.intrinsic("copysign", ty, &[&nearest, x]);
                let signed = self.temp(&signed);
                if op == Unary::Floor { ("ogt", "fsub", signed) } else { ("olt", "fadd", signed) }
            }
        };
        let exact = if op == Unary::Trunc { &magnitude } else { x };
        let whole = if compare.is_empty() {
            value
        } else {
            let bits = ll(ty.with(Elem::I1));
            let beyond = self.temp(&format!("fcmp {compare} {kind} {value}, {exact}"));
            let corrected = self.temp(&format!("{correct} {kind} {value}, {one}"));
            self.temp(&format!("select {bits} {beyond}, {kind} {corrected}, {kind} {value}"))
        };
        let signed = self.intrinsic("copysign", ty, &[&whole, x]);
        let signed = self.temp(&signed);
        let bits = ll(ty.with(Elem::I1));
        let small = self.temp(&format!("fcmp olt {kind} {magnitude}, {large}"));
        format!("select {bits} {small}, {kind} {signed}, {kind} {x}")
    }

    fn binary(&mut self, op: Binary, ty: Ty, a: &str, b: &str) -> String {
        let is_float = ty.elem.is_float();
        let plain = match op {
            Binary::Add if is_float => "fadd",
            Binary::Sub if is_float => "fsub",
            Binary::Mul if is_float => "fmul",
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::FDiv => "fdiv",
            Binary::FMin | Binary::FMax => return self.limit(op == Binary::FMin, ty, a, b),
            Binary::SMin => return self.intrinsic("smin", ty, &[a, b]),
            Binary::SMax => return self.intrinsic("smax", ty, &[a, b]),
            Binary::UMin => return self.intrinsic("umin", ty, &[a, b]),
            Binary::UMax => return self.intrinsic("umax", ty, &[a, b]),
            Binary::SDiv => "sdiv",
            Binary::UDiv => "udiv",
            Binary::SRem => "srem",
            Binary::URem => "urem",
            Binary::And => "and",
            Binary::Or => "or",
            Binary::Xor => "xor",
            Binary::Shl => "shl",
            Binary::LShr => "lshr",
            Binary::AShr => "ashr",
        };
        format!("{plain} {} {a}, {b}", ll(ty))
    }

    /// The smaller or larger of two numbers, `b` if they are equal or not numbers.
    ///
    /// Where there are masks, LLVM takes a selection between 1 and another factor of a product apart: a comparison, a product and a move instead of a limit and a
    /// product. It does not look into x86's own names of the instruction.
    fn limit(&mut self, smaller: bool, ty: Ty, a: &str, b: &str) -> String {
        let kind = ll(ty);
        if let Some((first, last, rounding)) = self.facts.masks.then(|| limits_of_x86(ty)).flatten() {
            let name = format!("llvm.x86.{first}.{}.{last}", if smaller { "min" } else { "max" });
            let (declared, given) = if rounding { (", i32 immarg", ", i32 4") } else { ("", "") };
            self.needs.intrinsics.insert(format!("declare {kind} @{name}({kind}, {kind}{declared})"));
            return format!("call {kind} @{name}({kind} {a}, {kind} {b}{given})");
        }
        let (compare, bits) = (if smaller { "olt" } else { "ogt" }, ll(ty.with(Elem::I1)));
        let first = self.temp(&format!("fcmp {compare} {kind} {a}, {b}"));
        format!("select {bits} {first}, {kind} {a}, {kind} {b}")
    }

    fn muladd(&mut self, out: V, a: V, b: V, c: V) {
        let ty = self.ty(out);
        let (a, b, c) = (self.name(a), self.name(b), self.name(c));
        let right = if !ty.elem.is_float() {
            let product = self.temp(&format!("mul {} {a}, {b}", ll(ty)));
            format!("add {} {product}, {c}", ll(ty))
        } else if self.facts.fused {
            self.intrinsic("fma", ty, &[&a, &b, &c])
        } else {
            let product = self.temp(&format!("fmul {} {a}, {b}", ll(ty)));
            format!("fadd {} {product}, {c}", ll(ty))
        };
        self.set(out, &right);
    }

    /// By x86's own name: LLVM does not find the instruction in what it does.
    fn dot4(&mut self, a: V, b: V, c: V) -> Result<String> {
        let (sums, bytes) = (self.ty(c), ll(self.ty(a)));
        let bits = 32 * sums.lanes;
        if !self.facts.dot4 || !matches!(bits, 128 | 256 | 512) {
            return Err(self.unsupported("the machine does not multiply by fours like that"));
        }
        let (kind, name) = (ll(sums), format!("llvm.x86.avx512.vpdpbusd.{bits}"));
        self.needs.intrinsics.insert(format!("declare {kind} @{name}({kind}, {bytes}, {bytes})"));
        Ok(format!("call {kind} @{name}({}, {}, {})", self.typed(c), self.typed(a), self.typed(b)))
    }

    fn convert(&mut self, op: Convert, a: V, to: Ty) -> String {
        let from = self.ty(a);
        let op = match op {
            Convert::Narrow => "trunc",
            Convert::SExt => "sext",
            Convert::ZExt => "zext",
            Convert::Half => return self.half(a, to),
            Convert::Float if from.elem == Elem::F32 => "fpext",
            Convert::Float => "fptrunc",
            Convert::SToF => "sitofp",
            Convert::UToF => "uitofp",
            Convert::FToS if to.elem == Elem::I32 && to.lanes > 1 => return self.vector_to_i32(a, to),
            Convert::FToS => return self.saturating("fptosi", a, to),
            Convert::FToU => return self.saturating("fptoui", a, to),
            Convert::Bits => "bitcast",
            Convert::Pointer if from.elem == Elem::Ptr => "ptrtoint",
            Convert::Pointer => "inttoptr",
        };
        format!("{op} {} to {}", self.typed(a), ll(to))
    }

    /// Between `f32` and the bits of LLVM's `half`.
    fn half(&mut self, a: V, to: Ty) -> String {
        let half = if to.lanes == 1 { "half".into() } else { format!("<{} x half>", to.lanes) };
        let a = self.typed(a);
        let (first, second) = if to.elem == Elem::F32 { ("bitcast", "fpext") } else { ("fptrunc", "bitcast") };
        let x = self.temp(&format!("{first} {a} to {half}"));
        format!("{second} {half} {x} to {}", ll(to))
    }

    /// As LLVM's saturating conversion, of which it makes vectors one by one.
    fn vector_to_i32(&mut self, a: V, to: Ty) -> String {
        // The largest float that is an `i32`: all above are clamped to it, and then replaced.
        const LARGEST: [f64; 2] = [2_147_483_520.0, 2_147_483_647.0];
        let (from, x) = (self.ty(a), self.name(a));
        let (kind, mask) = (ll(from), ll(to.with(Elem::I1)));
        let (low, high) = (float(from, f64::from(i32::MIN)), float(from, LARGEST[usize::from(from.elem == Elem::F64)]));
        let above = self.temp(&format!("fcmp ogt {kind} {x}, {low}"));
        let y = self.temp(&format!("select {mask} {above}, {kind} {x}, {kind} {low}"));
        let below = self.temp(&format!("fcmp olt {kind} {y}, {high}"));
        let y = self.temp(&format!("select {mask} {below}, {kind} {y}, {kind} {high}"));
        let mut whole = self.temp(&format!("fptosi {kind} {y} to {}", ll(to)));
        if from.elem == Elem::F32 {
            let over = self.temp(&format!("fcmp ogt {kind} {x}, {high}"));
            let most = constant(to, i32::MAX as u64);
            whole = self.temp(&format!("select {mask} {over}, {} {most}, {} {whole}", ll(to), ll(to)));
        }
        let nan = self.temp(&format!("fcmp uno {kind} {x}, {x}"));
        format!("select {mask} {nan}, {} zeroinitializer, {} {whole}", ll(to), ll(to))
    }

    fn saturating(&mut self, op: &str, a: V, to: Ty) -> String {
        let from = self.ty(a);
        let name = format!("llvm.{op}.sat.{}.{}", overload(to), overload(from));
        self.needs.intrinsics.insert(format!("declare {} @{name}({})", ll(to), ll(from)));
        format!("call {} @{name}({})", ll(to), self.typed(a))
    }

    fn shuffle(&mut self, out: V, a: V, b: V, lanes: &[u32]) {
        let count = self.ty(a).lanes;
        if let [lane] = lanes {
            let (source, lane) = if *lane < count { (a, *lane) } else { (b, *lane - count) };
            let right = match self.ty(source).lanes {
                1 => format!("freeze {}", self.typed(source)),
                _ => format!("extractelement {}, i32 {lane}", self.typed(source)),
            };
            return self.set(out, &right);
        }
        let (a, b) = (self.as_vector(a), self.as_vector(b));
        let mask: Vec<String> = lanes.iter().map(|lane| format!("i32 {lane}")).collect();
        self.set(out, &format!("shufflevector {a}, {b}, <{} x i32> <{}>", lanes.len(), mask.join(", ")));
    }

    /// The operand with its type, where a scalar is a vector of one lane.
    fn as_vector(&mut self, v: V) -> String {
        if self.ty(v).lanes > 1 {
            return self.typed(v);
        }
        let kind = format!("<1 x {}>", ll(self.ty(v)));
        let one = self.temp(&format!("insertelement {kind} poison, {}, i32 0", self.typed(v)));
        format!("{kind} {one}")
    }

    fn reduce(&mut self, out: V, op: Binary, a: V) -> Result<()> {
        let mut ty = self.ty(a);
        if !ty.lanes.is_power_of_two() {
            return Err(self.unsupported(format!("the lanes of {ty} cannot be halved")));
        }
        if ty.elem == Elem::I1 && matches!(op, Binary::And | Binary::Or) && ty.lanes > 1 {
            // LLVM makes a test of all lanes together out of this, but not out of halves.
            let name = format!("llvm.vector.reduce.{}.{}", if op == Binary::And { "and" } else { "or" }, overload(ty));
            self.needs.intrinsics.insert(format!("declare i1 @{name}({})", ll(ty)));
            let right = format!("call i1 @{name}({})", self.typed(a));
            self.set(out, &right);
            return Ok(());
        }
        let mut value = self.name(a);
        while ty.lanes > 1 {
            let half = Ty::vector(ty.elem, ty.lanes / 2);
            let kind = ll(ty);
            let side = |e: &mut Self, first: u32| {
                if half.lanes == 1 {
                    return e.temp(&format!("extractelement {kind} {value}, i32 {first}"));
                }
                let mask: Vec<String> = (first..first + half.lanes).map(|i| format!("i32 {i}")).collect();
                let (mask_type, mask) = (ll(half.with(Elem::I32)), mask.join(", "));
                e.temp(&format!("shufflevector {kind} {value}, {kind} poison, {mask_type} <{mask}>"))
            };
            let (low, high) = (side(self, 0), side(self, half.lanes));
            let right = self.binary(op, half, &low, &high);
            value = self.temp(&right);
            ty = half;
        }
        self.alias(out, value);
        Ok(())
    }
}

/// How the name of an intrinsic spells a type.
fn overload(ty: Ty) -> String {
    let elem = match ty.elem {
        Elem::I1 => "i1",
        Elem::I8 => "i8",
        Elem::I16 => "i16",
        Elem::I32 => "i32",
        Elem::I64 => "i64",
        Elem::F32 => "f32",
        Elem::F64 => "f64",
        Elem::Ptr => "p0",
    };
    if ty.lanes == 1 { elem.to_owned() } else { format!("v{}{elem}", ty.lanes) }
}

/// What comes before and behind the name of a limit among x86's, and whether it takes a mode of rounding.
fn limits_of_x86(ty: Ty) -> Option<(&'static str, &'static str, bool)> {
    Some(match (ty.elem, ty.lanes) {
        (Elem::F32, 4) => ("sse", "ps", false),
        (Elem::F64, 2) => ("sse2", "pd", false),
        (Elem::F32, 8) => ("avx", "ps.256", false),
        (Elem::F64, 4) => ("avx", "pd.256", false),
        (Elem::F32, 16) => ("avx512", "ps.512", true),
        (Elem::F64, 8) => ("avx512", "pd.512", true),
        _ => return None,
    })
}

fn comparison(op: Compare, elem: Elem) -> &'static str {
    match (op, elem.is_float()) {
        (Compare::Eq, true) => "fcmp oeq",
        (Compare::Ne, true) => "fcmp une",
        (Compare::Lt | Compare::ULt, true) => "fcmp olt",
        (Compare::Le | Compare::ULe, true) => "fcmp ole",
        (Compare::Eq, false) => "icmp eq",
        (Compare::Ne, false) => "icmp ne",
        (Compare::Lt, false) => "icmp slt",
        (Compare::Le, false) => "icmp sle",
        (Compare::ULt, false) => "icmp ult",
        (Compare::ULe, false) => "icmp ule",
    }
}

/// A bit pattern in every lane, as an operand.
fn constant(ty: Ty, bits: u64) -> String {
    let one = match ty.elem {
        Elem::I1 => if bits & 1 == 1 { "true" } else { "false" }.to_owned(),
        Elem::I8 => (bits as i8).to_string(),
        Elem::I16 => (bits as i16).to_string(),
        Elem::I32 => (bits as i32).to_string(),
        Elem::I64 => (bits as i64).to_string(),
        Elem::F32 => format!("0x{:016X}", widened(bits as u32)),
        Elem::F64 => format!("0x{bits:016X}"),
        Elem::Ptr if bits == 0 => "null".to_owned(),
        Elem::Ptr => format!("inttoptr (i64 {} to ptr)", bits as i64),
    };
    if ty.lanes == 1 { one } else { format!("splat ({} {one})", ll(Ty::scalar(ty.elem))) }
}

fn float(ty: Ty, x: f64) -> String {
    constant(ty, if ty.elem == Elem::F32 { u64::from((x as f32).to_bits()) } else { x.to_bits() })
}

/// LLVM writes an `f32` as the `f64` of the same value; the payload of a NaN keeps its upper bits.
fn widened(bits: u32) -> u64 {
    let x = f32::from_bits(bits);
    if x.is_nan() {
        return u64::from(bits >> 31) << 63 | 0x7ff << 52 | u64::from(bits & 0x7f_ffff) << 29;
    }
    f64::from(x).to_bits()
}

fn iota(ty: Ty) -> String {
    let one = Ty::scalar(ty.elem);
    let lane = |i: u32| if ty.elem.is_float() { float(one, f64::from(i)) } else { constant(one, u64::from(i)) };
    if ty.lanes == 1 {
        return lane(0);
    }
    let lanes: Vec<String> = (0..ty.lanes).map(|i| format!("{} {}", ll(one), lane(i))).collect();
    format!("<{}>", lanes.join(", "))
}
