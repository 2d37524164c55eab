//! Models as WebAssembly, in a browser.
mod common;

use common::{Place, browser::Browser, models, operators, stderr, symbolic_model};
use numrsc::{
    compile::{Options, compile},
    conformance::{self, Executor},
    output::wasm,
};
use numrsc_ir::{Data, Func, Tensor, Type};
use serde_json::{Value, json};
use std::{fs, path::PathBuf, sync::Mutex};

/// Of several kinds: convolutions, recurrent and attention layers, loops, open sizes, many inputs and outputs, trees, half precision, integers.
#[rustfmt::skip]
const MODELS: [&str; 14] = [
    "aecmos_gru", "dlrm_ts", "espcn_nnresize", "forecast_cnn_ts", "gpt2_mini_kv_ts", "lstm_tagger_ts", "mnist_cntk",
    "mobilenet_v2_fp16", "mtcnn_onet", "nani_rf", "reachy_fk_int8", "silero_vad_v6", "silero_vad_v6_half", "stn_gridsample_ts",
];

/// Tests of the ONNX suite: every kind of element, and what few models have. LLVM ends the process on what a target lacks, so this is about all of it.
#[rustfmt::skip]
const OPERATORS: [&str; 49] = [
    "add_int8", "add_uint64", "and3d", "argmax_default_axis_random", "attention_4d", "bitshift_left_uint16",
    "bitwise_not_3d", "cast_BFLOAT16_to_FLOAT", "cast_DOUBLE_to_FLOAT16", "cast_FLOAT16_to_DOUBLE",
    "cast_FLOAT_to_BFLOAT16", "cast_FLOAT_to_FLOAT8E4M3FN", "cast_FLOAT_to_INT4", "cast_UINT4_to_FLOAT", "ceil",
    "compress_0", "cumsum_1d", "div_uint8", "dynamicquantizelinear", "einsum_batch_matmul", "erf", "floor",
    "gru_seq_length", "if", "isinf", "isnan", "layer_normalization_4d_axis1", "loop11", "lstm_with_peepholes",
    "matmulinteger", "max_float64", "min_float16", "mod_mixed_sign_float16", "mod_mixed_sign_int64", "mul_uint32",
    "nonmaxsuppression_two_classes", "nonzero_example", "pow_types_int64_float32", "quantizelinear",
    "range_float_type_positive_delta_expanded", "range_int32_type_negative_delta",
    "reduce_log_sum_exp_default_axes_keepdims_random", "resize_upsample_sizes_cubic", "round", "sqrt", "sub_int16",
    "top_k", "unique_sorted_with_axis", "where_long_example",
];

/// Runs models in a page that waits for them.
struct Web {
    folder: tempfile::TempDir,
    options: Options,
    page: Mutex<Page>,
}

struct Page {
    browser: Browser,
    jobs: usize,
}

/// Takes jobs in turn, as soon as each of them is there, and sends a line that says what follows, then all outputs.
const PAGE: &str = r#"<script type="module">
for (let at = 0; ; at++) {
  let job;
  while (!(job = await fetch(`job${at}/job.json`)).ok) await new Promise((again) => setTimeout(again, 20));
  let report;
  try {
    const { load } = await import(`./job${at}/model.js`);
    const model = await load();
    const inputs = {};
    for (const [i, { name, shape }] of (await job.json()).entries()) {
      const bytes = await (await fetch(`job${at}/${i}`)).arrayBuffer();
      const port = model.inputs.find((port) => port.name === name);
      inputs[name] = { data: new globalThis[port.array](bytes), shape };
    }
    const run = () => { const outputs = model.run(inputs); return model.outputs.map(({ name }) => outputs[name]); };
    const [outputs, again] = [run(), run()];
    // What is left in memory of a run makes no difference to the next.
    if (outputs.some(({ data }, i) => data.some((x, at) => !Object.is(x, again[i].data[at])))) throw new Error("two runs differ");
    const [names, shapes] = [model.outputs.map(({ name }) => name), outputs.map(({ shape }) => shape)];
    report = [JSON.stringify({ names, shapes }), "\n", ...outputs.map(({ data }) => data)];
  } catch (error) {
    report = [JSON.stringify({ error: String(error) }), "\n"];
  }
  await fetch("report", { method: "POST", body: new Blob(report) });
}
</script>"#;

