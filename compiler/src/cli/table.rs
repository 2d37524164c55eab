//! Columns of text, aligned.
use super::terminal::{line, say};
use numrsc_runtime::Visible;

/// Print rows with every column as wide as its widest cell. A cell is one line, whatever is in it.
pub(crate) fn print(rows: &[Vec<String>], indent: &str) {
    let visible = |cell: &String| line(&Visible(cell).to_string());
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(visible).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in &rows {
        let mut line = String::from(indent);
        for (cell, width) in row.iter().zip(&widths) {
            line += cell;
            line += &" ".repeat(width - cell.chars().count() + 2);
        }
        say!("{}", line.trim_end());
    }
}
