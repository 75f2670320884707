//! What casts doubt on a result, and what to do about it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A reason for doubt. Closed: each has one line of advice.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Caveat {
    /// T1 or T4 was taken in user space.
    SoftwareStamps,
    /// Some transmit stamps did not arrive; those packets use the user-space stamp.
    TransmitStampsMissing,
    /// This host's clock is not synchronised: one-way delays are offset.
    LocalClockUnsynchronised,
    /// The peer says that its clock is not synchronised: one-way delays are offset.
    PeerClockUnsynchronised,
    /// A one-way delay is negative: the clocks disagree by more than the path takes.
    NegativeOneWayDelay,
    /// Packets left later than planned.
    SenderLate,
    /// Sends were left out because they would have been more than one interval late.
    SendsSkipped,
    /// Packets could not be sent.
    SendsFailed,
    /// Packets were lost in our own rings or socket buffers.
    OwnDrops,
    /// Time stood still for this process: the machine paused it.
    CpuStolen,
    /// The reflector copies the sender's sequence number: loss has no direction.
    LossSideUnknown,
    /// The reflector's sequence numbers do not ascend as those of one session do: it was restarted,
    /// the probes are new sessions to it, or it counted more than was sent. Losses nearby have no
    /// side.
    ReflectorSequenceJump,
    /// Replies that do not match what was sent were discarded.
    InvalidReplies,
    /// The peer's reflection time is longer than the round trip, or negative.
    ReflectorTimesWrong,
    /// Histogram memory ran out: quantiles lack some values (counts and means do not).
    HistogramFull,
    /// Interval records were lost on their way to the disk.
    RecordsLost,
    /// The next hop could not be resolved for part of the time.
    NextHopUnresolved,
    /// A stream whose every probe was lost, or that was never answered.
    NoReply,
    /// The flow table was full: some flows gave no samples.
    FlowsUntracked,
    /// Sample events were lost between kernel and user space, or on their way out.
    EventsLost,
    /// A flow had more in flight than slots: not every round trip was timed.
    SamplesSpaced,
    /// Packets could not be matched because another processor held the flow too long.
    PacketsContended,
    /// Packets that could not be read in full: fragments, malformed or cut short.
    PacketsUnreadable,
    /// Samples of further groups went to the group "other", or into no histogram.
    GroupsFull,
    /// An interface was gone for part of the time.
    InterfaceVanished,
    /// The capture file ends in the middle of a packet.
    CaptureCutShort,
    /// The capture file's times step back, or do not advance.
    CaptureTimesWrong,
    /// Trials were invalid and had to be repeated.
    TrialsRepeated,
    /// No valid trial could be had for some load.
    TrialsInvalid,
    /// The tester without the device is no better than with it.
    TesterLimited,
    /// The device runs on the sender's own processor and cannot drop.
    DeviceInline,
    /// Tester and device share processors.
    ProcessorsShared,
    /// Frames left in batches: the latency includes the wait for the rest of the batch.
    BatchedSends,
    /// Percentiles were left out for want of samples.
    TooFewSamples,
    /// Sender and receiver have clocks of their own.
    ClocksDiffer,
    /// Trials, or the waits after them, were shorter than the standard asks for.
    ShortTrials,
    /// Packets that are longer than the wire takes: joined, or not cut up yet (GRO, LRO, TSO),
    /// and counted as one.
    PacketsJoined,
    /// Other work on the host held the device's processor.
    DeviceDisturbed,
    /// No reply has followed the losses that could decide their side.
    LossSideOpen,
    /// Requests were duplicated on their way: a second reply to one had another sequence number.
    /// Losses near them have no side.
    RequestsDuplicated,
    /// This host's clock was set while it measured: no delay spans the step.
    ClockStepped,
    /// The delays to and from the peer moved apart by more than the path can explain: its clock was
    /// set, or its stamps jump.
    PeerClockStepped,
    /// One-way delays that no path has were left out: a clock is far off.
    OneWayImplausible,
    /// The peer's time stamps are in the other format than its packets say (NTP, PTP; RFC 8186):
    /// they were read as what they are.
    TimestampFormatWrong,
    /// Packets in the shape of replies came from ports or addresses that were not probed, or of
    /// other sessions.
    OtherReplies,
    /// The reflector held packets for more than half of the round trip.
    DwellDominates,
}

