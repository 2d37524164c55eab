//! What the runtime reads: artifacts, and numbers in `.npy` files.
use crate::native::options;
use numrsc::compile::{Generator, compile};
use numrsc_runtime::{
    Artifact, DType, Manifest,
    artifact::{MAGIC, PortKind, checksum},
    npy,
};

/// Two artifacts, with and without open sizes and indices that are checked.
pub(super) fn artifact_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "func(%0 \"x\": f32[n, 4], %1 \"rows\": i64[m]) {
            %2 = reduce %0 {f=sum, axes=[1]} : f32[n]
            %3 = gather %0, %1 {axis=0, batch=0} : f32[m, 4]
            return %2, %3
        }",
        "func(%0 \"x\": f32[2]) {
            %1 = map %0 {f=neg(a0)} : f32[2]
            return %1
        }",
    ];
    let artifact = |text: &&str| {
        let func = numrsc_ir::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let mut bytes = Vec::new();
        let artifact = compile(&func, "fuzz", &options(Generator::Cranelift), None).expect("it compiles");
        artifact.write_to(&mut bytes).expect("memory can be written");
        bytes
    };
    texts.iter().map(artifact).collect()
}

pub(super) fn artifact_words() -> Vec<Vec<u8>> {
    let numbers: [u64; 8] = [0, 1, 2, 168, 4096, 1 << 31, 1 << 63, u64::MAX];
    let mut words: Vec<Vec<u8>> = numbers.iter().map(|n| n.to_le_bytes().to_vec()).collect();
    words.extend(["n", "m", "n * m", "(n + 3) / 4", "min(n, 4)", "x"].map(|w| w.as_bytes().to_vec()));
    words
}

/// Reads an artifact as loading does, up to running it. Checksums are corrected first, or nothing would be read at all.
pub(super) fn read_artifact(input: &[u8]) -> String {
    let mut bytes = input.to_vec();
    mend(&mut bytes);
    let mut said = String::new();
    for version in Artifact::versions(&bytes) {
        match version {
            Ok(artifact) => {
                let weights = artifact.verify_weights();
                let names =
                    artifact.names().map(|names| names.map(|n| n.launches().map(|l| l.nodes.count()).sum::<usize>()));
                let sections: usize = artifact.sections().map(|s| s.bytes.len()).sum();
                let _ = (names.map_err(|e| e.to_string()), sections);
                said += &format!("{:?} {} ", weights.is_ok(), read_manifest(&artifact.manifest));
            }
            Err(e) => return format!("{said}{e}"),
        }
    }
    said
}

/// Reads everything in a manifest.
fn read_manifest(m: &Manifest<'_>) -> String {
    let texts = [m.model(), m.producer(), m.target_triple()].map(str::len);
    let names = m.cpu_features().count() + m.symbols().count() + m.failures().count();
    let kernels: usize = m.kernels().map(|k| k.name.len()).sum();
    let mut kinds = 0;
    for port in m.inputs().chain(m.outputs()) {
        kinds += match port.kind {
            PortKind::Tensor => 1,
            PortKind::Sequence { depth } => usize::from(depth),
        };
    }
    let sizes = format!("{:?} {:?} {}", m.arena(), m.peak(), m.weights_bytes());
    let _ = (texts, names, kernels, kinds, sizes, m.entry(), m.needs_heap(), m.single_threaded());
    "whole".into()
}

/// Corrects all checksums that fit into the file.
fn mend(bytes: &mut [u8]) {
    let number =
        |bytes: &[u8], at: usize| bytes.get(at..at + 8).map(|b| u64::from_le_bytes(b.try_into().expect("8 bytes")));
    // As many rows as there are, and behind them the checksum of all of it.
    let rows = number(bytes, 24).map_or(0, |n| n as u32 as usize).min(64);
    let end = 32 + 32 * rows;
    if !bytes.starts_with(&MAGIC) || bytes.len() < end + 8 {
        return;
    }
    for section in (32..end).step_by(32) {
        let place = number(bytes, section + 8).zip(number(bytes, section + 16));
        let range = place.and_then(|(offset, length)| Some(offset as usize..offset.checked_add(length)? as usize));
        if let Some(sum) = range.and_then(|r| bytes.get(r)).map(checksum) {
            bytes[section + 24..section + 32].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let sum = checksum(&bytes[..end]);
    bytes[end..end + 8].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn npy_seeds() -> Vec<Vec<u8>> {
    [(DType::F32, &[2, 3][..]), (DType::I64, &[]), (DType::Bool, &[0, 7])]
        .map(|(t, shape)| npy::header(t, shape))
        .into()
}

pub(super) fn npy_words() -> Vec<Vec<u8>> {
    let words = [
        "'descr'",
        "'shape'",
        "'fortran_order'",
        "(",
        ")",
        ",",
        "True",
        "'<f4'",
        "'=i8'",
        "'|b1'",
        "18446744073709551615",
    ];
    words.iter().map(|w| w.as_bytes().to_vec()).collect()
}

pub(super) fn read_npy(input: &[u8]) -> String {
    let outcome = |dtype| {
        npy::parse(input, dtype).map_or_else(|e| e, |(start, shape)| format!("{} {}", start.min(1), shape.len()))
    };
    [DType::F32, DType::I64, DType::Bool].map(outcome).join(" ")
}
