//! Objectives and maintenance as they are written.

use sonde_results::civil_time;

use super::*;

fn objective(text: &str) -> Result<Vec<JudgedObjective>, Vec<String>> {
    let settings: ObjectiveSettings = toml::from_str(text).map_err(|e| vec![e.to_string()])?;
    let texts = |errors: Vec<SettingsError>| errors.iter().map(ToString::to_string).collect();
    settings.objectives("gold").map_err(texts)
}

#[test]
fn each_metric_is_written_in_its_own_unit() {
    for (text, words) in [
        (
            "metric = 'delay_percentile'\npercent = 99\nlimit = '20ms'\ndirection = 'forward'",
            "99 % of forward delays at most 20ms in each 5 min",
        ),
        (
            "metric = 'delay_mean'\nlimit = '1.5ms'\nwindow = '1m'",
            "mean two-way delay at most 1500us in each 1 min",
        ),
        (
            "metric = 'pdv_percentile'\npercent = 99.9\nlimit = '5ms'\nwindow = '90s'",
            "99.9 % of two-way delays at most 5ms above the least in each 90 s",
        ),
        (
            "metric = 'loss_ratio'\nlimit = '0.1%'\navailable_time = 'mef_10'\nwindow = '15m'",
            "two-way loss at most 0.1 % in each 15 min",
        ),
        ("metric = 'loss_ratio'\nlimit = 0.001", "two-way loss at most 0.1 % in each 5 min"),
        (
            "metric = 'errored_seconds'\npreset = 'g826'\nlimit = 60\nwindow = '1h'",
            "at most 60 errored seconds (two-way) in each 60 min",
        ),
        (
            "preset = 'mef_10'\ntarget_percent = 99.95",
            "two-way availability at least 99.95 % in each month",
        ),
        (
            "metric = 'availability'\ntarget_percent = 99\nwindow = '1d'\n\
             rule = { block = '1m', loss = '20%', least_packets = 10 }",
            "two-way availability at least 99 % in each 1440 min",
        ),
    ] {
        let made = objective(text).unwrap_or_else(|e| panic!("{e:?} in {text}"));
        let [one] = made.as_slice() else { panic!("{text}") };
        assert_eq!(one.objective.to_string(), words, "{text}");
        assert_eq!(one.objective.name, "gold");
    }
}

#[test]
fn a_class_of_y1541_is_several_objectives_that_name_their_standard() {
    let made = objective("preset = 'y1541_class_0'\ndirection = 'backward'").unwrap();
    let names: Vec<&str> = made.iter().map(|o| o.objective.name.as_str()).collect();
    assert_eq!(names, ["gold IPTD", "gold IPDV", "gold IPLR"]);
    assert!(made.iter().all(|o| o.objective.standard == Some(Preset::Y1541Class0.standard())));
}

#[test]
fn what_is_wrong_is_named_by_its_key() {
    for (text, message) in [
        ("", "metric: name one: delay_percentile, delay_mean, "),
        ("metric = 'loss_ratio'", "limit: name the greatest loss, as \"0.1%\""),
        ("metric = 'loss_ratio'\nlimit = '2ms'", "limit: '2ms' is not a share; "),
        ("metric = 'loss_ratio'\nlimit = 1", "limit: 1 is not a share of 0 or more and below 1"),
        ("metric = 'loss_ratio'\nlimit = 0\npercent = 9", "percent: only percentiles have it"),
        ("metric = 'delay_mean'\nlimit = 5", "limit: name the greatest delay, as \"20ms\""),
        ("metric = 'delay_mean'\nlimit = '5'\nwindow = '1500ms'", "window: 1500ms are no whole"),
        ("metric = 'delay_percentile'\nlimit = '5ms'", "percent: name one, as 99"),
        (
            "metric = 'delay_percentile'\nlimit = '5ms'\npercent = 100",
            "percent: 100 must be above 0 and below 100",
        ),
        (
            "metric = 'ipdv_percentile'\nlimit = '5ms'\npercent = 99",
            "direction: the variation between consecutive packets is measured one way; write",
        ),
        (
            "metric = 'delay_mean'\nlimit = '5ms'\nbreach = { n = 3, m = 2 }",
            "breach.m: 2 windows are not within n, which is 3, and 64",
        ),
        ("preset = 'y1541_class_0'", "direction: this preset is of one way; write forward or"),
        (
            "preset = 'y1541_class_0'\ndirection = 'forward'\nlimit = '1ms'",
            "limit: the preset has it; leave it out",
        ),
        ("preset = 'mef_10'", "target_percent: name the least availability, as 99.95"),
        ("metric = 'availability'\ntarget_percent = 99", "preset: write y1540_75_percent_5_min, "),
        (
            "metric = 'availability'\ntarget_percent = 99\nrule = { loss = '50%' }",
            "rule: write interval or block, one of them",
        ),
        (
            "metric = 'availability'\ntarget_percent = 99\n\
             rule = { interval = '1ms', loss = '50%' }",
            "rule.interval: 1000000 is not within 100 ms and 1 h",
        ),
        (
            "metric = 'availability'\ntarget_percent = 99\n\
             rule = { block = '1m', loss = '50%', window = 4 }",
            "rule.window: only a rule with interval has it",
        ),
        (
            "metric = 'loss_ratio'\nlimit = 0\navailable_time = 'y1541_class_0'",
            "available_time: write y1540_75_percent_5_min, ",
        ),
        (
            "metric = 'loss_ratio'\nlimit = 0\nmatch = { site = 'x' }",
            "match.site: there is no such label; there are station, unit, target, class",
        ),
        (
            "metric = 'delay_percentile'\npercent = 95\ntimes_usual = 2",
            "direction: of round trips with the reflector's dwell no percentile is kept",
        ),
        (
            "metric = 'delay_mean'\ntimes_usual = 0",
            "times_usual: 0 must be above 0 and at most 1,000",
        ),
        (
            "preset = 'mef_10'\ntarget_percent = 99\ntimes_usual = 2",
            "times_usual: only delays and loss_ratio have it",
        ),
        (
            "metric = 'delay_mean'\ntimes_usual = 2\nwindow = '7m'",
            "window: the usual is that of an hour, and windows of 420 s do not",
        ),
        (
            "metric = 'loss_ratio'\ntimes_usual = 2\nburn_rates = 'usual'",
            "burn_rates: what is usual is no budget; burn rates need a fixed limit",
        ),
        (
            "metric = 'delay_mean'\nlimit = '5ms'\nburn_rates = 'usual'",
            "burn_rates: its samples are not good or bad one by one",
        ),
        (
            "preset = 'mef_10'\ntarget_percent = 90\n\
             burn_rates = [{ long = '1h', factor = 14.4, kind = 'page' }]",
            "burn_rates.factor: 14.4 times a budget of 10.0000 % is 144.0 % of errors",
        ),
        (
            "preset = 'mef_10'\ntarget_percent = 99.9\n\
             burn_rates = [{ long = '1h', short = '7m', factor = 14.4, kind = 'page' }]",
            "burn_rates.short: 420 must be a multiple of 5, divide long_s, which is 3600",
        ),
        (
            "preset = 'mef_10'\ntarget_percent = 99.9\nburn_rates = []",
            "burn_rates: it has no pair; write \"usual\", or leave it out",
        ),
        (
            "metric = 'loss_ratio'\nlimit = '1%'\nmatch = { unit = 'rtt.up' }",
            "metric: passive round trips have delays there and back alone; write",
        ),
        (
            "metric = 'errored_seconds'\nlimit = 3\npreset = 'mef_10'",
            "preset: it says nothing of errored seconds; write g826, or a rule",
        ),
    ] {
        let errors = objective(text).unwrap_err();
        assert!(errors[0].starts_with(message), "{errors:?}\n{message}");
        assert_eq!(errors.len(), 1, "{errors:?}");
    }
}