impl Caveat {
    /// Every caveat, in order.
    pub const ALL: [Caveat; 46] = {
        use Caveat::*;
        [
            SoftwareStamps,
            TransmitStampsMissing,
            LocalClockUnsynchronised,
            PeerClockUnsynchronised,
            NegativeOneWayDelay,
            SenderLate,
            SendsSkipped,
            SendsFailed,
            OwnDrops,
            CpuStolen,
            LossSideUnknown,
            ReflectorSequenceJump,
            InvalidReplies,
            ReflectorTimesWrong,
            HistogramFull,
            RecordsLost,
            NextHopUnresolved,
            NoReply,
            FlowsUntracked,
            EventsLost,
            SamplesSpaced,
            PacketsContended,
            PacketsUnreadable,
            GroupsFull,
            InterfaceVanished,
            CaptureCutShort,
            CaptureTimesWrong,
            TrialsRepeated,
            TrialsInvalid,
            TesterLimited,
            DeviceInline,
            ProcessorsShared,
            BatchedSends,
            TooFewSamples,
            ClocksDiffer,
            ShortTrials,
            PacketsJoined,
            DeviceDisturbed,
            LossSideOpen,
            RequestsDuplicated,
            ClockStepped,
            PeerClockStepped,
            OneWayImplausible,
            TimestampFormatWrong,
            OtherReplies,
            DwellDominates,
        ]
    };

