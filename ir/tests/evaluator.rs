//! What every core op means, by small examples: the text of a function and data in, data or an error out.
use numrsc_ir::{DType, Data, Elems, Env, Op, Tensor, eval, eval_op, parse};

/// A tensor from its text: `f32[2](1.0, 2.0)`.
fn t(text: &str) -> Data {
    let ty = &text[..=text.find(']').unwrap()];
    let f = parse(&format!("func() {{ %0 = const {{value={text}}} : {ty} return %0 }}")).unwrap();
    eval(&f, &[]).unwrap().remove(0)
}

/// Run a function given by its body; operands are written as tensors.
fn run(args: &[&str], ops: &str) -> Result<Vec<Data>, String> {
    let types: Vec<&str> = args.iter().map(|a| &a[..=a.find(']').unwrap()]).collect();
    let params: Vec<String> = types.iter().enumerate().map(|(i, t)| format!("%{i}: {t}")).collect();
    let data: Vec<Data> = args.iter().map(|a| t(a)).collect();
    call(&format!("func({}) {{ {ops} }}", params.join(", ")), &data)
}

fn call(text: &str, args: &[Data]) -> Result<Vec<Data>, String> {
    let f = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    eval(&f, args).map_err(|e| e.to_string())
}

/// One op over tensors gives a tensor.
fn check(args: &[&str], op: &str, want: &str) {
    let (name, attrs) = op.split_once(' ').unwrap_or((op, "{}"));
    let operands: Vec<String> = (0..args.len()).map(|i| format!("%{i}")).collect();
    let ty = &want[..=want.find(']').unwrap()];
    let n = args.len();
    let got = run(args, &format!("%{n} = {name} {} {attrs} : {ty} return %{n}", operands.join(", ")));
    let got = got.unwrap_or_else(|e| panic!("{op}: {e}"));
    let (got, want) = (got[0].as_tensor().unwrap(), t(want));
    let want = want.as_tensor().unwrap();
    // NaNs compare by being NaNs.
    assert_eq!(format!("{got:?}"), format!("{want:?}"), "{op}");
}

/// Sizes that only run time knows: the parameters have symbolic types.
fn fails(params: &str, args: &[&str], ops: &str, message: &str) {
    let data: Vec<Data> = args.iter().map(|a| t(a)).collect();
    let error = call(&format!("func({params}) {{ {ops} }}"), &data).unwrap_err();
    assert!(error.contains(message), "`{error}` does not say `{message}`");
}

#[test]
fn sources() {
    check(&[], "iota {dtype=i64, shape=[2, 3], axis=1}", "i64[2, 3](0, 1, 2, 0, 1, 2)");
    check(&[], "iota {dtype=f16, shape=[2, 3], axis=0}", "f16[2, 3](0.0, 0.0, 0.0, 1.0, 1.0, 1.0)");
    check(&[], "iota {dtype=u2, shape=[5], axis=0}", "u2[5](0, 1, 2, 3, 0)");
    check(&[], "iota {dtype=i8, shape=[0, 2], axis=1}", "i8[0, 2]()");
    let got =
        call("func(%0: f32[n, m]) { %1 = size {dim=n*m - 1} : i64[] return %1 }", &[t("f32[2, 3](0, 0, 0, 0, 0, 0)")]);
    assert_eq!(got.unwrap(), [t("i64[](5)")]);
}

#[test]
fn binding_sizes() {
    let text = "func(%0: i64[]) { %1 = bind %0 {dim=n} : i64[] %2 = iota {dtype=i32, shape=[n], axis=0} : i32[n] return %2, %1 }";
    assert_eq!(call(text, &[t("i64[](3)")]).unwrap(), [t("i32[3](0, 1, 2)"), t("i64[](3)")]);
    fails(
        "%0: i64[]",
        &["i64[](-1)"],
        "%1 = bind %0 {dim=n} : i64[] return %1",
        "evaluating %1 (bind): `n` is a size, -1 is not",
    );
    let any = "func(%0: i64[]) { %1 = bind %0 {dim=$n} : i64[] %2 = size {dim=2*$n} : i64[] return %2 }";
    assert_eq!(call(any, &[t("i64[](-4)")]).unwrap(), [t("i64[](-8)")]);
    fails("%0: i64[]", &["i64[](4)"], "%1 = size {dim=n} : i64[] return %1", "nothing has defined `n`");
    let huge = "%1 = bind %0 {dim=n} : i64[] %2 = iota {dtype=i8, shape=[n, n], axis=0} : i8[n, n] return %2";
    fails("%0: i64[]", &["i64[](9223372036854775807)"], huge, "is larger than 2^47 bytes");
    fails("%0: i64[]", &["i64[](100000)"], huge, "too large");
}

