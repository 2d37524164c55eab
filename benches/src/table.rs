//! Tables, as aligned text, Markdown or tab-separated values.

/// How tables are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Text,
    Markdown,
    /// Tab-separated values, for the data files in `benches/results`; lines that start with `#` are comments.
    Tsv,
}

impl Format {
    /// Prints text that accompanies a table.
    pub fn print_note(self, text: &str) {
        print!("{}", self.note(text));
    }

    /// Text that accompanies a table.
    pub fn note(self, text: &str) -> String {
        match self {
            Format::Tsv => text.lines().filter(|line| !line.is_empty()).map(|line| format!("# {line}\n")).collect(),
            Format::Text | Format::Markdown => format!("{text}\n"),
        }
    }
}

/// The first column is text, the others are numbers.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&str]) -> Table {
        Table { head: head.iter().map(ToString::to_string).collect(), rows: vec![] }
    }

    /// Adds a row; missing cells stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().collect();
        cells.resize(self.head.len().max(cells.len()), String::new());
        self.rows.push(cells);
    }

    fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = (0..self.head.len()).map(|i| if i == 0 { "---" } else { "---:" }.into()).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{}{rows}", line(&self.head), line(&rule))
    }

    fn text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |i: usize| all().filter_map(|row| row.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let cell = |(i, text): (usize, &String)| match widths[i] {
            w if i == 0 => format!("{text:w$}"),
            w => format!("{text:>w$}"),
        };
        let line = |row: &Vec<String>| row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ") + "\n";
        all().map(line).collect()
    }

    fn tsv(&self) -> String {
        std::iter::once(&self.head).chain(&self.rows).map(|cells| cells.join("\t") + "\n").collect()
    }

    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Markdown => self.markdown(),
            Format::Tsv => self.tsv(),
        }
    }

    pub fn print(&self, format: Format) {
        print!("{}", self.render(format));
    }
}

/// NaN if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// Three significant digits.
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
        let markdown = "| model | ms |\n| --- | ---: |\n| a | 1.5 |\n| longer |  |\n";
        assert_eq!(table.render(Format::Markdown), markdown);
        assert_eq!(table.render(Format::Text), "model    ms\na       1.5\nlonger     \n");
        assert_eq!(table.render(Format::Tsv), "model\tms\na\t1.5\nlonger\t\n");
        assert_eq!(Format::Tsv.note("\nsmaller is better:\n"), "# smaller is better:\n");
    }
}
