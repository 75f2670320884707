//! Whole reports of synthetic runs, in every format.

mod synthetic;

use sonde_report::chart::{Shape, svg};
use sonde_report::figure::{ablations, charts};
use sonde_report::{ComparisonVerdict, Metrics, Page, ReportFormat, compare, render, sheets};
use sonde_results::bench::{BenchRun, Check};
use synthetic::Recipe;

fn everything(run: &BenchRun) -> Vec<Page> {
    render(run, &ReportFormat::ALL.map(|f| f.0)).unwrap()
}

fn text<'a>(pages: &'a [Page], name: &str) -> &'a str {
    let page = pages.iter().find(|p| p.name == name).unwrap_or_else(|| panic!("no {name}"));
    std::str::from_utf8(&page.bytes).unwrap()
}

/// Writes a report where SONDE_REPORT_DIR says, to be looked at.
#[expect(clippy::disallowed_methods, reason = "tests are told by the environment")]
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
        "the tester was not run for 12.0 ms",
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
    // What the rows are of, as strings: UTF-32 behind a head of a multiple of 64 octets.
    let texts = index[name]["rows_are_told_by"].as_str().unwrap();
    let headings = index[texts]["columns"].as_array().unwrap();
    let file = bytes(texts);
    let head = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    assert_eq!((&file[..8], head % 64), (&b"\x93NUMPY\x01\x00"[..], 0));
    let head_text = std::str::from_utf8(&file[10..head]).unwrap();
    let shape = format!("'shape': (15, {})", headings.len());
    assert!(head_text.contains("'descr': '<U") && head_text.contains(&shape), "{head_text}");
    let cell = (file.len() - head) / 15 / headings.len();
    let text = |row: usize, column: &str| -> String {
        let position = headings.iter().position(|c| c == column).unwrap();
        let from = head + (row * headings.len() + position) * cell;
        let letters = file[from..from + cell].chunks(4);
        let codes = letters.map(|c| u32::from_le_bytes(c.try_into().unwrap()));
        codes.take_while(|c| *c > 0).map(|c| char::from_u32(c).unwrap()).collect()
    };
    let case = all.iter().find(|s| s.id == "throughput_rates").unwrap();
    for (row, cells) in case.rows.iter().enumerate() {
        assert_eq!((text(row, "procedure"), text(row, "frame")), (cells[0].raw(), cells[3].raw()));
    }
    // A line's x is the frame size, not its index.
    let line = index.as_object().unwrap().keys().find(|k| k.contains("throughput_by_frame_size"));
    let line = bytes(line.unwrap());
    let line: Vec<f64> = npyz::NpyFile::new(&line[..]).unwrap().into_vec().unwrap();
    assert_eq!(line[0], 64.0, "{line:?}");
    let rates = all.iter().find(|s| s.id == "throughput_rates").unwrap();
    let median = rates.columns.iter().position(|c| c.name == "median").unwrap();
    let position = columns.iter().position(|c| c == "median_frames_per_s").unwrap();
    assert_eq!(Some(values[columns.len() + position]), rates.rows[1][median].number());
}

#[test]
fn percentiles_need_samples() {
    let run = synthetic::run(&Recipe { repetitions: 1, ..Recipe::default() });
    let all = sheets(&run);
    let trials = all.iter().find(|s| s.id == "trials").unwrap();
    let position = |name: &str| trials.columns.iter().position(|c| c.name == name).unwrap();
    // 400 frames a direction at no load: 4 beyond p99.
    let idle = trials.rows.iter().find(|r| r[3].raw() == "latency at 0 %").unwrap();
    assert!(idle[position("latency p50")].number().is_some());
    assert!(idle[position("latency p99")].number().is_none());
    let busy = trials.rows.iter().find(|r| r[3].raw() == "latency at 50 %").unwrap();
    assert!(busy[position("latency p99")].number().is_some());
    assert!(busy[position("latency p99.9")].number().is_none());
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
        assert_eq!(row.verdict, ComparisonVerdict::Worse, "{}", row.name);
        let i = row.relative_interval.unwrap();
        assert!(i.low < -0.1 && -0.1 < i.high + 0.03, "{i:?}");
        assert!(row.worse_beyond(0.05) && !row.worse_beyond(0.2));
    }
    let same = compare(&a, &a, &Metrics::All);
    assert!(
        same.rows.iter().all(|r| r.verdict == ComparisonVerdict::NoDifferenceShown && r.p == 1.0
            || r.verdict == ComparisonVerdict::TooFewRepetitions)
    );
    assert!(same.bed.is_empty() && same.only_a.is_empty());
    let faster = compare(&b, &a, &Metrics::First);
    let row = faster.rows.iter().find(|r| r.case.procedure == "throughput" && r.case.frame == "64");
    assert_eq!(row.unwrap().verdict, ComparisonVerdict::Better);

    let few = Recipe { repetitions: 3, ..slower };
    let few = compare(&a, &synthetic::run(&few), &Metrics::First);
    assert!(
        few.rows.iter().any(|r| r.verdict == ComparisonVerdict::Worse),
        "8 against 3 can show it"
    );
    let three = Recipe { repetitions: 3, ..Recipe::default() };
    let few = compare(&synthetic::run(&three), &synthetic::run(&three), &Metrics::First);
    assert!(few.rows.iter().all(|r| r.verdict == ComparisonVerdict::TooFewRepetitions));
}

