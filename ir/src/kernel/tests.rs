//! The textual form reads back exactly, and the verifier tells every broken rule.
use super::{build::Builder, *};
use crate::Error;
use proptest::prelude::*;

/// Every statement and form of an instruction, in a module that verifies.
const ALL: &str = r#"helper @"1/x"(%0: f64) {
  %1: f64 = const 1
  %2: f64 = fdiv %1, %0
  yield %2
}

kernel @all(%0: i64, %1: i64, %2: i64, %3: ptr, %4: f32, %5: i32) unused (%9: f64x4, %10: ptr) {
  %6: f32x8 = const 0
  %7: f32x8 = splat %4
  %8: i1x8 = lt %6, %7
  %11: f32, %12: i64 = for %13 = %0 to %1 step 8 carry (%14: f32 = %4, %15: i64 = %0) {
    %16: f32x8 = load %3[%13]
    %17: f32x8 = load %3[%13] mask %8
    %18: f32x8 = muladd %16, %17, %7
    store %3[%13], %18 mask %8
    store %3[%13], %18
    %19: f32x8 = select %8, %16, %18
    %20: f32 = reduce fmax %19
    %21: f32 = extract %19, 7
    %22: f32x8 = insert %19, %21, 3
    %23: f32x4 = shuffle %22, %19, [0, 15, 8, 7]
    %24: f32 = reduce add %23
    yield %24, %13
  }
  %25: i64 = while carry (%26: i64 = %12) {
    %27: i64 = const 1000
    %28: i1 = ult %26, %27
    yield %28
  } do {
    %29: i64 = add %26, %26
    yield %29
  }
  %30: i1 = const true
  %31: f64 = if %30 {
    %32: f64 = float %11
    %33: f64 = call @"1/x"(%32)
    yield %33
  } else {
    %34: f64 = const nan#7ff8000000000001
    yield %34
  }
  if %30 {
    fail 7
  }
  %35: ptr = shared f64[16]
  %36: ptr = buffer i64[4]
  for block %37 = %0 to %1 step 1 {
    for thread %38 = %0 to %1 step 1 {
      %39: ptr = offset %35, %25
      store %39[%38], %31
      prefetch %39, %38
      barrier
    }
  }
  %40: i64 = const 0
  %41: i64 = const 4
  for unrolled %42 = %40 to %41 step 2 {
    %43: i64 = pointer %35
    %44: i64x4 = iota
    %45: i64 = reduce xor %44
    store %36[%42], %45
    store %36[%42], %43
  }
  %46: i32 = const -2147483648
  %47: i8 = const -1
  %48: f32 = const -inf
  %49: f32 = const 1e-45
  %50: ptr = const #0
}

entry @main(%0: ptr) {
  %1: i64 = const 1048576
  %2: ptr = host arena(%0, %1)
  %3: f32 = const 0.1
  %4: i32 = const 5
  launch @all(%2, %3, %4) extent %1 grain %1
  %5: ptr = host free(%0, %2)
}
"#;