impl Web {
    fn new(cpu: &str) -> Web {
        let options = Options { triple: "wasm32-unknown-unknown".into(), cpu: cpu.into(), ..Options::default() };
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("page.html"), PAGE).unwrap();
        let browser = Browser::open(folder.path(), "page.html");
        Web { folder, options, page: Mutex::new(Page { browser, jobs: 0 }) }
    }

    fn attempt(&self, func: &Func, inputs: &[Data], file: &std::path::Path) -> Result<Vec<u8>, String> {
        let mut page = self.page.lock().map_err(|e| e.to_string())?;
        let job = self.folder.path().join(format!("job{}", page.jobs));
        page.jobs += 1;
        let failed = |e: std::io::Error| e.to_string();
        fs::create_dir(&job).map_err(failed)?;
        fs::rename(file, job.join("model.wasm")).map_err(failed)?;
        fs::write(job.join("model.js"), wasm::loader("model.wasm")).map_err(failed)?;
        let mut list = vec![];
        for (i, (name, data)) in func.param_names.iter().zip(inputs).enumerate() {
            let tensor = data.as_tensor()?;
            fs::write(job.join(i.to_string()), tensor.bytes()).map_err(failed)?;
            list.push(json!({ "name": name, "shape": tensor.shape() }));
        }
        fs::write(job.join("job"), Value::from(list).to_string()).map_err(failed)?;
        fs::rename(job.join("job"), job.join("job.json")).map_err(failed)?;
        page.browser.report()
    }
}

impl Executor for Web {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        let artifact = compile(func, "test", &self.options, None).map_err(|e| e.to_string())?;
        let place = tempfile::tempdir_in(self.folder.path()).map_err(|e| e.to_string())?;
        let file = place.path().join("model.wasm");
        wasm::write_module(&artifact, &file).map_err(|e| e.to_string())?;
        let report = self.attempt(func, inputs, &file)?;
        let at = report.iter().position(|byte| *byte == b'\n').ok_or("no report")?;
        let said: Value = serde_json::from_slice(&report[..at]).map_err(|e| e.to_string())?;
        if let Some(error) = said["error"].as_str() {
            return Err(error.to_owned());
        }
        let names: Vec<String> = serde_json::from_value(said["names"].clone()).map_err(|e| e.to_string())?;
        assert_eq!(names, func.result_names);
        let shapes: Vec<Vec<usize>> = serde_json::from_value(said["shapes"].clone()).map_err(|e| e.to_string())?;
        let mut rest = &report[at + 1..];
        let mut read = |(value, shape): (&numrsc_ir::Value, Vec<usize>)| {
            let Type::Tensor(ty) = func.ty(*value) else { return Err("a tensor".to_owned()) };
            let bytes = shape.iter().product::<usize>() * ty.dtype.size();
            let (own, other) = rest.split_at_checked(bytes).ok_or("too few bytes")?;
            rest = other;
            Tensor::new(ty.dtype, shape, own.to_vec().into()).map(Data::Tensor)
        };
        let outputs = func.results().iter().zip(shapes).map(&mut read).collect::<Result<Vec<_>, _>>()?;
        if rest.is_empty() { Ok(outputs) } else { Err("too many bytes".into()) }
    }
}

fn all_pass(web: &Web, folders: &[PathBuf]) {
    let results = conformance::run_all(folders, None, |dir| conformance::run_folder(dir, web, Default::default()));
    let score = conformance::score(folders, results, &Default::default());
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}

fn agrees_with_onnx_runtime(web: &Web, names: &[&str]) {
    let folder = models(names);
    all_pass(web, &names.iter().map(|name| folder.join(name)).collect::<Vec<_>>());
}

#[test]
fn models_agree_with_onnx_runtime() {
    agrees_with_onnx_runtime(&Web::new(""), &MODELS);
}

