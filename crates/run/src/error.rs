//! Why an instrument does not run.

/// Why an instrument does not start, or ended before its time. The message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is wrong, or two do not go together: the same settings fail on every host.
    #[error("{0:#}")]
    Settings(anyhow::Error),
    /// This host does not let it: a privilege, an interface, an engine, a file.
    #[error("{0:#}")]
    Host(anyhow::Error),
    /// It ran, but what it was to write could not be written.
    #[error("{0:#}")]
    Unsaved(anyhow::Error),
}

/// A failure on the way to a measurement is one of this host, unless said otherwise.
impl From<anyhow::Error> for RunError {
    fn from(error: anyhow::Error) -> RunError {
        RunError::Host(error)
    }
}
