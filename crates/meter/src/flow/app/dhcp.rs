//! DHCP (RFC 2131; options RFC 2132): who asks, and how it went.

use sonde_results::flow::App;

use super::parse::{Input, Parse, Step};
use super::text::{ByteReader, text};

/// What the messages said.
#[derive(Clone, Default)]
pub(super) struct Dhcp {
    message: u8,
    client_mac: [u8; 6],
    host_name: String,
    vendor: String,
}

impl Dhcp {
    /// A message of either side, with the magic cookie (RFC 2131, section 3).
    pub(super) fn begins(data: &[u8]) -> bool {
        matches!(data, [1 | 2, _, 0..=16, ..]) && data.get(COOKIE_AT..OPTIONS_AT) == Some(&COOKIE)
    }
}

impl Parse for Dhcp {
    fn input(&mut self, input: &Input<'_>) -> Step {
        let data = input.data;
        if !Dhcp::begins(data) {
            return Step::More;
        }
        // Of Ethernet (RFC 1700, hardware types); others have addresses of other lengths.
        if data[1] == 1 && data[2] == 6 {
            self.client_mac.copy_from_slice(&data[MAC_AT..MAC_AT + 6]);
        }
        let mut reader = ByteReader(&data[OPTIONS_AT..]);
        let mut closing = false;
        while let Some(option) = reader.u8() {
            if option == PAD {
                continue;
            }
            let (false, Some(value)) = (option == END, reader.vector8()) else { break };
            match (option, value) {
                (MESSAGE_TYPE, [kind]) => {
                    self.message = *kind;
                    closing = (ACK..=NAK).contains(kind);
                }
                (HOST_NAME, _) if self.host_name.is_empty() => self.host_name = text(value),
                (VENDOR_CLASS, _) if self.vendor.is_empty() => self.vendor = text(value),
                _ => {}
            }
        }
        if closing { Step::Done } else { Step::More }
    }

    fn finish(&mut self) -> Option<App> {
        let Dhcp { message, client_mac, host_name, vendor } = std::mem::take(self);
        Some(App::Dhcp { message, client_mac, host_name, vendor })
    }

    fn held(&self) -> usize {
        self.host_name.capacity() + self.vendor.capacity()
    }
}

const COOKIE: [u8; 4] = [0x63, 0x82, 0x53, 0x63];
const COOKIE_AT: usize = 236;
const OPTIONS_AT: usize = 240;
const MAC_AT: usize = 28;
const PAD: u8 = 0;
const END: u8 = 255;
const HOST_NAME: u8 = 12;
const MESSAGE_TYPE: u8 = 53;
const VENDOR_CLASS: u8 = 60;
/// DHCPACK; DHCPNAK follows.
const ACK: u8 = 5;
const NAK: u8 = 6;
