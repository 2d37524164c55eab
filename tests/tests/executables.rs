//! Models as programs that need no libraries: for this processor, and for others under QEMU.
use numrsc::{
    Program,
    compile::{Codegen, Options, compile},
    conformance::{self, Executor},
    npy,
    onnx::{self, import},
};
use numrsc_ir::{Data, Func, Tensor, Type};
use numrsc_tests::corpus;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tempfile::TempDir;

/// Of several kinds: convolutions, recurrent and attention layers, loops, open sizes, many inputs and outputs, half precision, integers.
#[rustfmt::skip]
const MODELS: [&str; 12] = [
    "aecmos_gru", "credsweeper", "dlrm_ts", "forecast_cnn_ts", "gpt2_mini_kv_ts", "lstm_tagger_ts",
    "mnist_cntk", "mtcnn_onet", "reachy_fk_int8", "silero_vad_v6", "silero_vad_v6_half", "stn_gridsample_ts",
];

/// What programs are compiled for, and what runs them if it is not this machine.
struct Machine {
    program: Program,
    options: Options,
    emulator: Option<&'static str>,
}

impl Machine {
    fn new(triple: &str, cpu: &str, emulator: Option<&'static str>) -> Machine {
        let options = Options { triple: triple.into(), cpu: cpu.into(), ..Options::default() }.with(|o| o.jobs = 1);
        let codegen = Codegen::new(&options).unwrap();
        Machine { program: Program::build(codegen.backend.target(), None).unwrap(), options, emulator }
    }

    fn command(&self, executable: &Path) -> Command {
        let Some(emulator) = self.emulator else { return Command::new(executable) };
        let mut command = Command::new(emulator);
        command.arg(executable);
        command
    }
}

impl Executor for Machine {
    fn run(&self, func: &Func, inputs: &[Data]) -> Result<Vec<Data>, String> {
        let artifact = compile(func, "test", &self.options, None).map_err(|e| e.to_string())?;
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let file = |name: &str| folder.path().join(name);
        self.program.write(&artifact, &file("model")).map_err(|e| e.to_string())?;
        let mut command = self.command(&file("model"));
        for (i, (name, data)) in func.param_names.iter().zip(inputs).enumerate() {
            let path = file(&format!("{i}.npy"));
            npy::write(&path, data.as_tensor()?)?;
            command.arg("--input").arg(format!("{name}={}", path.display()));
        }
        let path_of_output = |i: usize| file(&format!("output_{i}.npy"));
        for (i, name) in func.result_names.iter().enumerate() {
            command.arg("--output").arg(format!("{name}={}", path_of_output(i).display()));
        }
        let output = command.output().map_err(|e| format!("{command:?} (.ci/setup installs what it needs): {e}"))?;
        if !output.status.success() {
            return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
        }
        let read = |(i, value): (usize, &numrsc_ir::Value)| match func.ty(*value) {
            Type::Tensor(ty) => npy::read(&path_of_output(i), ty.dtype).map(Data::Tensor),
            other => Err(format!("{other}")),
        };
        func.results().iter().enumerate().map(read).collect()
    }
}

fn agrees_with_onnx_runtime(machine: &Machine) {
    let models = corpus::fetch("models").join("models");
    let folders: Vec<PathBuf> = MODELS.iter().map(|name| models.join(name)).collect();
    let results = conformance::run_all(&folders, None, |dir| conformance::run_folder(dir, machine, Default::default()));
    let score = conformance::score(&folders, results, &Default::default());
    assert!(score.failures.is_empty(), "{}", score.failures.join("\n"));
}

#[test]
fn of_this_machine() {
    agrees_with_onnx_runtime(&Machine::new("", "native", None));
}

#[test]
fn of_aarch64() {
    agrees_with_onnx_runtime(&Machine::new("aarch64-unknown-linux-gnu", "", Some("qemu-aarch64")));
}

#[test]
fn of_riscv64() {
    agrees_with_onnx_runtime(&Machine::new("riscv64gc-unknown-linux-gnu", "", Some("qemu-riscv64")));
}

/// A program with one input `x` of fixed sizes and one output, and its input and output.
struct Digits {
    folder: TempDir,
    image: Tensor,
    weights: usize,
}

