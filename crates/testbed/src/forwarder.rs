//! The XDP forwarder: a device under test in the kernel's receive path.

use anyhow::{Context as _, Result, anyhow};
use sonde_bpf::ForwardPort;
pub use sonde_bpf::Forwarder;
use sonde_run::error::RunError;

/// Attaches it to two interfaces of the namespace of the calling process.
///
/// # Errors
/// No such interface, or one without an Ethernet address; what the kernel refuses.
pub fn attach([a, b]: [&str; 2]) -> Result<Forwarder, RunError> {
    let ports = [port(a)?, port(b)?];
    Forwarder::attach(ports).map_err(|e| RunError::Host(e.into()))
}

fn port(name: &str) -> Result<ForwardPort> {
    let read = |file: &str| {
        std::fs::read_to_string(format!("/sys/class/net/{name}/{file}")).with_context(|| {
            format!("no interface '{name}' in this namespace; 'ip link' lists them")
        })
    };
    let ifindex = read("ifindex")?.trim().parse()?;
    let text = read("address")?;
    let bytes: Result<Vec<u8>, _> =
        text.trim().split(':').map(|b| u8::from_str_radix(b, 16)).collect();
    let mac = bytes.ok().and_then(|b| b.try_into().ok());
    let mac = mac.ok_or_else(|| anyhow!("{name} has no Ethernet address: '{}'", text.trim()))?;
    Ok(ForwardPort { ifindex, mac })
}
