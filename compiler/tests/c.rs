//! Models as objects and libraries for C, with and without an operating system.
mod common;

use common::{Place, sample, stderr, stdout, symbolic_model};
use numrsc::npy;
use numrsc_ir::{DType, Tensor};
use object::{Object, ObjectSection, ObjectSymbol};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// The names a program needs, and that their content is the artifact's.
#[test]
fn objects_hold_the_parts_of_the_artifact() {
    let place = Place::new();
    let model = sample("mlp_trained/model.onnx.json");
    place.succeed(&["compile", &model]);
    place.succeed(&["compile", &model, "--emit", "obj", "-o", "my-model.o"]);
    place.succeed(&["compile", &model, "--emit", "so", "-o", "libmy-model.so"]);
    let bytes = std::fs::read(place.path("model.nrsc")).unwrap();
    let artifact = numrsc_runtime::Artifact::parse(&bytes).unwrap();
    for (file, dynamic) in [("my-model.o", false), ("libmy-model.so", true)] {
        let bytes = std::fs::read(place.path(file)).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let content = |name: &str| -> Vec<u8> {
            let mut symbols = if dynamic { file.dynamic_symbols() } else { file.symbols() };
            let symbol = symbols.find(|s| s.name() == Ok(name)).unwrap_or_else(|| panic!("{name}"));
            assert!(symbol.is_global() && symbol.is_definition(), "{name}");
            let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
            let start = (symbol.address() - section.address()) as usize;
            section.data().unwrap()[start..][..symbol.size() as usize].to_vec()
        };
        let number = |name: &str| u64::from_le_bytes(content(name).try_into().unwrap()) as usize;
        assert!(content("my_model_weights") == artifact.weights);
        assert_eq!(number("my_model_weights_size"), artifact.weights.len());
        let manifest = content("my_model_manifest");
        assert_eq!(number("my_model_manifest_size"), manifest.len());
        let manifest = numrsc_runtime::Manifest::parse(&manifest).unwrap();
        assert_eq!(manifest.entry(), artifact.manifest.entry());
        let entry = content("my_model_entry");
        assert!(!entry.is_empty());
        assert!(entry == artifact.code[artifact.manifest.entry() as usize..][..entry.len()]);
        assert_eq!(file.section_by_name(".rodata").unwrap().align() % 64, 0);
    }
    let header = std::fs::read_to_string(place.path("my-model.h")).unwrap();
    assert!(header.contains("int32_t my_model_entry(") && header.contains("tensor_0: f32["), "{header}");
}

/// A C program without a runtime and without an allocator.
const C_PROGRAM: &str = r#"
#include <stdio.h>
#include "mlp.h"

static uint8_t memory[mlp_MEMORY_BYTES + 64];

int main(void) {
    float x[10], y[1];
    uint8_t *start = memory;
    int i;
    int32_t code;
    for (i = 0; i < 10; i++) x[i] = 0.1f * (float)i;
    while ((uintptr_t)start % 64 != 0) start++;
    if (mlp_run(x, y, start + 1) != -1) return 1;
    code = mlp_run(x, y, start);
    if (code != 0) { fprintf(stderr, "%s\n", mlp_message(code)); return 1; }
    if ((uintptr_t)mlp_weights % 64 != 0 || mlp_manifest_size == 0 || mlp_manifest[0] == 0) return 2;
    printf("1 1 %.9g\n", (double)y[0]);
    return 0;
}
"#;

/// The same with the runtime's C interface, on two threads.
const C_PROGRAM_WITH_RUNTIME: &str = r#"
#include <stdio.h>
#include "numrsc.h"
#include "mlp.h"

static int failed(numrsc_error *error) {
    fprintf(stderr, "%s\n", numrsc_error_text(error));
    numrsc_error_free(error);
    return 1;
}