fn violations(text: &str) -> Vec<String> {
    match verify(&parse(text).expect("the form is right")) {
        Ok(()) => vec![],
        Err(Error::Invalid(told)) => told,
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn everything_reads_back() {
    let module = parse(ALL).unwrap();
    assert_eq!(module.to_string(), ALL);
    assert_eq!(parse(&module.to_string()).unwrap(), module);
    assert_eq!(violations(ALL), [""; 0]);
    // Without the module, functions are numbers, which also read back.
    let alone = module.functions[2].to_string();
    assert!(alone.contains("launch #1(%2, %3, %4)"), "{alone}");
    assert_eq!(parse(&alone).unwrap().functions[0], module.functions[2]);
}

#[test]
fn what_the_builder_makes_reads_back_and_verifies() {
    let mut b = Builder::new(Kind::Kernel, &[Ty::PTR, Ty::PTR]);
    let [begin, end, _, from, to] = *b.params() else { panic!("five parameters") };
    let zero = b.float(Ty::vector(Elem::F32, 8), 0.0);
    b.for_(begin, end, 8, |b, i| {
        let x = b.load(Ty::vector(Elem::F32, 8), from, i);
        let y = b.binary(Binary::FMax, x, zero);
        let _ = b.add(i, i);
        b.store(to, i, y);
    });
    let module = Module { functions: vec![b.finish("relu", vec![])] };
    let text = module.to_string();
    let want = "kernel @relu(%0: i64, %1: i64, %2: i64, %3: ptr, %4: ptr) {
  %5: f32x8 = const 0
  for %6 = %0 to %1 step 8 {
    %7: f32x8 = load %3[%6]
    %8: f32x8 = fmax %7, %5
    store %4[%6], %8
  }
}
";
    assert_eq!(text, want);
    assert_eq!(parse(&text).unwrap(), module);
    verify(&module).unwrap();
}

#[test]
fn constants_keep_their_bits() {
    let ints = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    let longs = [1 << 63, u64::MAX, 0x3ff0_0000_0000_0000, 0x7ff0_0000_0000_0000, 0xfff8_0000_0000_0123, 1];
    let floats = [0x8000_0000u64, 0x7f80_0000, 0x7fc0_0001, 0xffc0_0000, 0x3eaa_aaab, 0x7f7f_ffff, 0x7f80_0001];
    for elem in <Elem as words::Words>::ALL.iter().copied() {
        for bits in ints.into_iter().chain(longs).chain(floats) {
            let out = V(0);
            let body = Block { stmts: vec![Stmt::Let { out, inst: Inst::Const(bits) }], results: vec![out] };
            let types = vec![Ty::scalar(elem)];
            let f = Function { name: "c".into(), kind: Kind::Helper, params: vec![], types, body };
            let module = Module { functions: vec![f] };
            assert_eq!(parse(&module.to_string()).unwrap(), module, "{module}");
        }
    }
}

#[test]
fn errors_tell_where() {
    let told = |text: &str| parse(text).unwrap_err().to_string();
    let body = |line: &str| told(&format!("helper @f(%0: i64) {{\n  {line}\n}}"));
    assert_eq!(told("func"), "line 1, column 1: expected `entry`, `kernel` or `helper`");
    assert_eq!(body("%1: i65 = const 1"), "line 2, column 7: `i65` is not a type");
    assert_eq!(body("%1: i64x1 = const 1"), "line 2, column 7: `i64x1` is not a type");
    assert_eq!(body("%1: i8 = const 128"), "line 2, column 18: `128` is not a constant of type i8");
    assert_eq!(body("%1: f32 = const 1e99"), "line 2, column 19: `1e99` is not a constant of type f32");
    assert_eq!(body("%1: f32 = const nan"), "line 2, column 19: `nan` is not a constant of type f32");
    assert_eq!(body("%1: f32 = const nan#1"), "line 2, column 19: `nan#1` is not a constant of type f32");
    assert_eq!(body("%1: i64 = plus %0, %0"), "line 2, column 13: `plus` is not an instruction");
    assert_eq!(body("%0: i64 = const 1"), "line 2, column 3: %0 is defined twice");
    assert_eq!(
        body("%1: i64, %2: i64 = const 1"),
        "line 2, column 22: only `for`, `while` and `if` give several values"
    );
    assert_eq!(body("%1: i64 = call @g(%0)"), "line 2, column 18: there is no function `g`");
    assert_eq!(body("for sideways %1 = %0 to %0 step 1 { }"), "line 2, column 7: `sideways` is not an axis");
    assert_eq!(body("yield %0 yield %0"), "line 2, column 12: expected `}`");
    assert_eq!(body("jump"), "line 2, column 3: `jump` is not a statement");
    assert_eq!(body("%4000000000: i64 = const 1"), "line 1, column 1: %1 is neither defined nor listed as unused");
    assert_eq!(told("entry @a() {}\nentry @a() {}"), "line 2, column 1: there are two functions `a`");
    assert_eq!(told("entry @a() {"), "line 1, column 13: expected a word");
    let deep = format!("entry @a(%0: i1) {{ {}", "if %0 { ".repeat(100_000));
    assert!(told(&deep).contains("nested too deeply"));
}

#[test]
fn scopes_are_kept() {
    assert_eq!(
        violations(
            "kernel @f(%0: i64, %1: i64, %2: i64) {
                for %3 = %0 to %1 step 1 { %4: i64 = const 1 }
                %5: i64 = add %4, %6
                %6: i64 = const 1
                %7: i64 = while carry (%8: i64 = %6) { %9: i1 = lt %8, %3 yield %9 } do { %10: i64 = zext %9 yield %10 }
                if %9 { } else { %11: i64 = add %8, %99 }
            }"
        ),
        [
            "@f %5 (add): %4 is defined in a block that has ended",
            "@f %9 (lt): %3 is defined in a block that has ended",
            "@f %10 (zext): %9 is defined in a block that has ended",
            "@f if %9: %9 is defined in a block that has ended",
            "@f %11 (add): %8 is defined in a block that has ended",
        ]
    );
    // The parser refuses a second definition; a module made otherwise is refused here.
    let mut module = parse("helper @f(%0: i64) { %1: i64 = const 1 yield %1 }").unwrap();
    let again = module.functions[0].body.stmts[0].clone();
    module.functions[0].body.stmts.push(again);
    module.functions[0].params.push(V(7));
    let told = verify(&module).unwrap_err().to_string();
    assert!(told.contains("@f %1 (const): %1 is defined twice"), "{told}");
    assert!(told.contains("@f %7: %7 has no type"), "{told}");
}