#[test]
fn parameters_are_checked() {
    let text = "func(%0 \"x\": f32[batch, 3], %1 \"y\": f32[2*batch + 1]) { return %0 }";
    let x = |shape: &[usize]| Data::from(Tensor::from_f32(shape, &vec![0.0; shape.iter().product()]));
    assert!(call(text, &[x(&[2, 3]), x(&[5])]).is_ok());
    let message = |args: &[Data]| call(text, args).unwrap_err();
    assert!(message(&[x(&[2, 4]), x(&[5])]).ends_with("parameter 0 `x`: expected f32[batch, 3], got f32[2, 4]"));
    assert!(
        message(&[x(&[2, 3]), x(&[4])])
            .contains("parameter 1 `y`: expected f32[2*batch + 1], got f32[4]: 2*batch + 1 is 5, not 4")
    );
    assert!(message(&[x(&[3]), x(&[5])]).contains("got f32[3]"));
    assert!(message(&[x(&[2, 3])]).contains("takes 2 arguments"));
    assert!(message(&[t("i32[2, 3](0, 0, 0, 0, 0, 0)"), x(&[5])]).contains("got i32[2, 3]"));
    // A symbol follows from an expression that is linear in it.
    let solve = |dim: &str, n: usize| {
        call(&format!("func(%0: f32[{dim}]) {{ %1 = size {{dim=n}} : i64[] return %1 }}"), &[x(&[n])])
    };
    assert_eq!(solve("3*n + 1", 7), Ok(vec![t("i64[](2)")]));
    assert_eq!(solve("9 - 2*n", 5), Ok(vec![t("i64[](2)")]));
    assert!(solve("3*n + 1", 8).unwrap_err().contains("no n makes"));
    assert!(solve("n + 5", 2).unwrap_err().contains("`n` is a size"));
    assert!(solve("floordiv(n, 2)", 2).unwrap_err().contains("cannot tell"));
    assert!(solve("n*n", 4).unwrap_err().contains("cannot tell"));
    // The later parameter tells what the earlier needs.
    let text = "func(%0: f32[a*b], %1: f32[a], %2: f32[b]) { return %0 }";
    assert!(call(text, &[x(&[6]), x(&[2]), x(&[3])]).is_ok());
    assert!(call(text, &[x(&[5]), x(&[2]), x(&[3])]).is_err());
}

#[test]
fn map_rounds_every_step() {
    check(&["f32[2](1.5, -2.0)", "f32[2](2.0, 3.0)"], "map {f=mul(add(a0, a1), a1)}", "f32[2](7.0, 3.0)");
    // 2049 is not an f16: the sum rounds to 2048 before 1 is taken away.
    check(&["f16[1](2048.0)"], "map {f=sub(add(a0, 1.0:f16), 1.0:f16)}", "f16[1](2047.0)");
    check(&["i8[2](127, -128)"], "map {f=add(a0, 1:i8)}", "i8[2](-128, -127)");
    check(&["i8[2](-128, 5)"], "map {f=abs(a0)}", "i8[2](-128, 5)");
    check(&["u8[2](0, 3)"], "map {f=sub(a0, 1:u8)}", "u8[2](255, 2)");
    check(&["i32[3](7, -7, 7)", "i32[3](2, 2, 0)"], "map {f=div(a0, a1)}", "i32[3](3, -3, 0)");
    check(&["f32[2](1.0, nan#7fc00000)", "f32[2](1.0, 1.0)"], "map {f=max(a0, a1)}", "f32[2](1.0, nan#7fc00000)");
    check(&["f32[3](1.0, 2.0, nan#7fc00000)"], "map {f=lt(a0, 1.5:f32)}", "bool[3](1, 0, 0)");
    check(&["bool[2](1, 0)"], "map {f=not(a0)}", "bool[2](0, 1)");
    check(
        &["bool[2](1, 0)", "str[2](\"a\", \"b\")", "str[2](\"c\", \"d\")"],
        "map {f=select(a0, a1, a2)}",
        "str[2](\"a\", \"d\")",
    );
    check(&["str[2](\"a\", \"b\")", "str[2](\"a\", \"d\")"], "map {f=eq(a0, a1)}", "bool[2](1, 0)");
    check(&["f32[]( 4.0)"], "map {f=sqrt(a0)}", "f32[](2.0)");
    check(&["f32[0]()"], "map {f=exp(a0)}", "f32[0]()");
}

