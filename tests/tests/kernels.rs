//! Random kernels are good test cases: they verify, read back, run to the end, and use every instruction.
use numrsc_ir::kernel::{self, Axis, Binary, Block, Compare, Convert, Inst, Stmt, Unary, words::Words};
use numrsc_tests::kernels::{Case, Config, random};
use std::collections::BTreeSet;

const SEEDS: u64 = 300;

fn cases(config: Config) -> impl Iterator<Item = (u64, Case)> {
    (0..SEEDS).map(move |seed| (seed, random(seed, &config)))
}

#[test]
fn random_kernels_verify_and_read_back() {
    for (seed, case) in cases(Config { muladd: true, ..Config::default() }) {
        kernel::verify(&case.module).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.module));
        let text = case.module.to_string();
        let again = kernel::parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert!(again == case.module, "seed {seed} reads back otherwise:\n{text}\n{again}");
    }
}

#[test]
fn random_kernels_run() {
    let (mut failed, mut changed) = (0, 0);
    for (seed, case) in cases(Config::default()) {
        let outcome = case.interpret().unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.module));
        failed += u64::from(outcome.code != 0);
        changed += u64::from(outcome.buffers != case.buffers);
        assert_eq!(outcome, case.interpret().unwrap(), "seed {seed}");
    }
    assert!(changed * 10 > SEEDS * 9, "only {changed} of {SEEDS} kernels write");
    assert!(failed * 10 < SEEDS, "{failed} of {SEEDS} kernels fail");
}

#[test]
fn random_kernels_use_everything() {
    let mut used = BTreeSet::new();
    for (_, case) in cases(Config { muladd: true, ..Config::default() }) {
        case.module.functions.iter().for_each(|f| collect(&f.body, &mut used));
    }
    fn words<T: Words>() -> impl Iterator<Item = &'static str> {
        T::ALL.iter().map(|x| x.word())
    }
    let wanted = words::<Unary>().chain(words::<Binary>()).chain(words::<Compare>()).chain(words::<Convert>());
    let forms = "const muladd select splat extract insert shuffle reduce iota load offset buffer call";
    let stmts = "store masked-store masked-load serial unrolled while if fail";
    for word in wanted.chain(forms.split(' ')).chain(stmts.split(' ')) {
        assert!(used.contains(word), "{word} does not occur");
    }
}

#[test]
fn flags_leave_out_what_they_say() {
    let mut used = BTreeSet::new();
    for (_, case) in cases(Config { lanes: 1, calls: false, ..Config::default() }) {
        case.module.functions.iter().for_each(|f| {
            collect(&f.body, &mut used);
            assert!(f.types.iter().all(|ty| ty.lanes == 1));
        });
    }
    assert!(!used.contains("muladd") && !used.contains("call"));
}

fn collect(block: &Block, used: &mut BTreeSet<&'static str>) {
    for stmt in &block.stmts {
        match stmt {
            Stmt::Let { inst, .. } => {
                used.insert(inst.word());
                if let Inst::Load { mask: Some(_), .. } = inst {
                    used.insert("masked-load");
                }
            }
            Stmt::Store { mask, .. } => {
                used.insert(if mask.is_some() { "masked-store" } else { "store" });
            }
            Stmt::For { axis, body, .. } => {
                used.insert(Axis::word(*axis));
                collect(body, used);
            }
            Stmt::While { cond, body, .. } => {
                used.insert("while");
                collect(cond, used);
                collect(body, used);
            }
            Stmt::If { then, or, .. } => {
                used.insert("if");
                collect(then, used);
                collect(or, used);
            }
            Stmt::Fail { .. } => {
                used.insert("fail");
            }
            Stmt::Launch { .. } | Stmt::Barrier => {}
        }
    }
}
