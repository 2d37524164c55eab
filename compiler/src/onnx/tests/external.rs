use super::super::{
    external::ExternalData,
    proto::{StringStringEntryProto, TensorProto},
    tensor_data::tensor,
};
use std::{fs, path::Path};

fn stored(location: &str, more: &[(&str, &str)]) -> TensorProto {
    let entry =
        |(key, value): &(&str, &str)| StringStringEntryProto { key: (*key).into(), value: (*value).to_string().into() };
    let mut external_data: Vec<_> = more.iter().map(entry).collect();
    external_data.push(entry(&("location", location)));
    TensorProto { name: "w".into(), data_type: 1, dims: vec![2], data_location: 1, external_data, ..Default::default() }
}

fn error(folder: &Path, t: &TensorProto) -> String {
    let message = tensor(t, &ExternalData::new(Some(folder))).unwrap_err();
    assert!(message.starts_with("tensor `w`: "), "{message}");
    message
}

/// A folder `model` with `w.bin` (16 bytes) and `sub/w.bin`, and a file `secret` next to the folder.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("model/sub")).unwrap();
    let bytes: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    for file in ["model/w.bin", "model/sub/w.bin", "secret"] {
        fs::write(dir.path().join(file), &bytes).unwrap();
    }
    dir
}

#[test]
fn offsets_and_lengths_in_several_files_that_are_mapped_once() {
    let dir = folder();
    let external = ExternalData::new(Some(&dir.path().join("model")));
    let read = |t: &TensorProto| tensor(t, &external).unwrap();
    let first = read(&stored("w.bin", &[]));
    assert_eq!(first.to_f64s(), [1.0, 2.0]);
    let second = read(&stored("./w.bin", &[("offset", "8"), ("length", "8"), ("checksum", "x")]));
    assert_eq!(second.to_f64s(), [3.0, 4.0]);
    assert_eq!(first.bytes().as_ptr() as usize + 8, second.bytes().as_ptr() as usize);
    assert_eq!(read(&stored("sub/w.bin", &[("offset", "4")])).to_f64s(), [2.0, 3.0]);
    // Alignment is not promised by anybody.
    assert_eq!(read(&stored("w.bin", &[("offset", "3")])).bytes().len(), 8);
}

#[test]
fn what_lies_outside_or_is_missing_is_refused() {
    let dir = folder();
    let model = dir.path().join("model");
    let missing = error(&model, &stored("none.bin", &[]));
    assert!(missing.contains("none.bin") && missing.contains("No such file"), "{missing}");
    assert!(error(&model, &stored("../secret", &[])).contains("`..`"));
    assert!(error(&model, &stored("sub/../../secret", &[])).contains("`..`"));
    assert!(error(&model, &stored(dir.path().join("secret").to_str().unwrap(), &[])).contains("relative"));
    assert!(error(&model, &stored("sub", &[])).contains("not a file"));
    assert!(error(&model, &stored("", &[])).contains("not a file"));
    assert!(error(&model, &stored("a\0b", &[])).contains("external data"));
    let no_location = TensorProto { external_data: vec![], ..stored("", &[]) };
    assert!(error(&model, &no_location).contains("without a location"));
    assert!(tensor(&stored("w.bin", &[]), &ExternalData::new(None)).unwrap_err().contains("folder"));
    let twice = TensorProto { float_data: vec![1.0, 2.0], ..stored("w.bin", &[]) };
    assert!(error(&model, &twice).contains("both"));
}

#[test]
fn ranges_are_checked() {
    let dir = folder();
    let model = dir.path().join("model");
    assert!(error(&model, &stored("w.bin", &[("offset", "9")])).contains("beyond its 16 bytes"));
    assert!(error(&model, &stored("w.bin", &[("offset", "18446744073709551615")])).contains("beyond"));
    assert!(error(&model, &stored("w.bin", &[("offset", "-1")])).contains("not a valid offset"));
    assert!(error(&model, &stored("w.bin", &[("length", "4")])).contains("its length is 4"));
    assert!(error(&model, &stored("w.bin", &[("length", "99999999999999999999999")])).contains("not a valid length"));
}

#[cfg(unix)]
#[test]
fn links_may_not_lead_out() {
    use std::os::unix::fs::symlink;
    let dir = folder();
    let model = dir.path().join("model");
    symlink(dir.path().join("secret"), model.join("link")).unwrap();
    symlink(dir.path(), model.join("up")).unwrap();
    symlink("sub", model.join("inside")).unwrap();
    symlink(&model, dir.path().join("alias")).unwrap();
    assert!(error(&model, &stored("link", &[])).contains("leads out"));
    assert!(error(&model, &stored("up/secret", &[])).contains("leads out"));
    // Out and in again stays inside, as does a link within the folder.
    assert!(tensor(&stored("inside/w.bin", &[]), &ExternalData::new(Some(&model))).is_ok());
    // A folder that is itself a link is the user's choice.
    let alias = dir.path().join("alias");
    assert!(tensor(&stored("w.bin", &[]), &ExternalData::new(Some(&alias))).is_ok());
    assert!(error(&alias, &stored("link", &[])).contains("leads out"));
}

/// As the cache of Hugging Face has it: all names are links to content in another folder.
#[cfg(unix)]
#[test]
fn a_model_that_is_a_link_has_the_folder_of_its_file_too() {
    use std::os::unix::fs::symlink;
    let dir = folder();
    let (blobs, snapshot) = (dir.path().join("blobs"), dir.path().join("snapshots/1a2b/onnx"));
    fs::create_dir(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    for (from, to) in [("secret", "blobs/77"), ("secret", "blobs/model"), ("model/w.bin", "blobs/beside.bin")] {
        fs::copy(dir.path().join(from), dir.path().join(to)).unwrap();
    }
    let link = |to: &str, name: &str| symlink(to, snapshot.join(name)).unwrap();
    link("../../../blobs/model", "model.onnx");
    link("../../../blobs/77", "model.onnx_data");
    link("../../../secret", "out");
    link("../../../blobs/gone", "gone");
    fs::copy(dir.path().join("secret"), snapshot.join("plain.onnx")).unwrap();
    symlink(snapshot.join("model.onnx"), dir.path().join("link-to-link")).unwrap();
    let read = |model: &Path, location: &str| tensor(&stored(location, &[]), &ExternalData::of_file(model));
    let model = snapshot.join("model.onnx");
    assert_eq!(read(&model, "model.onnx_data").unwrap().to_f64s(), [1.0, 2.0]);
    // Next to the file itself, wherever the link is.
    assert!(read(&model, "beside.bin").is_ok());
    assert!(read(&dir.path().join("link-to-link"), "beside.bin").is_ok());
    assert!(read(&model, "out").unwrap_err().contains("leads out"));
    assert!(read(&model, "../../../secret").unwrap_err().contains("`..`"));
    assert!(read(&model, "gone").unwrap_err().contains("No such file"));
    assert!(read(&model, "none").unwrap_err().contains("onnx/none"));
    // A model that is no link has one folder.
    assert!(read(&snapshot.join("plain.onnx"), "model.onnx_data").unwrap_err().contains("leads out"));
}
