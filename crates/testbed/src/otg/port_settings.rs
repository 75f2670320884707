//! What a configuration wants of its ports: layer 1 and captures, port by port.

use sonde_server::otg::config::Config;
use sonde_server::otg::ports::Layer1;

/// What is wanted of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortSettings {
    /// Octets of an IP packet, at most.
    pub mtu: Option<u32>,
    /// Whether only frames to its own MAC address are wanted.
    own_mac_only: bool,
    /// Bits a second.
    speed: Option<u64>,
    /// Index of its capture.
    pub capture: Option<usize>,
    /// Settings that are not Sonde's to make.
    others: Vec<&'static str>,
}

impl PortSettings {
    /// The speed of which a flow may have a percentage: the one that is wanted, or the one that
    /// the driver reports.
    pub fn speed(&self, found: Option<u64>) -> Option<u64> {
        self.speed.or(found)
    }

    /// What of it is not done.
    pub fn warnings(&self, port: &str, found: Option<u64>) -> Vec<String> {
        let others = self.others.iter().map(|other| {
            format!("layer1: port {port}: {other} is not set: it stays as 'ethtool' shows it")
        });
        let mut all: Vec<String> = others.collect();
        if self.own_mac_only {
            all.push(format!("layer1: port {port}: is promiscuous, as every test port is here"));
        }
        if let Some(wanted) = self.speed.filter(|&wanted| found != Some(wanted)) {
            let is = match found {
                Some(bps) => format!("runs at {}", mbps(bps)),
                None => "has no speed that its driver reports".into(),
            };
            all.push(format!(
                "layer1: port {port}: speed is not set: the port {is}; percentages of flows are of \
                 {}",
                mbps(wanted)
            ));
        }
        all
    }
}

/// For each of the ports.
///
/// # Errors
/// All that is wrong, each with its path.
pub fn settings(config: &Config, ports: &[String]) -> Result<Vec<PortSettings>, Vec<String>> {
    let mut errors = Vec::new();
    let mut all = vec![PortSettings::default(); ports.len()];
    let mut set = vec![false; ports.len()];
    let find = |path: &str, name: &String| {
        let found = ports.iter().position(|p| p == name);
        found.ok_or_else(|| format!("{path}.port_names: there is no port '{name}'"))
    };
    for (i, layer1) in config.layer1.iter().enumerate() {
        let path = format!("layer1[{i}]");
        if let Some(mtu) = layer1.mtu.filter(|mtu| !MTU.contains(mtu)) {
            errors.push(format!("{path}.mtu: {mtu} is not from {} to {}", MTU.start(), MTU.end()));
        }
        for name in &layer1.port_names {
            match find(&path, name) {
                Ok(port) if !std::mem::replace(&mut set[port], true) => {
                    all[port] = of(layer1, &all[port]);
                }
                Ok(_) => errors.push(format!("{path}.port_names: port '{name}' is set twice")),
                Err(e) => errors.push(e),
            }
        }
    }
    for (i, capture) in config.captures.iter().enumerate() {
        let path = format!("captures[{i}]");
        if !capture.filters.is_empty() {
            errors.push(format!("{path}.filters: is not supported: whatever comes is kept"));
        }
        for name in &capture.port_names {
            match find(&path, name) {
                Ok(port) if all[port].capture.is_none() => all[port].capture = Some(i),
                Ok(_) => errors.push(format!("{path}.port_names: port '{name}' has another one")),
                Err(e) => errors.push(e),
            }
        }
    }
    if errors.is_empty() { Ok(all) } else { Err(errors) }
}

fn of(layer1: &Layer1, before: &PortSettings) -> PortSettings {
    PortSettings {
        mtu: layer1.mtu,
        own_mac_only: !layer1.promiscuous,
        speed: layer1.speed.map(|s| s.bps()),
        capture: before.capture,
        others: layer1.others().collect(),
    }
}

fn mbps(bps: u64) -> String {
    format!("{} Mbit/s", bps / 1_000_000)
}

/// What the OTG model allows.
const MTU: std::ops::RangeInclusive<u32> = 64..=14_000;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(change: Value) -> Result<Vec<PortSettings>, Vec<String>> {
        let config: Config = serde_json::from_value(change).unwrap();
        settings(&config, &["a", "b"].map(String::from))
    }

    #[test]
    fn each_port_has_its_own() {
        let all = read(json!({
            "layer1": [{ "name": "ly", "port_names": ["b"], "mtu": 9000, "promiscuous": false,
                         "speed": "speed_1_gbps", "media": "fiber" }],
            "captures": [{ "name": "ca", "port_names": ["a", "b"] }],
        }))
        .unwrap();
        assert!(all[0].mtu.is_none() && all[0].capture == Some(0));
        assert!(all[1].mtu == Some(9000) && all[1].capture == Some(0));
        assert_eq!(all[0].warnings("a", None), [""; 0]);
        // A hint: percentages are of it, and a warning says how the port runs.
        assert_eq!(all[1].speed(Some(10_000_000_000)), Some(1_000_000_000));
        let warnings = all[1].warnings("b", Some(10_000_000_000));
        assert!(
            warnings[0].contains("media") && warnings[1].contains("promiscuous"),
            "{warnings:?}"
        );
        assert!(warnings[2].contains("runs at 10000 Mbit/s"), "{warnings:?}");
        assert_eq!(all[1].warnings("b", Some(1_000_000_000)).len(), 2);
        assert_eq!(all[0].speed(Some(5)), Some(5));
    }

    #[test]
    fn all_that_is_wrong_is_named() {
        let errors = read(json!({
            "layer1": [{ "name": "x", "port_names": ["a", "c"], "mtu": 20 },
                       { "name": "y", "port_names": ["a"] }],
            "captures": [{ "name": "v", "port_names": ["a"], "filters": [{ "choice": "ipv4" }] },
                         { "name": "w", "port_names": ["a"] }],
        }))
        .unwrap_err();
        for part in [
            "layer1[0].mtu: 20",
            "no port 'c'",
            "layer1[1].port_names: port 'a' is set",
            "captures[0].filters",
            "captures[1].port_names: port 'a' has",
        ] {
            assert!(errors.iter().any(|e| e.contains(part)), "{part}: {errors:?}");
        }
    }
}
