//! What each part of the kernel IR means.
use super::run::{Failure, Filled, Output, run};
use super::*;
use crate::kernel::parse;

fn module(text: &str) -> Module {
    parse(text).unwrap()
}

/// The scalar result of a helper's body over the given arguments.
fn helper(params: &str, body: &str, args: &[&[u64]]) -> Result<Vec<u64>, Trap> {
    let module = module(&format!("helper @f({params}) {{ {body} }}"));
    Machine::new(&module).unwrap().run_helper(FuncId(0), args)
}

fn binary(op: &str, ty: &str, x: u64, y: u64) -> Result<u64, Trap> {
    let args: [&[u64]; 2] = [&[x], &[y]];
    Ok(helper(&format!("%0: {ty}, %1: {ty}"), &format!("%2: {ty} = {op} %0, %1 yield %2"), &args)?[0])
}

fn single(x: f32) -> u64 {
    u64::from(x.to_bits())
}

#[test]
fn integers_wrap() {
    assert_eq!(binary("add", "i8", 0xff, 2), Ok(1));
    assert_eq!(binary("sub", "i16", 0, 1), Ok(0xffff));
    assert_eq!(binary("mul", "i64", u64::MAX, 5), Ok(5u64.wrapping_neg()));
    assert_eq!(binary("sdiv", "i8", 0xf9, 2), Ok(0xfd));
    assert_eq!(binary("srem", "i8", 0xf9, 2), Ok(0xff));
    assert_eq!(binary("udiv", "i8", 0xf9, 2), Ok(0x7c));
    assert_eq!(binary("smin", "i32", 0xffff_ffff, 1), Ok(0xffff_ffff));
    assert_eq!(binary("umin", "i32", 0xffff_ffff, 1), Ok(1));
    assert_eq!(binary("shl", "i8", 0x81, 1), Ok(2));
    assert_eq!(binary("lshr", "i8", 0x81, 1), Ok(0x40));
    assert_eq!(binary("ashr", "i8", 0x81, 1), Ok(0xc0));
}

#[test]
fn what_is_left_open_traps() {
    let told = |r: Result<u64, Trap>| r.unwrap_err().to_string();
    assert_eq!(told(binary("sdiv", "i8", 1, 0)), "@f %2 (sdiv): division by zero");
    assert_eq!(told(binary("urem", "i64", 1, 0)), "@f %2 (urem): division by zero");
    assert_eq!(told(binary("sdiv", "i16", 0x8000, 0xffff)), "@f %2 (sdiv): division of the least number by -1");
    assert_eq!(told(binary("ashr", "i32", 1, 32)), "@f %2 (ashr): shift by 32, but the width is 32");
}

#[test]
fn floats_follow_the_ir() {
    let nan = single(f32::NAN);
    assert_eq!(binary("fmin", "f32", nan, single(1.0)), Ok(single(1.0)));
    assert_eq!(binary("fmax", "f32", single(1.0), nan), Ok(nan));
    assert_eq!(binary("fmin", "f32", single(0.0), single(-0.0)), Ok(single(-0.0)));
    assert_eq!(binary("fmax", "f32", single(0.0), single(-0.0)), Ok(single(-0.0)));
    let round = |x: f32| helper("%0: f32", "%1: f32 = round %0 yield %1", &[&[single(x)]]).unwrap()[0];
    assert_eq!([round(0.5), round(1.5), round(-0.5)], [single(0.0), single(2.0), single(-0.0)]);
    let x = 1.0 + f32::EPSILON;
    let args: [&[u64]; 3] = [&[single(x)], &[single(x)], &[single(-x * x)]];
    let fused = helper("%0: f32, %1: f32, %2: f32", "%3: f32 = muladd %0, %1, %2 yield %3", &args).unwrap();
    assert_eq!(fused, [single(f32::EPSILON * f32::EPSILON)]);
}

