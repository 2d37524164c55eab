//! LLVM in a process of its own: what is asked of it, and what becomes of those who ask when it ends.
use numrsc_codegen::{Error, llvm::Service};
use numrsc_llvm::protocol::{Answer, Kind, Level, Machine, Request};
use std::{
    fmt::Write as _,
    fs,
    process::Command,
    thread,
    time::{Duration, Instant},
};

const TRIPLE: &str = "target triple = \"x86_64-unknown-linux-gnu\"\n";

fn compile(name: &str, text: &str) -> Result<Vec<u8>, Error> {
    let machine = Machine { triple: "x86_64-unknown-linux-gnu".into(), cpu: "x86-64".into(), features: String::new() };
    let (module, text) = (name.to_owned(), TRIPLE.to_owned() + text);
    let request = Request::Compile { module, text, machine, level: Level::Default, kind: Kind::Object };
    match Service::find()?.ask(&request, name)? {
        Answer::Parts(mut parts) => Ok(parts.remove(0)),
        other => panic!("{other:?}"),
    }
}

const GOOD: &str = "define i32 @good(i32 %x) {\n  %y = mul i32 %x, 3\n  ret i32 %y\n}\n";

/// Takes LLVM longer than anything waits here: selection and allocation of registers look at all of one long block.
fn long() -> String {
    let mut text = "define i64 @long(ptr %p) {\n  %v0 = load i64, ptr %p\n".to_owned();
    let count = 60_000;
    for i in 1..=count {
        writeln!(text, "  %p{i} = getelementptr i64, ptr %p, i64 %v{}\n  %v{i} = load i64, ptr %p{i}", i - 1).unwrap();
    }
    text += &format!("  ret i64 %v{count}\n}}\n");
    text
}

#[test]
fn what_llvm_cannot_select_is_an_error_of_one_kernel() {
    // An instruction of another processor: LLVM ends its process.
    let planted = "declare <4 x float> @llvm.aarch64.neon.fmax.v4f32(<4 x float>, <4 x float>)
define <4 x float> @planted(<4 x float> %x) {
  %y = call <4 x float> @llvm.aarch64.neon.fmax.v4f32(<4 x float> %x, <4 x float> %x)
  ret <4 x float> %y
}
";
    let good = compile("good", GOOD).unwrap();
    let error = compile("planted_kernel", planted).unwrap_err();
    assert!(matches!(&error, Error::Llvm { module, .. } if module == "planted_kernel"), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("LLVM failed on `planted_kernel`: numrsc-llvm ended (signal: 6"), "{text}");
    assert!(text.contains("Cannot select: intrinsic %llvm.aarch64.neon.fmax") && !text.contains('\n'), "{text}");
    assert_eq!(compile("good", GOOD).unwrap(), good);
}

#[test]
fn what_is_not_valid_is_told_and_nothing_ends() {
    let machine = Machine { triple: "x86_64-unknown-linux-gnu".into(), cpu: String::new(), features: String::new() };
    let text = "define i32 @f() {\n  ret i64 0\n}\n".to_owned();
    let request = Request::Compile { module: "f".into(), text, machine, level: Level::Less, kind: Kind::Assembly };
    let answer = Service::find().unwrap().ask(&request, "f").unwrap();
    assert!(matches!(&answer, Answer::Invalid(message) if message.contains("f:2:7")), "{answer:?}");
    let machine = Machine { triple: "abacus-unknown-none".into(), cpu: String::new(), features: String::new() };
    let answer = Service::find().unwrap().ask(&Request::Check(machine), "f").unwrap();
    assert!(matches!(&answer, Answer::Failed(message) if message.contains("abacus")), "{answer:?}");
}

#[test]
fn threads_have_a_process_each_and_get_the_same_bytes() {
    let good = compile("good", GOOD).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..8).for_each(|_| assert_eq!(compile("good", GOOD).unwrap(), good)));
        }
    });
}

/// The processes that this one has started and that have had some work, by what the system says of them.
#[cfg(target_os = "linux")]
fn at_work() -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = vec![];
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((head, rest)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split(' ').collect();
        // State, parent, and after some more the time in hundredths of a second.
        let busy = fields[0] != "Z" && fields[11].parse::<u64>().unwrap() > 30;
        if head.ends_with("(numrsc-llvm") && fields[1] == own && busy {
            found.push(entry.file_name().into_string().unwrap());
        }
    }
    found
}

#[test]
#[cfg(target_os = "linux")]
fn a_process_that_is_killed_is_an_error_of_its_kernel() {
    let work = thread::spawn(|| compile("long_kernel", &long()));
    let start = Instant::now();
    let process = loop {
        if let Some(process) = at_work().pop() {
            break process;
        }
        assert!(start.elapsed() < Duration::from_secs(120) && !work.is_finished(), "nobody works");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(Command::new("kill").args(["-9", &process]).status().unwrap().success());
    let error = work.join().unwrap().unwrap_err().to_string();
    assert_eq!(error, "LLVM failed on `long_kernel`: numrsc-llvm ended (signal: 9 (SIGKILL))");
    compile("good", GOOD).unwrap();
}