#[test]
fn maintenance_is_once_or_in_each_week() {
    let window = |text: &str| {
        let settings: MaintenanceSettings = toml::from_str(text).unwrap();
        let texts = |errors: Vec<SettingsError>| errors[0].to_string();
        settings.window("night").map(|m| m.window).map_err(texts)
    };
    let once = window("from = '2026-12-01T02:00:00Z'\nto = '2026-12-01T04:00:00Z'").unwrap();
    let start = civil_time::parse_rfc3339("2026-12-01T02:00:00Z").unwrap();
    assert!(once.covers(start) && !once.covers(start - 1) && !once.covers(start + 7_200 * SECOND));
    // 2026-12-06 was to be a Sunday; two hours ahead of UTC.
    let weekly =
        window("day = 'sunday'\nstart = '02:30'\nlength = '1h'\nutc_offset = '2h'").unwrap();
    let start = civil_time::parse_rfc3339("2026-12-06T00:30:00Z").unwrap();
    assert!(weekly.covers(start) && !weekly.covers(start - 1));
    for (text, message) in [
        ("day = 'sunday'", "write from and to, or day, start and length: those and no others"),
        ("from = 'x'\nto = 'y'", "from: 'x' is no instant; write it as 2026-12-01T02:00:00Z"),
        ("from = '2026-12-01T02:00:00Z'\nto = '2026-12-01T02:00:00Z'", "to: it is not after from"),
        ("day = 'sunday'\nstart = '2'\nlength = '1h'", "start: '2' is no time of day; write it"),
        ("day = 'sunday'\nstart = '02:00'\nlength = '8d'", "length: 691200 is not within 1 and"),
    ] {
        let error = window(text).unwrap_err();
        assert!(error.starts_with(message), "{error}\n{message}");
    }
}

#[test]
fn twice_the_usual_and_burn_rates_are_written() {
    let [one] = &objective(
        "metric = 'delay_percentile'\npercent = 95\ntimes_usual = 2\nlimit = '5ms'\n\
         direction = 'round_trip_net'",
    )
    .unwrap()[..] else {
        panic!()
    };
    assert_eq!(
        one.objective.to_string(),
        "95 % of two-way (without dwell) delays at most 2 times the usual of the hour (5ms in any \
         case) in each 5 min"
    );
    let [one] =
        &objective("preset = 'mef_10'\ntarget_percent = 99.9\nburn_rates = 'usual'").unwrap()[..]
    else {
        panic!()
    };
    assert_eq!((one.burn_rates.len(), one.burn_target), (4, 99.9));
    let own = "metric = 'loss_ratio'\nlimit = '1%'\n\
               burn_rates = [{ long = '1h', factor = 10, kind = 'ticket' }]";
    let [one] = &objective(own).unwrap()[..] else { panic!() };
    let [rule] = &one.burn_rates[..] else { panic!() };
    assert_eq!((rule.long_s, rule.short_s, rule.factor), (3_600, 300, 10.0));
    assert!((one.burn_target - 99.0).abs() < 1e-9);
    assert_eq!(objective("metric = 'loss_ratio'\nlimit = '1%'").unwrap()[0].burn_rates, []);
}
