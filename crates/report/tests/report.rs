//! Whole reports of synthetic runs, in every format.

mod synthetic;

use sonde_report::chart::{Shape, svg};
use sonde_report::figure::{ablations, charts};
use sonde_report::{Format, Metrics, Page, Verdict, compare, render, sheets};
use sonde_results::bench::BenchRun;
use synthetic::Recipe;

fn everything(run: &BenchRun) -> Vec<Page> {
    render(run, &Format::ALL.map(|f| f.0)).unwrap()
}

fn text<'a>(pages: &'a [Page], name: &str) -> &'a str {
    let page = pages.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}"));
    std::str::from_utf8(&page.bytes).unwrap()
}

/// Writes a report where SONDE_REPORT_DIR says, to be looked at.
fn keep(pages: &[Page], folder: &str) {
    if let Some(root) = std::env::var_os("SONDE_REPORT_DIR") {
        for page in pages {
            let path = std::path::Path::new(&root).join(folder).join(&page.name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, &page.bytes).unwrap();
        }
    }
}

#[test]
fn every_format_of_a_full_run() {
    let run = synthetic::run(&Recipe::default());
    let pages = everything(&run);
    keep(&pages, "full");
    let names: std::collections::HashSet<&str> = pages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names.len(), pages.len(), "names clash");
    assert_eq!(pages, everything(&run), "the same run gives the same octets");

    let html = text(&pages, "report.html");
    for part in [
        "Throughput by frame size",
        "theoretical",
        "Frame loss by offered load",
        "Latency by percentile",
        "Cumulative distribution",
        "Delay variation",
        "Heat map of latency",
        "Latency with and without the device",
        "Difference of tuned from kernel",
        "RFC 2544, section 26.1",
        "RFC 2544, section 26.2",
        "RFC 2544, section 26.3",
        "net.core.netdev_budget",
        "repeat with the standard&#39;s durations (trial, drain) before publishing",
        "the tester was not run for 12000000 ns",
        "rx_queue_0_drops",
        "Seed",
        "2027-01-15T07:59:23Z",
    ] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("<script"), "the plan's own text is no markup");
    assert!(
        !html.contains("http://")
            || html.matches("http://").count()
                == html.matches("http://www.w3.org/2000/svg").count(),
        "nothing is fetched"
    );
    assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    assert!(!html.contains("NaN") && !html.contains("inf\""));

    let json: serde_json::Value = serde_json::from_str(text(&pages, "report.json")).unwrap();
    let rows = json["tables"]["throughput_rates"]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 15);
    let of_line = rows[0]["of_theoretical_ratio"].as_f64();
    assert_eq!(rows[0]["direction"], "bidirectional", "programs get every column");
    assert!((0.06..0.08).contains(&of_line.unwrap()), "1.02 of 14.88 Mframes/s");
}

#[test]
fn binary_files_hold_what_the_tables_hold() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    let run = synthetic::run(&Recipe { repetitions: 2, ..Recipe::default() });
    let pages = everything(&run);
    let all = sheets(&run);
    let bytes = |name: &str| pages.iter().find(|p| p.name == name).unwrap().bytes.clone();
    let temporary = std::env::temp_dir().join(format!("sonde-parquet-{}", std::process::id()));
    for sheet in &all {
        std::fs::write(&temporary, bytes(&format!("parquet/{}.parquet", sheet.id))).unwrap();
        let reader = SerializedFileReader::try_from(temporary.as_path()).unwrap();
        let meta = reader.metadata().file_metadata();
        assert_eq!(meta.num_rows(), sheet.rows.len() as i64, "{}", sheet.id);
        assert_eq!(meta.schema_descr().num_columns(), sheet.columns.len());
    }
    std::fs::remove_file(&temporary).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&bytes("npy/index.json")).unwrap();
    let name = "npy/throughput_rates.npy";
    let columns = index[name]["columns"].as_array().unwrap();
    let file = bytes(name);
    let matrix = npyz::NpyFile::new(&file[..]).unwrap();
    assert_eq!(matrix.shape(), &[15, columns.len() as u64]);
    let values: Vec<f64> = matrix.into_vec().unwrap();
    let rates = all.iter().find(|s| s.id == "throughput_rates").unwrap();
    let median = rates.columns.iter().position(|c| c.name == "median").unwrap();
    let place = columns.iter().position(|c| c == "median_frames_per_s").unwrap();
    assert_eq!(Some(values[columns.len() + place]), rates.rows[1][median].number());
}

