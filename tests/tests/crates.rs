//! Dependencies between our crates point one way (invariant I1): what manifests say is what `deny.toml` allows, and wrong imports that are planted are
//! refused, by whatever way they come.
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

type Edges = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Members of the workspace: folder by name.
fn members() -> BTreeMap<String, PathBuf> {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let line = workspace.lines().find(|l| l.starts_with("members")).expect("members");
    let name = |folder: &String| {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let line = manifest.lines().find(|l| l.starts_with("name = ")).expect("a name").to_owned();
        (quoted(&line)[0].clone(), root().join(folder))
    };
    quoted(line).iter().map(name).collect()
}

/// Which of our crates each of our crates depends on.
fn dependencies() -> Edges {
    let members = members();
    let of = |folder: &PathBuf| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let names = manifest.lines().map(|l| l.split(['.', ' ', '=']).next().unwrap_or_default().to_owned());
        names.filter(|n| members.contains_key(n)).collect()
    };
    members.iter().map(|(name, folder)| (name.clone(), of(folder))).collect()
}

/// Who may depend on a crate, for those that not everybody may.
fn allowed() -> Edges {
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    let rows = deny.lines().filter(|l| l.trim_start().starts_with("{ crate = "));
    let row = |line: &str| {
        let mut names = quoted(line).into_iter();
        (names.next().expect("a crate"), names.collect())
    };
    rows.map(row).collect()
}

fn refused(dependencies: &Edges) -> Vec<String> {
    let allowed = allowed();
    let of = |(from, to): (&String, &BTreeSet<String>)| -> Vec<String> {
        let wrong = |to: &&String| allowed.get(*to).is_some_and(|wrappers| !wrappers.contains(from));
        to.iter().filter(wrong).map(|to| format!("{from} -> {to}")).collect()
    };
    dependencies.iter().flat_map(of).collect()
}

#[test]
fn dependencies_are_those_that_are_allowed() {
    let dependencies = dependencies();
    assert_eq!(refused(&dependencies), Vec::<String>::new());
    let passes = members().into_iter().filter(|(_, folder)| folder.starts_with(root().join("passes")));
    let open: Vec<String> = passes.map(|(name, _)| name).filter(|name| !allowed().contains_key(name)).collect();
    assert!(open.is_empty(), "deny.toml does not say who may depend on {open:?}");

    for (from, to) in [("tensor", "emit"), ("egraph", "tensor"), ("schedule", "scalar"), ("facts", "schedule")] {
        let (from, to) = (format!("numrsc-{from}"), format!("numrsc-{to}"));
        let mut planted = dependencies.clone();
        planted.get_mut(&from).expect("a crate").insert(to.clone());
        assert_eq!(refused(&planted), [format!("{from} -> {to}")]);
    }
}

/// The crates of passes with nothing in them, depending on each other as they do.
fn skeleton(folder: &Path, dependencies: &Edges) {
    let names: Vec<&String> = dependencies.keys().filter(|n| *n == "numrsc-ir" || is_pass(n)).collect();
    let list: Vec<String> = names.iter().map(|n| format!("{n:?}")).collect();
    write(&folder.join("Cargo.toml"), &format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n", list.join(", ")));
    for name in names {
        let of = dependencies[name].iter().map(|d| format!("{d} = {{ path = \"../{d}\" }}\n"));
        let head = format!("[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[dependencies]\n");
        write(&folder.join(name).join("Cargo.toml"), &of.fold(head, |all, line| all + &line));
        write(&folder.join(name).join("src/lib.rs"), "");
    }
}

fn is_pass(name: &str) -> bool {
    members()[name].starts_with(root().join("passes"))
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().expect("a folder")).unwrap();
    fs::write(file, text).unwrap();
}

/// What cargo says against a workspace.
fn check(folder: &Path) -> Option<String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["check", "--quiet", "--offline", "--workspace"]).current_dir(folder);
    let output = cargo.env("CARGO_TARGET_DIR", folder.join("target")).output().expect("cargo runs");
    (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn cargo_refuses_what_points_the_other_way() {
    let place = tempfile::tempdir().unwrap();
    let dependencies = dependencies();
    skeleton(place.path(), &dependencies);
    assert_eq!(check(place.path()), None);

    let schedule = place.path().join("numrsc-schedule/src/lib.rs");
    for import in ["use numrsc_emit as _;", "pub use ::numrsc_emit::*;", "type Hidden = numrsc_emit::Hidden;"] {
        write(&schedule, import);
        let message = check(place.path()).unwrap_or_else(|| panic!("`{import}` was taken"));
        assert!(message.contains("numrsc_emit"), "{import}: {message}");
    }

    let mut circle = dependencies;
    circle.get_mut("numrsc-schedule").expect("a crate").insert("numrsc-emit".into());
    skeleton(place.path(), &circle);
    let message = check(place.path()).expect("a circle");
    assert!(message.contains("cyclic"), "{message}");
}
