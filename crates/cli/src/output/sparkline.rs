//! The shape of a histogram in a line of blocks.

use sonde_results::Hist;

/// The shape of `hist` in `cells` blocks, least value left, greatest right; the axis is
/// logarithmic where all values are positive. Empty without values.
pub fn sparkline(hist: &Hist, cells: usize) -> String {
    let (Some(min), Some(max)) = (hist.min(), hist.max()) else { return String::new() };
    let scale = |v: i64| if min > 0 { (v as f64).ln() } else { v as f64 };
    let (low, span) = (scale(min), scale(max) - scale(min));
    match span > 0.0 {
        true => bars(hist, cells, |v| (scale(v) - low) / span),
        false => bars(hist, cells.min(1), |_| 0.0),
    }
}

/// The shape of `hist` in `cells` blocks, the highest full; `position` is how far to the right a
/// value of it stands, 0 to 1. Empty without values.
pub fn bars(hist: &Hist, cells: usize, position: impl Fn(i64) -> f64) -> String {
    if hist.count == 0 || cells == 0 {
        return String::new();
    }
    let mut bins = vec![0u64; cells];
    for (value, n) in hist.values() {
        bins[((position(value) * cells as f64) as usize).min(cells - 1)] += n;
    }
    blocks(&bins)
}

/// Counts over time in at most `cells` blocks, the greatest full. Of several in one cell the
/// greatest shows.
pub fn line(counts: &[u64], cells: usize) -> String {
    let each = counts.len().div_ceil(cells.max(1)).max(1);
    let greatest = |counts: &[u64]| counts.iter().copied().max().unwrap_or(0);
    blocks(&counts.chunks(each).map(greatest).collect::<Vec<_>>())
}

fn blocks(bins: &[u64]) -> String {
    let top = bins.iter().copied().max().unwrap_or(1).max(1);
    let block = |&n: &u64| match n {
        0 => ' ',
        n => BLOCKS[((n as f64 / top as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    bins.iter().map(block).collect()
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_over_time_fit_their_cells() {
        assert_eq!(line(&[0, 1, 4, 8], 8), " ▁▄█");
        assert_eq!(line(&[0, 1, 4, 8], 2), "▁█");
        assert_eq!((line(&[], 8), line(&[0, 0], 8)), (String::new(), "  ".into()));
    }

    #[test]
    fn sparklines_show_the_shape() {
        let mut hist = Hist::default();
        assert_eq!(sparkline(&hist, 8), "");
        hist.add(500);
        assert_eq!(sparkline(&hist, 8), "█");
        (0..8).for_each(|_| hist.add(1_000));
        assert_eq!(sparkline(&hist, 8), "▁      █");
        assert_eq!(sparkline(&hist, 0), "");
        hist.add(-500);
        assert_eq!(sparkline(&hist, 2), "▁█");
    }

    proptest! {
        #[test]
        fn any_values_have_a_sparkline(values in prop::collection::vec(any::<i64>(), 1..20)) {
            let mut hist = Hist::default();
            values.iter().for_each(|&v| hist.add(v));
            let cells = sparkline(&hist, 12).chars().count();
            prop_assert!(cells == 12 || cells == 1);
        }
    }
}
