//! One metering thread's part: frames in, flow records out. What is offered is metered,
//! not selected, or refused, and counted as that.

use sonde_meter::flow::sampling::Sequence;
use sonde_meter::flow::{BURST, FlowCache};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ProtocolTotal;
use sonde_wire::feature::{Feature, Keys, Layers, PacketMeta, SegmentIter, parse_into};
use sonde_wire::flow::LinkType;
use sonde_wire::ipv4::PROTOCOL_TCP;

use super::shard::Shard;

/// A frame as an engine hands it up.
pub struct CapturedFrame<'a> {
    /// From the link header on; may be cut short.
    pub bytes: &'a [u8],
    /// Length before it was cut.
    pub wire_len: usize,
    /// Octets of payload in each of the packets that it was on the wire, but for the last.
    /// 0: it was one packet, or that is not known.
    pub segment: u16,
    /// The header that it begins with.
    pub link: LinkType,
    /// When it was seen, ns since 1970 TAI.
    pub at_ns: i64,
    /// Which interface it came by.
    pub point: u8,
}

/// Packets that were read, at most `N`, on their way into the cache.
pub struct PacketGroup<'a, const N: usize> {
    features: [Feature; N],
    parts: [(&'a [u8], Layers); N],
    len: usize,
}

impl<const N: usize> PacketGroup<'_, N> {
    pub fn new() -> Self {
        PacketGroup {
            features: [Feature::default(); N],
            parts: [(&[], Layers::default()); N],
            len: 0,
        }
    }
}

/// The cache with what stands before it.
pub struct Meter {
    cache: FlowCache,
    keys: Keys,
    sequence: Sequence,
    selects: bool,
    shard: Shard,
    by_protocol: Box<[ProtocolTotal; 256]>,
    /// Longest IP packets, by the feature's point.
    longest: Box<[u32; 256]>,
    /// Packets longer than [`Meter::longest`]: several joined by GRO, LRO or TSO.
    joined: u64,
}

impl Meter {
    /// Around `cache`, with the IP header that gives the key, what selects packets, and which
    /// of the selected ones are metered here.
    pub fn new(cache: FlowCache, keys: Keys, sequence: Sequence, shard: Shard) -> Self {
        let selects = !sequence.is_empty();
        let total = |protocol| ProtocolTotal { protocol, ..ProtocolTotal::default() };
        let by_protocol = Box::new(std::array::from_fn(|i| total(i as u8)));
        let (longest, joined) = (Box::new([LONGEST; 256]), 0);
        Meter { cache, keys, sequence, selects, shard, by_protocol, longest, joined }
    }

    /// Packets of an interface cannot be longer than this on the wire: its MTU.
    pub fn set_longest(&mut self, point: u8, octets: u32) {
        self.longest[usize::from(point)] = octets;
    }

    /// Takes frames, in bursts. They may lie in memory that is lent for this call only.
    #[inline]
    pub fn frames<'a>(
        &mut self,
        frames: impl Iterator<Item = CapturedFrame<'a>>,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let mut group = PacketGroup::<BURST>::new();
        for frame in frames {
            if frame.segment != 0 {
                self.pass(&mut group, sink);
                self.segments(&frame, sink);
                continue;
            }
            self.gather(frame, &mut group);
            if group.len == BURST {
                self.pass(&mut group, sink);
            }
        }
        self.pass(&mut group, sink);
    }

    /// Reads a frame, and puts it into a group, which has room, if it is to be metered here.
    #[inline(always)]
    pub fn gather<'a, const N: usize>(
        &mut self,
        frame: CapturedFrame<'a>,
        group: &mut PacketGroup<'a, N>,
    ) {
        let CapturedFrame { bytes, wire_len, link, at_ns, point, .. } = frame;
        let seen = PacketMeta { wire_len, link, at_ns, point };
        // What is not metered here leaves its slot to the next.
        let feature = &mut group.features[group.len];
        let (part, layers) = &mut group.parts[group.len];
        match parse_into(bytes, &seen, self.keys, feature, layers) {
            Ok(()) => {
                if self.selects && !self.sequence.select(feature, bytes, layers) {
                    return;
                }
                if !self.shard.has(feature) {
                    return;
                }
                *part = bytes;
                group.len += 1;
            }
            Err(error) => {
                if self.shard.counts_refused(bytes, link) {
                    self.cache.refused(error, bytes.len());
                }
            }
        }
    }

    /// Meters the packets of one frame that was several on the wire.
    #[inline(never)]
    fn segments(&mut self, frame: &CapturedFrame<'_>, sink: &mut impl FnMut(FlowRecord)) {
        let CapturedFrame { bytes, wire_len, segment, link, at_ns, point } = *frame;
        let seen = PacketMeta { wire_len, link, at_ns, point };
        let (mut feature, mut layers) = Default::default();
        if let Err(error) = parse_into(bytes, &seen, self.keys, &mut feature, &mut layers) {
            if self.shard.counts_refused(bytes, link) {
                self.cache.refused(error, bytes.len());
            }
            return;
        }
        let mut group = PacketGroup::<BURST>::new();
        for (feature, layers) in SegmentIter::new(bytes, &seen, &feature, &layers, segment) {
            if self.selects && !self.sequence.select(&feature, bytes, &layers)
                || !self.shard.has(&feature)
            {
                continue;
            }
            group.features[group.len] = feature;
            group.parts[group.len] = (bytes, layers);
            group.len += 1;
            if group.len == BURST {
                self.pass(&mut group, sink);
            }
        }
        self.pass(&mut group, sink);
    }

    /// Meters a group, and empties it.
    #[inline]
    pub fn pass<const N: usize>(
        &mut self,
        group: &mut PacketGroup<'_, N>,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let len = std::mem::take(&mut group.len);
        let features = group.features[..len].chunks(BURST);
        for (features, parts) in features.zip(group.parts[..len].chunks(BURST)) {
            self.burst(features, parts, sink);
        }
    }

    /// Takes headers that were made by the XDP program.
    #[inline]
    pub fn headers(&mut self, headers: &[Feature], sink: &mut impl FnMut(FlowRecord)) {
        if !self.selects {
            headers.chunks(BURST).for_each(|burst| self.burst(burst, &[], sink));
            return;
        }
        for header in headers {
            if self.sequence.select(header, &[], &Layers::default()) {
                self.burst(std::slice::from_ref(header), &[], sink);
            }
        }
    }

    #[inline]
    fn burst(
        &mut self,
        features: &[Feature],
        parts: &[(&[u8], Layers)],
        sink: &mut impl FnMut(FlowRecord),
    ) {
        for feature in features {
            let total = &mut self.by_protocol[usize::from(feature.protocol)];
            total.packets += 1;
            total.bytes += u64::from(feature.ip_len);
            if feature.ip_len > self.longest[usize::from(feature.point)] {
                self.joined += u64::from(self.is_joined(feature));
            }
        }
        self.cache.burst(features, parts, sink);
    }

    /// Whether a packet that is longer than those on the wire can be was several of them,
    /// which were counted as one.
    #[cold]
    fn is_joined(&self, feature: &Feature) -> bool {
        if self.longest[usize::from(feature.point)] != LONGEST {
            return true;
        }
        // Of a capture file no MTU is known. Longer than any Ethernet frame, or full segments
        // of the usual sizes: with and without time stamps, of IPv4 and IPv6.
        let payload = feature.payload_len();
        let full = [1_460, 1_448, 1_440, 1_428].map(|size| payload.is_multiple_of(size));
        feature.protocol == PROTOCOL_TCP && (feature.ip_len > JUMBO || full.contains(&true))
    }

    /// Packets that are longer than any on the wire: joined by GRO, LRO or TSO.
    pub fn joined(&self) -> u64 {
        self.joined
    }

    pub fn cache(&self) -> &FlowCache {
        &self.cache
    }

    /// The cache, to let time pass in it.
    pub fn cache_mut(&mut self) -> &mut FlowCache {
        &mut self.cache
    }

    /// What selects packets, with what it has seen; `None` where another thread has seen the
    /// same packets, and reports it.
    pub fn sequence(&self) -> Option<&Sequence> {
        self.shard.reports_all().then_some(&self.sequence)
    }

    /// What of the packets is metered here.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// What was metered of each protocol, by protocol number.
    pub fn by_protocol(&self) -> &[ProtocolTotal; 256] {
        &self.by_protocol
    }
}

