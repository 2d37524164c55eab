//! Text from untrusted sources, made safe to show.
use core::fmt::{self, Write};

/// Text as a terminal may show it: control characters and bidirectional marks are escaped; line breaks are kept.
///
/// ```
/// # use numrsc_runtime::Visible;
/// assert_eq!(Visible("a\u{1b}[31mb\u{202e}c\n").to_string(), "a\\u{1b}[31mb\\u{202e}c\n");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Visible<'a>(pub &'a str);

impl Visible<'_> {
    /// Is it escaped?
    pub fn hides(c: char) -> bool {
        match c {
            '\n' | '\t' => false,
            '\0'..' ' | '\u{7f}'..='\u{9f}' => true,
            // Bidirectional marks, line and paragraph separators.
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
            // Invisible letters.
            '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
            _ => false,
        }
    }
}

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match Visible::hides(c) {
                true => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Visible;

    #[test]
    fn what_controls_a_terminal_is_shown_by_number() {
        let plain = "größe \u{1f469}\u{200d}\u{1f52c} of the\tnext\nline";
        assert_eq!(Visible(plain).to_string(), plain);
        let control = (0..0x20).chain(0x7f..0xa0).filter_map(char::from_u32).filter(|c| !"\n\t".contains(*c));
        let others = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{e0041}";
        for c in control.chain(others.chars()) {
            assert_eq!(Visible(&c.to_string()).to_string(), c.escape_unicode().to_string());
        }
    }
}