#[test]
fn conversions() {
    let odd = "f32[5](2.9, -2.9, 300.0, inf, nan#7fc00000)";
    check(&[odd], "map {f=cast(a0, i8)}", "i8[5](2, -2, 44, 0, 0)");
    check(&[odd], "map {f=castsat(a0, i8)}", "i8[5](2, -2, 127, 127, 0)");
    check(&[odd], "map {f=castsat(a0, u8)}", "u8[5](2, 0, 255, 255, 0)");
    check(&["f32[3](0.5, 0.0, nan#7fc00000)"], "map {f=cast(a0, bool)}", "bool[3](1, 0, 1)");
    check(&["i32[2](256, 0)"], "map {f=cast(a0, bool)}", "bool[2](1, 0)");
    check(&["f64[1](1e30)"], "map {f=cast(a0, i64)}", "i64[1](5076964154930102272)");
    check(&["f64[2](1e300, -1e300)"], "map {f=castsat(a0, i64)}", "i64[2](9223372036854775807, -9223372036854775808)");
    check(&["f32[3](1e6, 460.0, -inf)"], "map {f=cast(a0, f8e5m2)}", "f8e5m2[3](inf, 448.0, -inf)");
    check(&["f32[3](1e6, 460.0, -inf)"], "map {f=castsat(a0, f8e5m2)}", "f8e5m2[3](57344.0, 448.0, -57344.0)");
    check(&["f32[1](1e6)"], "map {f=cast(a0, f8e4m3)}", "f8e4m3[1](nan#7f)");
    check(&["f32[2](1e6, -1e6)"], "map {f=castsat(a0, f16)}", "f16[2](65504.0, -65504.0)");
    check(&["i32[3](300, -1, 7)"], "map {f=castsat(a0, u4)}", "u4[3](15, 0, 7)");
    check(&["i32[3](300, -1, 7)"], "map {f=cast(a0, u4)}", "u4[3](12, 15, 7)");
    // Rounded once: through f64 first, 2^60 + 2^52 + 1 would look like a tie and lose its last bit.
    check(&["i64[1](1157425104234217473)"], "map {f=cast(a0, bf16)}", "bf16[1](1.1619289485945999e18)");
    check(&["i64[1](9007199791611905)"], "map {f=cast(a0, f32)}", "f32[1](9007200328482816.0)");
    check(&["f32[2](1.0, -0.0)"], "map {f=bitcast(a0, i32)}", "i32[2](1065353216, -2147483648)");
    check(&["u8[2](125, 126)"], "map {f=bitcast(a0, f8e5m2)}", "f8e5m2[2](nan#7d, nan#7e)");
    check(&["i32[1](1065353216)"], "map {f=add(bitcast(a0, f32), 1.0:f32)}", "f32[1](2.0)");
    check(&["i4[2](-1, 7)"], "map {f=bitcast(a0, u4)}", "u4[2](15, 7)");
}

#[test]
fn moving_elements() {
    let x = "i16[2, 3](1, 2, 3, 4, 5, 6)";
    check(&[x], "reshape {shape=[3, 2]}", "i16[3, 2](1, 2, 3, 4, 5, 6)");
    check(&[x], "transpose {perm=[1, 0]}", "i16[3, 2](1, 4, 2, 5, 3, 6)");
    check(&["str[1, 2](\"a\", \"b\")"], "transpose {perm=[1, 0]}", "str[2, 1](\"a\", \"b\")");
    check(&["i8[2](1, 2)"], "broadcast {shape=[2, 3], axes=[0]}", "i8[2, 3](1, 1, 1, 2, 2, 2)");
    check(&["i8[1, 2](1, 2)"], "broadcast {shape=[2, 2, 2], axes=[1, 2]}", "i8[2, 2, 2](1, 2, 1, 2, 1, 2, 1, 2)");
    check(&["f64[](1.0)"], "broadcast {shape=[0], axes=[]}", "f64[0]()");
    check(&[x], "slice {starts=[1, 2], sizes=[1, 3], steps=[5, -1]}", "i16[1, 3](6, 5, 4)");
    check(&[x], "slice {starts=[9, 0], sizes=[0, 2], steps=[1, 2]}", "i16[0, 2]()");
    check(&[x, "i16[](9)"], "pad {low=[1, -1], high=[0, 1]}", "i16[3, 3](9, 9, 9, 2, 3, 9, 5, 6, 9)");
    check(&[x, "i16[](9)"], "pad {low=[-2, 0], high=[1, -2]}", "i16[1, 1](9)");
    check(&["i8[0]()", "i8[](7)"], "pad {low=[1], high=[1]}", "i8[2](7, 7)");
    check(&[x, "i16[2, 1](7, 8)", "i16[2, 0]()"], "concat {axis=1}", "i16[2, 4](1, 2, 3, 7, 4, 5, 6, 8)");
    check(&["str[1](\"a\")", "str[2](\"b\", \"c\")"], "concat {axis=0}", "str[3](\"a\", \"b\", \"c\")");
    fails(
        "%0: f32[n], %1: f32[m]",
        &["f32[2](0, 0)", "f32[3](0, 0, 0)"],
        "%2 = reshape %0 {shape=[m]} : f32[m] return %2",
        "cannot reshape f32[2]",
    );
    fails(
        "%0: f32[n], %1: f32[m]",
        &["f32[2](0, 0)", "f32[3](0, 0, 0)"],
        "%2 = broadcast %0 {shape=[m], axes=[0]} : f32[m] return %2",
        "cannot broadcast",
    );
    fails(
        "%0: f32[n]",
        &["f32[2](0, 0)"],
        "%1 = slice %0 {starts=[1], sizes=[n], steps=[1]} : f32[n] return %1",
        "leaves axis 0: element 2 of 2",
    );
    fails(
        "%0: f32[n]",
        &["f32[2](0, 0)"],
        "%1 = slice %0 {starts=[0], sizes=[n - 3], steps=[1]} : f32[n - 3] return %1",
        "leaves axis 0",
    );
    fails(
        "%0: f32[n], %1: f32[]",
        &["f32[2](0, 0)", "f32[](0)"],
        "%2 = pad %0, %1 {low=[-3], high=[0]} : f32[n - 3] return %2",
        "negative dimension",
    );
    fails(
        "%0: f32[n, 1], %1: f32[m, 1]",
        &["f32[1, 1](0)", "f32[2, 1](0, 0)"],
        "%2 = concat %0, %1 {axis=1} : f32[n, 2] return %2",
        "cannot concatenate",
    );
}

