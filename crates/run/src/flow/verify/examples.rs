//! Differences: how many of each kind, and the first few as text.

use serde::Serialize;

/// The kinds of difference, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// A flow's direction was not exported at all.
    Missing,
    /// What was exported is not in the truth.
    Unexpected,
    /// Fewer packets or bytes than there were.
    Loss,
    /// More packets or bytes than there were.
    Surplus,
    /// The same record twice or more.
    Duplicate,
    /// Several flows in one record.
    Joined,
    /// Several records, and no time-out asked for them.
    Split,
    /// First or last packet at another time.
    Time,
    Field,
    /// Exported later than the limit.
    Late,
    /// Sequence numbers jump: messages or records were lost on the way.
    SequenceGap,
    /// Messages or records that could not be read.
    Unreadable,
}

impl Kind {
    pub const ALL: [Kind; 12] = [
        Kind::Missing,
        Kind::Unexpected,
        Kind::Loss,
        Kind::Surplus,
        Kind::Duplicate,
        Kind::Joined,
        Kind::Split,
        Kind::Time,
        Kind::Field,
        Kind::Late,
        Kind::SequenceGap,
        Kind::Unreadable,
    ];

    /// Its heading in the report.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Missing => "missing flows",
            Kind::Unexpected => "unexpected flows",
            Kind::Loss => "flows with packets or bytes lost",
            Kind::Surplus => "flows with packets or bytes too many",
            Kind::Duplicate => "records sent twice",
            Kind::Joined => "flows joined into one record",
            Kind::Split => "flows split without a time-out",
            Kind::Time => "flows with wrong times",
            Kind::Field => "flows with wrong fields",
            Kind::Late => "records exported late",
            Kind::SequenceGap => "gaps in sequence numbers",
            Kind::Unreadable => "messages that cannot be read",
        }
    }
}

/// How many of one kind, and what the first ones were.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Difference {
    pub kind: Kind,
    pub count: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Differences {
    kinds: Vec<Difference>,
    show: usize,
}

impl Differences {
    pub fn new(show: u16) -> Self {
        let kinds = Kind::ALL.map(|kind| Difference { kind, count: 0, examples: Vec::new() });
        Differences { kinds: kinds.into(), show: show.into() }
    }

    /// One more; the text is only made while it is wanted.
    pub fn add(&mut self, kind: Kind, text: impl FnOnce() -> String) {
        let difference = &mut self.kinds[kind as usize];
        difference.count += 1;
        if difference.examples.len() < self.show {
            difference.examples.push(text());
        }
    }

    /// The kinds of which there is any.
    pub fn into_found(self) -> Vec<Difference> {
        self.kinds.into_iter().filter(|d| d.count > 0).collect()
    }
}