#[test]
fn kinds_have_their_signatures() {
    assert_eq!(
        violations(
            "entry @e(%0: i64) { yield %0 }
            kernel @k(%0: i64, %1: i64, %2: i32) { launch @k() extent %0 grain %0 }
            kernel @b(%0: i64, %1: i64, %2: i64, %3: i1) { fail 0 }
            helper @h(%0: i64) { fail 1 barrier for thread %1 = %0 to %0 step 1 { } %2: ptr = shared i8[1] }
            entry @g(%0: ptr) {
              %1: i64 = const 0
              launch @h(%1) extent %1 grain %1
              %2: i64 = call @b(%1)
              %3: f32 = call @i(%1)
              %4: i64 = call @i(%0)
              launch @l(%1) extent %0 grain %1
              launch @l() extent %1 grain %1
            }
            kernel @l(%0: i64, %1: i64, %2: i64, %3: i64) { }
            helper @i(%0: i64) { %1: i64 = call @j(%0) yield %1 }
            helper @j(%0: i64) { %1: i64 = call @i(%0) yield %1 }"
        ),
        [
            "@e parameters: an entry takes one ptr",
            "@e yield: only a helper yields a value",
            "@k parameters: a kernel takes begin, end and worker, each i64, before its own parameters",
            "@k launch #1: only an entry launches kernels",
            "@b parameters: a kernel cannot take i1, which does not have a slot's form",
            "@b fail 0: a code is a positive i32",
            "@h fail 1: a helper cannot fail",
            "@h barrier: only kernels have barriers",
            "@h for %1: only kernels have the axis `thread`",
            "@h %2 (shared): only kernels have threads to share a buffer",
            "@h yield: a helper yields one value, this one 0",
            "@g launch #3: @h is a helper, expected a kernel",
            "@g %2 (call): @b is a kernel, expected a helper",
            "@g %3 (call): is f32, the instruction gives i64",
            "@g %4 (call): %0 is ptr, expected i64",
            "@g launch #5: %0 is ptr, expected i64",
            "@g launch #5: 0 arguments, expected 1",
            "@j: calls itself",
        ]
    );
}

#[test]
fn loops_have_their_types() {
    assert_eq!(
        violations(
            "helper @f(%0: i64, %1: f32, %2: i1) {
              for %3 = %0 to %1 step 1 { }
              for %4 = %0 to %0 step 0 { }
              for unrolled %5 = %0 to %0 step 1 { }
              %6: i64 = for %7 = %0 to %0 step 1 carry (%8: f32 = %0) { yield %1 }
              %9: i64 = for %10 = %0 to %0 step 1 carry (%11: i64 = %0) { }
              %12: i64 = while carry (%13: i64 = %0) { yield %0 } do { yield %1 }
              %14: i64 = if %2 { yield %0 } else { yield %1 }
              if %0 { }
              while { } do { }
              yield %0
            }"
        ),
        [
            "@f for %3: %1 is f32, expected i64",
            "@f for %4: the step 0 is not positive",
            "@f for %5: the bound %0 of an unrolled loop is not a constant",
            "@f for %7: %0 is i64, expected f32",
            "@f for %7: %6 is i64, expected f32",
            "@f for %10: 0 values yielded, expected 1",
            "@f while carrying %13: %0 is i64, expected i1",
            "@f while carrying %13: %1 is f32, expected i64",
            "@f if %2: %1 is f32, expected i64",
            "@f if %0: %0 is i64, expected i1",
            "@f while: 0 values yielded, expected 1",
        ]
    );
    let threads = "kernel @f(%0: i64, %1: i64, %2: i64) {
        %3: i64 = for thread %4 = %0 to %1 step 1 carry (%5: i64 = %0) { yield %5 } }";
    assert_eq!(violations(threads), ["@f for %4: rounds that run at the same time carry nothing"]);
}