/// Of a capture file: longer IP packets are looked at. Those of standard Ethernet are not,
/// with what tunnels put around them.
const LONGEST: u32 = 1_600;
/// The MTU of the longest frames of Ethernet that are common.
const JUMBO: u32 = 9_216;

#[cfg(test)]
mod tests {
    use sonde_meter::flow::Config;
    use sonde_results::flow::FlowEnd;

    use super::*;

    fn meter() -> Meter {
        let cache = FlowCache::new(Config { flows: 8, ..Config::default() });
        let sequence = crate::flow::selection::sequence(&Default::default(), 0).unwrap();
        Meter::new(cache, Keys::Outer, sequence, Shard::whole())
    }

    /// IPv4 and TCP with `payload` octets, of which none was captured.
    fn packet(payload: u16) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        packet[2..4].copy_from_slice(&(40 + payload).to_be_bytes());
        packet.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        packet
    }

    fn frame(bytes: &[u8], payload: u16, segment: u16) -> CapturedFrame<'_> {
        let wire_len = 40 + usize::from(payload);
        CapturedFrame { bytes, wire_len, segment, link: LinkType::RawIp, at_ns: 1, point: 0 }
    }

    #[test]
    fn packets_are_counted_as_they_are_on_the_wire_where_that_is_known() {
        let mut meter = meter();
        meter.set_longest(0, 1_500);
        let bytes = packet(60_000);
        let mut records = Vec::new();
        // Between others, and more than a burst of them.
        let one = packet(10);
        let frames = [frame(&one, 10, 0), frame(&bytes, 60_000, 1_460), frame(&one, 10, 0)];
        meter.frames(frames.into_iter(), &mut |record| records.push(record));
        meter.cache_mut().finish(2, &mut |record| records.push(record));
        let [record] = &records[..] else { panic!("{records:?}") };
        assert_eq!(record.end, FlowEnd::Forced);
        // 41 of 1,460 octets and one of 140.
        let octets = 60_000 + 42 * 40 + 2 * 50;
        assert_eq!((record.forward.packets, record.forward.bytes), (44, octets));
        assert_eq!((meter.by_protocol()[6].packets, meter.by_protocol()[6].bytes), (44, octets));
        assert_eq!(meter.joined(), 0);
    }

    #[test]
    fn what_is_longer_than_the_wire_takes_is_a_doubt() {
        // On an interface by its MTU; in a file by what is usual.
        let lengths = [1_460, 2_920, 5_792, 8_960, 8_948, 4_000, 60_000];
        for (mtu, doubtful) in [(Some(1_500), 6), (Some(65_536), 0), (None, 3)] {
            let mut meter = meter();
            if let Some(mtu) = mtu {
                meter.set_longest(0, mtu);
            }
            for payload in lengths {
                let bytes = packet(payload);
                meter.frames([frame(&bytes, payload, 0)].into_iter(), &mut |_| {});
            }
            assert_eq!(meter.joined(), doubtful, "{mtu:?}");
        }
    }
}