#[test]
fn gather_and_scatter() {
    let x = "i32[2, 3](1, 2, 3, 4, 5, 6)";
    check(&[x, "i64[3](1, 0, 1)"], "gather {axis=0, batch=0}", "i32[3, 3](4, 5, 6, 1, 2, 3, 4, 5, 6)");
    check(&[x, "i64[](2)"], "gather {axis=1, batch=0}", "i32[2](3, 6)");
    check(&[x, "i64[2, 2](0, 1, 2, 0)"], "gather {axis=1, batch=1}", "i32[2, 2](1, 2, 6, 4)");
    check(&["str[2](\"a\", \"b\")", "i64[1](1)"], "gather {axis=0, batch=0}", "str[1](\"b\")");
    let y = "i32[1, 2, 2](1, 2, 3, 4)";
    check(&[y, "i64[1, 1](1)"], "gather {axis=2, batch=1}", "i32[1, 2, 1](2, 4)");
    let gather = "%2 = gather %0, %1 {axis=0, batch=0} : i32[2, 1] return %2";
    fails(
        "%0: i32[n, 1], %1: i64[2]",
        &["i32[3, 1](1, 2, 3)", "i64[2](2, 3)"],
        gather,
        "index 3 is outside an axis of size 3",
    );
    // Nothing is taken, so nothing is looked for.
    check(&["i32[3, 0]()", "i64[2](2, 3)"], "gather {axis=0, batch=0}", "i32[2, 0]()");
    let gather = "%2 = gather %0, %1 {axis=0, batch=0} : i32[1] return %2";
    fails("%0: i32[n], %1: i64[1]", &["i32[2](1, 2)", "i64[1](-1)"], gather, "index -1 is outside an axis of size 2");
    let (at, new) = ("i64[3](1, 0, 1)", "i32[3, 3](10, 20, 30, 0, 0, 0, 7, 8, 9)");
    check(&[x, at, new], "scatter {f=set}", "i32[2, 3](0, 0, 0, 7, 8, 9)");
    check(&[x, at, new], "scatter {f=add}", "i32[2, 3](1, 2, 3, 21, 33, 45)");
    check(&[x, at, new], "scatter {f=max}", "i32[2, 3](1, 2, 3, 10, 20, 30)");
    check(&[x, "i64[0]()", "i32[0, 3]()"], "scatter {f=mul}", x);
    check(&["bool[2](0, 1)", "i64[2](0, 1)", "bool[2](1, 1)"], "scatter {f=add}", "bool[2](1, 1)");
    let scatter = "%3 = scatter %0, %1, %2 {f=set} : i32[2] return %3";
    fails(
        "%0: i32[2], %1: i64[1], %2: i32[1]",
        &["i32[2](1, 2)", "i64[1](2)", "i32[1](0)"],
        scatter,
        "index 2 is outside",
    );
}

