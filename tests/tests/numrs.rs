//! Exports of NumRs give what NumRs computed, and what it loses in them is reported.
use bytes::Bytes;
use numrsc::{
    Error, npy,
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
