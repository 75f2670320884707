//! Emulated devices: what a configuration says of them, and the thread of each port that
//! answers for their addresses and asks for their gateways. Frames reach it by the port's
//! receiver, because the host's own sockets see nothing of a test port.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sonde_meter::load::{AddressRule, NeighbourAnswers, answered, question};
use sonde_port::raw::NeighbourSocket;
use sonde_run::thread::join_logged;
use sonde_server::otg::config::{Flow, HeaderChoice};
use sonde_server::otg::devices::{
    Device, DeviceEthernet, DeviceIp, FlowDevices, GatewayMacChoice, Neighbor,
};
use sonde_wire::ethernet::Mac;
use sonde_wire::prefix::{Prefix, address_bits};

use super::allowed::Allowed;

/// An address of a device, at a port.
#[derive(Clone, Debug)]
pub struct EmulatedInterface {
    /// Of the device, of its interface, of the address.
    names: [String; 3],
    /// Index of the port.
    pub port: usize,
    mac: Mac,
    address: IpAddr,
    gateway: IpAddr,
    next_hop: Arc<FlowNextHop>,
}

/// The MAC address of a gateway, once it is known.
#[derive(Debug, Default)]
pub struct FlowNextHop {
    /// 0: not known; else the address, and a bit above it.
    known: AtomicU64,
    /// The client said it.
    given: bool,
}

/// From where to where a flow between devices goes.
#[derive(Clone, Debug)]
pub struct FlowEndpoints {
    /// Of the sending device.
    pub mac: Mac,
    /// Of the sending device.
    pub source: IpAddr,
    /// Of the receiving device.
    pub destination: IpAddr,
    /// The gateway of the sending device.
    pub next_hop: Arc<FlowNextHop>,
}

impl FlowNextHop {
    /// `None`: it has not answered.
    #[inline]
    pub fn mac(&self) -> Option<Mac> {
        let [mark, _, mac @ ..] = self.known.load(Ordering::Relaxed).to_be_bytes();
        (mark != 0).then_some(mac)
    }

    /// Takes the MAC address of its answer.
    pub fn learn(&self, mac: Mac) {
        let [a, b, c, d, e, f] = mac;
        self.known.store(u64::from_be_bytes([1, 0, a, b, c, d, e, f]), Ordering::Relaxed);
    }

    fn forget(&self) {
        if !self.given {
            self.known.store(0, Ordering::Relaxed);
        }
    }
}

impl EmulatedInterface {
    /// As the model has its state.
    pub fn neighbor(&self) -> Neighbor {
        Neighbor {
            ethernet_name: self.names[1].clone(),
            address: self.gateway,
            mac: self.next_hop.mac(),
        }
    }

    fn read<A: Copy + Into<IpAddr>>(
        names: [&str; 3],
        port: usize,
        mac: Mac,
        ip: &DeviceIp<A>,
        allowed: &Allowed,
    ) -> Result<EmulatedInterface, String> {
        let (address, gateway): (IpAddr, IpAddr) = (ip.address.into(), ip.gateway.into());
        let (width, usual) = if address.is_ipv4() { (32, 24) } else { (128, 64) };
        for (key, ip) in [("address", address), ("gateway", gateway)] {
            if !allowed.holds(Prefix::of(ip)) {
                return Err(format!(
                    "{key}: {ip} is none of the addresses for benchmarks (RFC 6815); start sonde \
                     otg with --allow PREFIX if the network is a laboratory's"
                ));
            }
        }
        let prefix = u32::from(ip.prefix.unwrap_or(usual));
        if !(1..=width).contains(&prefix) {
            return Err(format!("prefix: 1 to {width}"));
        }
        if (address_bits(address) ^ address_bits(gateway)) >> (width - prefix) != 0 {
            return Err(format!("gateway: {gateway} is not in the network of {address}/{prefix}"));
        }
        let next_hop = match (ip.gateway_mac.choice, ip.gateway_mac.value) {
            (GatewayMacChoice::Auto, _) => FlowNextHop::default(),
            (GatewayMacChoice::Value, Some(mac)) => {
                let next_hop = FlowNextHop { given: true, ..FlowNextHop::default() };
                next_hop.learn(mac.0);
                next_hop
            }
            (GatewayMacChoice::Value, None) => return Err("gateway_mac.value: is missing".into()),
        };
        let names = names.map(str::to_owned);
        Ok(EmulatedInterface { names, port, mac, address, gateway, next_hop: Arc::new(next_hop) })
    }
}