#[test]
fn conversions_follow_the_ir() {
    let convert = |op: &str, from: &str, to: &str, x: u64| {
        helper(&format!("%0: {from}"), &format!("%1: {to} = {op} %0 yield %1"), &[&[x]]).unwrap()[0]
    };
    assert_eq!(convert("sext", "i1", "i8", 1), 0xff);
    assert_eq!(convert("zext", "i1", "i8", 1), 1);
    assert_eq!(convert("stof", "i1", "f32", 1), single(-1.0));
    assert_eq!(convert("utof", "i8", "f32", 0xff), single(255.0));
    assert_eq!(convert("stof", "i64", "f32", (1 << 24) + 1), single(16_777_216.0));
    assert_eq!(convert("narrow", "i64", "i1", 3), 1);
    assert_eq!(convert("ftos", "f32", "i8", single(-200.0)), 0x80);
    assert_eq!(convert("ftos", "f32", "i64", single(f32::NAN)), 0);
    assert_eq!(convert("ftou", "f64", "i16", (-1.5f64).to_bits()), 0);
    assert_eq!(convert("ftou", "f64", "i32", 1e20f64.to_bits()), 0xffff_ffff);
    assert_eq!(convert("float", "f64", "f32", 0.1f64.to_bits()), single(0.1));
    assert_eq!(convert("bits", "f32", "i32", single(1.0)), 0x3f80_0000);
}

#[test]
fn lanes_move() {
    let lanes: &[u64] = &[10, 20, 30, 40];
    let run = |body: &str| helper("%0: i64x4", body, &[lanes]).unwrap();
    assert_eq!(run("%1: i64 = extract %0, 2 yield %1"), [30]);
    assert_eq!(run("%1: i64 = const 7 %2: i64x4 = insert %0, %1, 1 yield %2"), [10, 7, 30, 40]);
    assert_eq!(run("%1: i64x4 = iota %2: i64x2 = shuffle %0, %1, [3, 5] yield %2"), [40, 1]);
    assert_eq!(run("%1: i64 = reduce add %0 yield %1"), [100]);
    assert_eq!(
        run("%1: i64x4 = const 25 %2: i1x4 = lt %0, %1 %3: i64x4 = select %2, %1, %0 yield %3"),
        [25, 25, 30, 40]
    );
}

/// The lower half with the upper half: (1e8 + -1e8) + (1 + 1), not from left to right.
#[test]
fn reductions_halve() {
    let lanes = [1e8, 1.0, -1e8, 1.0].map(single);
    assert_eq!(helper("%0: f32x4", "%1: f32 = reduce add %0 yield %1", &[&lanes]).unwrap(), [single(2.0)]);
}

#[test]
fn carried_values_move_at_once() {
    let fibonacci = "%1: i64 = const 0 %2: i64 = const 1
        %3: i64, %4: i64 = for %5 = %1 to %0 step 1 carry (%6: i64 = %1, %7: i64 = %2) {
          %8: i64 = add %6, %7
          yield %7, %8
        }
        yield %3";
    assert_eq!(helper("%0: i64", fibonacci, &[&[10]]).unwrap(), [55]);
    assert_eq!(helper("%0: i64", fibonacci, &[&[0]]).unwrap(), [0]);
    let collatz = "%1: i64 = const 0 %2: i64 = const 1 %3: i64 = const 3
        %4: i64, %5: i64 = while carry (%6: i64 = %0, %7: i64 = %1) {
          %8: i1 = ne %6, %2
          yield %8
        } do {
          %9: i64 = and %6, %2
          %10: i1 = eq %9, %2
          %11: i64 = if %10 {
            %12: i64 = mul %6, %3
            %13: i64 = add %12, %2
            yield %13
          } else {
            %14: i64 = lshr %6, %2
            yield %14
          }
          %15: i64 = add %7, %2
          yield %11, %15
        }
        yield %5";
    assert_eq!(helper("%0: i64", collatz, &[&[27]]).unwrap(), [111]);
}

