//! What to do about a caveat, as the run at hand allows: no advice names an option that is already
//! used.

use crate::caveat::{Caveat, CaveatSet};

/// What advice depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdviceContext<'a> {
    /// The engine's name, at the start of a text; empty: none, or not known.
    pub engine: &'a str,
    /// The command line: advice is not to give an option that is there.
    pub command: &'a [String],
    /// All doubts of the run: one may explain another.
    pub caveats: CaveatSet,
}

impl AdviceContext<'_> {
    fn engine(&self) -> &str {
        self.engine.split([' ', ':', ',']).next().unwrap_or_default()
    }

    /// Whether an option was given.
    fn has(&self, option: &str) -> bool {
        let with_value = |word: &str| word.strip_prefix(option).is_some_and(|r| r.starts_with('='));
        self.command.iter().any(|word| word == option || with_value(word))
    }

    /// Something was not there to send to or by: nothing is wrong with the rate.
    fn no_way(&self) -> bool {
        [Caveat::NextHopUnresolved, Caveat::SendsFailed, Caveat::InterfaceVanished]
            .into_iter()
            .any(|c| self.caveats.contains(c))
    }
}

impl Caveat {
    /// What to do about it in this run, in one line.
    pub fn advice_in(self, context: &AdviceContext<'_>) -> &'static str {
        let engine = context.engine();
        match self {
            Caveat::SoftwareStamps if engine == "af_xdp" => {
                "delays include this host's scheduling; 'sonde doctor --iface' shows which stamps the port gives"
            }
            Caveat::SoftwareStamps if engine == "socket" => {
                "delays include this host's scheduling; use --engine af_xdp, or a kernel that stamps"
            }
            Caveat::TransmitStampsMissing if context.no_way() => {
                "what could not leave has no stamp; see to the link, the route and the neighbour first"
            }
            Caveat::SenderLate if context.has("--cpu") => {
                "isolate that processor (isolcpus), or use an idle host; delays are measured from the true send time all the same"
            }
            Caveat::SendsSkipped if context.no_way() => {
                "there was no way to send for part of the time; skipped probes are not counted as lost"
            }
            Caveat::SendsSkipped if engine == "af_xdp" => {
                "lower the rate, or use a faster host; skipped probes are not counted as lost"
            }
            Caveat::EventsLost if context.has("--sample-limit") => {
                "read faster, or lower the limit of samples; the groups and the flows hold every sample"
            }
            Caveat::GroupsFull if context.has("--by") => {
                "choose coarser groups, or a coarser list of prefixes"
            }
            Caveat::FlowsUntracked if context.has("--flows") => {
                "allow still more flows, or measure a part of the traffic; established flows keep their places"
            }
            Caveat::PacketsJoined if matches!(engine, "capture" | "captures") => {
                "capture again after 'ethtool -K IFACE gro off lro off tso off gso off': what was joined there is one packet in the file"
            }
            Caveat::PacketsJoined if engine == "af_packet" => {
                "use Linux 6.2 or newer, which counts each, or 'ethtool -K IFACE gro off lro off tso off gso off'"
            }
            _ => self.advice(),
        }
    }

    /// What happened and what to do, as displays have it.
    pub fn line(self, context: &AdviceContext<'_>) -> String {
        format!("! {}: {}", self.text(), self.advice_in(context))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_advice_recommends_what_is_in_use() {
        let options = ["--cpu", "--sample-limit", "--by", "--flows", "--net", "--kernel"];
        let mut seen = 0;
        for engine in ["", "socket (1 UDP socket)", "af_packet (ring)", "af_xdp (copy mode)"] {
            for given in 0..1u32 << options.len() {
                let command: Vec<String> = (0..options.len())
                    .filter(|i| given >> i & 1 == 1)
                    .map(|i| options[i].to_string())
                    .collect();
                for other in Caveat::ALL {
                    let mut caveats = CaveatSet::default();
                    caveats.insert(other);
                    let context = AdviceContext { engine, command: &command, caveats };
                    let name = context.engine();
                    for caveat in Caveat::ALL {
                        let advice = caveat.advice_in(&context);
                        let engines = ["af_xdp", "af_packet", "socket"];
                        let named =
                            engines.iter().find(|e| advice.contains(&format!("--engine {e}")));
                        assert!(named.is_none_or(|e| *e != name), "{engine}: {advice}");
                        for option in &command {
                            let tokens = advice.split([' ', ',', ')', '(']);
                            let uses = tokens.filter(|w| w == option).count();
                            assert!(
                                uses == 0 || option == "--net" || option == "--kernel",
                                "{option}: {advice}"
                            );
                        }
                        if context.no_way() {
                            let rate = caveat == Caveat::SendsSkipped
                                || caveat == Caveat::TransmitStampsMissing;
                            assert!(!rate || !advice.contains("lower the rate"), "{advice}");
                        }
                        seen += 1;
                    }
                }
            }
        }
        assert!(seen > 10_000);
    }

    #[test]
    fn advice_for_a_capture_names_no_option_of_interfaces() {
        let joined = |engine| {
            let context = AdviceContext { engine, ..AdviceContext::default() };
            Caveat::PacketsJoined.advice_in(&context)
        };
        let capture = joined("capture file, by the packets' times");
        assert!(!capture.contains("--engine") && capture.starts_with("capture again"), "{capture}");
        assert_eq!(joined("capture file"), capture);
        // The engine's name may have a colon behind it.
        assert!(joined("af_packet: TPACKET_V3 ring").starts_with("use Linux 6.2"));
        assert!(joined("header: XDP").starts_with("use --engine af_packet on Linux 6.2"));
    }

    #[test]
    fn lines_that_hold_for_any_cause_name_each() {
        let records = Caveat::RecordsLost.advice();
        assert!(records.contains("disk") && records.contains("collector"));
        let side = Caveat::LossSideUnknown.advice();
        assert!(side.contains("--stateless"));
    }

    #[test]
    fn an_option_is_found_with_its_value() {
        let command = ["sonde".to_string(), "probe".into(), "--cpu=1".into()];
        let context = AdviceContext { command: &command, ..AdviceContext::default() };
        assert!(context.has("--cpu") && !context.has("--cp"));
    }
}