int main(void) {
    float x[10];
    for (int i = 0; i < 10; i++) x[i] = 0.1f * (float)i;
    size_t shape[2] = {1, 10};
    numrsc_tensor input = {x, NUMRSC_F32, 2, shape}, output;
    numrsc_model *model;
    numrsc_context *context;
    numrsc_error *error = numrsc_from_parts(mlp_manifest, mlp_manifest_size, mlp_entry, mlp_weights, mlp_weights_size - 1, &model);
    if (error == NULL || model != NULL) return 2;
    numrsc_error_free(error);
    error = numrsc_from_parts(mlp_manifest, mlp_manifest_size, NULL, mlp_weights, mlp_weights_size, &model);
    if (error == NULL || model != NULL) return 3;
    numrsc_error_free(error);
    error = numrsc_from_parts(mlp_manifest, mlp_manifest_size, mlp_entry, mlp_weights, mlp_weights_size, &model);
    if (error != NULL) return failed(error);
    if ((error = numrsc_context_new(model, 2, &context))) return failed(error);
    if ((error = numrsc_run(context, NULL, &input, 1))) return failed(error);
    if ((error = numrsc_result(context, 0, &output))) return failed(error);
    printf("%d %d %.9g\n", (int)output.dims[0], (int)output.dims[1], (double)((const float *)output.data)[0]);
    numrsc_context_free(context);
    numrsc_model_free(model);
    return 0;
}
"#;

/// A model of open sizes, which run after another in one context.
const C_PROGRAM_WITH_OPEN_SIZES: &str = r#"
#include <stdio.h>
#include "numrsc.h"
#include "relu.h"

static int failed(numrsc_error *error) {
    fprintf(stderr, "%s\n", numrsc_error_text(error));
    numrsc_error_free(error);
    return 1;
}

int main(void) {
    float x[9] = {1, -2, 3, -4, 5, 6, 7, 8, -9};
    const float scales[3] = {1, 10, 100};
    numrsc_model *model;
    numrsc_context *context;
    numrsc_error *error = numrsc_from_parts(relu_manifest, relu_manifest_size, relu_entry, relu_weights, relu_weights_size, &model);
    if (error != NULL) return failed(error);
    if ((error = numrsc_context_new(model, 1, &context))) return failed(error);
    for (size_t batch = 1; batch <= 3; batch++) {
        size_t shape[2] = {batch, 3}, wrong[2] = {batch, 2};
        numrsc_tensor input = {x, NUMRSC_F32, 2, shape}, bad = {x, NUMRSC_F32, 2, wrong}, output;
        if ((error = numrsc_run(context, NULL, &bad, 1)) == NULL) return 2;
        numrsc_error_free(error);
        if ((error = numrsc_run(context, NULL, &input, 1))) return failed(error);
        if ((error = numrsc_result(context, 0, &output))) return failed(error);
        if (output.dims[0] != batch || output.dims[1] != 3) return 3;
        for (size_t i = 0; i < 3 * batch; i++) {
            if (((const float *)output.data)[i] != (x[i] > 0 ? x[i] : 0) * scales[i % 3]) return 4;
        }
    }
    numrsc_context_free(context);
    numrsc_model_free(model);
    return 0;
}
"#;

/// The runtime as a library for C.
fn c_runtime() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-runtime");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--quiet", "--locked", "--offline", "-p", "numrsc-runtime", "--crate-type", "staticlib"]);
    let output = cargo.arg("--target-dir").arg(&folder).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    folder.join("debug/libnumrsc_runtime.a")
}

