//! Models on a microcontroller: flash, RAM and instructions, ours and those of emx-onnx-cgen, which generates C.
//!
//! `cargo run --release -p numrsc-benches --bin devices [NAME…]`. Everything is linked with the same program and run by QEMU on a Cortex-M4: a number of bytes is what
//! the linked program grows by, libraries included, and the results are compared with those of ONNX Runtime.
use clap::Parser;
use numrsc::{
    compile::{Options, compile},
    conformance::{self, Settings},
    onnx::{self, import},
    output::object,
};
use numrsc_benches::{
    driver::{self, Result},
    exit_code, peers,
    table::{Format, Table, short},
};
use numrsc_ir::{DType, Data, Tensor};
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

/// Flash, RAM and instructions of small models on a Cortex-M4.
#[derive(Parser)]
struct Args {
    names: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Models of the corpus that fit a microcontroller, of one input and one output, with the sizes that they leave open.
const MODELS: [(&str, &[(&str, i64)]); 6] = [
    ("mnist_cntk", &[]),
    ("tcn_ts", &[("batch", 1), ("time", 96)]),
    ("mlp_ts", &[("batch", 1)]),
    ("reachy_fk", &[("N", 1)]),
    ("forecast_cnn_ts", &[("batch", 1)]),
    ("oww_alexa", &[]),
];

const TRIPLE: &str = "thumbv7em-none-eabihf";
const COMPILER: &str = "arm-none-eabi-gcc";
const CPU: [&str; 4] = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"];
/// Instructions by ticks of the board's timer: QEMU takes 32 ns for each, the timer 40 ns.
const PER_TICK: f64 = 40.0 / 32.0;
const LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    exit_code(report(&Args::parse()))
}

/// What a program needs.
struct Cost {
    flash: f64,
    ram: f64,
    instructions: f64,
}

/// The model's part of a program.
struct Part {
    /// C with a function `infer`.
    declaration: String,
    files: Vec<PathBuf>,
    /// For the C compiler.
    optimise: &'static str,
}

fn report(args: &Args) -> Result<()> {
    let corpus = driver::corpus_models()?;
    let head = ["", "ours: flash kB", "RAM kB", "instructions ×1000", "emx-onnx-cgen, -Os: flash kB", "RAM kB"];
    let more = ["instructions ×1000", "-O2: flash kB", "RAM kB", "instructions ×1000"];
    let mut table = Table::new(&[&head[..], &more].concat());
    for (name, dims) in MODELS.iter().filter(|(name, _)| args.names.is_empty() || args.names.iter().any(|n| n == name))
    {
        let model = corpus.iter().find(|path| driver::name_of(path) == *name).ok_or("not in the corpus")?;
        let costs = measure(model, dims).map_err(|e| format!("{name}: {e}"))?;
        let cells = costs.iter().flat_map(|c| [c.flash / 1e3, c.ram / 1e3, c.instructions / 1e3]);
        table.row(std::iter::once((*name).to_owned()).chain(cells.map(short)));
    }
    table.print(args.format);
    Ok(())
}