#[test]
fn what_the_repetitions_or_the_tester_leave_open_is_undecided() {
    let three = || synthetic::run(&Recipe { repetitions: 3, ..Recipe::default() });
    let few = compare(&three(), &three(), &Metrics::First);
    assert_eq!(few.undecided().len(), few.rows.len());
    let rates = Metrics::Named("throughput".into());
    let (a, mut b) = (synthetic::run(&Recipe::default()), synthetic::run(&Recipe::default()));
    assert!(compare(&a, &b, &rates).undecided().is_empty());
    // Of one case the second run found nothing, another it does not have.
    let gone = b.measurements[0].case.clone();
    let same = |case: &sonde_results::bench::Case| {
        sonde_report::group::key(case) == sonde_report::group::key(&gone)
    };
    for m in b.measurements.iter_mut().filter(|m| same(&m.case)) {
        m.finding.values.clear();
    }
    let sided = compare(&a, &b, &rates);
    assert_eq!((sided.one_sided.len(), sided.undecided().len()), (1, 1), "{:?}", sided.undecided());
    b.measurements.retain(|m| !same(&m.case));
    assert_eq!(compare(&a, &b, &rates).undecided().len(), 1);
    b.config.plan_sha256 = "another".into();
    assert!(compare(&a, &b, &rates).undecided().is_empty(), "another plan's cases");
}

#[test]
fn a_case_in_which_neither_run_found_anything_is_named_by_its_procedure() {
    let mut a = synthetic::run(&Recipe::default());
    let gone = a.measurements[0].case.clone();
    for m in a.measurements.iter_mut() {
        if sonde_report::group::key(&m.case) == sonde_report::group::key(&gone) {
            m.finding.values.clear();
        }
    }
    let itself = compare(&a, &a, &Metrics::First);
    assert!(itself.one_sided.is_empty(), "{:?}", itself.one_sided);
    let [neither] = &itself.neither[..] else { panic!("{:?}", itself.neither) };
    assert!(neither.ends_with(&format!(": {}", gone.procedure)), "{neither}");
    assert!(itself.undecided().contains(&format!("{neither} (found in neither run)")));
    // Another quantity was not asked for.
    assert!(compare(&a, &a, &Metrics::Named("latency".into())).neither.is_empty());
    // Of the run that has it, it is found in one only.
    let sided = compare(&a, &synthetic::run(&Recipe::default()), &Metrics::First);
    assert_eq!((sided.neither.len(), sided.one_sided.len()), (0, 1), "{:?}", sided.one_sided);
}

#[test]
fn thresholds_that_cannot_be_told_are_not_counted_as_broken() {
    let check = |value, pass| Check { text: "throughput >= 1k".into(), value, pass };
    let said = |checks: &[Check]| {
        let mut run = synthetic::run(&Recipe::default());
        run.measurements.iter_mut().for_each(|m| m.checks.clear());
        run.measurements[0].checks = checks.to_vec();
        let pages = render(&run, &[ReportFormat::Markdown]).unwrap();
        let page = text(&pages, "report.md");
        page.lines().find(|l| l.contains("thresholds of the plan ")).unwrap().trim().to_owned()
    };
    let (met, broken, open) = (check(Some(2e3), true), check(Some(5.0), false), check(None, false));
    for (checks, line) in [
        (vec![met.clone(), met.clone()], "All 2 thresholds of the plan are met."),
        (vec![met.clone(), broken.clone()], "1 of 2 thresholds of the plan are NOT met."),
        (
            vec![open.clone(), open.clone()],
            "2 of 2 thresholds of the plan cannot be told, for want of the quantity.",
        ),
        (
            vec![open.clone(), met.clone()],
            "1 of 2 thresholds of the plan cannot be told, for want of the quantity; the others \
             are met.",
        ),
        (
            vec![met, broken, open],
            "1 of 3 thresholds of the plan are NOT met, and 1 cannot be told, for want of the \
             quantity.",
        ),
    ] {
        assert_eq!(said(&checks), line);
    }
}