/// All addresses of the devices. What is wrong is added to `errors`, with its path.
pub fn interfaces(
    devices: &[Device],
    ports: &[String],
    allowed: &Allowed,
    errors: &mut Vec<String>,
) -> Vec<EmulatedInterface> {
    let mut all = Vec::new();
    for (d, device) in devices.iter().enumerate() {
        for (e, ethernet) in device.ethernets.iter().enumerate() {
            let path = format!("devices[{d}].ethernets[{e}]");
            let (port, mac) = match at(ethernet, ports) {
                Ok(found) => found,
                Err(why) => {
                    errors.push(format!("{path}.{why}"));
                    continue;
                }
            };
            let names = [device.name.as_str(), &ethernet.name];
            let v4 = ethernet.ipv4_addresses.iter().map(|ip| {
                EmulatedInterface::read([names[0], names[1], &ip.name], port, mac, ip, allowed)
            });
            let v6 = ethernet.ipv6_addresses.iter().map(|ip| {
                EmulatedInterface::read([names[0], names[1], &ip.name], port, mac, ip, allowed)
            });
            for (list, found) in
                [("ipv4_addresses", v4.collect::<Vec<_>>()), ("ipv6_addresses", v6.collect())]
            {
                for (i, interface) in found.into_iter().enumerate() {
                    match interface {
                        Ok(interface) => all.push(interface),
                        Err(why) => errors.push(format!("{path}.{list}[{i}].{why}")),
                    }
                }
            }
        }
    }
    all
}

/// Where an interface is.
fn at(ethernet: &DeviceEthernet, ports: &[String]) -> Result<(usize, Mac), String> {
    let connection = ethernet.connection.as_ref().and_then(|c| c.port_name.as_ref());
    let name = connection.ok_or("connection.port_name: is missing")?;
    let port = ports.iter().position(|p| p == name);
    let port = port.ok_or_else(|| format!("connection.port_name: there is no port '{name}'"))?;
    let mac = ethernet.mac.ok_or("mac: is missing; choose one, as 02:00:00:00:00:01")?.0;
    if mac[0] & 1 != 0 || mac == [0; 6] {
        return Err("mac: is none of a single interface".into());
    }
    if ethernet.mtu != USUAL_MTU {
        return Err(format!("mtu: is the port's; leave it at {USUAL_MTU}"));
    }
    Ok((port, mac))
}

/// Between which addresses a flow goes: sending and receiving port, and what its headers get.
///
/// # Errors
/// What is wrong, with its path in the flow.
pub fn ends(
    flow: &Flow,
    devices: &FlowDevices,
    interfaces: &[EmulatedInterface],
) -> Result<(usize, usize, FlowEndpoints), String> {
    if devices.bidirectional {
        return Err("tx_rx.device.bidirectional: make the way back a flow of its own".into());
    }
    // The outermost IP header decides; without one any address will do.
    let first = flow.packet.iter().find_map(|h| match h.choice {
        HeaderChoice::Ipv4 => Some(true),
        HeaderChoice::Ipv6 => Some(false),
        _ => None,
    });
    let find = |key: &str, names: &[String]| {
        let [name] = names else {
            return Err(format!("tx_rx.device.{key}: name one; each pair is a flow of its own"));
        };
        let mut own = interfaces
            .iter()
            .filter(|i| i.names.contains(name) && first.is_none_or(|v4| i.address.is_ipv4() == v4));
        match (own.next(), own.next()) {
            (Some(one), None) => Ok(one),
            (Some(one), Some(_)) if first.is_none() => Ok(one),
            (Some(_), Some(_)) => {
                Err(format!("tx_rx.device.{key}: '{name}' has several addresses; name one of them"))
            }
            (None, _) => Err(format!(
                "tx_rx.device.{key}: there is no '{name}' with an address of the packet's kind"
            )),
        }
    };
    let (from, to) = (find("tx_names", &devices.tx_names)?, find("rx_names", &devices.rx_names)?);
    if from.address.is_ipv4() != to.address.is_ipv4() {
        return Err("tx_rx.device: one has an IPv4 address and the other an IPv6 address".into());
    }
    if from.port == to.port {
        return Err("tx_rx.device: both are at one port, which cannot receive what it sends".into());
    }
    let ends = FlowEndpoints {
        mac: from.mac,
        source: from.address,
        destination: to.address,
        next_hop: Arc::clone(&from.next_hop),
    };
    Ok((from.port, to.port, ends))
}