/// Ours, theirs with -Os and theirs with -O2, each without the empty program.
fn measure(model: &Path, dims: &[(&str, i64)]) -> Result<Vec<Cost>> {
    let folder = driver::work_folder(&format!("devices/{}", driver::name_of(model)))?;
    let dims = dims.iter().map(|&(name, size)| (name.to_owned(), size)).collect();
    let import = import::Options { dims, ..Default::default() };
    let loaded = onnx::load(&model.join("model.onnx")).map_err(|e| e.to_string())?;
    let func = import::import(&loaded, &import).map_err(|e| e.to_string())?;
    let shape = |ty: &numrsc_ir::Type| {
        ty.as_tensor().ok().and_then(numrsc_ir::TensorType::static_shape).ok_or("sizes are open")
    };
    let data = |file: &str, info: &onnx::proto::ValueInfoProto, shape: Vec<usize>| -> Result<Tensor> {
        let ty = info.r#type.clone().ok_or("a type is missing")?;
        match conformance::load_data(&model.join("test_data_set_0").join(file), &ty)? {
            // If there are more, the first of a batch.
            Data::Tensor(t) if t.dtype() == DType::F32 => {
                let bytes = t.bytes().get(..4 * shape.iter().product::<usize>()).ok_or("too few elements")?;
                Tensor::new(DType::F32, shape, bytes.to_vec().into())
            }
            _ => Err("not floats".to_owned()),
        }
    };
    let input = data("input_0.pb", &loaded.graph().input[0], shape(func.ty(func.params()[0]))?)?;
    let expected = data("output_0.pb", &loaded.graph().output[0], shape(func.ty(func.results()[0]))?)?;

    let options = Options { triple: TRIPLE.into(), cpu: String::new(), ..Options::default() };
    let artifact = compile(&func, "model", &options, None).map_err(|e| e.to_string())?;
    let object = folder.join("ours.o");
    let footprint = object::write_object(&artifact, "model", &object).map_err(|e| e.to_string())?;
    write(&folder.join("ours.h"), &numrsc::c_header(&artifact, "model", &footprint.needs))?;
    let source = folder.join("theirs.c");
    generate(&model.join("model.onnx"), &import, &source)?;

    let theirs = "void theirs(const float *, float *);\n#define infer theirs\n";
    let theirs = |optimise| Part { declaration: theirs.into(), files: vec![source.clone()], optimise };
    let ours = "#include \"ours.h\"\nstatic uint64_t memory[model_MEMORY_BYTES / 8];
static __attribute__((noinline)) void infer(const float *in, float *out) { if (model_run(in, out, memory) != 0) out[0] = __builtin_nanf(\"\"); }\n";
    let nothing = "static __attribute__((noinline)) void infer(const float *in, float *out) { __asm__ volatile(\"\" : : \"r\"(in), \"r\"(out)); }\n";
    let parts = [Part { declaration: ours.into(), files: vec![object], optimise: "-Os" }, theirs("-Os"), theirs("-O2")];
    let (alone, _) =
        run(&folder, &Part { declaration: nothing.into(), files: vec![], optimise: "-Os" }, &input, &expected)?;
    let settings = Settings::of(model)?;
    let mut costs = vec![];
    for part in &parts {
        let (cost, output) = run(&folder, part, &input, &expected)?;
        conformance::compare(&Data::Tensor(output), &Data::Tensor(expected.clone()), &settings, false)?;
        costs.push(Cost {
            flash: cost.flash - alone.flash,
            ram: cost.ram - alone.ram,
            instructions: cost.instructions - alone.instructions,
        });
    }
    Ok(costs)
}

/// Their C code, with temporary arrays on the stack and all weights inside.
fn generate(model: &Path, import: &import::Options, source: &Path) -> Result<()> {
    let mut command = Command::new(peers::emx_onnx_cgen()?);
    command.args(["compile", "--model-name", "theirs", "--large-temp-threshold", "0", "--large-weight-threshold", "0"]);
    for (name, size) in &import.dims {
        command.args(["--input-dim", &format!("{name}={size}")]);
    }
    driver::run_silent(command.arg(model).arg(source), LIMIT).map(|_| ())
}

/// Links a program, runs it, and returns its cost and its result.
fn run(folder: &Path, part: &Part, input: &Tensor, expected: &Tensor) -> Result<(Cost, Tensor)> {
    let board = numrsc_tests::corpus::root().join("benches/devices");
    let program = folder.join("program.elf");
    let mut header = part.declaration.clone();
    let numbers: Vec<String> = words(input.bytes()).map(|bits| format!("{bits}u")).collect();
    let _ = writeln!(header, "static const uint32_t input_bits[] = {{{}}};", numbers.join(", "));
    let _ = writeln!(header, "#define input ((const float *)input_bits)\n#define OUTPUTS {}", expected.len());
    write(&folder.join("model.h"), &format!("#include <stdint.h>\n{header}"))?;

    let mut compiler = Command::new(COMPILER);
    compiler.args(CPU).args([part.optimise, "-w", "-ffunction-sections", "-fdata-sections", "-fno-strict-aliasing"]);
    compiler.args(["-nostartfiles", "--specs=nosys.specs", "-Wl,--gc-sections,-z,noexecstack"]).arg("-I").arg(folder);
    compiler.arg(board.join("board.c")).args(&part.files).args(["-lm", "-T"]).arg(board.join("board.ld"));
    driver::run_silent(compiler.arg("-o").arg(&program), LIMIT)?;
    let sizes = driver::run_silent(Command::new("arm-none-eabi-size").arg(&program), LIMIT)?;
    let sizes: Vec<f64> =
        sizes.get(1).into_iter().flat_map(|(_, l)| l.split_whitespace().map_while(|n| n.parse().ok())).collect();
    let [code, data, zeroed, ..] = sizes[..] else { return Err("arm-none-eabi-size says nothing".into()) };

    let mut qemu = Command::new("qemu-system-arm");
    qemu.args(["-M", "mps2-an386", "-display", "none", "-icount", "shift=5", "-monitor", "none", "-serial", "none"]);
    qemu.args(["-semihosting-config", "enable=on,target=native,chardev=out", "-chardev", "stdio,id=out", "-kernel"]);
    let lines = driver::run_silent(qemu.arg(&program), LIMIT)?;
    let numbers: Vec<u32> = lines.iter().map_while(|(_, line)| line.trim().parse().ok()).collect();
    let [ticks, stack, outputs @ ..] = &numbers[..] else { return Err("the board says nothing".into()) };
    let bytes: Vec<u8> = outputs.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    if bytes.len() != expected.bytes().len() {
        return Err(format!("the board gave {} numbers", outputs.len()));
    }
    let cost =
        Cost { flash: code + data, ram: data + zeroed + f64::from(*stack), instructions: f64::from(*ticks) * PER_TICK };
    Ok((cost, Tensor::new(DType::F32, expected.shape().to_vec(), bytes.into())?))
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}
