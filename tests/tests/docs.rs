//! Pages that list what tables declare. `NUMRSC_BLESS=1 cargo test` writes them.
use numrsc_ir::{
    op::{OPS, OpInfo},
    scalar::{ScalarFn, Sig},
};
use std::{fmt::Write, fs, path::Path};

fn check(page: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    if std::env::var_os("NUMRSC_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, got).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == got, "docs/{page} is out of date; NUMRSC_BLESS=1 writes it");
}

fn attributes(op: &OpInfo) -> String {
    let plain = |ty: &str| ty.replace("Arc<Func>", "function").replace(' ', "");
    op.attrs.iter().map(|(name, ty)| format!("`{name}: {}`", plain(ty))).collect::<Vec<_>>().join(", ")
}

#[test]
fn ops() {
    let mut page = String::from(
        "# Core ops\n\nThe tensor IR has these ops, declared in `ir/src/op.rs`; this page is made from the table.\n\
         An operand named `xs..` stands for any number of operands.\n\n\
         | op | operands | attributes | meaning |\n|---|---|---|---|\n",
    );
    for op in OPS {
        let operands: Vec<String> = op.operands.iter().map(|o| format!("`{o}`")).collect();
        let doc = op.doc.replace('|', "\\|");
        let _ = writeln!(page, "| `{}` | {} | {} | {doc} |", op.name, operands.join(", "), attributes(op));
    }
    page.push_str(
        "\n# Scalar functions\n\n`map` applies an expression of these functions to every element. They are declared in \
         `ir/src/scalar.rs`, whose head states rounding and overflow.\n\n| operands | functions |\n|---|---|\n",
    );
    let kinds = [
        (Sig::Number, "floats or integers of one type, result of the same type"),
        (Sig::Float, "floats of one type, result of the same type"),
        (Sig::Bits, "integers or bools of one type, result of the same type"),
        (Sig::Compare, "two of one type, result `bool`"),
        (Sig::FloatTest, "a float, result `bool`"),
        (Sig::Select, "a `bool` and two of one type, result of that type"),
        (Sig::Convert, "one of any type but `str`, and the type of the result"),
    ];
    for (sig, what) in kinds {
        let names: Vec<String> =
            ScalarFn::ALL.iter().filter(|f| f.sig() == sig).map(|f| format!("`{}`", f.name())).collect();
        let _ = writeln!(page, "| {what} | {} |", names.join(" "));
    }
    check("ops.md", &page);
}

#[test]
fn operators() {
    check("operators.md", &numrsc::onnx::ops::page::page());
}