#[test]
fn c_programs_link_and_run_compiled_models() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    let x: Vec<f32> = (0..10).map(|i| 0.1 * i as f32).collect();
    npy::write(&place.path("x.npy"), &Tensor::from_f32(&[1, 10], &x)).unwrap();
    place.succeed(&["run", &model, "--input", "tensor_5=x.npy", "--output-dir", ".", "--backend", "reference"]);
    let expected = npy::read(&place.path("tensor_0.npy"), DType::F32).unwrap().to_f64s()[0];
    std::fs::write(place.path("own.c"), C_PROGRAM).unwrap();
    std::fs::write(place.path("with.c"), C_PROGRAM_WITH_RUNTIME).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime-min/include");
    let runtime = c_runtime();
    for (emit, file) in [("obj", "mlp.o"), ("staticlib", "mlp.a"), ("so", "mlp.so")] {
        place.succeed(&["compile", &model, "--emit", emit, "-o", file]);
        for program in ["own", "with"] {
            let mut compiler = Command::new("cc");
            compiler.args([
                "-std=c99",
                "-Wall",
                "-Wextra",
                "-pedantic",
                "-Werror",
                &format!("{program}.c"),
                "-o",
                program,
            ]);
            compiler.arg(format!("./{file}")).arg("-Wl,-rpath,$ORIGIN").current_dir(place.path(""));
            if program == "with" {
                compiler.arg("-I").arg(&include).arg(&runtime).args(["-lpthread", "-ldl", "-lm"]);
            }
            let output = compiler.output().unwrap();
            assert!(output.status.success(), "{file}, {program}: {}", stderr(&output));
            let output = Command::new(place.path(program)).output().unwrap();
            assert!(output.status.success(), "{file}, {program}: {:?} {}", output.status, stderr(&output));
            let text = stdout(&output);
            let value: f64 = text.trim().strip_prefix("1 1 ").unwrap_or_else(|| panic!("{text}")).parse().unwrap();
            assert!((value - expected).abs() <= 1e-5, "{file}, {program}: {value}, expected {expected}");
        }
    }

    // The header is C++ as well.
    let mut compiler = Command::new("g++");
    compiler.args(["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "own.c"]);
    let output = compiler.current_dir(place.path("")).output();
    assert!(output.as_ref().is_ok_and(|o| o.status.success()), "{output:?}");

    // Neither reads what nobody wrote, nor leaks: for code that Valgrind knows.
    place.succeed(&["compile", &model, "--emit", "obj", "-o", "mlp.o", "--cpu", "x86-64-v3"]);
    std::fs::write(place.path("relu.onnx"), symbolic_model()).unwrap();
    std::fs::write(place.path("open.c"), C_PROGRAM_WITH_OPEN_SIZES).unwrap();
    place.succeed(&["compile", "relu.onnx", "--emit", "obj", "-o", "relu.o", "--cpu", "x86-64-v3"]);
    let libraries = [runtime.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    for (program, object, args) in
        [("own", "mlp.o", &[][..]), ("with", "mlp.o", &libraries), ("open", "relu.o", &libraries)]
    {
        let mut compiler = Command::new("cc");
        compiler.args(["-g", &format!("{program}.c"), object, "-o", program, "-I"]).arg(&include).args(args);
        assert!(compiler.current_dir(place.path("")).status().unwrap().success());
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=all"]);
        let output = valgrind.arg(place.path(program)).output().expect("valgrind, which .ci/setup installs");
        assert!(output.status.success() && output.stderr.is_empty(), "{program}: {}", stderr(&output));
    }
}

#[test]
fn devices_get_objects_and_static_libraries() {
    let place = Place::new();
    let model = sample("mlp_b1/model.onnx.json");
    for triple in ["thumbv7em-none-eabihf", "riscv32imac-unknown-none-elf"] {
        let summary = place.succeed(&["compile", &model, "--emit", "obj", "--target", triple, "-o", "mlp.o"]);
        assert!(summary.contains(" of flash, "), "{summary}");
        let header = std::fs::read_to_string(place.path("mlp.h")).unwrap();
        let summary = place.succeed(&["compile", &model, "--emit", "staticlib", "--target", triple, "-o", "libmlp.a"]);
        assert!(summary.contains(" of flash, "), "{summary}");
        assert_eq!(header, std::fs::read_to_string(place.path("mlp.h")).unwrap());

        let bytes = std::fs::read(place.path("mlp.o")).unwrap();
        let library = std::fs::read(place.path("libmlp.a")).unwrap();
        assert!(library.starts_with(b"!<arch>\n") && library.windows(bytes.len()).any(|part| part == bytes));
        let file = object::File::parse(&bytes[..]).unwrap();
        for symbol in file.symbols().filter(|s| s.is_undefined() && s.is_global()) {
            let name = symbol.name().unwrap();
            assert!(name.starts_with("__") && header.contains(name), "{triple}: the header does not tell of {name}");
        }
        let weights = file.symbol_by_name("mlp_weights").unwrap();
        let section = file.section_by_index(weights.section_index().unwrap()).unwrap();
        assert_eq!(section.kind(), object::SectionKind::ReadOnlyData, "weights can stay in flash");
        assert!(file.sections().all(|s| s.size() == 0 || !s.name().unwrap().starts_with(".data")), "{triple}");
    }
}