#[test]
fn reductions() {
    let x = "f32[2, 3](1.0, 2.0, 3.0, 4.0, 5.0, 6.0)";
    check(&[x], "reduce {f=sum, axes=[1]}", "f32[2](6.0, 15.0)");
    check(&[x], "reduce {f=sum, axes=[0]}", "f32[3](5.0, 7.0, 9.0)");
    check(&[x], "reduce {f=prod, axes=[0, 1]}", "f32[](720.0)");
    check(&[x], "reduce {f=max, axes=[]}", x);
    check(&["i64[2, 2, 2](1, 2, 3, 4, 5, 6, 7, 8)"], "reduce {f=sum, axes=[0, 2]}", "i64[2](14, 22)");
    check(&["i64[2, 2, 2](1, 2, 3, 4, 5, 6, 7, 8)"], "reduce {f=min, axes=[1]}", "i64[2, 2](1, 2, 5, 6)");
    check(&["f32[2, 0]()"], "reduce {f=sum, axes=[1]}", "f32[2](0.0, 0.0)");
    check(&["f32[2, 0]()"], "reduce {f=prod, axes=[1]}", "f32[2](1.0, 1.0)");
    check(&["f32[0]()"], "reduce {f=max, axes=[0]}", "f32[](-inf)");
    check(&["f32[0]()"], "reduce {f=min, axes=[0]}", "f32[](inf)");
    check(&["i8[0]()"], "reduce {f=max, axes=[0]}", "i8[](-128)");
    check(&["u8[0]()"], "reduce {f=min, axes=[0]}", "u8[](255)");
    check(&["bool[0]()"], "reduce {f=max, axes=[0]}", "bool[](0)");
    check(&["bool[0]()"], "reduce {f=min, axes=[0]}", "bool[](1)");
    check(&["f8e4m3[0]()"], "reduce {f=max, axes=[0]}", "f8e4m3[](-448.0)");
    check(&["f32[3](1.0, nan#7fc00000, 2.0)"], "reduce {f=max, axes=[0]}", "f32[](nan#7fc00000)");
    check(&["f32[2](nan#7fc00000, 2.0)"], "reduce {f=min, axes=[0]}", "f32[](nan#7fc00000)");
    check(&["u8[3](200, 100, 3)"], "reduce {f=sum, axes=[0]}", "u8[](47)");
    check(&["u64[3](18446744073709551615, 18446744073709551615, 3)"], "reduce {f=prod, axes=[0]}", "u64[](3)");
    // In f16 alone, 2048 + 1 + 1 would stay 2048.
    check(&["f16[3](2048.0, 1.0, 1.0)"], "reduce {f=sum, axes=[0]}", "f16[](2050.0)");
}

#[test]
fn scans() {
    let x = "i32[4](1, 2, 3, 4)";
    check(&[x], "scan {f=sum, axis=0, exclusive=false, reverse=false}", "i32[4](1, 3, 6, 10)");
    check(&[x], "scan {f=sum, axis=0, exclusive=true, reverse=false}", "i32[4](0, 1, 3, 6)");
    check(&[x], "scan {f=sum, axis=0, exclusive=false, reverse=true}", "i32[4](10, 9, 7, 4)");
    check(&[x], "scan {f=prod, axis=0, exclusive=true, reverse=true}", "i32[4](24, 12, 4, 1)");
    check(
        &["f32[2, 2](1.0, 5.0, 3.0, 2.0)"],
        "scan {f=max, axis=0, exclusive=false, reverse=false}",
        "f32[2, 2](1.0, 5.0, 3.0, 5.0)",
    );
    check(
        &["f16[3](2048.0, 1.0, 1.0)"],
        "scan {f=sum, axis=0, exclusive=false, reverse=false}",
        "f16[3](2048.0, 2048.0, 2050.0)",
    );
}

#[test]
fn order() {
    let x = "f32[5](1.0, 3.0, nan#7fc00000, 3.0, nan#7fc00000)";
    check(&[x], "arg {f=max, axis=0, last=false}", "i64[](2)");
    check(&[x], "arg {f=min, axis=0, last=true}", "i64[](4)");
    check(&["f32[4](0.0, 2.0, -0.0, 2.0)"], "arg {f=max, axis=0, last=true}", "i64[](3)");
    check(&["f32[4](0.0, 2.0, -0.0, 2.0)"], "arg {f=min, axis=0, last=true}", "i64[](2)");
    check(&["i8[2, 2](1, 5, 3, 2)"], "arg {f=max, axis=0, last=false}", "i64[2](1, 0)");
    check(&["i8[0, 2]()"], "arg {f=max, axis=1, last=false}", "i64[0]()");
    fails(
        "%0: f32[n]",
        &["f32[0]()"],
        "%1 = arg %0 {f=max, axis=0, last=false} : i64[] return %1",
        "no elements to choose from",
    );
    check(&[x], "argsort {axis=0, descending=false}", "i64[5](0, 1, 3, 2, 4)");
    check(&[x], "argsort {axis=0, descending=true}", "i64[5](2, 4, 1, 3, 0)");
    check(&["f32[3](0.0, -0.0, -1.0)"], "argsort {axis=0, descending=true}", "i64[3](0, 1, 2)");
    check(&["i8[2, 2](3, 1, 2, 4)"], "argsort {axis=0, descending=false}", "i64[2, 2](1, 0, 0, 1)");
    check(&["str[3](\"b\", \"c\", \"a\")"], "argsort {axis=0, descending=false}", "i64[3](2, 0, 1)");
    let text = "func(%0: bool[n]) { %1 = compress %0 {count=k} : i64[k] %2 = size {dim=k} : i64[] return %1, %2 }";
    assert_eq!(call(text, &[t("bool[4](1, 0, 0, 1)")]).unwrap(), [t("i64[2](0, 3)"), t("i64[](2)")]);
    assert_eq!(call(text, &[t("bool[0]()")]).unwrap(), [t("i64[0]()"), t("i64[](0)")]);
}