    /// What happened, as a short text.
    pub fn text(self) -> &'static str {
        match self {
            Caveat::SoftwareStamps => "time stamps were taken in user space",
            Caveat::TransmitStampsMissing => "some transmit stamps are missing",
            Caveat::LocalClockUnsynchronised => "this host's clock is not synchronised",
            Caveat::PeerClockUnsynchronised => "the peer's clock is not synchronised",
            Caveat::NegativeOneWayDelay => "a one-way delay is negative",
            Caveat::SenderLate => "packets were sent late",
            Caveat::SendsSkipped => "sends were skipped",
            Caveat::SendsFailed => "packets could not be sent",
            Caveat::OwnDrops => "this host dropped packets of its own",
            Caveat::CpuStolen => "the machine paused this process",
            Caveat::LossSideUnknown => "loss cannot be split by direction",
            Caveat::ReflectorSequenceJump => "the reflector's numbering broke off",
            Caveat::InvalidReplies => "replies that fit no request were discarded",
            Caveat::ReflectorTimesWrong => "the reflector's time stamps contradict the round trip",
            Caveat::HistogramFull => "histogram memory ran out",
            Caveat::RecordsLost => "records were lost on their way out",
            Caveat::NextHopUnresolved => "the next hop was not resolved",
            Caveat::NoReply => "no reply",
            Caveat::FlowsUntracked => "the flow table was full and some flows were not tracked",
            Caveat::EventsLost => "some samples were not printed",
            Caveat::SamplesSpaced => "not every round trip was timed",
            Caveat::PacketsContended => "more than 0.1 % of the packets met a locked flow",
            Caveat::PacketsUnreadable => "more than 1 % of the packets could not be read",
            Caveat::GroupsFull => "there was no room for all groups",
            Caveat::InterfaceVanished => "an interface was gone for part of the time",
            Caveat::CaptureCutShort => "the capture file ends early",
            Caveat::CaptureTimesWrong => {
                "times in the capture file do not ascend, or are of no year that is read"
            }
            Caveat::TrialsRepeated => "some trials were invalid and were repeated or given up",
            Caveat::TrialsInvalid => "some loads were never measured by a valid trial",
            Caveat::TesterLimited => "the tester, not the device, sets the limit",
            Caveat::DeviceInline => "the device ran inside the sender's processor time",
            Caveat::ProcessorsShared => "tester and device shared processors",
            Caveat::BatchedSends => "frames left in batches",
            Caveat::TooFewSamples => "there were too few samples for some percentiles",
            Caveat::ClocksDiffer => "sender and receiver had different clocks",
            Caveat::ShortTrials => {
                "trials, or the waits after them, were shorter than the standard's"
            }
            Caveat::PacketsJoined => {
                "packets that the kernel or the card had joined counted as one"
            }
            Caveat::DeviceDisturbed => "other work on the host held the device's processor",
            Caveat::LossSideOpen => "no later reply shows the side of some losses",
            Caveat::RequestsDuplicated => "requests were duplicated on their way to the reflector",
            Caveat::ClockStepped => "this host's clock was set during the measurement",
            Caveat::PeerClockStepped => "the peer's clock was set, or its stamps jump",
            Caveat::OneWayImplausible => "one-way delays of more than a day were left out",
            Caveat::TimestampFormatWrong => {
                "the peer writes its time stamps in another format than it says"
            }
            Caveat::OtherReplies => {
                "replies came from another port, address or session than was probed"
            }
            Caveat::DwellDominates => "the reflector's own time is most of the round trip",
        }
    }

    /// What to do about it, in one line.
    pub fn advice(self) -> &'static str {
        match self {
            Caveat::SoftwareStamps => {
                "delays include this host's scheduling; use --engine af_xdp, or socket on a kernel that stamps"
            }
            Caveat::TransmitStampsMissing => {
                "lower the rate or enlarge the rings; 'sonde doctor' shows which stamps this port gives"
            }
            Caveat::LocalClockUnsynchronised => {
                "run chrony or ptp4l here; round-trip delay and delay variation are not affected"
            }
            Caveat::PeerClockUnsynchronised => {
                "run chrony or ptp4l on the peer; round-trip delay and delay variation are not affected"
            }
            Caveat::NegativeOneWayDelay => {
                "read the one-way delays as variation only until both clocks are synchronised"
            }
            Caveat::SenderLate => {
                "give the sender a core of its own (--cpu); delays are measured from the true send time all the same"
            }
            Caveat::SendsSkipped => {
                "lower the rate, or use --engine af_xdp; skipped probes are not counted as lost"
            }
            Caveat::SendsFailed => {
                "check the link, the route and the neighbour ('ip route get', 'ip neigh')"
            }
            Caveat::OwnDrops => {
                "lower the rate or enlarge the rings; these drops may be counted as loss of the path"
            }
            Caveat::CpuStolen => {
                "use an idle host or isolated cores; compare the pause with the maxima"
            }
            Caveat::LossSideUnknown => {
                "the reflector's numbers show no side: it copies ours (as with --stateless, or a full table of sessions), no probe was lost on the way there, or all before the first answer"
            }
            Caveat::ReflectorSequenceJump => {
                "it was restarted, a NAT gives the probes new ports, two senders share a session, or requests were duplicated; totals are right, losses nearby have no side"
            }
            Caveat::InvalidReplies => {
                "look for another instrument on the same ports, or a faulty or forged reflector"
            }
            Caveat::ReflectorTimesWrong => {
                "distrust the peer's T2 and T3; use the round trip with dwell"
            }
            Caveat::HistogramFull => {
                "shorten the record interval or measure fewer streams in one process"
            }
            Caveat::RecordsLost => {
                "look at the output that lost them: for a file the space on its disk, for a collector whether it runs and can be reached"
            }
            Caveat::NextHopUnresolved => {
                "check the neighbour and the link; nothing was sent meanwhile"
            }
            Caveat::NoReply => {
                "check that a reflector listens there ('sonde reflect') and that no filter drops UDP"
            }
            Caveat::FlowsUntracked => {
                "raise --flows, or narrow what is measured with --net, --port or --proto; established flows keep their places"
            }
            Caveat::EventsLost => {
                "set --sample-limit, or read faster; the groups and the flows hold every sample"
            }
            Caveat::SamplesSpaced => {
                "more was in flight than the flow has slots; the samples are right, but short peaks between them are not seen"
            }
            Caveat::PacketsContended => {
                "spread flows over receive queues by address and port (RSS), so that one processor serves a flow"
            }
            Caveat::PacketsUnreadable => {
                "capture whole headers (snap length 128 or more), or measure where packets are not fragmented"
            }
            Caveat::GroupsFull => {
                "choose coarser groups: --by prefix with a --prefixes file, as, or interface"
            }
            Caveat::InterfaceVanished => "nothing was seen meanwhile; see the points of the run",
            Caveat::CaptureCutShort => {
                "the packets before were measured; end the capture with Ctrl-C, or wait until it is written"
            }
            Caveat::CaptureTimesWrong => {
                "sort the file with 'reordercap', or capture with a clock that is right and that nobody sets"
            }
            Caveat::TrialsRepeated => {
                "all tries are kept with their reasons; use an idle host or isolated cores"
            }
            Caveat::TrialsInvalid => {
                "this host is busy, or too slow for these loads: stop other work on it, give the tester processors of its own or lower the plan's loads, then measure again with another --out; the report has the reasons"
            }
            Caveat::TesterLimited => {
                "the device may do better than this number; use a faster engine or more processors"
            }
            Caveat::DeviceInline => {
                "its rate is that of sender and device together; give it a processor of its own ('sonde lab --help')"
            }
            Caveat::ProcessorsShared => {
                "rates depend on how the kernel shares them; use a host with more processors"
            }
            Caveat::BatchedSends => {
                "measure latency at loads that are paced frame by frame (burst = 1)"
            }
            Caveat::TooFewSamples => "lengthen the trial, or read the lower percentiles",
            Caveat::ClocksDiffer => {
                "one-way latency is off by the offset's error, which stands beside it; use PTP"
            }
            Caveat::ShortTrials => {
                "repeat with the standard's durations (trial, drain) before publishing"
            }
            Caveat::PacketsJoined => {
                "use --engine af_packet on Linux 6.2 or newer, which counts each, or 'ethtool -K IFACE gro off lro off tso off gso off'"
            }
            Caveat::DeviceDisturbed => {
                "the higher percentiles are the host's; keep other work off the device's processor"
            }
            Caveat::LossSideOpen => {
                "the sides follow with the next reply; at the end of a run measure on for a moment after a loss"
            }
            Caveat::RequestsDuplicated => {
                "look for a loop or a mirror port on the way there; losses near the duplicates have no known side"
            }
            Caveat::ClockStepped => {
                "the schedule went on, and no delay spans the step; let chrony slew the clock ('makestep' only at boot)"
            }
            Caveat::PeerClockStepped => {
                "one-way delays before and after do not compare; keep the peer's clock by chrony or ptp4l"
            }
            Caveat::OneWayImplausible => {
                "set the peer's clock, or this host's; round-trip delay and delay variation are not affected"
            }
            Caveat::TimestampFormatWrong => {
                "set the peer's Z bit by its format (RFC 8186, section 2.3), or report it to its vendor; the delays are right"
            }
            Caveat::OtherReplies => {
                "look for address translation on the way, or a reflector that answers from another address or port"
            }
            Caveat::DwellDominates => {
                "read the round trip less the dwell; a faster reflector is 'sonde reflect --kernel'"
            }
        }
    }
}

