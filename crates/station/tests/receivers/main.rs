//! Alerts at other people's receivers on the loopback, each started by its test: Debian's
//! Alertmanager, rsyslog and snmptrapd, and aiosmtpd.

#![expect(clippy::disallowed_methods, reason = "tests are told by the environment")]

mod alertmanager;
mod bed;
mod email;
mod snmp;
mod syslog;
