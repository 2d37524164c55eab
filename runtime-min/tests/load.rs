//! Loading files: what is right is loaded, and everything else is a clear error.
#![allow(unsafe_code, reason = "tests stand in for compiled code")]
mod common;
use common::*;
use numrsc_runtime::{
    Context, DType, Error, Model, Result, TensorRef,
    artifact::{Artifact, Builder, FORMAT_VERSION, ManifestSpec, Piece, checksum},
};
use std::{fs, path::PathBuf, time::Instant};
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(TempDir::new().unwrap())
    }

    fn put(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("model.nrsc");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn load(&self, bytes: &[u8]) -> Result<Model> {
        Model::load(self.put(bytes))
    }
}

fn small() -> Vec<u8> {
    let mut manifest = manifest();
    manifest.inputs = vec![tensor("x", DType::F32, &[0])];
    manifest.kernels = vec![kernel("nothing", 0, 3)];
    artifact(&manifest, &[7; 100])
}

/// With another header, whose checksum is right.
fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut artifact = small();
    artifact[at..at + bytes.len()].copy_from_slice(bytes);
    sign(&mut artifact);
    artifact
}

/// Where the row of each section starts: manifest, code, names, something unknown, weights.
const ROWS: [usize; 5] = [32, 64, 96, 128, 160];
/// Where the checksum of the header is.
const HEADER_SUM: usize = 192;

