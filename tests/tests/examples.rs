//! The examples in Rust, by the commands of their READMEs. Those in C are tested with the command, in `compiler/tests`.
use numrsc_tests::{corpus, outside::Outside};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    thread,
};

/// The first commands of the README.
fn commands(example: &Outside) -> String {
    let readme = fs::read_to_string(example.path("README.md")).unwrap();
    readme.split_once("```sh\n").and_then(|(_, rest)| rest.split_once("```")).expect("commands").0.to_owned()
}

fn shell(example: &Outside, commands: &str) -> Command {
    let mut shell = example.command("bash");
    shell.args(["-euo", "pipefail", "-c", commands]);
    shell
}

/// What commands print.
fn printed(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn classifier() {
    let example = Outside::example("classifier");
    let text = printed(shell(&example, &commands(&example)));
    assert!(text.ends_with("page.png: turned clockwise by 0 degrees (92 %)\n"), "{text}");
    printed(shell(&example, "cargo test"));
}

/// ONNX Runtime on the same windows.
const EXPECTED_PROBABILITIES: &str = r#"
import sys, wave
import numpy, onnxruntime
wav = wave.open(sys.argv[2])
samples = numpy.frombuffer(wav.readframes(wav.getnframes()), "<i2").astype(numpy.float32) / 32768
samples = numpy.concatenate([samples, numpy.zeros(-len(samples) % 512, numpy.float32)])
session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
context, state = numpy.zeros((1, 64), numpy.float32), numpy.zeros((2, 1, 128), numpy.float32)
for window in samples.reshape(-1, 1, 512):
    output, state = session.run(None, {"input": numpy.concatenate([context, window], 1), "state": state})
    context = window[:, -64:]
    print(output[0, 0])
"#;

#[test]
fn voice_activity() {
    let example = Outside::example("voice-activity");
    let text = printed(shell(&example, &commands(&example)));
    let spoken: Vec<&str> = text.lines().filter(|line| line.contains(" s to ")).collect();
    assert_eq!(spoken, ["0.51 s to 1.18 s", "1.89 s to 2.40 s"]);

    let numbers = |text: String| -> Vec<f32> { text.lines().map(|line| line.parse().unwrap()).collect() };
    let found = numbers(printed(shell(&example, "cargo run --quiet -- --probabilities speech.wav")));
    let mut python = example.command(corpus::folder().join("venv/bin/python").to_str().unwrap());
    let model = corpus::folder().join("models/silero_vad_v6_half/model.onnx");
    python.args(["-c", EXPECTED_PROBABILITIES]).arg(model).arg("speech.wav");
    let expected = numbers(printed(python));
    assert_eq!(found.len(), expected.len());
    for (window, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!((found - expected).abs() < 1e-4, "window {window}: {found}, not {expected}");
    }
}

/// A service that is stopped at the end, whatever happens.
struct Service {
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    address: String,
}

impl Service {
    fn start(example: &Outside) -> Service {
        // The last command becomes the process that we talk to, at an address of the system's choice.
        let commands =
            commands(example).replace("127.0.0.1:8080", "127.0.0.1:0").replace("\ncargo run", "\nexec cargo run");
        let mut process = shell(example, &commands).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.starts_with("listening on ") {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "the service does not start");
        }
        let address = line.trim_start_matches("listening on ").trim().to_owned();
        Service { process, output, address }
    }

    /// Status and body of an answer.
    fn ask(&self, request: &str, body: &[u8]) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head =
            format!("{request} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.ask("GET /metrics", b"");
        text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn service() {
    let example = Outside::example("service");
    let mut service = Service::start(&example);
    let files = ["src/main.rs", "README.md", "Cargo.toml", "../../tests/corpus/fetch.py"];
    let files = files.map(|file| fs::read(example.path(file)).unwrap());
    let alone = files.each_ref().map(|file| service.ask("POST /detect", file));
    for ((status, answer), label) in alone.iter().zip(["rust", "markdown", "toml", "python"]) {
        assert_eq!(*status, 200);
        assert!(answer.starts_with(&format!("{{\"label\":\"{label}\",\"score\":0.9")), "{answer}");
    }
    assert_eq!((service.metric("files"), service.metric("batches")), (4, 4));

    // Many at once get the same answers, from fewer runs.
    thread::scope(|scope| {
        for i in 0..64 {
            let (service, file, alone) = (&service, &files[i % 4], &alone[i % 4]);
            scope.spawn(move || assert_eq!(service.ask("POST /detect", file), *alone));
        }
    });
    assert_eq!(service.metric("files"), 68);
    assert!(service.metric("batches") < 4 + 64, "there was no batch of more than one");

    for bad in [&b""[..], b"short", b"               "] {
        assert_eq!(service.ask("POST /detect", bad), (400, "send a file of at least 8 bytes".into()));
    }

    let kill = format!("kill {}", service.process.id());
    assert!(Command::new("bash").args(["-c", &kill]).status().unwrap().success());
    let mut rest = String::new();
    service.output.read_to_string(&mut rest).unwrap();
    assert!(service.process.wait().unwrap().success());
    assert_eq!(rest, "stopped\n");
}