#[test]
fn memory_has_bounds() {
    let module = module(
        "kernel @copy(%0: i64, %1: i64, %2: i64, %3: ptr, %4: ptr) {
          for %5 = %0 to %1 step 1 {
            %6: i32 = load %3[%5]
            store %4[%5], %6
          }
        }",
    );
    let mut machine = Machine::new(&module).unwrap();
    let from = machine.alloc_fixed(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let to = machine.alloc(8).unwrap();
    let mut copy = |begin, end, from: Pointer, to: Pointer| {
        machine.run_kernel(FuncId(0), begin, end, 0, &[from.0, to.0]).map_err(|t| t.to_string())?;
        Ok(machine.read(to, 8).unwrap())
    };
    let told = |text: &str| Err(text.to_string());
    assert_eq!(copy(0, 2, from, to), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(copy(0, 3, from, to), told("@copy %6 (load): 4 bytes at byte 8 of region 1, which has 8 bytes"));
    assert_eq!(copy(-1, 3, from, to), told("@copy %6 (load): 4 bytes at byte -4 of region 1, which has 8 bytes"));
    assert_eq!(
        copy(0, 1, from.offset(2), to),
        told("@copy %6 (load): 4 bytes at byte 2 of region 1, which is misaligned")
    );
    assert_eq!(copy(0, 1, Pointer::NULL, to), told("@copy %6 (load): 4 bytes at null, which is not memory"));
    assert_eq!(
        copy(0, 1, to, from),
        told("@copy store %4[%5], %6: 4 bytes at byte 0 of region 1, which may only be read")
    );
    // A pointer may leave its region as long as nothing is read there.
    assert_eq!(
        copy(2, 4, from.offset(-8), to),
        told("@copy store %4[%5], %6: 4 bytes at byte 8 of region 2, which has 8 bytes")
    );
    assert_eq!(machine.run_kernel(FuncId(0), 2, 4, 0, &[from.offset(-8).0, to.offset(-8).0]), Ok(0));
}

#[test]
fn masks_keep_out_of_memory() {
    let module = module(
        "kernel @tail(%0: i64, %1: i64, %2: i64, %3: ptr) {
          %4: i64x4 = iota
          %5: i64x4 = splat %1
          %6: i1x4 = lt %4, %5
          %7: i64x4 = load %3[%0] mask %6
          %8: i64x4 = add %7, %5
          store %3[%0], %8 mask %6
        }",
    );
    let mut machine = Machine::new(&module).unwrap();
    let at = machine.alloc(16).unwrap();
    assert_eq!(machine.run_kernel(FuncId(0), 0, 2, 0, &[at.0]), Ok(0));
    assert_eq!([machine.slot(at, 0), machine.slot(at, 1)], [Ok(2), Ok(2)]);
    assert!(machine.run_kernel(FuncId(0), 0, 3, 0, &[at.0]).is_err());
}

#[test]
fn endless_loops_end() {
    let endless = module("helper @f() { %0: i1 = const true while { yield %0 } do { } yield %0 }");
    let mut machine = Machine::new(&endless).unwrap();
    machine.fuel = 1000;
    assert_eq!(
        machine.run_helper(FuncId(0), &[]).unwrap_err().to_string(),
        "@f statement: out of fuel: this may never end"
    );
    let overflow = "%1: i64 = const 9223372036854775807
        for %2 = %0 to %1 step 9223372036854775800 { } yield %0";
    let overflow = helper("%0: i64", overflow, &[&[100]]);
    assert_eq!(overflow.unwrap_err().to_string(), "@f for %2: the variable overflows");
}

#[test]
fn deep_calls_trap() {
    let mut text = String::from("helper @f0(%0: i64) { yield %0 }");
    for i in 1..5000 {
        text += &format!("helper @f{i}(%0: i64) {{ %1: i64 = call @f{}(%0) yield %1 }}", i - 1);
    }
    let module = module(&text);
    let mut machine = Machine::new(&module).unwrap();
    assert_eq!(machine.run_helper(FuncId(100), &[&[5]]), Ok(vec![5]));
    assert!(machine.run_helper(FuncId(4999), &[&[5]]).unwrap_err().to_string().contains("inside each other"));
    assert_eq!(machine.run_helper(FuncId(100), &[&[5]]), Ok(vec![5]));
}

