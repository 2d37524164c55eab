//! The C header is what the Rust source says, and compilers of C and C++ accept it. `NUMRSC_BLESS=1` writes it.
use std::{fs, path::Path, process::Command};

fn generated() -> String {
    let config = cbindgen::Config {
        language: cbindgen::Language::C,
        cpp_compat: true,
        include_guard: Some("NUMRSC_H".into()),
        no_includes: true,
        sys_includes: ["stddef.h", "stdint.h"].map(String::from).to_vec(),
        header: Some(
            "/* The C interface of the numrsc runtime. Generated from runtime-min/src/capi.rs: do not edit.\n *\n \
             * Functions that can fail give an error, to be freed by the caller, or NULL. */"
                .into(),
        ),
        style: cbindgen::Style::Both,
        documentation_style: cbindgen::DocumentationStyle::C99,
        usize_is_size_t: true,
        line_length: 110,
        // Not mentioned by any function.
        export: cbindgen::ExportConfig {
            include: ["numrsc_dtype", "numrsc_string"].map(String::from).to_vec(),
            ..cbindgen::ExportConfig::default()
        },
        ..cbindgen::Config::default()
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/capi.rs");
    let bindings = cbindgen::Builder::new().with_config(config).with_src(source).generate().unwrap();
    let mut header = Vec::new();
    bindings.write(&mut header);
    String::from_utf8(header).unwrap()
}

#[test]
fn the_header_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/numrsc.h");
    let header = generated();
    if std::env::var_os("NUMRSC_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &header).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == header, "include/numrsc.h is not what src/capi.rs says: run with NUMRSC_BLESS=1");
}

#[test]
fn compilers_accept_the_header() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("numrsc.h"), generated()).unwrap();
    // Uses every kind of declaration, so that a header that declares nothing fails.
    let program = "#include \"numrsc.h\"\n#include \"numrsc.h\"\n\
        static numrsc_error *first(const char *path, const numrsc_tensor *inputs, size_t count, numrsc_tensor *out) {\n\
        numrsc_model *model = NULL; numrsc_context *context = NULL; numrsc_error *error;\n\
        struct numrsc_port port; numrsc_buffer buffer = {0, NULL, 0};\n\
        if ((error = numrsc_load(path, &model))) return error;\n\
        if ((error = numrsc_input(model, 0, &port)) || port.dtype != NUMRSC_F32) return error;\n\
        if ((error = numrsc_context_new(model, 0, &context))) return error;\n\
        if ((error = numrsc_run_into(context, NULL, inputs, count, &buffer, 1))) return error;\n\
        return numrsc_result(context, 0, out);\n}\n\
        int main(void) { return first(\"model.nrsc\", NULL, 0, NULL) ? (int)NUMRSC_SEQUENCE : 1; }\n";
    for (compiler, language, standard, file) in
        [("gcc", "c", "c99", "program.c"), ("g++", "c++", "c++11", "program.cpp")]
    {
        fs::write(folder.path().join(file), program).unwrap();
        let output = Command::new(compiler)
            .args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-pedantic", "-Werror"])
            .args(["-fsyntax-only", file])
            .current_dir(folder.path())
            .output();
        let Ok(output) = output else {
            eprintln!("no {compiler} here: not checked as {standard}");
            continue;
        };
        assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
