//! Tables: aligned for people, or as Markdown for the documentation.

/// Rows of cells. The first column is text, the others are numbers.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(ToString::to_string).collect(), rows: vec![] }
    }

    /// Cells that are missing stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.head.len().max(cells.len()), String::new());
        self.rows.push(cells);
    }

    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = (0..self.head.len()).map(|i| if i == 0 { "---" } else { "---:" }.into()).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{}{rows}", line(&self.head), line(&rule))
    }

    pub fn plain(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        // A long last cell is a remark, which needs no column.
        let width = |i: usize| all().filter_map(|row| row.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let cell = |(i, text): (usize, &String)| match widths[i] {
            w if i == 0 => format!("{text:w$}"),
            w => format!("{text:>w$}"),
        };
        let line = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ") + "\n";
        all().map(line).collect()
    }

    pub fn print(&self, markdown: bool) {
        print!("{}", if markdown { self.markdown() } else { self.plain() });
    }
}

/// The middle one; NaN of none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Three digits that count.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v.is_nan() => "-".into(),
        v if v < 0.1 => format!("{value:.3}"),
        v if v < 10.0 => format!("{value:.2}"),
        v if v < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn tables() {
        let mut table = Table::new(&["model", "ms"]);
        table.row(["a".into(), "1.5".into()]);
        table.row(["longer".into()]);
        assert_eq!(table.markdown(), "| model | ms |\n| --- | ---: |\n| a | 1.5 |\n| longer |  |\n");
        assert_eq!(table.plain(), "model    ms\na       1.5\nlonger     \n");
    }
}
