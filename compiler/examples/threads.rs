//! Load a model, run it from four threads and print the results: `cargo run --example threads` in this folder.
use numrsc::{Session, TensorRef};

pub(crate) fn main() -> numrsc::Result<()> {
    let session = Session::load("scores.onnx")?; // y = relu(x) * [1, 10, 100] for x: f32[1, 3]
    let scores = |n: f32| session.run(&[("x", TensorRef::new(&[n, -n, n], &[1, 3]))])?.to_vec::<f32>("y");
    std::thread::scope(|scope| {
        let threads = [1.0, 2.0, 3.0, 4.0].map(|n| scope.spawn(move || scores(n)));
        threads.into_iter().for_each(|thread| println!("{:?}", thread.join().unwrap()));
    });
    Ok(())
}
