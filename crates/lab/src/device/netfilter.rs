//! Routers with nftables: a firewall of numbered filters, and one that translates addresses.

use std::collections::BTreeMap;

use sonde_results::trial::Side;

use super::addresses::everything;
use super::context::DeviceContext;
use super::counter::{CounterKind, DeviceCounter};
use super::function::Function;
use super::netlink;
use super::ports::PORTS;
use crate::{AddressFamily, LabError};

/// Filters as RFC 2544, section 11.4.1, has them: all but the last match nothing of the
/// test's, so that every packet is held against each.
pub(crate) struct Firewall {
    pub(crate) filters: u32,
    pub(crate) conntrack: bool,
}

impl Function for Firewall {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        load(at, &firewall(self.filters, self.conntrack, &at.spec.families))?;
        at.route(0)
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        unload(at)
    }

    fn counters(&self, at: &DeviceContext, all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
        rule_counters(at, all)
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        facts.insert(at.fact("filters"), self.filters.to_string());
        facts.insert(at.fact("connection tracking"), self.conntrack.to_string());
        facts.insert("nft".into(), at.host.run(&["nft", "--version"])?.trim().to_owned());
        Ok(())
    }
}

/// What goes from a to b leaves with the router's own address (source NAT, RFC 3022). What comes
/// back to that address is translated back. What b sends to it unasked goes to port a's own
/// address. What b addresses to a's networks passes as it is.
pub(crate) struct Nat;

impl Function for Nat {
    fn start(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        load(at, &nat(at))?;
        at.route(0)
    }

    fn stop(&mut self, at: &DeviceContext) -> Result<(), LabError> {
        unload(at)
    }

    fn counters(&self, at: &DeviceContext, all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
        rule_counters(at, all)
    }

    fn facts(
        &self,
        at: &DeviceContext,
        facts: &mut BTreeMap<String, String>,
    ) -> Result<(), LabError> {
        facts.insert("nft".into(), at.host.run(&["nft", "--version"])?.trim().to_owned());
        let names = ["nf_conntrack_max", "nf_conntrack_buckets", "nf_conntrack_udp_timeout"];
        for name in names {
            let value = at.host.run(&["cat", &format!("/proc/sys/net/netfilter/{name}")])?;
            facts.insert(at.fact(name), value.trim().to_owned());
        }
        Ok(())
    }
}

fn load(at: &DeviceContext, rules: &str) -> Result<(), LabError> {
    let file = at.write("rules.nft", rules)?;
    at.host.run(&["nft", "-f", &file]).map(drop).map_err(|e| e.or_missing("nft", "nftables"))
}

fn unload(at: &DeviceContext) -> Result<(), LabError> {
    at.unroute()?;
    at.host.run(&["nft", "flush", "ruleset"])?;
    // Tracked connections are state, too.
    netlink::flush_connections(&at.host)
}

fn firewall(filters: u32, conntrack: bool, families: &[AddressFamily]) -> String {
    let mut text = String::new();
    for &family in families {
        let (table, strange) = match family {
            AddressFamily::V4 => ("ip", "192.0.2."),
            AddressFamily::V6 => ("ip6", "2001:db8::"),
        };
        let all = everything(family);
        text +=
            &format!("table {table} sonde {{\n counter permitted {{ }}\n counter denied {{ }}\n");
        let policy = if filters == 0 { "accept" } else { "drop" };
        text += &format!(
            " chain forward {{\n  type filter hook forward priority 0; policy {policy};\n"
        );
        if conntrack {
            text += "  ct state invalid counter name denied drop\n";
        }
        for n in 1..filters {
            text += &format!("  {table} saddr {strange}{} drop\n", 1 + n % 254);
        }
        if filters > 0 {
            text += &format!(
                "  {table} saddr {all} {table} daddr {all} counter name permitted accept\n"
            );
            text += "  counter name denied drop\n";
        }
        text += " }\n}\n";
    }
    text
}

fn nat(at: &DeviceContext) -> String {
    let mut text = String::new();
    let [side_a, side_b] = &at.sides;
    for (a, b) in side_a.routes.iter().zip(&side_b.routes) {
        let table = if a.family == AddressFamily::V4 { "ip" } else { "ip6" };
        let (own, inner, [_, out]) = (b.own, a.next_hop, PORTS);
        text += &format!(
            "table {table} sonde {{\n counter permitted {{ }}\n counter denied {{ }}\n \
             chain pre {{\n  type nat hook prerouting priority -100;\n  \
             iifname {out} {table} daddr {own} dnat to {inner}\n }}\n \
             chain post {{\n  type nat hook postrouting priority 100;\n  \
             oifname {out} snat to {own}\n }}\n \
             chain forward {{\n  type filter hook forward priority 0; policy accept;\n  \
             ct state invalid counter name denied drop\n  counter name permitted\n }}\n}}\n"
        );
    }
    text
}

/// The named counters, and those of connection tracking.
fn rule_counters(at: &DeviceContext, all: &mut Vec<DeviceCounter>) -> Result<(), LabError> {
    let counter = |name: String, kind, value| DeviceCounter {
        side: Side::Device,
        location: format!("{} nft", at.name),
        name,
        kind,
        value,
    };
    let text = at.host.run(&["nft", "list", "counters"])?;
    let mut table = "";
    let mut name = "";
    for line in text.lines() {
        let tokens: Vec<&str> = line.split_whitespace().collect();
        match tokens[..] {
            ["table", family, ..] => table = family,
            ["counter", counter, ..] => name = counter,
            ["packets", packets, ..] => {
                let kind =
                    if name == "denied" { CounterKind::Dropped } else { CounterKind::Passed };
                let value = packets.parse().unwrap_or(0);
                all.push(counter(format!("{table} {name}"), kind, value));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_held_against_as_many_filters_as_asked_for() {
        let rules = |filters| {
            let text = firewall(filters, false, &[AddressFamily::V4]);
            text.lines().filter(|l| l.contains("saddr")).count()
        };
        assert_eq!([0, 1, 25].map(rules), [0, 1, 25]);
        let text = firewall(25, false, &[AddressFamily::V4, AddressFamily::V6]);
        assert_eq!(text.matches("ip6 saddr").count(), 25);
        // Only the last one permits.
        let last = text.lines().rfind(|l| l.contains("ip saddr")).unwrap();
        assert!(last.contains("accept") && text.matches("accept").count() == 2, "{text}");
        assert!(firewall(0, false, &[AddressFamily::V4]).contains("policy accept"));
    }
}