fn sign(artifact: &mut [u8]) {
    let sum = checksum(&artifact[..HEADER_SUM]);
    artifact[HEADER_SUM..HEADER_SUM + 8].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_file_is_loaded_and_runs() {
    let folder = Folder::new();
    let path = folder.put(&small());
    for model in [Model::load(&path), Model::load_verified(&path)] {
        let model = model.unwrap();
        assert_eq!(model.manifest().model(), "test");
        let mut context = Context::new(&model).unwrap();
        let x = TensorRef::new::<f32>(&[], &[0]);
        model.run(&mut context, &[("x", x)]).unwrap();
        // The context keeps what it needs.
        let again = model.clone();
        drop(model);
        again.run_in_order(&mut context, &[x]).unwrap();
    }
}

/// `mov rax, [rdi]; mov eax, [rax + 64]; ret`: fails with what the weights say.
#[test]
#[cfg(target_arch = "x86_64")]
fn code_runs_at_its_entry_and_reads_its_weights() {
    let mut manifest = manifest();
    manifest.entry = 5000;
    let mut code = vec![0xcc; 5000];
    code.extend([0x48, 0x8b, 0x07, 0x8b, 0x40, 64, 0xc3]);
    let weights = [Piece { offset: 0, bytes: &[1][..] }, Piece { offset: 64, bytes: &[2, 0, 0, 0] }];
    let builder = Builder { architecture: host(), manifest: &manifest, code: &code, additions: &[], weights: &weights };
    let model = Folder::new().load(&builder.to_bytes().unwrap()).unwrap();
    let error = model.run(&mut Context::new(&model).unwrap(), &[]).unwrap_err();
    assert!(matches!(error, Error::Failed { code: 2, .. }), "{error}");
}

#[test]
fn a_loaded_file_may_be_replaced() {
    let folder = Folder::new();
    let model = folder.load(&small()).unwrap();
    fs::remove_file(folder.0.path().join("model.nrsc")).unwrap();
    folder.put(b"something else");
    assert_eq!(model.manifest().inputs().next().unwrap().name, "x");
    let x = TensorRef::new::<f32>(&[], &[0]);
    model.run(&mut Context::new(&model).unwrap(), &[("x", x)]).unwrap();
}

#[test]
fn static_bytes_run() {
    #[repr(C, align(4096))]
    struct Aligned([u8; 16384]);
    let bytes = small();
    let aligned = Box::leak(Box::new(Aligned([0; 16384])));
    aligned.0[..bytes.len()].copy_from_slice(&bytes);
    aligned.0[bytes.len() + 1..].fill(0);
    let model = Model::from_static(&aligned.0[..bytes.len()]).unwrap();
    let mut context = Context::new(&model).unwrap();
    model.run_in_order(&mut context, &[TensorRef::new::<f32>(&[], &[0])]).unwrap();

    let shifted = Box::leak(Box::new(Aligned([0; 16384])));
    shifted.0[1..=bytes.len()].copy_from_slice(&bytes);
    let error = Model::from_static(&shifted.0[1..=bytes.len()]).unwrap_err();
    assert!(matches!(error, Error::StaticAlignment { needed: 64 }), "{error}");
}

#[test]
fn bytes_from_anywhere_run() {
    let bytes = small();
    for shift in [0, 1, 7] {
        let mut shifted = vec![0; shift];
        shifted.extend(&bytes);
        let model = Model::from_bytes(&shifted[shift..]).unwrap();
        // The model has its own copy.
        shifted.fill(0xff);
        let mut context = Context::new(&model).unwrap();
        model.run_in_order(&mut context, &[TensorRef::new::<f32>(&[], &[0])]).unwrap();
    }
    for length in [0, 7, 8, 136, bytes.len() - 1] {
        assert!(Model::from_bytes(&bytes[..length]).is_err(), "{length}");
    }
    let error = Model::from_bytes(&patched(12, &99u32.to_le_bytes())).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

/// As [`code_runs_at_its_entry_and_reads_its_weights`], from memory.
#[test]
#[cfg(target_arch = "x86_64")]
fn code_from_bytes_reads_aligned_weights() {
    let code = [0x48, 0x8b, 0x07, 0x8b, 0x40, 64, 0xc3];
    let weights = [Piece { offset: 0, bytes: &[1][..] }, Piece { offset: 64, bytes: &[2, 0, 0, 0] }];
    let builder =
        Builder { architecture: host(), manifest: &manifest(), code: &code, weights: &weights, additions: &[] };
    let mut bytes = vec![0];
    bytes.extend(builder.to_bytes().unwrap());
    let model = Model::from_bytes(&bytes[1..]).unwrap();
    drop(bytes);
    let error = model.run(&mut Context::new(&model).unwrap(), &[]).unwrap_err();
    assert!(matches!(error, Error::Failed { code: 2, .. }), "{error}");
}

#[test]
fn included_bytes_are_aligned() {
    let bytes: &'static [u8] = numrsc_runtime::include_artifact!("load.rs");
    assert_eq!(bytes.as_ptr() as usize % 4096, 0);
    assert!(bytes.starts_with(b"//! Loading files"));
    assert!(matches!(Model::from_static(bytes), Err(Error::NotAnArtifact)));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let folder = Folder::new();
    let mut bytes = small();
    let weights = bytes.len() - 100;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            match Artifact::parse(&bytes) {
                Ok(artifact) => {
                    assert!(at >= weights, "byte {at}, bit {bit}");
                    assert!(matches!(artifact.verify_weights(), Err(Error::Damaged { part: "weights" })));
                }
                Err(_) => assert!(at < weights, "byte {at}, bit {bit}"),
            }
            // Files go the same way; not all of them, as there are many.
            if at < 400 && bit == at % 8 || at % 1021 == 0 || at >= weights && bit == 0 {
                let path = folder.put(&bytes);
                assert_eq!(Model::load(&path).is_ok(), at >= weights, "byte {at}, bit {bit}");
                assert!(Model::load_verified(&path).is_err(), "byte {at}, bit {bit}");
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let folder = Folder::new();
    let bytes = small();
    for length in 0..bytes.len() {
        assert!(Artifact::parse(&bytes[..length]).is_err(), "{length} bytes");
        if length < 300 || length % 511 == 0 || length > bytes.len() - 20 {
            assert!(folder.load(&bytes[..length]).is_err(), "{length} bytes");
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let error = folder.load(&longer).unwrap_err();
    assert!(error.to_string().contains("after its end"), "{error}");
    let error = folder.load(&bytes[..bytes.len() - 1]).unwrap_err();
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[test]
fn other_versions_are_refused_before_anything_else() {
    let mut bytes = small();
    bytes[8..12].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let error = Folder::new().load(&bytes).unwrap_err();
    assert!(matches!(error, Error::Version { found, .. } if found == FORMAT_VERSION + 1), "{error}");
    assert!(error.to_string().contains("compile it again"), "{error}");
}

#[test]
fn other_machines_are_refused() {
    let other = numrsc_runtime::Architecture::ALL.into_iter().find(|&other| other != host()).unwrap();
    let error = Folder::new().load(&patched(12, &(other as u32).to_le_bytes())).unwrap_err();
    assert!(matches!(error, Error::Architecture { .. }), "{error}");
    assert!(error.to_string().contains(other.name()), "{error}");
    let error = Folder::new().load(&patched(12, &99u32.to_le_bytes())).unwrap_err();
    assert!(matches!(error, Error::Malformed { .. }), "{error}");
}

#[test]
fn missing_cpu_features_are_named() {
    let mut manifest = manifest();
    manifest.cpu_features = vec!["quantum".into()];
    let error = Folder::new().load(&artifact(&manifest, &[])).unwrap_err();
    assert!(matches!(&error, Error::CpuFeature { name } if name.as_str() == "quantum"), "{error}");
}

/// Versions that ask for these features; each tells which it is by its name and by its weights.
fn versions(features: &[&[&str]]) -> Vec<u8> {
    let code = code_that_succeeds();
    let manifests: Vec<_> = features
        .iter()
        .enumerate()
        .map(|(at, features)| {
            let cpu_features = features.iter().map(ToString::to_string).collect();
            ManifestSpec { model: format!("version {at}"), cpu_features, ..manifest() }
        })
        .collect();
    let weights: Vec<Vec<u8>> = (0..features.len()).map(|at| vec![at as u8; 100 * at]).collect();
    let additions = additions();
    let pieces: Vec<_> = weights.iter().map(|bytes| [Piece { offset: 0, bytes: &bytes[..] }]).collect();
    let builder =
        |(manifest, weights)| Builder { architecture: host(), manifest, code: &code, additions: &additions, weights };
    let builders: Vec<_> = manifests.iter().zip(&pieces).map(|(m, p)| builder((m, &p[..]))).collect();
    let (mut file, mut streamed) = (std::io::Cursor::new(vec![]), vec![]);
    Builder::write_versions(&builders, &mut file).unwrap();
    Builder::stream_versions(&builders, &mut streamed).unwrap();
    assert!(file.get_ref() == &streamed, "a pipe gets another file");
    streamed
}

#[test]
fn the_last_version_that_can_run_is_taken() {
    let folder = Folder::new();
    let baseline = if cfg!(target_arch = "x86_64") { "sse2" } else { "neon" };
    for (features, best) in [
        (&[&[][..], &[baseline]][..], 1),
        (&[&[], &[baseline], &["quantum"]], 1),
        (&[&[], &["quantum"], &[baseline]], 2),
        (&[&[], &["quantum"]], 0),
    ] {
        let bytes = versions(features);
        let model = folder.load(&bytes).unwrap();
        assert_eq!(model.manifest().model(), format!("version {best}"));
        model.run(&mut Context::new(&model).unwrap(), &[]).unwrap();
        assert_eq!(Artifact::versions(&bytes).count(), features.len());
        for artifact in Artifact::versions(&bytes) {
            artifact.unwrap().verify_weights().unwrap();
        }
    }
    let error = folder.load(&versions(&[&["magic"], &["quantum"]])).unwrap_err();
    assert!(matches!(&error, Error::CpuFeature { name } if name.as_str() == "magic"), "{error}");
}

#[test]
fn every_fault_in_any_version_is_noticed() {
    let mut bytes = versions(&[&[], &[], &[]]);
    let sound = |bytes: &[u8]| {
        let checked = |a: Result<Artifact<'_>>| a.and_then(|a| a.verify_weights());
        Artifact::versions(bytes).all(|artifact| checked(artifact).is_ok())
    };
    assert!(sound(&bytes));
    for at in 0..bytes.len() {
        bytes[at] ^= 1 << (at % 8);
        assert!(!sound(&bytes), "byte {at}");
        bytes[at] ^= 1 << (at % 8);
        assert!(!sound(&bytes[..at]), "{at} bytes");
    }
}

#[test]
fn tables_that_lie_are_refused() {
    // Kind, offset and length of each section, the number of sections, and the length of the file.
    for (at, value) in [(24, 6u64), (24, 4), (24, 0), (32, 2), (64, 1), (96, 7), (16, 0), (16, u64::MAX)] {
        assert!(Artifact::parse(&patched(at, &value.to_le_bytes())).is_err(), "{value} at {at}");
    }
    for row in ROWS {
        for field in [8, 16] {
            for value in [0, 1, 4096, 8192, 1 << 20, u64::MAX, u64::MAX - 4095, 1 << 63] {
                let at = row + field;
                let bytes = patched(at, &value.to_le_bytes());
                if bytes != small() {
                    assert!(Artifact::parse(&bytes).is_err(), "{value} at {at}");
                }
            }
        }
    }
}

#[test]
fn what_is_not_known_is_skipped_only_if_it_may_be() {
    let bytes = small();
    let artifact = Artifact::parse(&bytes).unwrap();
    assert_eq!(artifact.names().unwrap().unwrap().nodes().len(), 2);
    assert_eq!(artifact.section(77).unwrap().bytes, [3; 21]);
    // Without the flag that says so, or with one that nobody knows.
    let how = |flags: u64| (77 | (4 << 40) | (flags << 32)).to_le_bytes();
    assert!(Artifact::parse(&patched(ROWS[3], &how(1))).is_ok());
    assert!(matches!(Artifact::parse(&patched(ROWS[3], &how(0))), Err(Error::UnknownSection { kind: 77 })));
    assert!(matches!(Artifact::parse(&patched(ROWS[3], &how(5))), Err(Error::Malformed { .. })));
    let without = patched(ROWS[2], &78u32.to_le_bytes());
    assert!(Artifact::parse(&without).unwrap().names().unwrap().is_none());
    let twice = patched(ROWS[3], &4u32.to_le_bytes());
    assert!(matches!(Artifact::parse(&twice), Err(Error::Malformed { .. })));
}

#[test]
fn what_is_no_artifact_is_refused() {
    let folder = Folder::new();
    assert!(matches!(folder.load(&[]), Err(Error::NotAnArtifact)));
    assert!(matches!(folder.load(b"\x7fELF and more"), Err(Error::NotAnArtifact)));
    let noise: Vec<u8> = (0..10_000u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect();
    assert!(matches!(folder.load(&noise), Err(Error::NotAnArtifact)));
    let mut noise_after_magic = noise;
    noise_after_magic[..12].copy_from_slice(&small()[..12]);
    assert!(matches!(folder.load(&noise_after_magic), Err(Error::Damaged { part: "header" })));

    let error = Model::load(folder.0.path()).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    assert!(error.to_string().contains("not a regular file"), "{error}");
    let error = Model::load(folder.0.path().join("missing.nrsc")).unwrap_err();
    assert!(error.to_string().contains("missing.nrsc"), "{error}");
}

#[test]
fn an_entry_outside_of_the_code_is_refused() {
    let mut manifest = manifest();
    let far = code_that_succeeds().len() as u64;
    manifest.entry = far;
    let code = code_that_succeeds();
    let builder =
        Builder::<&[u8]> { architecture: host(), manifest: &manifest, code: &code, additions: &[], weights: &[] };
    assert!(builder.to_bytes().is_err());
    manifest.entry = 0;
    manifest.kernels = vec![kernel("far", u64::MAX, 2)];
    let builder =
        Builder::<&[u8]> { architecture: host(), manifest: &manifest, code: &code, additions: &[], weights: &[] };
    assert!(builder.to_bytes().is_err());
}

#[test]
fn large_weights_are_not_read() {
    // A file with a hole: the weights of 4 GiB take no space, and reading them would take a second.
    const HOLE: u64 = 4 << 30;
    let folder = Folder::new();
    let manifest = manifest();
    let mut bytes = artifact(&manifest, &[]);
    let encoded = manifest.encode(HOLE).unwrap();
    bytes[HEADER_SUM + 8..][..encoded.len()].copy_from_slice(&encoded);
    let length = bytes.len() as u64 + HOLE;
    bytes[16..24].copy_from_slice(&length.to_le_bytes());
    bytes[56..64].copy_from_slice(&checksum(&encoded).to_le_bytes());
    bytes[ROWS[4] + 16..][..8].copy_from_slice(&HOLE.to_le_bytes());
    sign(&mut bytes);
    let path = folder.put(&bytes);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();

    let fastest = (0..10)
        .map(|_| {
            let start = Instant::now();
            let model = Model::load(&path).unwrap();
            assert_eq!(model.manifest().weights_bytes(), HOLE);
            start.elapsed()
        })
        .min()
        .unwrap();
    assert!(fastest.as_millis() < 50, "{fastest:?}");
}