#[test]
fn what_the_tester_limits_has_an_open_mark_and_no_verdict() {
    let limited = |factor| {
        let mut run = synthetic::run(&Recipe { rate_factor: factor, ..Recipe::default() });
        for m in run.measurements.iter_mut().filter(|m| m.case.device != sonde_report::LOOP) {
            for q in m.finding.values.iter_mut().filter(|q| q.name.ends_with("throughput")) {
                q.tester_limited = true;
            }
        }
        run
    };
    let (free, less) = (synthetic::run(&Recipe::default()), limited(0.8));
    let chart = |run: &BenchRun| {
        let all = charts(run);
        all.into_iter().find(|c| c.id.starts_with("throughput_by")).unwrap()
    };
    let open = chart(&less);
    assert!(open.caption.contains("Open marks"), "{}", open.caption);
    assert!(svg::render(&open, true).contains("class=\"ground open s"));
    assert!(!chart(&free).caption.contains("Open marks"));
    assert!(!svg::render(&chart(&free), true).contains("class=\"ground open"));
    let of_64 = |comparison: sonde_report::Comparison| {
        let rows = comparison.rows.into_iter();
        let with_device = rows.filter(|r| r.case.device != sonde_report::LOOP);
        with_device.filter(|r| r.case.frame == "64").collect::<Vec<_>>()
    };
    let metric = Metrics::Named("throughput".into());
    // Not slower, as far as anybody knows.
    let rows = of_64(compare(&free, &less, &metric));
    assert!(!rows.is_empty());
    assert!(
        rows.iter().all(|r| r.verdict == ComparisonVerdict::TesterLimited && r.b.tester_limited)
    );
    let rows = of_64(compare(&less, &free, &metric));
    assert!(rows.iter().all(|r| r.verdict == ComparisonVerdict::TesterLimited));
    // A lower bound that is greater is better all the same.
    let rows = of_64(compare(&free, &limited(1.2), &metric));
    assert!(rows.iter().all(|r| r.verdict == ComparisonVerdict::Better), "{rows:?}");
}

#[test]
fn the_answer_comes_first_and_small_losses_are_seen() {
    let mut run = synthetic::run(&Recipe::default());
    let pages = everything(&run);
    let html = text(&pages, "report.html");
    let position = |part: &str| html.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(position("Key results") < position("<h2 id=\"caveats\""));
    assert!(position("<h2 id=\"caveats\"") < position("<h2>Figures"));
    for (name, figures) in [("report.md", "!["), ("report.tex", "\\begin{figure}")] {
        let page = text(&pages, name);
        assert!(page.find("Key results") < page.find(figures), "{name}");
        assert!(page.contains("Key results"), "{name}");
    }
    assert!(!html.contains("What lies between the lines is the device"));
    assert!(html.contains("Throughput in bits by frame size") && html.contains("Gbit/s"));
    for chart in charts(&run).iter().filter(|c| c.y.title.starts_with("Share of")) {
        assert!(!svg::render(chart, true).contains(">120<"), "{}", chart.id);
    }
    let loss =
        |run: &BenchRun| charts(run).into_iter().find(|c| c.id.starts_with("loss_")).unwrap();
    assert!(!loss(&run).caption.contains("magnified"));
    for d in run.trials.iter_mut().flat_map(|t| &mut t.directions) {
        d.lost = d.sent / 100;
        d.received = d.sent - d.lost;
    }
    assert!(loss(&run).caption.contains("magnified"));
}

#[test]
fn a_device_has_one_colour_on_every_figure() {
    let run = synthetic::run(&Recipe::default());
    let mut seen: std::collections::HashMap<String, Option<usize>> = Default::default();
    let all = charts(&run);
    let by_device = all
        .iter()
        .filter(|c| c.id.starts_with("throughput") || c.id.starts_with("with_and_without"));
    let mut figures = 0;
    for chart in by_device {
        figures += 1;
        for series in chart.series.iter().filter(|s| s.name != "theoretical") {
            let device = if series.colour.is_none() { "none" } else { &series.name };
            let state = ["tuned", "kernel"].into_iter().find(|s| device.contains(s));
            let state = state.unwrap_or(device).to_owned();
            assert_eq!(*seen.entry(state).or_insert(series.colour), series.colour, "{chart:?}");
        }
    }
    assert!(figures > 2 && seen.len() >= 2, "{seen:?}");
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