#[test]
fn buffers_belong_to_the_call() {
    let module = module(
        "helper @f(%0: i64) {
          %1: ptr = buffer i64[2]
          %2: i64 = const 0
          store %1[%2], %0
          %3: i64 = pointer %1
          yield %3
        }
        helper @g(%0: i64) {
          %1: i64 = call @f(%0)
          %2: ptr = pointer %1
          %3: i64 = const 0
          %4: i64 = load %2[%3]
          yield %4
        }",
    );
    let told = Machine::new(&module).unwrap().run_helper(FuncId(1), &[&[5]]).unwrap_err().to_string();
    assert!(told.starts_with("@g %4 (load)") && told.ends_with("which was given back"), "{told}");
}

#[test]
fn the_host_gives_memory_and_takes_it_back() {
    let module = module(
        "entry @f(%0: ptr) {
          %1: i64 = const 64
          %2: ptr = host alloc(%0, %1)
          %3: i64 = const 7
          store %2[%3], %3
          %4: ptr = host arena(%0, %3)
          %5: i64 = const 0
          store %4[%5], %5
        }",
    );
    let mut machine = Machine::new(&module).unwrap();
    let told = machine.run_entry(FuncId(0), Pointer::NULL).unwrap_err().to_string();
    assert_eq!(told, "@f store %4[%5], %5: 8 bytes at byte 0 of region 2, which has 7 bytes");
    let grow = parse(
        "entry @f(%0: ptr) {
          %1: i64 = const 8
          %2: ptr = host arena(%0, %1)
          %3: i64 = const 0
          store %2[%3], %1
          %4: i64 = const 1024
          %5: ptr = host arena(%0, %4)
          %6: i64 = load %5[%3]
          %7: i1 = eq %6, %1
          if %7 { %8: i64 = load %5[%1] } else { fail 3 }
          %9: i64 = const -1
          %10: ptr = host alloc(%0, %9)
          %11: ptr = const #0
          %12: i1 = eq %10, %11
          if %12 { } else { fail 4 }
          %13: ptr = host alloc(%0, %1)
          %14: ptr = host free(%0, %13)
          %15: ptr = host free(%0, %13)
        }",
    )
    .unwrap();
    let told = Machine::new(&grow).unwrap().run_entry(FuncId(0), Pointer::NULL).unwrap_err().to_string();
    assert!(told.starts_with("@f %15 (host)") && told.ends_with("is given back twice"), "{told}");
}

/// Each part notes its worker and length.
const PARTS: &str = "kernel @part(%0: i64, %1: i64, %2: i64, %3: ptr) {
      %4: i64 = sub %1, %0
      store %3[%0], %4
      %5: i64 = const 1
      %6: i64 = add %0, %5
      store %3[%6], %2
      %7: i64 = const 9
      %8: i1 = eq %1, %7
      if %8 { fail 5 }
    }
    entry @f(%0: ptr) {
      %1: i64 = const 0
      %2: i64 = load %0[%1]
      %3: i64 = const 2
      %4: i64 = const 8
      %5: ptr = offset %0, %4
      launch @part(%5) extent %2 grain %3
    }";

