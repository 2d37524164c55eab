//! Kernels as text, run in every order: what they compute, what is found wrong with planted faults, and what is counted.
use numrsc_cuda_emulator::{
    decode::{Class, decode},
    exec::{Global, Launch, Order, Report, What},
    ptx::{Space, parse},
};
use std::collections::HashMap;

const HEAD: &str = ".version 6.5\n.target sm_75\n.address_size 64\n";

/// Bytes that a kernel reads or writes; nothing for memory that was never written.
type Bytes = Option<Vec<u8>>;

/// Run a kernel with buffers, whose addresses are its first parameters, and one number of 32 bits behind them.
fn run(
    body: &str,
    grid: u32,
    threads: u32,
    buffers: &[(usize, Bytes)],
    n: u32,
    order: Order,
) -> (Report, Vec<Vec<u8>>) {
    let params: Vec<String> = (0..buffers.len()).map(|i| format!(".param .u64 p{i}")).collect();
    let text = format!("{HEAD}.visible .entry k({}, .param .u32 n)\n{{\n{body}\n}}\n", params.join(", "));
    let module = parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let program = decode(&module, &module.entries[0]).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut memory = Global::default();
    let allocations: Vec<_> = buffers
        .iter()
        .map(|(bytes, content)| {
            let allocation = memory.allocate(*bytes as u64, false);
            content.iter().for_each(|c| allocation.write(allocation.base, c));
            allocation
        })
        .collect();
    let mut block: Vec<u8> = allocations.iter().flat_map(|a| a.base.to_le_bytes()).collect();
    block.extend(n.to_le_bytes());
    let addresses = HashMap::new();
    let launch = Launch::new(&program, [[grid, 1, 1], [threads, 1, 1]], &block, &addresses, memory.snapshot());
    let report = launch.order(order).limit(100_000).run();
    let contents = allocations.iter().map(|a| {
        let mut bytes = vec![0; a.bytes as usize];
        a.read(a.base, &mut bytes);
        bytes
    });
    (report, contents.collect())
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn ints(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

const ORDERS: [Order; 4] = [Order::Forward, Order::Backward, Order::Shuffled(1), Order::Shuffled(77)];

/// The same results and no findings in all orders.
#[track_caller]
fn right(body: &str, grid: u32, threads: u32, buffers: &[(usize, Bytes)], n: u32, want: &[(usize, Vec<u8>)]) -> Report {
    let mut last = Report::default();
    for order in ORDERS {
        let (report, contents) = run(body, grid, threads, buffers, n, order);
        assert!(report.fault.is_none(), "{order:?}: {}", report.fault.unwrap());
        assert!(report.findings.is_empty(), "{order:?}: {}", report.findings[0]);
        for (i, want) in want {
            assert_eq!(&contents[*i], want, "{order:?}, buffer {i}");
        }
        last = report;
    }
    last
}

/// The first thing that is found in each order.
#[track_caller]
fn wrong(body: &str, grid: u32, threads: u32, buffers: &[(usize, Bytes)], n: u32, is: impl Fn(&What) -> bool) {
    for order in ORDERS {
        let (report, _) = run(body, grid, threads, buffers, n, order);
        let all: Vec<_> = report.findings.iter().chain(&report.fault).collect();
        assert!(all.iter().any(|f| is(&f.what)), "{order:?}: {all:?}");
        assert!(all.iter().all(|f| f.line > 4 && f.kernel == "k"), "{all:?}");
    }
}

/// Declarations, the number of the thread in the grid in `%r1`, and addresses of its word in the first two buffers in `%rd1` and `%rd2`.
const START: &str = "
    .reg .pred %p<8>; .reg .b16 %rs<8>; .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .b64 %rd<16>;
    mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mov.u32 %r12, %tid.x;
    mad.lo.s32 %r1, %r10, %r11, %r12;
    ld.param.u64 %rd10, [p0]; ld.param.u64 %rd11, [p1]; ld.param.u32 %r2, [n];
    mul.wide.u32 %rd12, %r1, 4;
    add.s64 %rd1, %rd10, %rd12; add.s64 %rd2, %rd11, %rd12;
";

#[test]
fn elements_with_a_guard() {
    let body = format!(
        "{START}
        setp.ge.u32 %p1, %r1, %r2;
        @%p1 bra $end;
        ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2];
        fma.rn.f32 %f3, %f1, %f2, 0f3F000000;
        st.global.f32 [%rd1], %f3;
    $end: ret;"
    );
    let (x, y) = ((0..100).map(|i| i as f32 * 0.75), (0..100).map(|i| 3.0 - i as f32));
    let want = floats(x.clone().zip(y.clone()).map(|(x, y)| x.mul_add(y, 0.5)));
    let buffers = [(400, Some(floats(x))), (400, Some(floats(y)))];
    let report = right(&body, 2, 64, &buffers, 100, &[(0, want)]);
    // Four warps; of the last one, four lanes are inside.
    assert_eq!(report.counts.instructions[&Class::Fma], 4);
    assert_eq!((report.counts.requests, report.counts.divergent_branches), (12, 1));
    assert_eq!(report.counts.distinct_sectors, 2 * 13);
    assert_eq!(report.counts.used_bytes, 3 * 400);
}

/// The sum of each row of 128 by shuffles within warps and shared memory between them.
const ROW_SUM: &str = "
    .shared .align 16 .b8 part[16];
    ld.global.f32 %f1, [%rd1];
    shfl.sync.bfly.b32 %r3|%p1, %f1, 16, 31, -1; mov.b32 %f2, %r3; add.rn.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %r3, %f1, 8, 31, -1; mov.b32 %f2, %r3; add.rn.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %r3, %f1, 4, 31, -1; mov.b32 %f2, %r3; add.rn.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %r3, %f1, 2, 31, -1; mov.b32 %f2, %r3; add.rn.f32 %f1, %f1, %f2;
    shfl.sync.bfly.b32 %r3, %f1, 1, 31, -1; mov.b32 %f2, %r3; add.rn.f32 %f1, %f1, %f2;
    and.b32 %r4, %r12, 31; setp.ne.u32 %p2, %r4, 0;
    shr.u32 %r5, %r12, 5; shl.b32 %r6, %r5, 2; mov.u32 %r7, part; add.s32 %r8, %r7, %r6;
    @!%p2 st.shared.f32 [%r8], %f1;
    bar.sync 0;
    setp.ne.u32 %p3, %r12, 0;
    @%p3 bra $end;
    ld.shared.v4.f32 {%f3, %f4, %f5, %f6}, [part];
    add.rn.f32 %f3, %f3, %f4; add.rn.f32 %f5, %f5, %f6; add.rn.f32 %f3, %f3, %f5;
    mul.wide.u32 %rd3, %r10, 4; add.s64 %rd4, %rd11, %rd3;
    st.global.f32 [%rd4], %f3;
$end: ret;";

#[test]
fn rows_are_summed_up_by_blocks() {
    let body = format!("{START}{ROW_SUM}");
    let x = |row: usize| (0..128).map(move |i| ((i * 7 + row * 3) % 11) as f32);
    let want = floats((0..5).map(|row| x(row).sum()));
    let buffers = [(5 * 512, Some(floats((0..5).flat_map(x)))), (20, None)];
    let report = right(&body, 5, 128, &buffers, 0, &[(1, want)]);
    assert_eq!(report.counts.barriers, 5);
    // Without the barrier, the first warp reads what others have not written.
    let raced = body.replace("bar.sync 0;", "");
    wrong(&raced, 5, 128, &buffers, 0, |what| {
        matches!(what, What::Race { space: Space::Shared, .. } | What::Uninitialised { space: Space::Shared, .. })
    });
}

#[test]
fn lanes_that_part_meet_again() {
    // Every thread counts down from its own number, then all of them vote.
    let body = format!(
        "{START}
        mov.u32 %r3, %r12; mov.u32 %r4, 0;
    $loop:
        setp.eq.u32 %p1, %r3, 0;
        @%p1 bra $done;
        add.s32 %r4, %r4, %r3; sub.s32 %r3, %r3, 1;
        bra.uni $loop;
    $done:
        setp.gt.u32 %p2, %r4, 99;
        vote.sync.ballot.b32 %r5, %p2, -1;
        add.s32 %r6, %r4, %r5;
        st.global.u32 [%rd1], %r6;
        ret;"
    );
    let sums: Vec<u32> = (0..32).map(|t| t * (t + 1) / 2).collect();
    let ballot = sums.iter().enumerate().fold(0u32, |b, (i, s)| b | u32::from(*s > 99) << i);
    let want = ints(sums.iter().map(|s| s.wrapping_add(ballot)));
    right(&body, 1, 32, &[(128, None), (0, None)], 0, &[(0, want)]);
}

#[test]
fn atomic_updates_of_all_blocks_add_up() {
    let body = format!(
        "{START}
        rem.u32 %r3, %r1, 5; mul.wide.u32 %rd3, %r3, 4; add.s64 %rd4, %rd10, %rd3;
        atom.global.add.u32 %r4, [%rd4], %r1;
        red.global.max.s32 [%rd11], %r1;
        ret;"
    );
    let want = ints((0..5).map(|r| (0..256).filter(|t| t % 5 == r).sum()));
    let buffers = [(20, Some(ints([0; 5]))), (4, Some(ints([0])))];
    right(&body, 4, 64, &buffers, 0, &[(0, want), (1, ints([255]))]);
    let plain = body.replace("atom.global.add.u32 %r4, [%rd4], %r1;", "st.global.u32 [%rd4], %r1;");
    wrong(&plain, 4, 64, &buffers, 0, |what| matches!(what, What::Race { space: Space::Global, .. }));
}

#[test]
fn narrow_numbers_and_halves() {
    let body = format!(
        "{START}
        ld.global.s8 %r3, [%rd1+1]; ld.global.u8 %r4, [%rd1+1];
        ld.global.b16 %rs1, [%rd1+2];
        cvt.f32.f16 %f1, %rs1; add.rn.f32 %f1, %f1, 0f3F800000; cvt.rn.f16.f32 %rs2, %f1;
        mov.b32 {{%rs3, %rs4}}, %r3;
        cvt.u32.u16 %r5, %rs2; shl.b32 %r6, %r5, 16; and.b32 %r7, %r4, 255; or.b32 %r8, %r6, %r7;
        st.global.u16 [%rd2], %rs3; st.global.u16 [%rd2+2], %rs2;
        ret;"
    );
    // 1.5 in f16 is 0x3e00, 2.5 is 0x4100.
    let buffers = [(128, Some(ints((0..32).map(|_| 0x3e00_8000)))), (128, None)];
    right(&body, 1, 32, &buffers, 0, &[(1, ints((0..32).map(|_| 0x4100_ff80)))]);
}

/// Every planted fault is found, with its line.
#[test]
fn faults_are_found() {
    let global = [(128, Some(ints(0..32))), (128, Some(ints(0..32)))];
    let with = |code: &str| format!("{START}{code}\nret;");
    let out = |w: &What| matches!(w, What::OutOfBounds { space: Space::Global, .. });
    wrong(&with("ld.global.u32 %r3, [%rd1+4];"), 1, 32, &global, 0, out);
    wrong(&with("st.global.u32 [%rd1+-4], %r3;"), 1, 32, &global, 0, out);
    wrong(&with("mov.u64 %rd3, 4096; ld.global.u32 %r3, [%rd3];"), 1, 32, &global, 0, out);
    let misaligned = |w: &What| matches!(w, What::Misaligned { .. });
    wrong(&with("ld.global.u32 %r3, [%rd10+2];"), 1, 1, &global, 0, misaligned);
    wrong(&with("ld.global.v4.u32 {%r3, %r4, %r5, %r6}, [%rd10+4];"), 1, 1, &global, 0, misaligned);
    let undefined = |w: &What| matches!(w, What::Uninitialised { .. });
    wrong(&with("ld.global.u32 %r3, [%rd1];"), 1, 32, &[(128, None), (0, None)], 0, undefined);
    wrong(&with(".shared .b8 s[128]; mov.u32 %r3, s; ld.shared.u32 %r4, [%r3];"), 1, 32, &global, 0, undefined);
    let shared = |w: &What| matches!(w, What::OutOfBounds { space: Space::Shared, .. });
    wrong(&with(".shared .b8 s[128]; mov.u32 %r3, s; ld.shared.u32 %r4, [%r3+128];"), 1, 32, &global, 0, shared);
    let divergent = |w: &What| matches!(w, What::DivergentBarrier);
    wrong(&with("setp.lt.u32 %p1, %r12, 7; @%p1 bar.sync 0;"), 1, 32, &global, 0, divergent);
    wrong(
        &with("setp.lt.u32 %p1, %r12, 7; @%p1 bra $a; bar.sync 0; bra $b; $a: bar.sync 0; $b:"),
        1,
        32,
        &global,
        0,
        divergent,
    );
    let lanes = |w: &What| matches!(w, What::MissingLanes { .. } | What::InactiveLane { .. });
    wrong(&with("setp.lt.u32 %p1, %r12, 7; @%p1 shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;"), 1, 32, &global, 0, lanes);
    wrong(&with("setp.lt.u32 %p1, %r12, 7; @%p1 shfl.sync.bfly.b32 %r3, %r1, 1, 31, 127;"), 1, 32, &global, 0, lanes);
    wrong(&with("shfl.sync.idx.b32 %r3, %r1, 1, 31, -1;"), 1, 20, &global, 0, lanes);
    let race = |w: &What| matches!(w, What::Race { .. });
    wrong(&with("st.global.u32 [%rd10], %r1;"), 1, 32, &global, 0, race);
    wrong(&with("st.global.u32 [%rd10], %r10;"), 2, 1, &global, 0, race);
    wrong(
        &with("ld.global.nc.u32 %r3, [%rd1]; add.s32 %r3, %r3, 1; st.global.u32 [%rd1], %r3;"),
        1,
        32,
        &global,
        0,
        race,
    );
    wrong(&with("trap;"), 1, 32, &global, 0, |w| matches!(w, What::Trap));
    wrong(&with("$l: bra $l;"), 1, 32, &global, 0, |w| matches!(w, What::Endless));
}

/// What several threads write is the same: hardware keeps it, whoever comes last.
#[test]
fn equal_writes_are_no_race() {
    let body = format!("{START} st.global.u32 [%rd10], 7; ret;");
    right(&body, 4, 64, &[(4, None), (0, None)], 0, &[(0, ints([7]))]);
}

/// What is not understood is refused with its line, whatever it is.
#[test]
fn what_is_unknown_is_refused() {
    for (code, part) in [
        ("frobnicate.u32 %r1, %r2;", "`frobnicate.u32` is not supported"),
        ("div.rz.f32 %f1, %f2, %f3;", "rounding"),
        ("add.u32.wild %r1, %r2, %r3;", "not supported"),
        ("ld.global.wild.u32 %r1, [%rd1];", "`.wild`"),
        ("ld.global.u32 %r1, [%q];", "`%q`"),
        ("not.pred;", "a result is missing"),
        ("bra $nowhere;", "no label `$nowhere`"),
        ("call foo;", "not supported"),
        (".local .align 4 .b8 frame[16];", "local memory"),
        ("atom.global.add.f32 %f1, [%rd1], %f2;", "integers"),
        ("bar.sync 0, 32;", "part of a block"),
        ("shfl.down.b32 %r1, %r2, 1, 31;", "without `.sync`"),
    ] {
        let text =
            format!("{HEAD}.entry k()\n{{\n.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>;\n{code}\nret;\n}}");
        let error = parse(&text).and_then(|m| decode(&m, &m.entries[0]).map(drop)).expect_err(code);
        assert!(error.message.contains(part) && error.line == 7, "{code}: {error}");
    }
}

/// Single results of arithmetic, as NVIDIA's assembler folds them from constants, and as PTX defines the rest.
#[test]
fn arithmetic_at_its_edges() {
    for (code, want) in [
        ("add.rn.f32 %f1, 0f7FC12345, 0f3F800000; mov.b32 %r3, %f1;", 0x7fff_ffff),
        ("min.f32 %f1, 0f00000000, 0f80000000; mov.b32 %r3, %f1;", 0x8000_0000),
        ("max.f32 %f1, 0f80000000, 0f00000000; mov.b32 %r3, %f1;", 0),
        ("min.f32 %f1, 0f7FC00000, 0f3F800000; mov.b32 %r3, %f1;", 0x3f80_0000),
        ("mov.f32 %f1, 0f4F32D05E; cvt.rzi.s32.f32 %r3, %f1;", 0x7fff_ffff),
        ("mov.f32 %f1, 0fFFC00000; cvt.rzi.s32.f32 %r3, %f1;", 0),
        ("mov.f32 %f1, 0fBF800000; cvt.rzi.u32.f32 %r3, %f1;", 0),
        ("mov.f32 %f1, 0f40200000; cvt.rni.s32.f32 %r3, %f1;", 2),
        ("mov.f32 %f1, 0fC0200000; cvt.rmi.f32.f32 %f2, %f1; mov.b32 %r3, %f2;", 0xc040_0000),
        ("mov.u32 %r4, 40; shl.b32 %r3, %r4, %r4;", 0),
        ("mov.u32 %r4, 40; mov.u32 %r5, -8; shr.s32 %r3, %r5, %r4;", 0xffff_ffff),
        ("mov.u32 %r4, -7; div.s32 %r3, %r4, 2;", -3i32 as u32),
        ("mov.u32 %r4, -7; rem.s32 %r3, %r4, 2;", -1i32 as u32),
        ("mov.u32 %r4, -7; mul.hi.s32 %r3, %r4, 2;", -1i32 as u32),
        ("mov.u32 %r4, -7; mul.hi.u32 %r3, %r4, 2;", 1),
        ("mov.u32 %r4, -7; abs.s32 %r3, %r4;", 7),
        ("mov.u32 %r4, 0xF0; clz.b32 %r3, %r4;", 24),
        ("mov.u32 %r4, 0xF0; popc.b32 %r3, %r4;", 4),
        ("mov.u32 %r4, 0xF0; brev.b32 %r3, %r4;", 0x0f00_0000),
        ("mov.u32 %r4, 0xF0; bfind.u32 %r3, %r4;", 7),
        ("mov.u32 %r4, 0x89ABCDEF; bfe.u32 %r3, %r4, 8, 12;", 0xbcd),
        ("mov.u32 %r4, 0x89ABCDEF; bfe.s32 %r3, %r4, 24, 8;", 0xffff_ff89),
        ("mov.u32 %r4, 0x89ABCDEF; bfe.s32 %r3, %r4, 28, 30;", 0xffff_fff8),
        ("mov.u32 %r4, 0x89ABCDEF; bfi.b32 %r3, %r4, 0, 4, 8;", 0xef0),
        ("mov.u32 %r4, 0x44332211; prmt.b32 %r3, %r4, 0x88776655, 0x7430;", 0x8855_4411),
        ("mov.u32 %r4, 0x44332211; prmt.b32 %r3, %r4, 0x88776655, 0xF00C;", 0xff11_1100),
        ("mov.u32 %r4, 0xAA; lop3.b32 %r3, %r4, 0xCC, 0xF0, 0xE8;", 0xe8),
        ("mov.u32 %r4, 0xF0000001; shf.l.wrap.b32 %r3, 0x80000000, %r4, 1;", 0xe000_0003),
        ("mov.u32 %r4, 0xFF02FF01; dp4a.s32.u32 %r3, %r4, 0x01020304, 10;", 10 + 4 - 3 + 4 - 1),
        ("mov.u32 %r4, 5; setp.lo.s32 %p1, %r4, -1; selp.b32 %r3, 1, 0, %p1;", 1),
        ("setp.ltu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("setp.lt.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 0),
        ("setp.neu.f32 %p1, 0f7FC00000, 0f7FC00000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("div.rn.f32 %f1, 0f3F800000, 0f00000000; mov.b32 %r3, %f1;", 0x7f80_0000),
        ("sqrt.rn.f32 %f1, 0fBF800000; mov.b32 %r3, %f1;", 0x7fff_ffff),
        ("mul.rn.f32 %f1, 0f00000001, 0f3F000000; mov.b32 %r3, %f1;", 0),
        ("mul.ftz.f32 %f1, 0f00400000, 0f3F800000; mov.b32 %r3, %f1;", 0),
        ("add.sat.f32 %f1, 0f40000000, 0f3F800000; mov.b32 %r3, %f1;", 0x3f80_0000),
        ("mov.u32 %r4, 0x477FE000; mov.b32 %f1, %r4; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r3, %rs1;", 0x7bff),
        ("mov.f32 %f1, 0f477FF000; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r3, %rs1;", 0x7c00),
        ("cvt.rn.f16x2.f32 %r3, 0f40000000, 0f3F800000;", 0x4000_3c00),
        ("mov.u32 %r4, 0x3C003C00; fma.rn.f16x2 %r3, %r4, 0x40003C00, 0x00003C00;", 0x4000_4000),
        ("mov.u32 %r4, 300; cvt.sat.u8.u32 %r3, %r4;", 255),
        ("mov.u32 %r4, 200; cvt.s32.s8 %r3, %r4;", (-56i32) as u32),
    ] {
        let body = format!("{START}{code} st.global.u32 [%rd10], %r3; ret;");
        let (report, contents) = run(&body, 1, 1, &[(4, None), (0, None)], 0, Order::Forward);
        assert!(report.fault.is_none() && report.findings.is_empty(), "{code}: {report:?}");
        assert_eq!(contents[0], ints([want]), "{code}: {:02x?}", contents[0]);
    }
}
