//! Pages made from tables, which `NUMRSC_BLESS=1 cargo test` writes, and what holds of all pages.
use numrsc_ir::{
    op::{OPS, OpInfo},
    scalar::{ScalarFn, Sig},
};
use numrsc_tests::corpus::root;
use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// The longest line of a page, apart from tables and code.
const MAX_LINE: usize = 120;

fn check(page: &str, got: &str) {
    let path = root().join("docs").join(page);
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
         `ir/src/scalar.rs`,\nwhose head states rounding and overflow.\n\n| operands | functions |\n|---|---|\n",
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

/// All pages of the repository.
fn pages() -> Vec<PathBuf> {
    let mut folders = vec![root().to_path_buf(), root().join("docs"), root().join("tests/corpus")];
    let examples = fs::read_dir(root().join("examples")).unwrap();
    folders.extend(examples.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()));
    let mut pages: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    assert!(pages.len() > 15, "{pages:?}");
    pages
}

/// The lines of a page outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(i, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((i + 1, line))
    })
}

#[test]
fn lines_are_short() {
    let mut long = vec![];
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let lines = prose(&text).filter(|(_, line)| !line.starts_with('|') && line.chars().count() > MAX_LINE);
        long.extend(lines.map(|(number, _)| format!("{}:{number}", page.display())));
    }
    assert!(long.is_empty(), "lines of more than {MAX_LINE} characters:\n{}", long.join("\n"));
}

/// The name of a heading in links, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn has_anchor(page: &Path, name: &str) -> bool {
    let text = fs::read_to_string(page).unwrap_or_default();
    prose(&text).any(|(_, line)| line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == name)
}

#[test]
fn links_lead_somewhere() {
    let mut dead = vec![];
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (number, line) in prose(&text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
            for target in targets.filter(|target| !target.contains("://")) {
                let (file, name) = target.split_once('#').unwrap_or((target, ""));
                let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
                if !path.exists() || !(name.is_empty() || has_anchor(&path, name)) {
                    dead.push(format!("{}:{number}: {target}", page.display()));
                }
            }
        }
    }
    assert!(dead.is_empty(), "links that lead nowhere:\n{}", dead.join("\n"));
}

/// These pages say in which file something is; others may abbreviate paths.
#[test]
fn paths_of_the_map_exist() {
    let mut missing = vec![];
    for page in ["docs/architecture.md", "docs/glossary.md", "docs/adding-a-core-op.md", "CONTRIBUTING.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let mut count = 0;
        for (number, line) in prose(&text) {
            let spans = line.split('`').skip(1).step_by(2);
            let paths = spans.filter(|span| span.contains('/') && (span.ends_with('/') || span.ends_with(".rs")));
            for path in paths {
                count += 1;
                if !root().join(path).exists() {
                    missing.push(format!("{page}:{number}: {path}"));
                }
            }
        }
        assert!(count >= 5, "{page} names {count} files");
    }
    assert!(missing.is_empty(), "files that do not exist:\n{}", missing.join("\n"));
}

#[test]
fn overviews_are_short() {
    for (page, most) in [("architecture.md", 150), ("benchmarks.md", 150), ("glossary.md", 60)] {
        let lines = fs::read_to_string(root().join("docs").join(page)).unwrap().lines().count();
        assert!(lines <= most, "docs/{page} has {lines} lines, more than {most}");
    }
}