#[test]
fn launches_are_split() {
    let module = module(PARTS);
    let mut machine = Machine::new(&module).unwrap();
    (machine.threads, machine.parts) = (2, 3);
    let ctx = machine.alloc(200).unwrap();
    let mut launch = |extent: i64| {
        machine.write(ctx, &[0; 200]).unwrap();
        machine.write(ctx, &extent.to_le_bytes()).unwrap();
        let code = machine.run_entry(FuncId(1), ctx).map_err(|t| t.to_string())?;
        Ok::<_, String>((code, (1..13).map(|i| machine.slot(ctx, i).unwrap()).collect::<Vec<_>>()))
    };
    assert_eq!(launch(12).unwrap(), (0, vec![4, 0, 0, 0, 4, 1, 0, 0, 4, 0, 0, 0]));
    // The grain makes parts of at least 2.
    assert_eq!(launch(3).unwrap(), (0, vec![2, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(launch(0).unwrap(), (0, vec![0; 12]));
    // A kernel that fails does so for the entry.
    assert_eq!(launch(9).unwrap().0, 5);
    assert_eq!(launch(-1).unwrap_err(), "@f launch: over 0..-1 in parts of at least 2");
}

/// Threads reverse a row of 4 by a shared buffer, again and again: without barriers in step, some read what is not yet there.
#[test]
fn threads_meet_at_barriers() {
    let text = "kernel @f(%0: i64, %1: i64, %2: i64, %3: ptr) {
      %4: ptr = shared i64[4]
      %5: i64 = const 0
      %6: i64 = const 4
      %7: i64 = const 3
      for block %8 = %0 to %1 step 1 {
        %9: i64 = mul %8, %6
        for thread %10 = %5 to %6 step 1 {
          %11: i64 = add %9, %10
          for %12 = %5 to %7 step 1 {
            %13: i64 = load %3[%11]
            store %4[%10], %13
            barrier
            %14: i64 = sub %7, %10
            %15: i64 = load %4[%14]
            store %3[%11], %15
            barrier
          }
        }
      }
    }";
    let reverse = module(text);
    let mut machine = Machine::new(&reverse).unwrap();
    let at = machine.alloc(64).unwrap();
    let numbers: Vec<u8> = (0..8u64).flat_map(u64::to_le_bytes).collect();
    machine.write(at, &numbers).unwrap();
    assert_eq!(machine.run_kernel(FuncId(0), 0, 2, 0, &[at.0]), Ok(0));
    let got: Vec<u64> = (0..8).map(|i| machine.slot(at, i).unwrap()).collect();
    assert_eq!(got, [3, 2, 1, 0, 7, 6, 5, 4]);

    let apart = module(&text.replace("for %12 = %5 to %7", "for %12 = %5 to %10"));
    let told = Machine::new(&apart).unwrap().run_kernel(FuncId(0), 0, 1, 0, &[at.0]).unwrap_err().to_string();
    assert_eq!(told, "@f barrier: threads part at %10, which decides whether they come here");
}

#[test]
fn entries_run_on_tensors() {
    // output[i] = input[i] + weight, with the size of the input.
    let text = "kernel @add(%0: i64, %1: i64, %2: i64, %3: ptr, %4: ptr, %5: f32) {
        for %6 = %0 to %1 step 1 {
          %7: f32 = load %3[%6]
          %8: f32 = add %7, %5
          store %4[%6], %8
        }
      }
      entry @main(%0: ptr) {
        %1: i64 = const 0
        %2: i64 = const 1
        %3: i64 = const 3
        %4: i64 = const 4
        %5: ptr = load %0[%1]
        %6: f32 = load %5[%1]
        %7: ptr = load %0[%3]
        %8: ptr = load %0[%4]
        %9: ptr = load %7[%2]
        %10: i64 = load %9[%1]
        %11: ptr = load %8[%2]
        store %11[%1], %10
        %12: ptr = load %7[%1]
        %13: ptr = load %8[%1]
        %14: i64 = const 2
        %15: i64 = load %8[%14]
        %16: i64 = mul %10, %4
        %17: i1 = le %16, %15
        if %17 { } else { fail 2 }
        launch @add(%12, %13, %6) extent %10 grain %2
      }";
    let module = module(text);
    let floats = |x: &[f32]| x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let input = floats(&[1.0, 2.0, 3.0]);
    let go = |output| run(&module, &floats(&[0.5]), &[(&input, &[3])], &[output], 2);
    let want = Filled { sizes: vec![3], bytes: floats(&[1.5, 2.5, 3.5]) };
    assert_eq!(go(Output::new(1, 4)), Ok(vec![want]));
    assert_eq!(go(Output { room: 8, ..Output::new(1, 4) }), Err(Failure::Code(2)));
    let told = run(&module, &[], &[(&input, &[3])], &[Output::new(1, 4)], 2).unwrap_err().to_string();
    assert!(told.starts_with("@main %6 (load): "), "{told}");
}