#[test]
fn percentiles_need_samples() {
    let run = synthetic::run(&Recipe { repetitions: 1, ..Recipe::default() });
    let all = sheets(&run);
    let trials = all.iter().find(|s| s.id == "trials").unwrap();
    let place = |name: &str| trials.columns.iter().position(|c| c.name == name).unwrap();
    // 400 frames a direction at no load: 4 beyond p99.
    let idle = trials.rows.iter().find(|r| r[3].raw() == "latency at 0 %").unwrap();
    assert!(idle[place("latency p50")].number().is_some());
    assert!(idle[place("latency p99")].number().is_none());
    let busy = trials.rows.iter().find(|r| r[3].raw() == "latency at 50 %").unwrap();
    assert!(busy[place("latency p99")].number().is_some());
    assert!(busy[place("latency p99.9")].number().is_none());
}

#[test]
fn without_a_nominal_speed_there_is_no_theoretical_line() {
    let run = synthetic::run(&Recipe { speed_bps: None, repetitions: 3, ..Recipe::default() });
    let all = charts(&run);
    let throughput = all.iter().find(|c| c.id.starts_with("throughput")).unwrap();
    assert!(throughput.series.iter().all(|s| s.name != "theoretical"));
    assert!(throughput.caption.contains("no nominal speed"));
    let loss = all.iter().find(|c| c.id.starts_with("loss_")).unwrap();
    assert!(loss.x.title.contains("frames/s"), "{}", loss.x.title);
    let pages = everything(&run);
    keep(&pages, "virtual");
    assert!(!text(&pages, "report.html").contains("of theoretical</th>"));
}

#[test]
fn lines_end_where_too_few_samples_lie_beyond() {
    let run = synthetic::run(&Recipe::default());
    let all = charts(&run);
    let nines = all.iter().find(|c| c.id.starts_with("latency_percentiles")).unwrap();
    let ends: Vec<f64> = nines
        .series
        .iter()
        .map(|s| match &s.shape {
            Shape::Line { points, .. } => points.last().unwrap().0,
            _ => panic!("a line"),
        })
        .collect();
    assert_eq!(nines.series.len(), 4);
    // 8 repetitions of 2 x 400 and of 2 x 6000 frames.
    for (end, frames) in ends.iter().zip([6_400.0, 96_000.0, 96_000.0, 96_000.0]) {
        assert!((end - (1.0 - 10.0 / frames)).abs() < 1e-9, "{end} {frames}");
    }
}

#[test]
fn shares_of_layers_are_found_and_drawn() {
    let run = synthetic::ablation(7, 6);
    let found = ablations(&run);
    assert_eq!(found.len(), 1);
    let a = &found[0];
    assert_eq!(a.layers, ["gro", "napi", "rps"]);
    // The recipe: 200 k, 90 k and -30 k alone, and 60 k for the first two together, of which
    // each has half.
    for (share, truth) in a.shares.iter().zip([230_000.0, 120_000.0, -30_000.0]) {
        let i = share.interval.unwrap();
        assert!((share.mean - truth).abs() < 12_000.0, "{share:?} {truth}");
        assert!(i.low <= share.mean && share.mean <= i.high && i.high - i.low < 40_000.0);
    }
    let sum: f64 = a.shares.iter().map(|s| s.mean).sum();
    assert!((sum - (a.all - a.baseline)).abs() < 1e-6);
    let (_, _, joint) = &a.interactions[0];
    assert!((joint - 60_000.0).abs() < 15_000.0, "{joint}");
    let pages = everything(&run);
    keep(&pages, "ablation");
    assert!(text(&pages, "report.html").contains("Contribution of each layer to throughput"));
    // One block cut short: it takes no part.
    let mut cut = run.clone();
    cut.measurements.pop();
    assert_eq!(ablations(&cut)[0].blocks, 5);
}

