//! Alerts at other people's receivers on the loopback, each started by its test: Debian's
//! Alertmanager, rsyslog and snmptrapd, and aiosmtpd.

mod alertmanager;
mod bed;
mod email;
mod snmp;
mod syslog;
