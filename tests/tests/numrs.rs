//! Exports of NumRs give what NumRs computed, and what it loses in them is reported.
use bytes::Bytes;
use numrsc::{
    Error, Generator, Session, TensorRef, npy,
    onnx::{self, import},
};
use numrsc_ir::{DType, Data, Tensor, eval};
use numrsc_tests::corpus;
use std::path::PathBuf;

fn samples() -> PathBuf {
    corpus::root().join("tests/data/numrs")
}

/// The first array of an `.npz` file: a zip archive in which NumPy stores the entries as they are, with their sizes in
/// a zip64 field after the name.
fn first_array(file: &PathBuf) -> Tensor {
    let data = Bytes::from(std::fs::read(file).unwrap());
    let (name, extra) =
        (u16::from_le_bytes([data[26], data[27]]) as usize, u16::from_le_bytes([data[28], data[29]]) as usize);
    let size_at = 30 + name + 4;
    let size = u64::from_le_bytes(data[size_at..size_at + 8].try_into().unwrap()) as usize;
    let start = 30 + name + extra;
    npy::parse(&data.slice(start..start + size), DType::F32).unwrap()
}

#[test]
fn samples_compute_what_numrs_computed() {
    let mut count = 0;
    for entry in std::fs::read_dir(samples()).unwrap() {
        let dir = entry.unwrap().path();
        if !dir.join("outputs.npz").exists() {
            continue;
        }
        let model = onnx::load(&dir.join("model.onnx.json")).unwrap();
        let func = import::import(&model, &import::Options::default()).unwrap();
        let got = eval(&func, &[Data::Tensor(first_array(&dir.join("inputs.npz")))]).unwrap();
        let want = first_array(&dir.join("outputs.npz"));
        let got = got[0].as_tensor().unwrap();
        assert_eq!(got.shape(), want.shape(), "{}", dir.display());
        for (a, b) in got.to_f64s().iter().zip(want.to_f64s()) {
            assert!((a - b).abs() <= 1e-6 + 1e-5 * b.abs(), "{}: {a}, expected {b}", dir.display());
        }
        count += 1;
    }
    assert_eq!(count, 11);
}

/// Exported at one batch, run at others: by a session whose first size is open, against the evaluator at that size.
#[test]
fn samples_run_at_other_batches_or_say_which_node_cannot() {
    let mut refused = vec![];
    for entry in std::fs::read_dir(samples()).unwrap() {
        let dir = entry.unwrap().path();
        let (file, name) = (dir.join("model.onnx.json"), dir.file_name().unwrap().to_str().unwrap().to_owned());
        if !file.exists() {
            continue;
        }
        let model = onnx::load(&file).unwrap();
        let input = model.graph().input[0].name.clone();
        let open: std::collections::BTreeMap<_, _> = [((input.clone(), 0), "batch".to_owned())].into();
        let session = match Session::builder().backend(Generator::Cranelift).open(&input, 0, "batch").load(&file) {
            Ok(session) => session,
            Err(Error::Model { problems, .. }) => {
                let node = problems[0].place.node.as_ref().unwrap();
                refused.push((name, node.op_type.split(',').next().unwrap().to_owned()));
                continue;
            }
            Err(other) => panic!("{name}: {other}"),
        };
        for batch in [1, 5, 32] {
            let dims = [("batch".to_owned(), batch)].into();
            let func =
                import::import(&model, &import::Options { open: open.clone(), dims, ..Default::default() }).unwrap();
            let shape: Vec<usize> = func
                .ty(func.params()[0])
                .as_tensor()
                .unwrap()
                .shape
                .iter()
                .map(|d| d.as_const().unwrap() as usize)
                .collect();
            let x: Vec<f32> =
                (0..shape.iter().product::<usize>()).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
            let got = session.run(&[(&input, TensorRef::new(&x, &shape))]).unwrap();
            let want = eval(&func, &[Data::Tensor(Tensor::from_f32(&shape, &x))]).unwrap();
            let (got, want) = (got.at(0).unwrap(), want[0].as_tensor().unwrap());
            assert_eq!(got.shape(), want.shape(), "{name} at {batch}");
            for (a, b) in got.as_slice::<f32>().unwrap().iter().zip(want.to_f64s()) {
                assert!((f64::from(*a) - b).abs() <= 1e-5 + 1e-5 * b.abs(), "{name} at {batch}: {a}, expected {b}");
            }
        }
    }
    refused.sort();
    let fixed = [("add", "Add"), ("arith_broadcast", "Div"), ("log_exp", "Mul"), ("reshape", "Reshape")];
    assert_eq!(refused, fixed.map(|(name, op)| (name.to_owned(), op.to_owned())));
}

#[test]
fn what_numrs_loses_is_reported() {
    let load = |name: &str| onnx::load(&samples().join("quirks").join(name)).unwrap();
    for (name, warning) in [
        ("add_no_requires_grad.onnx.json", "has no nodes"),
        ("tanh_lost.onnx.json", "has no nodes"),
        ("add_all_requires_grad.onnx.json", "has no inputs"),
    ] {
        let model = load(name);
        assert!(model.warnings().iter().any(|w| w.message.contains(warning)), "{name}: {:?}", model.warnings());
        import::import(&model, &import::Options::default()).unwrap();
    }
    let bad = load("transpose_3d_bad_perm.onnx.json");
    let Err(Error::Model { problems, .. }) = import::import(&bad, &import::Options::default()) else {
        panic!("a rank-2 perm of a rank-3 tensor is impossible");
    };
    assert!(problems[0].message.contains("perm [1, 0]"), "{}", problems[0]);
}