#[test]
fn models_agree_with_onnx_runtime_without_vectors() {
    agrees_with_onnx_runtime(&Web::new("mvp"), &["mnist_cntk", "reachy_fk_int8", "silero_vad_v6_half"]);
}

#[test]
fn operators_give_what_onnx_says() {
    let folder = operators();
    let folders = OPERATORS.map(|name| folder.join(format!("test_{name}")));
    ["", "mvp"].iter().for_each(|cpu| all_pass(&Web::new(cpu), &folders));
}

/// What the loader is asked, and what it says: of a model `y = relu(x) * [1, 10, 100]` for `x: f32[batch, 3]`.
const QUESTIONS: [(&str, &str); 21] = [
    ("model.name", "model"),
    ("JSON.stringify(model.inputs)", r#"[{"array":"Float32Array","dtype":"f32","name":"x","shape":["batch",3]}]"#),
    ("JSON.stringify(model.outputs)", r#"[{"array":"Float32Array","dtype":"f32","name":"y","shape":["batch",3]}]"#),
    ("show(model.run({ x: new Float32Array([1, -2, 3, 4, 5, 6]) }).y)", "1,0,300,4,50,600 of 2,3"),
    ("show(model.run({ x: { data: new Float32Array([1, 2, 3]), shape: [1, 3] } }).y)", "1,20,300 of 1,3"),
    ("show(model.run({ x: new Float32Array(0) }).y)", " of 0,3"),
    // More memory than it has, and then less again.
    ("model.run({ x: new Float32Array(9e6).fill(2) }).y.data.slice(-3)", "2,20,200"),
    ("show(model.run({ x: new Float32Array([1, 1, 1]) }).y)", "1,10,100 of 1,3"),
    // More than there can be, for an input and then for what the model computes.
    (
        "model.run({ x: { data: { [Symbol.toStringTag]: 'Float32Array', length: 3e9, byteLength: 12e9 }, shape: [1e9, 3] } })",
        "RangeError: out of memory: 12000000000 bytes are not available",
    ),
    (
        "(() => { const { prototype } = WebAssembly.Memory, { grow } = prototype; prototype.grow = () => { throw new RangeError(); };\
         try { return model.run({ x: new Float32Array(12e6) }); } finally { prototype.grow = grow; } })()",
        "Error: out of memory: 48000000 bytes are not available",
    ),
    ("show(model.run({ x: new Float32Array([1, 1, 1]) }).y)", "1,10,100 of 1,3"),
    ("model.run()", r#"TypeError: input "x" (f32[batch, 3]) is missing"#),
    ("model.run({ z: 1 })", r#"TypeError: the model has no input "z"; it has "x""#),
    ("model.run({ x: [1, 2, 3] })", r#"TypeError: input "x" (f32[batch, 3]) takes a Float32Array, not Array"#),
    (
        "model.run({ x: new Float64Array(3) })",
        r#"TypeError: input "x" (f32[batch, 3]) takes a Float32Array, not Float64Array"#,
    ),
    (
        "model.run({ x: new Float32Array(7) })",
        r#"TypeError: input "x" (f32[batch, 3]) of shape [2, 3] takes 6 elements, but 7 were given"#,
    ),
    (
        "model.run({ x: { data: new Float32Array(4), shape: [2, 2] } })",
        r#"TypeError: input "x" (f32[batch, 3]) cannot have the shape [2, 2]"#,
    ),
    (
        "model.run({ x: { data: new Float32Array(3), shape: [3] } })",
        r#"TypeError: input "x" (f32[batch, 3]) cannot have the shape [3]"#,
    ),
    ("load('none.wasm')", "Error: cannot load"),
    (
        "load(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))",
        "Error: this is not a model of the numrsc that made this loader",
    ),
    (
        // From everything that may hold a model.
        "Promise.all(['model.wasm', new URL('model.wasm', location), fetch('model.wasm'), fetch('model.wasm').then((r) => r.arrayBuffer())].map(load))\
         .then((all) => all.map((model) => model.run({ x: new Float32Array([7, 7, 7]) }).y.data))",
        "7,70,700,7,70,700,7,70,700,7,70,700",
    ),
];

#[test]
fn the_loader_answers() {
    let place = Place::new();
    fs::write(place.path("model.onnx"), symbolic_model()).unwrap();
    let said = place.succeed(&["compile", "model.onnx", "--emit", "wasm"]);
    assert!(said.contains("model.wasm") && said.contains("with its loader model.js"), "{said}");
    assert_eq!(place.files(), ["model.js", "model.onnx", "model.wasm"]);
    let questions: Vec<&str> = QUESTIONS.iter().map(|(question, _)| *question).collect();
    let page = format!(
        r#"<script type="module">
import {{ load }} from "./model.js";
const model = await load();
const show = ({{ data, shape }}) => `${{data}} of ${{shape}}`;
const answers = [];
for (const question of {}) {{
  try {{
    answers.push(String(await eval(question)));
  }} catch (error) {{
    answers.push(String(error));
  }}
}}
await fetch("report", {{ method: "POST", body: JSON.stringify(answers) }});
</script>"#,
        json!(questions)
    );
    fs::write(place.path("page.html"), page).unwrap();
    let answers = Browser::open(place.path("page.html").parent().unwrap(), "page.html").report().unwrap();
    let answers: Vec<String> = serde_json::from_slice(&answers).unwrap();
    for ((question, expected), answer) in QUESTIONS.iter().zip(&answers) {
        assert!(
            answer == expected || answer.starts_with("Error: ") && answer.starts_with(expected),
            "{question}: {answer}"
        );
    }
    assert_eq!(answers.len(), QUESTIONS.len());
}

#[test]
fn the_command_knows_what_it_can_do() {
    let place = Place::new();
    fs::write(place.path("model.onnx"), symbolic_model()).unwrap();
    let compile = |more: &[&str]| place.numrsc(&[&["compile", "model.onnx"], more].concat());
    for (args, message) in [
        (&["--emit", "wasm", "--backend", "cranelift"][..], "only --backend llvm makes WebAssembly"),
        (
            &["--emit", "wasm", "--target", "aarch64-unknown-linux-gnu"],
            "--emit wasm is for --target wasm32-unknown-unknown, not for aarch64-unknown-linux-gnu",
        ),
        (&["--emit", "wasm", "--cpu", "native"], "`native` is another architecture"),
        (&["--emit", "wasm", "--cpu", "haswell"], "unknown CPU; known are native, generic, mvp"),
        (&["--target", "wasm32-unknown-unknown"], "for wasm32-unknown-unknown there are modules only: --emit wasm"),
        (&["--target", "wasm32-unknown-unknown", "--emit", "obj"], "there are modules only: --emit wasm"),
        (&["--target", "wasm32-unknown-unknown", "--emit", "exe"], "there are modules only: --emit wasm"),
        (
            &["--emit", "wasm", "--tune"],
            "--tune measures on this machine, which cannot run code for wasm32-unknown-unknown",
        ),
    ] {
        let output = compile(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(message), "{args:?}: {}", stderr(&output));
    }
    assert_eq!(place.files(), ["model.onnx"]);

    // The same bytes every time, and vectors only where they are asked for.
    let mut modules = vec![];
    for cpu in ["generic", "generic", "mvp"] {
        place.succeed(&["compile", "model.onnx", "--emit", "wasm", "--cpu", cpu, "--report", "report.json"]);
        modules.push(fs::read(place.path("model.wasm")).unwrap());
        place.succeed(&["compile", "model.onnx", "--emit", "asm", "--target", "wasm32-unknown-unknown", "--cpu", cpu]);
        assert_eq!(fs::read_to_string(place.path("model.s")).unwrap().contains("f32x4.mul"), cpu == "generic");
    }
    assert!(modules[0] == modules[1] && modules[0] != modules[2]);
    let report: Value = serde_json::from_str(&fs::read_to_string(place.path("report.json")).unwrap()).unwrap();
    assert_eq!((&report["loader"], &report["header"]), (&json!("model.js"), &Value::Null));
    assert!(place.succeed(&["targets"]).contains("\nwasm32-unknown-unknown\n  generic  simd128\n"));
}
