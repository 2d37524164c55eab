//! All output of the command goes through here.
//!
//! Names, labels and texts of a model are written by strangers. What would control the terminal is shown by its number, in JSON in JSON's own way. Where nobody reads
//! the results any more, the command goes on quietly; that they cannot be written for another reason is an error at its end.
use numrsc_runtime::Visible;
use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::{Mutex, OnceLock, PoisonError},
};

/// Print a line of results.
macro_rules! say {
    ($($text:tt)*) => { $crate::cli::terminal::print(&(format!($($text)*) + "\n")) };
}

/// Print a line of notes, warnings and errors.
macro_rules! tell {
    ($($text:tt)*) => { $crate::cli::terminal::complain(&(format!($($text)*) + "\n")) };
}

pub(crate) use {say, tell};

/// Why results cannot be written.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Print results.
pub(crate) fn print(text: &str) {
    write(&Visible(text).to_string());
}

/// Print results for programs.
pub(crate) fn print_json(value: &serde_json::Value) {
    write(&json(value));
}

/// Lines of JSON. Only texts have characters that are hidden, and texts may have them by number.
pub(crate) fn json(value: &serde_json::Value) -> String {
    let mut text = String::new();
    for c in format!("{value:#}\n").chars() {
        match Visible::hides(c) {
            true => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text += &format!("\\u{unit:04x}")),
            false => text.push(c),
        }
    }
    text
}

fn write(text: &str) {
    let mut failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner);
    if failed.is_none() {
        let mut out = io::stdout().lock();
        *failed = out.write_all(text.as_bytes()).and_then(|()| out.flush()).err();
    }
}

/// Why not all results could be written, unless their reader left.
pub(crate) fn failure() -> Option<io::Error> {
    let failed = FAILED.lock().unwrap_or_else(PoisonError::into_inner).take();
    failed.filter(|e| e.kind() != io::ErrorKind::BrokenPipe)
}

/// There is no way to report this failure.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(Visible(text).to_string().as_bytes());
}

/// When words stand out by colour
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless the variable NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// From here on.
    pub(crate) fn choose(self) {
        let _ = COLOR.set(self);
    }

    fn is_used(self) -> bool {
        let wanted = || std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        match self {
            Color::Auto => io::stderr().is_terminal() && wanted(),
            Color::Always => true,
            Color::Never => false,
        }
    }
}

static COLOR: OnceLock<Color> = OnceLock::new();

/// A text of which a name may be part, as one line.
pub(crate) fn line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\t', "\\t")
}

/// The word may stand out.
pub(crate) fn error(e: &dyn fmt::Display) {
    let word = if COLOR.get().copied().unwrap_or_default().is_used() { "\x1b[1;31merror\x1b[0m" } else { "error" };
    let _ = writeln!(io::stderr(), "{word}: {}", Visible(&e.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_hidden_characters_by_number() {
        let names = "a\u{1b}[2J\u{9b}b\u{202e}\u{e0041}\n\"größe\"";
        let text = json(&serde_json::json!({ "name": names, names: 1 }));
        assert!(text.chars().all(|c| !Visible::hides(c)), "{text:?}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["name"], &read[names]), (&names.into(), &1.into()));
    }
}