#[test]
fn contractions() {
    let (a, b) = ("f32[2, 3](1.0, 2.0, 3.0, 4.0, 5.0, 6.0)", "f32[3, 2](1.0, 2.0, 3.0, 4.0, 5.0, 6.0)");
    let plain = "contract {a_batch=[], b_batch=[], a_sum=[1], b_sum=[0]}";
    check(&[a, b], plain, "f32[2, 2](22.0, 28.0, 49.0, 64.0)");
    check(&[a, a], "contract {a_batch=[], b_batch=[], a_sum=[1], b_sum=[1]}", "f32[2, 2](14.0, 32.0, 32.0, 77.0)");
    check(&[a, a], "contract {a_batch=[], b_batch=[], a_sum=[0, 1], b_sum=[0, 1]}", "f32[](91.0)");
    check(&[a, a], "contract {a_batch=[0], b_batch=[0], a_sum=[1], b_sum=[1]}", "f32[2](14.0, 77.0)");
    check(
        &[a, b],
        "contract {a_batch=[1], b_batch=[0], a_sum=[], b_sum=[]}",
        "f32[3, 2, 2](1.0, 2.0, 4.0, 8.0, 6.0, 8.0, 15.0, 20.0, 15.0, 18.0, 30.0, 36.0)",
    );
    check(&["f32[2, 0]()", "f32[0, 1]()"], plain, "f32[2, 1](0.0, 0.0)");
    check(&["f32[0, 2]()", "f32[2, 1](1.0, 1.0)"], plain, "f32[0, 1]()");
    check(&["i8[1, 2](100, 100)", "i8[2, 1](2, 1)"], plain, "i8[1, 1](44)");
    check(&["u64[1, 1](18446744073709551615)", "u64[1, 1](2)"], plain, "u64[1, 1](18446744073709551614)");
    let long = |n: usize| Data::from(Tensor::from_elems(DType::I32, vec![n], &Elems::Int((0..n as i128).collect())));
    let dot =
        "func(%0: i32[n]) { %1 = contract %0, %0 {a_batch=[], b_batch=[], a_sum=[0], b_sum=[0]} : i32[] return %1 }";
    for n in [1, 5, 127, 130, 1000] {
        let want: usize = (0..n).map(|i| i * i).sum();
        assert_eq!(call(dot, &[long(n)]).unwrap(), [t(&format!("i32[]({want})"))]);
    }
    fails(
        "%0: f32[n], %1: f32[m]",
        &["f32[1](0)", "f32[2](0, 0)"],
        "%2 = contract %0, %1 {a_batch=[], b_batch=[], a_sum=[0], b_sum=[0]} : f32[] return %2",
        "does not fit",
    );
}

#[test]
fn convolutions() {
    let conv = |s, d, z, l, h, g| {
        format!(
            "conv {{strides=[{s}], dilations=[{d}], spread=[{z}], low=[{l}], high=[{h}], groups={g}, in_block=1, out_block=1}}"
        )
    };
    let x = "f32[1, 1, 5](1.0, 2.0, 3.0, 4.0, 5.0)";
    let w = "f32[1, 1, 2](10.0, 1.0)";
    check(&[x, w], &conv("1", "1", "1", "0", "0", 1), "f32[1, 1, 4](12.0, 23.0, 34.0, 45.0)");
    check(&[x, w], &conv("2", "1", "1", "1", "0", 1), "f32[1, 1, 3](1.0, 23.0, 45.0)");
    check(&[x, w], &conv("1", "3", "1", "0", "0", 1), "f32[1, 1, 2](14.0, 25.0)");
    check(&[x, w], &conv("1", "1", "1", "-1", "-1", 1), "f32[1, 1, 2](23.0, 34.0)");
    // 1 0 2 0 3 0 4 0 5
    check(&[x, w], &conv("1", "1", "2", "0", "0", 1), "f32[1, 1, 8](10.0, 2.0, 20.0, 3.0, 30.0, 4.0, 40.0, 5.0)");
    check(
        &["f32[1, 2, 2](1.0, 2.0, 3.0, 4.0)", "f32[4, 1, 1](1.0, 2.0, 3.0, 4.0)"],
        &conv("1", "1", "1", "0", "0", 2),
        "f32[1, 4, 2](1.0, 2.0, 2.0, 4.0, 9.0, 12.0, 12.0, 16.0)",
    );
    check(
        &["f32[2, 2](1.0, 2.0, 3.0, 4.0)", "f32[1, 2](10.0, 1.0)"],
        &conv("", "", "", "", "", 1),
        "f32[2, 1](12.0, 34.0)",
    );
    check(
        &["i8[1, 1, 2, 2](1, 2, 3, 4)", "i8[1, 1, 2, 2](1, 10, 100, 50)"],
        &conv("1, 1", "1, 1", "1, 1", "0, 1", "0, 0", 1),
        "i8[1, 1, 1, 2](-96, 9)",
    );
    check(
        &["f32[1, 1, 2, 1, 2](1.0, 2.0, 3.0, 4.0)", "f32[1, 1, 2, 1, 1](1.0, 1.0)"],
        &conv("1, 1, 1", "1, 1, 1", "1, 1, 1", "0, 0, 0", "0, 0, 0", 1),
        "f32[1, 1, 1, 1, 2](4.0, 6.0)",
    );
    // Channels in blocks: 1 2 and 3 4 are the pixels of the first two channels.
    let blocks = "conv {strides=[1], dilations=[1], spread=[1], low=[0], high=[0], groups=1, in_block=2, out_block=2}";
    check(
        &["f32[1, 1, 2, 2](1.0, 3.0, 2.0, 4.0)", "f32[4, 2, 1](1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0)"],
        blocks,
        "f32[1, 2, 2, 2](1.0, 3.0, 2.0, 4.0, 4.0, 0.0, 6.0, 0.0)",
    );
    check(&["f32[1, 0, 2]()", "f32[1, 0, 1]()"], &conv("1", "1", "1", "0", "0", 1), "f32[1, 1, 2](0.0, 0.0)");
    check(&["f32[1, 1, 0]()", w], &conv("1", "1", "1", "1", "2", 1), "f32[1, 1, 2](0.0, 0.0)");
}