/// Each instruction with something wrong about it.
#[test]
fn instructions_have_their_types() {
    let cases = [
        ("%9: i8 = const #100", "the bits 0x100 are more than i8 has"),
        ("%9: i64x3 = const 0", "3 lanes are not a power of two up to 256"),
        ("%9: ptrx2 = const #0", "there are no vectors of pointers"),
        ("%9: i64 = sqrt %0", "takes floats, got i64"),
        ("%9: i1 = neg %2", "takes integers and floats, got i1"),
        ("%9: f32 = not %1", "takes integers and i1, got f32"),
        ("%9: f32 = add %0, %0", "is f32, the instruction gives i64"),
        ("%9: i64 = add %0, %1", "%1 is f32, expected i64"),
        ("%9: i1 = add %2, %2", "takes integers and floats, got i1"),
        ("%9: i64 = fmin %0, %0", "takes floats, got i64"),
        ("%9: f32 = shl %1, %1", "takes integers, got f32"),
        ("%9: ptr = add %4, %4", "takes integers and floats, got ptr"),
        ("%9: i64 = muladd %0, %0, %0", "takes floats, got i64"),
        ("%9: i64 = lt %0, %0", "is i64, the instruction gives i1"),
        ("%9: i1 = ult %1, %1", "takes integers, got f32"),
        ("%9: i1 = lt %2, %2", "takes integers and floats, got i1"),
        ("%9: i1 = le %4, %4", "takes integers and floats, got ptr"),
        ("%9: f32x4 = select %2, %3, %3", "%2 is i1, expected i1x4"),
        ("%9: i32 = sext %0", "does not convert i64 to i32"),
        ("%9: i64 = bits %1", "does not convert f32 to i64"),
        ("%9: i64 = bits %4", "does not convert ptr to i64"),
        ("%9: ptr = pointer %1", "does not convert f32 to ptr"),
        ("%9: i1 = ftos %1", "does not convert f32 to i1"),
        ("%9: f64 = float %3", "does not convert f32x4 to f64"),
        ("%9: f32 = splat %1", "f32 is not a vector"),
        ("%9: f32x4 = splat %0", "%0 is i64, expected f32"),
        ("%9: f32 = extract %3, 4", "there is no lane 4"),
        ("%9: f32 = extract %1, 0", "f32 is not a vector"),
        ("%9: f32x4 = insert %3, %1, 4", "there is no lane 4"),
        ("%9: f32x2 = shuffle %3, %3, [0, 8]", "there is no lane 8"),
        ("%9: f32x4 = shuffle %3, %3, [0, 1]", "is f32x4, the instruction gives f32x2"),
        ("%9: f32 = reduce sub %3", "`sub` does not combine lanes in any order"),
        ("%9: f32 = reduce smax %3", "takes integers, got f32x4"),
        ("%9: i1x4 = iota", "takes integers and floats, got i1x4"),
        ("%9: i1 = load %4[%0]", "i1 is never in memory"),
        ("%9: f32 = load %0[%0]", "%0 is i64, expected ptr"),
        ("%9: f32x4 = load %4[%0] mask %2", "%2 is i1, expected i1x4"),
        ("%9: ptr = offset %4, %1", "%1 is f32, expected i64"),
        ("%9: ptr = buffer i1[3]", "i1 is never in memory"),
        ("%9: ptr = buffer i8[0]", "the buffer is empty"),
        ("%9: i64 = call #7()", "there is no function #7"),
        ("%9: ptr = host alloc(%4)", "1 arguments, expected 2"),
        ("%9: ptr = host free(%4, %0)", "%0 is i64, expected ptr"),
    ];
    for (line, want) in cases {
        let told = violations(&format!(
            "helper @f(%0: i64, %1: f32, %2: i1, %3: f32x4, %4: ptr) unused (%5: i64, %6: i64, %7: i64, %8: i64) {{
              {line}
              yield %0
            }}"
        ));
        assert!(told.iter().any(|t| t.starts_with("@f %9") && t.ends_with(want)), "{line}: {told:?}");
    }
    let stores = [("store %1[%0], %0", "%1 is i1, expected ptr"), ("store %2[%0], %1", "i1 is never in memory")];
    for (line, want) in stores {
        let told = violations(&format!("helper @f(%0: i64, %1: i1, %2: ptr) {{ {line} yield %0 }}"));
        assert!(told.len() == 1 && told[0].ends_with(want), "{line}: {told:?}");
    }
}

#[test]
fn names_are_unique() {
    let mut module = parse("entry @a(%0: ptr) { }").unwrap();
    module.functions.push(module.functions[0].clone());
    module.functions.push(Function { name: String::new(), ..module.functions[0].clone() });
    let told = verify(&module).unwrap_err().to_string();
    assert!(told.contains("@a: has the name of another function") && told.contains("has no name"), "{told}");
}

proptest! {
    /// Whatever the text, reading it ends in a module or an error.
    #[test]
    fn any_text_is_read_or_refused(pieces in prop::collection::vec((0usize..400, 0usize..40, ".{0,3}"), 1..6)) {
        let mut text = ALL.to_string();
        for (at, length, with) in pieces {
            let mut places = text.char_indices().map(|c| c.0).chain([text.len()]).collect::<Vec<_>>();
            places.dedup();
            let from = places[(at * 7) % places.len()];
            let to = places[((at * 7) % places.len() + length).min(places.len() - 1)];
            text.replace_range(from..to, &with);
        }
        if let Ok(module) = parse(&text) {
            let again = parse(&module.to_string());
            prop_assert_eq!(again.as_ref(), Ok(&module));
            let _ = verify(&module);
        }
    }
}
