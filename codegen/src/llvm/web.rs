//! The exported function of a WebAssembly module, which the page calls with a run context.
use numrsc_ir::kernel::context;
use std::fmt::Write;

/// The exported function.
pub(super) const RUN: &str = "run";

/// Where the linker puts the weights.
pub(super) const WEIGHTS: &str = "weights";

/// Memory belongs to the page. Its functions are imports, because only code, not a page, can put function addresses
/// into a context.
const IMPORTS: [(&str, &str, i64); 3] =
    [("arena", "i64", context::FN_ARENA), ("alloc", "i64", context::FN_ALLOC), ("free", "ptr", context::FN_FREE)];

/// Adds to the page's context what the page cannot know, and calls the entry.
pub(super) fn run_function(entry: &str) -> String {
    let mut text = format!("\n@{WEIGHTS} = external hidden global i8\n");
    let mut body = String::new();
    let mut put = |slot: i64, what: &str| {
        let write = write!(
            body,
            "  %slot{slot} = getelementptr i64, ptr %context, i64 {slot}\n  store ptr @{what}, ptr %slot{slot}, align 8\n"
        );
        write.expect("a string");
    };
    put(context::WEIGHTS, WEIGHTS);
    for (at, (name, parameter, slot)) in IMPORTS.iter().enumerate() {
        put(*slot, name);
        let attributes = format!("\"wasm-import-module\"=\"numrsc\" \"wasm-import-name\"=\"{name}\"");
        let declaration = format!("declare ptr @{name}(ptr, {parameter}) #{}", at + 1);
        writeln!(text, "{declaration}\nattributes #{} = {{ {attributes} }}", at + 1).expect("a string");
    }
    format!(
        "{text}
define i32 @{RUN}(ptr %context) #0 \"wasm-export-name\"=\"{RUN}\" {{
{body}  %code = call i32 @{entry}(ptr %context)
  ret i32 %code
}}
"
    )
}
