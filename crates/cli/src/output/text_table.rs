//! Text in aligned columns that fits a width.

use std::borrow::Cow;

use sonde_results::plain_text::plain;

use super::style::{Style, Tone, clip};

/// A column with its cells, one for each row.
pub struct TextColumn {
    /// Its heading.
    pub head: &'static str,
    /// Columns of the highest rank are left out first; those of rank 0 never.
    pub rank: u8,
    /// Aligned left, as text is; else right, as figures are.
    pub left: bool,
    pub cells: Vec<String>,
}

/// Columns and their widths.
pub struct TextTable(Vec<(TextColumn, usize)>);

impl TextTable {
    /// Each as wide as its widest cell. Cells may come from elsewhere: what would steer a terminal is seen.
    pub fn new(columns: impl IntoIterator<Item = TextColumn>) -> TextTable {
        let wide = |mut column: TextColumn| {
            for cell in &mut column.cells {
                if let Cow::Owned(seen) = plain(cell) {
                    *cell = seen;
                }
            }
            let texts = column.cells.iter().map(String::as_str).chain([column.head]);
            let width = texts.map(|text| text.chars().count()).max().unwrap_or(0);
            (column, width)
        };
        TextTable(columns.into_iter().map(wide).collect())
    }

    /// Takes out columns, the highest rank first, none below `least`, until the rest fits.
    pub fn leave_out(&mut self, width: usize, least: u8) {
        while self.width() > width {
            let last = (0..self.0.len()).max_by_key(|&i| self.0[i].0.rank);
            let Some(last) = last.filter(|&i| self.0[i].0.rank >= least) else { return };
            self.0.remove(last);
        }
    }

    /// Narrows the first column, to no less than `least`, until all fits.
    pub fn cut_first(&mut self, width: usize, least: usize) {
        let excess = self.width().saturating_sub(width);
        if let Some((_, first)) = self.0.first_mut() {
            *first = first.saturating_sub(excess).max(least.min(*first));
        }
    }

    /// Narrows the columns with these headings, always the widest of them, to no less than `least`,
    /// until all fits.
    pub fn cut(&mut self, width: usize, heads: &[&str], least: usize) {
        for _ in 0..self.width().saturating_sub(width) {
            let named = self.0.iter_mut().filter(|(column, _)| heads.contains(&column.head));
            let widest = named.max_by_key(|(_, width)| *width).filter(|(_, w)| *w > least);
            let Some((_, widest)) = widest else { return };
            *widest -= 1;
        }
    }

    /// Whether it has the column still.
    pub fn has(&self, head: &str) -> bool {
        self.0.iter().any(|(column, _)| column.head == head)
    }

    /// The heading and the rows in at most `width` columns; `tone`: of the cell in a row, by its
    /// column's heading.
    pub fn lines(
        &self,
        width: usize,
        style: Style,
        tone: impl Fn(usize, &str) -> Tone,
    ) -> Vec<String> {
        let head = self.line(|column| column.head, |_, text| text);
        let row = |i: usize| {
            let plain = self.line(|column| &column.cells[i], |_, text| text);
            if plain.chars().count() > width {
                return clip(&plain, width);
            }
            let paint =
                |column: &TextColumn, text: String| style.paint(tone(i, column.head), &text);
            self.line(|column| &column.cells[i], paint)
        };
        let rows = self.0.first().map_or(0, |(column, _)| column.cells.len());
        let head = style.paint(Tone::Head, &clip(&head, width));
        [head].into_iter().chain((0..rows).map(row)).collect()
    }

    fn line<'a>(
        &'a self,
        cell: impl Fn(&'a TextColumn) -> &'a str,
        paint: impl Fn(&TextColumn, String) -> String,
    ) -> String {
        let padded = |(column, width): &'a (TextColumn, usize)| {
            let text = clip(cell(column), *width);
            let text =
                if column.left { format!("{text:<width$}") } else { format!("{text:>width$}") };
            paint(column, text)
        };
        let cells: Vec<String> = self.0.iter().map(padded).collect();
        cells.join(GAP).trim_end().to_string()
    }

    fn width(&self) -> usize {
        let total: usize = self.0.iter().map(|(_, width)| width + GAP.len()).sum();
        total.saturating_sub(GAP.len())
    }
}

const GAP: &str = "  ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_left_out_then_cut_then_clipped() {
        let column = |head, rank, left, cells: [&str; 2]| TextColumn {
            head,
            rank,
            left,
            cells: cells.map(String::from).into(),
        };
        let mut table = TextTable::new([
            column("NAME", 0, true, ["a long name", "b"]),
            column("LESS", 2, false, ["1", "2"]),
            column("MORE", 1, false, ["30", "4"]),
        ]);
        let lines =
            |table: &TextTable, width| table.lines(width, Style::default(), |_, _| Tone::Plain);
        let whole =
            ["NAME         LESS  MORE", "a long name     1    30", "b               2     4"];
        assert_eq!(lines(&table, 23), whole);
        table.leave_out(17, 1);
        assert!(!table.has("LESS") && table.has("MORE"));
        table.cut_first(12, 6);
        assert_eq!(lines(&table, 12), ["NAME    MORE", "a lon…    30", "b          4"]);
        table.leave_out(2, 1);
        assert_eq!(lines(&table, 3), ["NA…", "a …", "b"]);
    }

    #[test]
    fn the_widest_of_some_columns_is_cut_and_the_others_stay_whole() {
        let column = |head, left, cell: &str| TextColumn {
            head,
            rank: 0,
            left,
            cells: vec![cell.to_string()],
        };
        let mut table = TextTable::new([
            column("A", true, "long enough to be cut"),
            column("B", true, "fits"),
            column("TIME", false, "9.96 s"),
        ]);
        table.cut(22, &["A", "B"], 3);
        let lines =
            |table: &TextTable, width| table.lines(width, Style::default(), |_, _| Tone::Plain);
        assert_eq!(lines(&table, 22), ["A         B       TIME", "long en…  fits  9.96 s"]);
        table.cut(0, &["A", "B"], 3);
        assert_eq!(lines(&table, 16), ["A    B      TIME", "lo…  fi…  9.96 s"]);
    }
}
