//! One metering thread's part: frames in, flow records out. What is offered is metered,
//! not selected, or refused, and counted as that.

use sonde_meter::flow::sampling::Sequence;
use sonde_meter::flow::{BURST, FlowCache};
use sonde_results::flow::FlowRecord;
use sonde_results::flow_run::ProtocolTotal;
use sonde_wire::feature::{Feature, Keys, Layers, Seen, parse_into};
use sonde_wire::flow::Link;

use super::share::Share;

/// A frame as an engine hands it up.
pub struct Frame<'a> {
    /// From the link header on; may be cut short.
    pub bytes: &'a [u8],
    /// Length before it was cut.
    pub wire_len: usize,
    /// What it begins with.
    pub link: Link,
    /// When it was seen, ns since 1970 TAI.
    pub at_ns: i64,
    /// Which interface it came by.
    pub point: u8,
}

/// Packets that were read, at most `N`, on their way into the cache.
pub struct Group<'a, const N: usize> {
    features: [Feature; N],
    parts: [(&'a [u8], Layers); N],
    len: usize,
}

impl<const N: usize> Group<'_, N> {
    /// An empty one.
    pub fn new() -> Self {
        Group { features: [Feature::default(); N], parts: [(&[], Layers::default()); N], len: 0 }
    }
}

/// The cache with what stands before it.
pub struct Meter {
    cache: FlowCache,
    keys: Keys,
    sequence: Sequence,
    selects: bool,
    share: Share,
    by_protocol: Box<[ProtocolTotal; 256]>,
}

impl Meter {
    /// Around `cache`, with the IP header that gives the key, what selects packets, and which
    /// of the selected ones are metered here.
    pub fn new(cache: FlowCache, keys: Keys, sequence: Sequence, share: Share) -> Self {
        let selects = !sequence.is_empty();
        let total = |protocol| ProtocolTotal { protocol, ..ProtocolTotal::default() };
        let by_protocol = Box::new(std::array::from_fn(|i| total(i as u8)));
        Meter { cache, keys, sequence, selects, share, by_protocol }
    }

    /// Takes frames, in bursts. They may lie in memory that is lent for this call only.
    #[inline]
    pub fn frames<'a>(
        &mut self,
        frames: impl Iterator<Item = Frame<'a>>,
        sink: &mut impl FnMut(FlowRecord),
    ) {
        let mut group = Group::<BURST>::new();
        for frame in frames {
            self.gather(frame, &mut group);
            if group.len == BURST {
                self.pass(&mut group, sink);
            }
        }
        self.pass(&mut group, sink);
    }

    /// Reads a frame, and puts it into a group, which has room, if it is to be metered here.
    #[inline(always)]
    pub fn gather<'a, const N: usize>(&mut self, frame: Frame<'a>, group: &mut Group<'a, N>) {
        let Frame { bytes, wire_len, link, at_ns, point } = frame;
        let seen = Seen { wire_len, link, at_ns, point };
        // What is not metered here leaves its place to the next.
        let feature = &mut group.features[group.len];
        let (part, layers) = &mut group.parts[group.len];
        match parse_into(bytes, &seen, self.keys, feature, layers) {
            Ok(()) => {
                if self.selects && !self.sequence.select(feature, bytes, layers) {
                    return;
                }
                if !self.share.has(feature) {
                    return;
                }
                *part = bytes;
                group.len += 1;
            }
            Err(error) => {
                if self.share.counts_refused(bytes, link) {
                    self.cache.refused(error, bytes.len());
                }
            }
        }
    }

    /// Meters a group, and empties it.
    #[inline]
    pub fn pass<const N: usize>(
        &mut self,
        group: &mut Group<'_, N>,
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
        }
        self.cache.burst(features, parts, sink);
    }

    /// The cache.
    pub fn cache(&self) -> &FlowCache {
        &self.cache
    }

    /// The cache, to let time pass in it.
    pub fn cache_mut(&mut self) -> &mut FlowCache {
        &mut self.cache
    }

    /// What selects packets, with what it has seen; `None` where another thread has seen the
    /// same packets, and tells it.
    pub fn sequence(&self) -> Option<&Sequence> {
        self.share.tells_all().then_some(&self.sequence)
    }

    /// What of the packets is metered here.
    pub fn share(&self) -> &Share {
        &self.share
    }

    /// What was metered of each protocol, by its number.
    pub fn by_protocol(&self) -> &[ProtocolTotal; 256] {
        &self.by_protocol
    }
}