impl Digits {
    fn new() -> Digits {
        let dir = corpus::fetch("models").join("models/mnist_cntk");
        let model = onnx::load(&dir.join("model.onnx")).unwrap();
        let func = import::import(&model, &import::Options::default()).unwrap();
        let machine = Machine::new("", "", None);
        let artifact = compile(&func, "digits", &machine.options, None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        machine.program.write(&artifact, &folder.path().join("digits")).unwrap();
        let ty = model.graph().input[0].r#type.clone().unwrap();
        let Ok(Data::Tensor(image)) = conformance::load_data(&dir.join("test_data_set_0/input_0.pb"), &ty) else {
            panic!("a tensor")
        };
        npy::write(&folder.path().join("x.npy"), &image).unwrap();
        fs::write(folder.path().join("x.raw"), image.bytes()).unwrap();
        let weights = artifact.weights_length() as usize;
        Digits { folder, image, weights }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(self.path("digits"))
            .args(args)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn filter(&self, command: &mut Command, input: &[u8]) -> Output {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may end before it read all.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }
}

#[test]
fn files_pipes_and_errors() {
    let digits = Digits::new();
    let succeed = |args: &[&str]| {
        let output = digits.run(args);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
        output.stdout
    };
    let help = String::from_utf8(succeed(&["--help"])).unwrap();
    assert!(help.contains("digits") && help.contains("Input3: f32[1, 1, 28, 28]"), "{help}");

    // As .npy and as bytes, by files and by pipes.
    assert!(succeed(&["--input", "Input3=x.npy", "--output", "Plus214_Output_0=y.npy"]).is_empty());
    let expected = fs::read(digits.path("y.npy")).unwrap();
    let elements = npy::read(&digits.path("y.npy"), numrsc_ir::DType::F32).unwrap();
    assert_eq!(elements.shape(), [1, 10]);
    assert_eq!(succeed(&["--input", "x.raw"]), expected);
    succeed(&["--input", "x.raw", "--output", "y.raw"]);
    assert_eq!(fs::read(digits.path("y.raw")).unwrap(), elements.bytes()[..]);
    // Nothing is left of a file that was longer.
    fs::write(digits.path("y.raw"), [1; 5000]).unwrap();
    succeed(&["--input", "x.raw", "--output", "y.raw"]);
    assert_eq!(fs::read(digits.path("y.raw")).unwrap(), elements.bytes()[..]);
    // Elements need not be aligned, as they are with a header that is a byte longer.
    let mut shifted = fs::read(digits.path("x.npy")).unwrap();
    let header = u16::from_le_bytes([shifted[8], shifted[9]]);
    shifted[8..10].copy_from_slice(&(header + 1).to_le_bytes());
    shifted.insert(usize::from(header) + 9, b' ');
    fs::write(digits.path("shifted.npy"), shifted).unwrap();
    assert_eq!(succeed(&["--input", "shifted.npy"]), expected);
    let mut program = Command::new(digits.path("digits"));
    for input in [digits.image.bytes().to_vec(), fs::read(digits.path("x.npy")).unwrap()] {
        assert_eq!(digits.filter(&mut program, &input).stdout, expected);
    }
    let bench = String::from_utf8(succeed(&["--bench"])).unwrap();
    assert!(bench.contains(" runs on one thread: fastest ") && bench.contains(" ms"), "{bench}");

    // What is wrong is said, and the exit code tells whose fault it is.
    let npy = fs::read(digits.path("x.npy")).unwrap();
    fs::write(digits.path("cut.npy"), &npy[..npy.len() - 1]).unwrap();
    fs::write(digits.path("header.npy"), &npy[..20]).unwrap();
    fs::write(digits.path("words.npy"), String::from_utf8_lossy(&npy).replace("<f4", "<i4")).unwrap();
    npy::write(&digits.path("size.npy"), &Tensor::from_f32(&[1, 1, 28, 27], &[0.0; 28 * 27])).unwrap();
    for (args, code, message) in [
        (&["--input", "none.npy"][..], 1, "none.npy: there is no such file"),
        (&["--input", "."], 1, "this is a folder"),
        (&["--input", "cut.npy"], 1, "Input3"),
        (&["--input", "header.npy"], 1, "cut short"),
        (&["--input", "size.npy"], 1, "Input3"),
        (&["--input", "y.raw"], 1, "40 bytes instead of 3136"),
        (&["--input", "x.npy", "--output", "none/y.npy"], 1, "none/y.npy"),
        (&["--input", "x=x.npy"], 2, "Input3"),
        (&["--input"], 2, "needs a value"),
        (&["--input", "x.npy", "--input", "x.npy"], 2, "two files"),
        (&["--nonsense"], 2, "--nonsense"),
    ] {
        let output = digits.run(args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(text.starts_with("error: ") && text.contains(message) && output.stdout.is_empty(), "{args:?}: {text}");
    }
}

/// Linux maps huge pages only where addresses and places in the file agree modulo their size.
#[test]
fn large_weights_fit_huge_pages() {
    const HUGE_PAGE: u64 = 2 << 20;
    const LOAD: u64 = 1;
    let model = onnx::load(&corpus::fetch("models").join("models/gpt2_mini_kv_ts/model.onnx")).unwrap();
    let func = import::import(&model, &import::Options::default()).unwrap();
    let machine = Machine::new("", "", None);
    let artifact = compile(&func, "large", &machine.options, None).unwrap();
    let weights = artifact.weights_length() as usize;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    machine.program.write(&artifact, &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert!(weights > HUGE_PAGE as usize && bytes.len() < weights + 500_000, "{weights} of {}", bytes.len());
    let number = |at: usize, size: usize| (0..size).rev().fold(0, |n, i| n << 8 | u64::from(bytes[at + i]));
    let (table, row, rows) = (number(32, 8) as usize, number(54, 2) as usize, number(56, 2) as usize);
    let segments: Vec<_> = (0..rows).map(|i| table + i * row).filter(|&at| number(at, 4) == LOAD).collect();
    assert!(!segments.is_empty());
    for at in segments {
        let (offset, address) = (number(at + 8, 8), number(at + 16, 8));
        assert_eq!(offset % HUGE_PAGE, address % HUGE_PAGE, "{offset:#x} at {address:#x}");
    }
}

#[test]
fn small_and_alone() {
    let digits = Digits::new();
    let size = fs::metadata(digits.path("digits")).unwrap().len() as usize;
    println!("{size} bytes, of which {} are weights", digits.weights);
    assert!(size < digits.weights + 90_000, "{size} bytes, of which {} are weights", digits.weights);

    // In a folder that holds nothing else.
    let empty = tempfile::tempdir().unwrap();
    fs::copy(digits.path("digits"), empty.path().join("digits")).unwrap();
    let inside = |command: &mut Command| digits.filter(command.arg(empty.path()).arg("/digits"), digits.image.bytes());
    let mut output = inside(&mut Command::new("chroot"));
    if !output.status.success() {
        output = inside(Command::new("unshare").args(["--map-root-user", "chroot"]));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.starts_with("unshare:") || text.starts_with("chroot:") {
        println!("skipped: changing the root is not permitted here: {text}");
        return;
    }
    assert!(output.status.success(), "{text}");
    assert_eq!(output.stdout, digits.run(&["--input", "x.npy"]).stdout);
}
