//! What explains an excess, in sentences.

use sonde_results::units::{format_count, format_number, format_share};

use super::{
    Answer, Cause, CauseKind, EvidenceKind, ExplainGrade, LabelKind, Question, SampleCounts,
};

/// The answer for people, the first sentence being the most important. It says "explains", never
/// "caused by".
pub fn sentences(question: &Question, answer: &Answer) -> Vec<String> {
    let mut text = Vec::new();
    match answer.grade {
        ExplainGrade::CannotJudge => text.push(own_fault(question, answer)),
        ExplainGrade::Silent => text.push(format!(
            "No single label explains the excess of {} bad samples; it is spread over {} series.",
            round(answer.excess),
            question.series.len()
        )),
        ExplainGrade::Strong | ExplainGrade::Leaning => {
            for cause in &answer.causes {
                text.push(explains(question, cause));
                text.extend(kind_sentence(question, cause));
                if answer.grade == ExplainGrade::Leaning {
                    text.extend(leaning(question, cause));
                }
                text.extend(alike(question, cause));
            }
        }
    }
    if !answer.acquitted.is_empty() {
        let named = |&(label, counts): &(usize, SampleCounts)| {
            format!(
                "{} ({} of {})",
                label_name(question, label),
                counts.bad,
                format_count(counts.n)
            )
        };
        let first: Vec<String> = answer.acquitted.iter().take(3).map(named).collect();
        let more = answer.acquitted.len() - first.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push(format!("As before: {}{more}.", first.join(", ")));
    }
    if answer.grade == ExplainGrade::Leaning && !answer.next.is_empty() {
        let named = |c: &Cause| format!("{} ({})", place(question, c), share(c.coverage));
        let next: Vec<String> = answer.next.iter().map(named).collect();
        text.push(format!("Next best, with what it covers: {}.", next.join(", ")));
    }
    text
}

fn own_fault(question: &Question, answer: &Answer) -> String {
    let starved = |c: &&Cause| c.kind == Some(CauseKind::StarvedStation);
    let late = answer.causes.first().filter(starved).and_then(|cause| {
        question.own.iter().find(|own| cause.evidence.iter().any(|e| e.name == [own.label]))
    });
    let Some(own) = late else {
        return "The station stepped its clock or dropped samples itself, and no other station saw \
                the same: the network is not judged."
            .into();
    };
    let all: SampleCounts =
        question.series.iter().filter(|s| s.labels.contains(&own.label)).map(|s| s.now).sum();
    format!(
        "{} of the bad samples of {} fall in the {} of its samples for which it was late: its own \
         doing; the network is not judged.",
        format_share(own.late.bad, all.bad),
        label_name(question, own.label),
        format_share(own.late.n, all.n)
    )
}

fn explains(question: &Question, cause: &Cause) -> String {
    let elsewhere = if cause.outside.n == 0 {
        String::new()
    } else {
        format!(", {} elsewhere", format_share(cause.outside.bad, cause.outside.n))
    };
    format!(
        "{} explains {} of the excess: {} of {} samples are bad there{elsewhere}, {} before.",
        place(question, cause),
        share(cause.coverage),
        format_share(cause.inside.bad, cause.inside.n),
        format_count(cause.inside.n),
        format_share(cause.before.bad, cause.before.n)
    )
}

