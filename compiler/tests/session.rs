//! The library as programs use it: sessions from files, bytes and artifacts, used by many threads, ended, and refused.
mod common;

use common::{Place, endless_model, symbolic_model};
use numrsc::{Builder, Cancel, Error, Generator, RunOptions, Session, TensorRef};
use std::time::Duration;

fn cranelift() -> Builder {
    Session::builder().backend(Generator::Cranelift).threads(1)
}

/// `relu(x) * [1, 10, 100]` of rows of `[n, -n, n]`.
fn expected(n: f32, rows: usize) -> Vec<f32> {
    [n.max(0.0), 10.0 * (-n).max(0.0), 100.0 * n.max(0.0)].repeat(rows)
}

fn run(session: &Session, n: f32, rows: usize) -> numrsc::Result<Vec<f32>> {
    session.run(&[("x", TensorRef::new(&[n, -n, n].repeat(rows), &[rows, 3]))])?.to_vec("y")
}

#[test]
fn one_session_serves_many_threads() {
    let session = cranelift().load_bytes(symbolic_model()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8i16 {
            let session = session.clone();
            scope.spawn(move || {
                for round in 0..50i16 {
                    let (n, rows) = (f32::from(thread * 100 + round - 300), 1 + usize::from(round.unsigned_abs() % 5));
                    assert_eq!(run(&session, n, rows).unwrap(), expected(n, rows));
                }
            });
        }
    });
    session.trim();
    assert_eq!(run(&session, 1.0, 1).unwrap(), expected(1.0, 1));
}

#[test]
fn outputs_stay_while_the_session_goes_on() {
    let session = cranelift().load_bytes(symbolic_model()).unwrap();
    let x = |n: f32| [n, -n, n];
    let first = session.run(&[("x", TensorRef::new(&x(1.0), &[1, 3]))]).unwrap();
    let second = session.run(&[("x", TensorRef::new(&x(2.0), &[1, 3]))]).unwrap();
    drop(session);
    assert_eq!(first.to_vec::<f32>("y").unwrap(), expected(1.0, 1));
    assert_eq!(second.at(0).unwrap().as_slice::<f32>().unwrap(), expected(2.0, 1));
    assert_eq!(second.iter().map(|output| output.unwrap().name().to_owned()).collect::<Vec<_>>(), ["y"]);
}

#[test]
fn artifacts_are_sessions_at_once() {
    let place = Place::new();
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    place.succeed(&["compile", "relu.onnx", "--backend", "cranelift", "-q"]);
    let file = place.path("relu.nrsc");
    assert_eq!(run(&Session::load(&file).unwrap(), 3.0, 4).unwrap(), expected(3.0, 4));
    let mut bytes = std::fs::read(&file).unwrap();
    let session = Session::builder().load_bytes(bytes.clone()).unwrap();
    assert_eq!(session.inputs().next().unwrap().type_text, "f32[batch, 3]");
    assert_eq!(run(&session, 3.0, 4).unwrap(), expected(3.0, 4));

    bytes[200] ^= 1;
    let error = Session::builder().load_bytes(bytes.clone()).unwrap_err();
    assert!(matches!(error, Error::Artifact { .. }) && error.to_string().contains("damaged"), "{error}");
    std::fs::write(&file, bytes).unwrap();
    let error = Session::load(&file).unwrap_err().to_string();
    assert!(error.contains("relu.nrsc: ") && error.contains("damaged"), "{error}");
}

#[test]
fn what_is_wrong_is_named() {
    let load = |builder: Builder| builder.load_bytes(symbolic_model()).unwrap_err().to_string();
    assert!(load(cranelift().dim("bath", 1)).contains("is `batch` meant?"));
    assert!(load(cranelift().shape("x", "1,two words")).contains("input `x`: "));
    assert!(
        load(cranelift().open("y", 0, "batch")).contains("no input is called `y`, for which an open size was given")
    );
    assert!(load(cranelift().open("x", 2, "batch")).contains("input `x`: it has no axis 2 to open: its rank is 2"));
    // The weights have three elements.
    let fixed = load(cranelift().open("x", 1, "width"));
    assert!(fixed.contains("(Mul, opset") && fixed.contains("with width=6 instead of 3: "), "{fixed}");

    let missing = Session::load("missing.onnx").unwrap_err();
    assert!(missing.is_unreadable() && missing.to_string().starts_with("missing.onnx: "), "{missing}");

    let session = cranelift().load_bytes(symbolic_model()).unwrap();
    let error = |inputs: &[(&str, TensorRef<'_>)]| session.run(inputs).unwrap_err().to_string();
    assert_eq!(error(&[]), "input `x` is missing");
    assert_eq!(error(&[("z", TensorRef::new(&[1f32; 3], &[1, 3]))]), "the model has no input `z`; it has `x`");
    assert_eq!(error(&[("x", TensorRef::new(&[1f32; 3], &[3]))]), "`x` has 2 axes, but 1 was given");
    assert_eq!(run(&session, 5.0, 1).unwrap(), expected(5.0, 1), "and goes on");
}

#[test]
fn runs_end_in_time_or_when_they_are_told() {
    // Endless for 0, and over at once for 0.5.
    let session = cranelift().load_bytes(endless_model()).unwrap();
    let run = |options: &RunOptions, x: f32| session.run_with(options, &[("x", TensorRef::new(&[x], &[]))]);
    let limit = RunOptions::new().time_limit(Duration::from_millis(50));
    for _ in 0..3 {
        let error = run(&limit, 0.0).unwrap_err();
        assert!(matches!(error, Error::TimedOut(_)), "{error}");
        run(&limit, 0.5).unwrap();
    }

    let cancel = Cancel::new();
    let options = RunOptions::new().cancel(&cancel).time_limit(Duration::from_secs(600));
    run(&options, 0.5).unwrap();
    std::thread::scope(|scope| {
        // One cancel ends all of them, whether they have begun or not.
        let runs: Vec<_> = (0..3).map(|_| scope.spawn(|| run(&options, 0.0).unwrap_err())).collect();
        std::thread::sleep(Duration::from_millis(20));
        cancel.cancel();
        for ended in runs {
            let error = ended.join().unwrap();
            assert!(matches!(error, Error::Cancelled), "{error}");
        }
    });
    assert!(cancel.is_cancelled() && matches!(run(&options, 0.5), Err(Error::Cancelled)));
    run(&RunOptions::new(), 0.5).unwrap();
}