/// The devices at one port, while their protocols are there. It ends when its frames do;
/// dropping it waits for that.
pub struct Presence(Option<JoinHandle<()>>);

impl Presence {
    /// `frames` are those of the port that [`concerns_neighbours`].
    ///
    /// # Errors
    /// No thread to be had.
    pub fn start(
        socket: NeighbourSocket,
        own: Vec<EmulatedInterface>,
        frames: Receiver<Vec<u8>>,
    ) -> Result<Presence, String> {
        let thread = std::thread::Builder::new().name("sonde-devices".into());
        let thread = thread.spawn(move || stand_in(&socket, &own, &frames));
        thread
            .map(|t| Presence(Some(t)))
            .map_err(|e| format!("cannot start a thread: {e}; 'ulimit -u' bounds them"))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            join_logged(thread);
        }
    }
}

/// Answers, asks and learns, until there are no more frames to come.
fn stand_in(socket: &NeighbourSocket, own: &[EmulatedInterface], frames: &Receiver<Vec<u8>>) {
    let answering =
        |i: &EmulatedInterface| NeighbourAnswers::new(i.mac, vec![AddressRule::fixed(i.address)]);
    let answering: Vec<NeighbourAnswers> = own.iter().map(answering).collect();
    let mut reply = [0; NeighbourAnswers::ANSWER_MAX];
    let mut ask_at = Instant::now();
    loop {
        if ask_at <= Instant::now() {
            for i in own.iter().filter(|i| i.next_hop.mac().is_none()) {
                if let Some(frame) = question(i.mac, i.address, i.gateway) {
                    socket.send(&frame);
                }
            }
            ask_at = Instant::now() + ASK_EVERY;
        }
        let frame = match frames.recv_timeout(ask_at.saturating_duration_since(Instant::now())) {
            Ok(frame) => frame,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        for neighbours in &answering {
            if let Some(len) = neighbours.answer(&frame, &mut reply) {
                socket.send(&reply[..len]);
            }
        }
        if let Some((address, mac)) = answered(&frame) {
            let asked = own.iter().filter(|i| i.gateway == address && frame.starts_with(&i.mac));
            asked.filter(|i| !i.next_hop.given).for_each(|i| i.next_hop.learn(mac));
        }
    }
    own.iter().for_each(|i| i.next_hop.forget());
}

/// Whether a frame may be a question or an answer about an address.
#[inline]
pub fn concerns_neighbours(frame: &[u8]) -> bool {
    match frame.get(12..14) {
        Some([0x08, 0x06]) => true,
        // ICMPv6 from a neighbour.
        Some([0x86, 0xdd]) => frame.get(20..22) == Some(&[58, 255]),
        // What has tags is looked into later.
        Some([0x81, 0x00] | [0x88, 0xa8]) => frame.len() < 128,
        _ => false,
    }
}

/// The default MTU of the OTG model.
const USUAL_MTU: u64 = 1500;
/// From one question to the next, until there is an answer (RFC 4861, section 10, has 1 s).
const ASK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use sonde_wire::prefix::BENCHMARK_PREFIXES;

    fn device(name: &str, port: &str, address: &str, change: &Value) -> Device {
        let gateway = address.replace(".2", ".1").replace("::2", "::1");
        let mut ip =
            json!({ "name": format!("{name}-ip"), "address": address, "gateway": gateway });
        ip.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let list = if address.contains(':') { "ipv6_addresses" } else { "ipv4_addresses" };
        serde_json::from_value(json!({
            "name": name,
            "ethernets": [{
                "name": format!("{name}-eth"), "mac": "02:00:00:00:00:0a",
                "connection": { "choice": "port_name", "port_name": port }, list: [ip],
            }],
        }))
        .unwrap()
    }

    fn read(devices: &[Device]) -> Result<Vec<EmulatedInterface>, Vec<String>> {
        let allowed = Allowed { prefixes: BENCHMARK_PREFIXES.to_vec(), types: Vec::new() };
        let mut errors = Vec::new();
        let all = interfaces(devices, &["a", "b"].map(String::from), &allowed, &mut errors);
        if errors.is_empty() { Ok(all) } else { Err(errors) }
    }

    fn flow(device: Value, packet: Value) -> Flow {
        let tx_rx = json!({ "choice": "device", "device": device });
        serde_json::from_value(json!({ "name": "f", "tx_rx": tx_rx, "packet": packet })).unwrap()
    }

    #[test]
    fn a_flow_goes_between_addresses_by_any_of_their_names() {
        let list = [
            device("d", "a", "198.18.0.2", &json!({})),
            device("e", "b", "198.19.0.2", &json!({})),
            device("six", "b", "2001:2::2", &json!({})),
        ];
        let interfaces = read(&list).unwrap();
        let v4 = json!([{ "choice": "ethernet" }, { "choice": "ipv4" }]);
        let of = |tx: &[&str], rx: &[&str], packet: &Value| {
            let flow = flow(json!({ "tx_names": tx, "rx_names": rx }), packet.clone());
            ends(&flow, flow.tx_rx.device.as_ref().unwrap(), &interfaces)
        };
        for (tx, rx) in [("d", "e"), ("d-eth", "e-ip")] {
            let (from, to, ends) = of(&[tx], &[rx], &v4).unwrap();
            assert_eq!((from, to, ends.mac), (0, 1, [2, 0, 0, 0, 0, 10]));
            assert_eq!(
                (ends.source, ends.destination),
                ([198, 18, 0, 2].into(), [198, 19, 0, 2].into())
            );
            assert_eq!(ends.next_hop.mac(), None);
        }
        let v6 = json!([{ "choice": "ethernet" }, { "choice": "ipv6" }]);
        for (tx, rx, packet, part) in [
            (&["x"][..], &["e"][..], &v4, "tx_names: there is no 'x'"),
            (&["d"], &["e", "six"], &v4, "rx_names: name one"),
            (&["d"], &["six"], &v4, "rx_names: there is no 'six'"),
            (&["d"], &["e"], &v6, "tx_names"),
            (&["d"], &["six"], &json!([]), "IPv6"),
            (&["e"], &["e"], &v4, "one port"),
        ] {
            let error = of(tx, rx, packet).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_device_that_cannot_be_is_refused_with_its_path() {
        let known = json!({ "gateway_mac": { "choice": "value", "value": "02:00:00:00:00:0b" } });
        let known = read(&[device("d", "a", "198.18.0.2", &known)]).unwrap();
        known[0].next_hop.forget();
        assert_eq!(known[0].neighbor().mac, Some([2, 0, 0, 0, 0, 11]));
        for (port, address, change, part) in [
            ("c", "198.18.0.2", json!({}), "ethernets[0].connection.port_name"),
            ("a", "192.0.2.2", json!({}), "ipv4_addresses[0].address"),
            ("a", "198.18.0.2", json!({ "gateway": "10.0.0.1" }), "ipv4_addresses[0].gateway"),
            ("a", "198.18.0.2", json!({ "gateway": "198.18.1.1" }), "not in the network"),
            ("a", "198.18.0.2", json!({ "prefix": 33 }), "prefix"),
            ("b", "2001:2::2", json!({ "gateway_mac": { "choice": "value" } }), "gateway_mac"),
        ] {
            let errors = read(&[device("d", port, address, &change)]).unwrap_err();
            assert!(errors[0].starts_with("devices[0].") && errors[0].contains(part), "{errors:?}");
        }
    }
}