#[test]
fn windows() {
    let x = "f32[1, 4](1.0, 5.0, 2.0, 3.0)";
    check(
        &[x],
        "window {f=max, size=[2], strides=[1], dilations=[1], low=[1], high=[2]}",
        "f32[1, 6](1.0, 5.0, 5.0, 3.0, 3.0, -inf)",
    );
    check(&[x], "window {f=sum, size=[2], strides=[2], dilations=[2], low=[0], high=[1]}", "f32[1, 2](3.0, 2.0)");
    check(
        &["i8[2, 2](1, 2, 3, 4)"],
        "window {f=min, size=[2, 2], strides=[1, 1], dilations=[1, 1], low=[1, 0], high=[1, 0]}",
        "i8[3, 1](1, 1, 3)",
    );
    check(&["i8[2](1, 2)"], "window {f=sum, size=[], strides=[], dilations=[], low=[], high=[]}", "i8[2](1, 2)");
    check(
        &["bool[3](0, 1, 0)"],
        "window {f=max, size=[2], strides=[1], dilations=[1], low=[0], high=[0]}",
        "bool[2](1, 1)",
    );
    // What is padding for every window costs nothing.
    let wide =
        "window {f=sum, size=[1000000000000], strides=[1], dilations=[1], low=[500000000000], high=[499999999999]}";
    check(&["i8[3](1, 2, 3)"], wide, "i8[3](6, 6, 6)");
    check(&["i8[0]()"], "window {f=sum, size=[2], strides=[1], dilations=[1], low=[1], high=[2]}", "i8[2](0, 0)");
}

#[test]
fn branches() {
    let text = "func(%0: bool[], %1: f32[n]) {
        %2 = if %0, %1 {then=func(%0: f32[n]) { %1 = map %0 {f=neg(a0)} : f32[n] return %1 },
                        or=func(%0: f32[n]) { %1 = const {value=i64[1](7)} : i64[1] %2 = gather %0, %1 {axis=0, batch=0} : f32[1] return %2 },
                        types=[f32[m]]} : (f32[m])
        %3 = get %2 {index=0} : f32[m]
        %4 = size {dim=m} : i64[]
        return %3, %4 }";
    let x = t("f32[2](1.0, -2.0)");
    assert_eq!(call(text, &[t("bool[](1)"), x.clone()]).unwrap(), [t("f32[2](-1.0, 2.0)"), t("i64[](2)")]);
    let error = call(text, &[t("bool[](0)"), x]).unwrap_err();
    assert_eq!(error, "evaluating %2 (if): in `or`: evaluating %2 (gather): index 7 is outside an axis of size 2");
}