fn kind_sentence(question: &Question, cause: &Cause) -> Option<String> {
    let name = cause.names.first()?;
    let of = |kind: LabelKind| {
        let label = name.iter().find(|&&l| question.labels[l].kind == kind);
        label.map(|&l| label_name(question, l))
    };
    Some(match cause.kind? {
        CauseKind::StarvedStation => return None,
        CauseKind::RouteChange => {
            let address = cause.evidence.iter().any(|e| e.kind == EvidenceKind::Address);
            let what = if address { "address" } else { "path" };
            format!("Its {what} changed at that time.")
        }
        CauseKind::Physical => {
            "Damaged frames or drops were counted there: look at cable, optic and duplex.".into()
        }
        CauseKind::FilledLink => {
            let mut parts = Vec::new();
            for evidence in &cause.evidence {
                match &evidence.kind {
                    EvidenceKind::Filled { before, now } => {
                        parts.push(format!(
                            "It went from {} to {} of its rate",
                            share(*before),
                            share(*now)
                        ));
                    }
                    EvidenceKind::GrownFlow { flow, before_bps, now_bps } => parts.push(format!(
                        "flow {flow} grew from {:.1} to {:.1} Mbit/s",
                        before_bps / 1e6,
                        now_bps / 1e6
                    )),
                    EvidenceKind::Drops { before, now } => parts.push(format!(
                        "it dropped {} packets a second for want of room, and {} before",
                        format_number(*now),
                        format_number(*before)
                    )),
                    _ => {}
                }
            }
            let mut text = parts.join("; ");
            if let Some(first) = text.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            format!("{text}.")
        }
        CauseKind::Policer => {
            format!(
                "Only {} is affected there: a policer or a queue of that class.",
                of(LabelKind::Class)?
            )
        }
        CauseKind::Server => format!(
            "Only {} to {} is affected: its server, not the path.",
            of(LabelKind::Protocol)?,
            of(LabelKind::Target)?
        ),
        CauseKind::Resolver => "Only names asked of it are affected.".into(),
        CauseKind::BadMember => "The other members of its group are not affected.".into(),
        CauseKind::Common => {
            "Everything got worse at once: the time of day, a common clock, or the own uplink."
                .into()
        }
    })
}

fn leaning(question: &Question, cause: &Cause) -> Option<String> {
    let place = place(question, cause);
    Some(match cause.purity {
        None => format!("No series of {place} has samples enough to show it alone."),
        Some(purity) if purity < 0.6 => format!(
            "{place} fits best, but only {} of its {} series are affected; it may be a part of it, or a \
             label that is not known.",
            share(purity),
            cause.series
        ),
        Some(_) => return None,
    })
}

fn alike(question: &Question, cause: &Cause) -> Option<String> {
    let told_apart = cause.names.len() < 2 || cause.names.iter().any(Vec::is_empty);
    (!told_apart).then(|| {
        format!(
            "{} cannot be told apart: the same series cross all of them. A probe that avoids one of \
             them would decide.",
            place(question, cause)
        )
    })
}

/// One name of a set, as people read it.
pub fn name_of_set(question: &Question, name: &[usize]) -> String {
    match name {
        [] => "everything".to_owned(),
        labels => {
            let labels: Vec<String> = labels.iter().map(|&l| label_name(question, l)).collect();
            labels.join(" on ")
        }
    }
}

/// All names of a set.
fn place(question: &Question, cause: &Cause) -> String {
    let names: Vec<String> = cause.names.iter().map(|name| name_of_set(question, name)).collect();
    let mut text = match (cause.names.iter().any(Vec::is_empty), names.len()) {
        (true, 2..) => format!("everything ({})", names[1..].join(", ")),
        _ => names.join(" or "),
    };
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    text
}

/// A label, as people read it.
pub fn label_name(question: &Question, label: usize) -> String {
    let label = &question.labels[label];
    let kind = match label.kind {
        LabelKind::Station => "station",
        LabelKind::Target => "target",
        LabelKind::Class => "class",
        LabelKind::Protocol => "",
        LabelKind::Resolver => "resolver",
        LabelKind::Prefix => "prefix",
        LabelKind::Asn => "AS",
        LabelKind::Interface => "interface",
        LabelKind::FirstHop => "first hop",
        LabelKind::Member => "path member",
        LabelKind::Link => "link",
        LabelKind::Region => "region",
        LabelKind::Free => "label",
    };
    format!("{kind} {}", label.value).trim_start().to_owned()
}

fn share(of: f64) -> String {
    format!("{:.0}%", of.clamp(0.0, 1.0) * 100.0)
}

fn round(count: f64) -> String {
    format_count(count.round().max(0.0) as u64)
}