/// Any number of caveats, a bit each: it is copied freely, and merging loses none.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct CaveatSet(u64);

impl CaveatSet {
    /// Adds a caveat; twice is once.
    pub fn insert(&mut self, caveat: Caveat) {
        self.0 |= 1 << caveat as u8;
    }

    /// Takes a caveat out, if it is there.
    pub fn remove(&mut self, caveat: Caveat) {
        self.0 &= !(1 << caveat as u8);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: CaveatSet) {
        self.0 |= other.0;
    }

    /// Whether it holds `caveat`.
    pub fn contains(self, caveat: Caveat) -> bool {
        self.0 & 1 << caveat as u8 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those it holds, in order.
    pub fn iter(self) -> impl Iterator<Item = Caveat> {
        Caveat::ALL.into_iter().filter(move |&c| self.contains(c))
    }
}

/// The names of those it holds: `{ClockUnsynchronised, NetworkOnly}`.
impl fmt::Debug for CaveatSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for CaveatSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for CaveatSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Vec::<Caveat>::deserialize(deserializer)?;
        let mut set = CaveatSet::default();
        list.into_iter().for_each(|c| set.insert(c));
        Ok(set)
    }
}

impl JsonSchema for CaveatSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CaveatSet".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        Vec::<Caveat>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_complete_and_in_order() {
        for (i, c) in Caveat::ALL.into_iter().enumerate() {
            assert_eq!(c as usize, i);
            assert!(!c.text().is_empty() && !c.advice().is_empty());
        }
        assert_eq!(Caveat::DwellDominates as usize + 1, Caveat::ALL.len());
    }

    #[test]
    fn a_set_is_debugged_by_its_names() {
        let mut set = CaveatSet::default();
        assert_eq!(format!("{set:?}"), "{}");
        set.insert(Caveat::DwellDominates);
        set.insert(Caveat::LossSideUnknown);
        assert_eq!(format!("{set:?}"), "{LossSideUnknown, DwellDominates}");
    }
}
