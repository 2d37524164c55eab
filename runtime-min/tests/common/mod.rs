//! Models for tests: manifests with as little in them as a test needs, and entries written in Rust.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]
use numrsc_runtime::{
    DType, Model,
    artifact::{
        Addition, Architecture, Builder, DimSpec, KernelSpec, LaunchSpec, ManifestSpec, NamesSpec, NodeSpec, Piece,
        PortSpec, PortTypeSpec, SizeSpec,
    },
    context::{EntryFn, KernelFn, MemoryFn, ParallelFn, RunContext, TensorSlots},
};

/// `xor eax, eax; ret`, and the same for AArch64: an entry that succeeds and does nothing.
pub fn code_that_succeeds() -> Vec<u8> {
    match Architecture::host() {
        Some(Architecture::X86_64) => vec![0x31, 0xc0, 0xc3],
        Some(Architecture::Aarch64) => vec![0x00, 0x00, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6],
        other => panic!("no machine code for {other:?}"),
    }
}

pub fn host() -> Architecture {
    Architecture::host().expect("tests run where models run")
}

/// A model without inputs and outputs.
pub fn manifest() -> ManifestSpec {
    ManifestSpec {
        model: "test".into(),
        producer: "test 0".into(),
        target_triple: "here".into(),
        cpu_features: vec![],
        entry: 0,
        inputs: vec![],
        outputs: vec![],
        symbols: vec![],
        arena: SizeSpec::Fixed(0),
        peak: SizeSpec::Fixed(0),
        needs_heap: false,
        single_threaded: false,
        labels: Default::default(),
        failures: vec!["the first failure".into(), "the second failure".into()],
        kernels: vec![],
    }
}

/// A negative size is not known before running.
pub fn tensor(name: &str, dtype: DType, sizes: &[i64]) -> PortSpec {
    let dim = |&size: &i64| u64::try_from(size).map_or_else(|_| DimSpec::Formula("n".into()), DimSpec::Fixed);
    let dims = sizes.iter().map(dim).collect();
    PortSpec { name: name.into(), dtype, ty: PortTypeSpec::Tensor { dims }, type_text: format!("{dtype}{sizes:?}") }
}

pub fn sequence(name: &str, dtype: DType, depth: u8, sizes: Option<&[u64]>) -> PortSpec {
    let dims = sizes.map(|sizes| sizes.iter().map(|&size| DimSpec::Fixed(size)).collect());
    PortSpec {
        name: name.into(),
        dtype,
        ty: PortTypeSpec::Sequence { depth, dims },
        type_text: format!("seq<{dtype}>, depth {depth}"),
    }
}

pub fn kernel(name: &str, offset: u64, length: u64) -> KernelSpec {
    KernelSpec { name: name.into(), offset, length }
}

/// Names, and something that no runtime knows.
pub fn additions() -> [Addition; 2] {
    let nodes = ["conv", "relu"].map(|name| NodeSpec { name: name.into(), operator: "Op".into() }).into();
    let launches = vec![LaunchSpec { kernel: 0, nodes: vec![0] }];
    let names = NamesSpec { nodes, launches, entry: vec![], folded: vec![1] };
    [names.encode().unwrap(), Addition { kind: 77, align: 16, bytes: vec![3; 21] }]
}

pub fn artifact(manifest: &ManifestSpec, weights: &[u8]) -> Vec<u8> {
    let pieces = [Piece { offset: 0, bytes: weights }];
    let code = code_that_succeeds();
    Builder { architecture: host(), manifest, code: &code, additions: &additions(), weights: &pieces }
        .to_bytes()
        .unwrap()
}

/// A model of code in this program.
pub fn model(manifest: &ManifestSpec, entry: EntryFn) -> Model {
    let bytes = manifest.encode(0).unwrap().leak();
    // SAFETY: entries in tests do what their manifest says.
    unsafe { Model::from_parts(bytes, entry, &[]) }.unwrap()
}

/// What compiled code does with its context.
pub struct Run(pub *mut RunContext);

impl Run {
    pub fn input(&self, at: usize) -> TensorSlots {
        unsafe { *((*self.0).inputs as *const TensorSlots).add(at) }
    }

    pub fn output<'a>(&self, at: usize) -> &'a mut TensorSlots {
        unsafe { &mut *((*self.0).outputs as *mut TensorSlots).add(at) }
    }

    pub fn alloc(&self, bytes: i64) -> *mut u8 {
        unsafe { std::mem::transmute::<usize, MemoryFn>((*self.0).fn_alloc as usize)(self.0, bytes) }
    }

    pub fn free(&self, block: *mut u8) {
        let free = unsafe { std::mem::transmute::<usize, numrsc_runtime::context::FreeFn>((*self.0).fn_free as usize) };
        assert!(unsafe { free(self.0, block) }.is_null());
    }

    pub fn arena(&self, bytes: i64) -> *mut u8 {
        unsafe { std::mem::transmute::<usize, MemoryFn>((*self.0).fn_arena as usize)(self.0, bytes) }
    }

    pub fn parallel(&self, kernel: KernelFn, args: &[u64], extent: i64, grain: i64) -> i32 {
        let parallel = unsafe { std::mem::transmute::<usize, ParallelFn>((*self.0).fn_parallel as usize) };
        unsafe { parallel(self.0, kernel, args.as_ptr(), extent, grain) }
    }

    /// Space for an output, as compiled code gets it: what the caller gave if that is enough.
    pub fn room(&self, at: usize, bytes: i64) -> *mut u8 {
        let slots = self.output(at);
        if slots.data == 0 || slots.room < bytes as u64 {
            slots.data = self.alloc(bytes) as u64;
        }
        slots.data as *mut u8
    }
}

pub fn sizes<'a>(slots: TensorSlots, rank: usize) -> &'a mut [i64] {
    unsafe { std::slice::from_raw_parts_mut(slots.sizes as *mut i64, rank) }
}