#[test]
fn loops() {
    // Doubles a vector's length each round and keeps the iteration number as a row.
    let text = "func(%0: i64[], %1: bool[], %2: i32[a]) {
        %3 = loop %0, %1, %2 {states=1, body=func(%0: i64[], %1: bool[], %2: i32[b]) {
            %3 = concat %2, %2 {axis=0} : i32[2*b]
            %4 = map %0 {f=lt(a0, 2:i64)} : bool[]
            return %4, %3, %0 }, types=[i32[c], i64[r]]} : (i32[c], i64[r])
        %4 = get %3 {index=0} : i32[c]
        %5 = get %3 {index=1} : i64[r]
        return %4, %5 }";
    let go = |trips: &str, cond: &str| call(text, &[t(trips), t(cond), t("i32[1](5)")]).unwrap();
    assert_eq!(go("i64[](2)", "bool[](1)"), [t("i32[4](5, 5, 5, 5)"), t("i64[2](0, 1)")]);
    assert_eq!(go("i64[](9223372036854775807)", "bool[](1)")[1], t("i64[3](0, 1, 2)"));
    assert_eq!(go("i64[](0)", "bool[](1)"), [t("i32[1](5)"), t("i64[0]()")]);
    assert_eq!(go("i64[](5)", "bool[](0)"), [t("i32[1](5)"), t("i64[0]()")]);
    // Without a round, the size of a row that nothing defines is 0.
    let rows = "func(%0: i64[], %1: bool[], %2: f32[n]) {
        %3 = loop %0, %1, %2 {states=0, body=func(%0: i64[], %1: bool[], %2: f32[n]) {
            %3 = concat %2, %2 {axis=0} : f32[2*n]
            return %1, %2, %3 }, types=[f32[r, n], f32[r, w]]} : (f32[r, n], f32[r, w])
        %4 = get %3 {index=0} : f32[r, n]
        %5 = get %3 {index=1} : f32[r, w]
        return %4, %5 }";
    let go = |trips: &str| call(rows, &[t(trips), t("bool[](1)"), t("f32[1](5.0)")]).unwrap();
    assert_eq!(go("i64[](0)"), [t("f32[0, 1]()"), t("f32[0, 0]()")]);
    assert_eq!(go("i64[](2)"), [t("f32[2, 1](5.0, 5.0)"), t("f32[2, 2](5.0, 5.0, 5.0, 5.0)")]);
    let ragged = "%2 = loop %0, %1 {states=0, body=func(%0: i64[], %1: bool[]) {
        %2 = bind %0 {dim=k} : i64[]
        %3 = iota {dtype=i8, shape=[k], axis=0} : i8[k]
        return %1, %3 }, types=[i8[r, w]]} : (i8[r, w]) return %2";
    fails("%0: i64[], %1: bool[]", &["i64[](2)", "bool[](1)"], ragged, "different shapes");
}

#[test]
fn sequences() {
    let text = |ops: &str| {
        format!(
            "func(%0: f32[n], %1: f32[2], %2: i64[]) {{ %3 = seq_make %0, %1 {{elem=f32[?]}} : seq<f32[?]> {ops} }}"
        )
    };
    let go = |ops: &str, i: &str| call(&text(ops), &[t("f32[1](1.0)"), t("f32[2](2.0, 3.0)"), t(i)]);
    let (a, b) = (t("f32[1](1.0)"), t("f32[2](2.0, 3.0)"));
    assert_eq!(go("%4 = seq_len %3 : i64[] return %4", "i64[](0)"), Ok(vec![t("i64[](2)")]));
    let at = "%4 = seq_at %3, %2 {ty=f32[k]} : f32[k] return %4";
    assert_eq!(go(at, "i64[](-1)"), Ok(vec![b.clone()]));
    assert!(go(at, "i64[](2)").unwrap_err().contains("index 2 is outside a sequence of length 2"));
    assert!(
        go("%4 = seq_at %3, %2 {ty=f32[5]} : f32[5] return %4", "i64[](0)")
            .unwrap_err()
            .contains("expected f32[5], got f32[1]")
    );
    let insert = "%4 = seq_insert %3, %2, %0 {elem=f32[?]} : seq<f32[?]> return %4";
    assert_eq!(go(insert, "i64[](2)"), Ok(vec![Data::Seq(vec![a.clone(), b.clone(), a.clone()])]));
    assert_eq!(go(insert, "i64[](-2)"), Ok(vec![Data::Seq(vec![a.clone(), a.clone(), b.clone()])]));
    assert!(go(insert, "i64[](3)").is_err());
    assert_eq!(go("%4 = seq_erase %3, %2 : seq<f32[?]> return %4", "i64[](0)"), Ok(vec![Data::Seq(vec![b])]));
}

#[test]
fn single_ops_define_symbols() {
    let mut env = Env::new();
    eval_op(&Op::Bind { dim: "n".into() }, &[&t("i64[](3)")], &mut env).unwrap();
    eval_op(&Op::Compress { count: "k".into() }, &[&t("bool[2](1, 1)")], &mut env).unwrap();
    let dim = numrsc_ir::parse::parse_dim("n*k").unwrap();
    assert_eq!(eval_op(&Op::Size { dim }, &[], &mut env), Ok(t("i64[](6)")));
    assert!(eval_op(&Op::Transpose { perm: vec![0] }, &[&t("f32[](1.0)")], &mut env).is_err());
    assert!(eval_op(&Op::Transpose { perm: vec![0] }, &[], &mut env).is_err());
}
