//! Words, numbers and punctuation of PTX, each with its line.
use super::SyntaxError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// An identifier, a register, a directive, or an opcode with all its modifiers: `%r1`, `.entry`, `ld.global.v4.f32`.
    Word(String),
    Int(u64),
    /// `0f3F800000`: the bits of an `f32`.
    F32(u32),
    /// `0d3FF0000000000000`, or a decimal fraction: the bits of an `f64`.
    F64(u64),
    Text(String),
    Punct(char),
}

/// A token and the line it begins in.
pub(super) type Spanned = (Token, u32);

pub(super) fn tokens(text: &str) -> Result<Vec<Spanned>, SyntaxError> {
    let bytes = text.as_bytes();
    let (mut out, mut at, mut line) = (vec![], 0, 1);
    while let Some(&c) = bytes.get(at) {
        let rest = &text[at..];
        match c {
            b'\n' => {
                line += 1;
                at += 1;
            }
            _ if c.is_ascii_whitespace() => at += 1,
            b'/' if rest.starts_with("//") => at += rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => {
                let end = rest.find("*/").ok_or_else(|| SyntaxError::at(line, "a comment does not end"))? + 2;
                line += rest[..end].matches('\n').count() as u32;
                at += end;
            }
            b'"' => {
                let end = rest[1..].find('"').ok_or_else(|| SyntaxError::at(line, "a text does not end"))?;
                out.push((Token::Text(rest[1..=end].to_owned()), line));
                at += end + 2;
            }
            _ if c.is_ascii_digit() => {
                let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len());
                out.push((number(&rest[..end]).map_err(|e| SyntaxError::at(line, e))?, line));
                at += end;
            }
            _ if is_word(c) => {
                let end = word_end(rest);
                out.push((Token::Word(rest[..end].to_owned()), line));
                at += end;
            }
            _ => {
                let c = rest.chars().next().expect("not at the end");
                out.push((Token::Punct(c), line));
                at += c.len_utf8();
            }
        }
    }
    Ok(out)
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%' | b'.')
}

/// `::` belongs to modifiers such as `.shared::cta`, a single colon ends a label.
fn word_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&c) = bytes.get(at) {
        if is_word(c) {
            at += 1;
        } else if c == b':' && bytes.get(at + 1) == Some(&b':') && bytes.get(at + 2).is_some_and(|&c| is_word(c)) {
            at += 2;
        } else {
            break;
        }
    }
    at
}

fn number(text: &str) -> Result<Token, String> {
    let bad = |_| format!("`{text}` is not a number");
    let digits = text.trim_end_matches('U');
    Ok(match digits.get(..2) {
        Some("0x" | "0X") => Token::Int(u64::from_str_radix(&digits[2..], 16).map_err(bad)?),
        Some("0b" | "0B") => Token::Int(u64::from_str_radix(&digits[2..], 2).map_err(bad)?),
        Some("0f" | "0F") => Token::F32(u32::from_str_radix(&digits[2..], 16).map_err(bad)?),
        Some("0d" | "0D") => Token::F64(u64::from_str_radix(&digits[2..], 16).map_err(bad)?),
        _ if digits.contains('.') => Token::F64(digits.parse::<f64>().map_err(|e| format!("`{text}`: {e}"))?.to_bits()),
        _ if digits.len() > 1 && digits.starts_with('0') => Token::Int(u64::from_str_radix(digits, 8).map_err(bad)?),
        _ => Token::Int(digits.parse().map_err(bad)?),
    })
}
