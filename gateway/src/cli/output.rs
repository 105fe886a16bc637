//! How commands print what they were told: a table for people, JSON or YAML for programs.

use std::fmt::Write as _;

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum OutputFormat {
    /// Columns, for people.
    #[default]
    Table,
    /// As the admin API answers.
    Json,
    /// The same as YAML.
    Yaml,
}

/// Prints a value for programs; `None` when a table is wanted.
pub(super) fn structured(format: OutputFormat, value: &serde_json::Value) -> Option<String> {
    match format {
        OutputFormat::Table => None,
        // A JSON value has text keys, so neither form can fail.
        OutputFormat::Json => serde_json::to_string_pretty(value).ok().map(|it| it + "\n"),
        OutputFormat::Yaml => serde_saphyr::to_string(value).ok(),
    }
}

/// Columns as wide as their widest cell, two blanks between them.
pub(super) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
        widest.max(head.get(column).map_or(0, |it| it.len()))
    });
    let mut out = String::new();
    let heads = head.map(str::to_owned);
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            // Writing into a String cannot fail.
            let _ = write!(line, "{cell:<width$}  ");
        }
        out += line.trim_end();
        out.push('\n');
    }
    out
}