#[test]
fn runs_are_compared_case_by_case() {
    let a = synthetic::run(&Recipe::default());
    let slower = Recipe { seed: 1242, rate_factor: 0.9, ..Recipe::default() };
    let b = synthetic::run(&slower);
    let worse = compare(&a, &b, &Metrics::Named("throughput".into()));
    assert_eq!(worse.rows.len(), 15);
    // Where the medium sets the limit there is nothing to compare.
    let free = worse.rows.iter().filter(|r| r.case.frame == "64");
    for row in free {
        assert_eq!(row.verdict, Verdict::Worse, "{}", row.name);
        let i = row.relative_interval.unwrap();
        assert!(i.low < -0.1 && -0.1 < i.high + 0.03, "{i:?}");
        assert!(row.worse_beyond(0.05) && !row.worse_beyond(0.2));
    }
    let same = compare(&a, &a, &Metrics::All);
    assert!(same.rows.iter().all(|r| r.verdict == Verdict::NoDifferenceShown && r.p == 1.0
        || r.verdict == Verdict::TooFewRepetitions));
    assert!(same.bed.is_empty() && same.only_a.is_empty());
    let faster = compare(&b, &a, &Metrics::First);
    let row = faster.rows.iter().find(|r| r.case.procedure == "throughput" && r.case.frame == "64");
    assert_eq!(row.unwrap().verdict, Verdict::Better);

    let few = Recipe { repetitions: 3, ..slower };
    let few = compare(&a, &synthetic::run(&few), &Metrics::First);
    assert!(few.rows.iter().any(|r| r.verdict == Verdict::Worse), "8 against 3 can show it");
    let three = Recipe { repetitions: 3, ..Recipe::default() };
    let few = compare(&synthetic::run(&three), &synthetic::run(&three), &Metrics::First);
    assert!(few.rows.iter().all(|r| r.verdict == Verdict::TooFewRepetitions));
}

#[test]
fn an_empty_run_and_odd_names_have_a_report() {
    let mut run = BenchRun::default();
    assert!(!everything(&run).is_empty());
    run = synthetic::run(&Recipe { repetitions: 1, ..Recipe::default() });
    for m in &mut run.measurements {
        m.case.procedure = "ä/../<b>&\"'\\|".into();
        m.case.device = "=1+1\u{1b}[31m\u{0}".into();
        for q in &mut m.finding.values {
            q.name = q.name.replace("throughput", "x\u{0} y");
            q.value = if q.samples == 12 { f64::NAN } else { f64::INFINITY };
        }
    }
    let pages = everything(&run);
    for page in &pages {
        assert!(!page.name.contains("..") && page.name.is_ascii(), "{}", page.name);
    }
    let html = text(&pages, "report.html");
    assert!(!html.contains('\u{1b}') && !html.contains('\u{0}') && !html.contains("<b>"));
}

#[test]
fn figures_alone_carry_their_style() {
    let run = synthetic::run(&Recipe { repetitions: 1, ..Recipe::default() });
    for chart in charts(&run) {
        let alone = svg::render(&chart, true);
        assert!(alone.contains("prefers-color-scheme:dark"));
        assert!(!alone.contains("var("), "viewers other than browsers know no variables");
        assert!(!alone.contains("NaN") && !alone.contains("inf"), "{}", chart.id);
        assert!(!chart.x.title.is_empty());
    }
}
