//! How a request goes to its receiver.

use std::path::Path;

use sonde_run::error::SettingsError;

use super::exec;
use super::http::HttpClient;
use super::mail::MailClient;
use super::snmp::SnmpClient;
use super::syslog::SyslogClient;
use crate::alert::sink::exec::ExecCommand;
use crate::alert::sink::{SinkReply, SinkRequest, SinkWay};

/// A way that is ready.
pub(super) enum Way {
    Http(HttpClient),
    Syslog(SyslogClient),
    Mail(Box<MailClient>),
    Snmp(SnmpClient),
    Exec(ExecCommand),
}

impl Way {
    /// `folder` is the receiver's own, for what has to outlive the process.
    ///
    /// # Errors
    /// A file of certificates or keys that cannot be used, by its key in the receiver's table.
    pub fn new(way: &SinkWay, folder: &Path) -> Result<Way, SettingsError> {
        Ok(match way {
            SinkWay::Http { ca } => Way::Http(HttpClient::new(ca.as_deref())?),
            SinkWay::Syslog(server) => Way::Syslog(SyslogClient::new(server)?),
            SinkWay::Mail(server) => Way::Mail(Box::new(MailClient::new(server)?)),
            SinkWay::Snmp(manager) => Way::Snmp(SnmpClient::new(manager, folder)),
            SinkWay::Exec(command) => Way::Exec(command.clone()),
        })
    }

    /// Sends, and waits for the answer. `None`: there was nothing to send.
    ///
    /// # Errors
    /// The receiver cannot be reached, or what it says is not of the protocol.
    pub fn send(&self, request: &SinkRequest) -> Result<Option<SinkReply>, String> {
        match (self, request) {
            (_, SinkRequest::Nothing) => Ok(None),
            (Way::Http(client), SinkRequest::Http(posts)) => client.post_all(posts).map(Some),
            (Way::Syslog(client), SinkRequest::Syslog(messages)) => client.send(messages).map(Some),
            (Way::Mail(client), SinkRequest::Mail(mail)) => client.send(mail).map(Some),
            (Way::Snmp(client), SinkRequest::Snmp(traps)) => client.send(traps).map(Some),
            (Way::Exec(about), SinkRequest::Exec(inputs)) => exec::run_each(about, inputs),
            // A sink and its way are made together.
            _ => Err("the request is of another protocol".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Exit code 2: see docs/exit-codes.md.
    #[test]
    fn a_file_of_authorities_that_is_not_there_is_a_wrong_setting() {
        let ca = Some("/nonexistent/ca.pem".into());
        let wrong = Way::new(&SinkWay::Http { ca }, Path::new("/nonexistent")).err().unwrap();
        assert_eq!(wrong.key.as_deref(), Some("ca"));
        assert_eq!(wrong.file.as_deref(), Some("/nonexistent/ca.pem"));
    }
}
