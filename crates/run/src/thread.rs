//! Threads with names, and the error of one that panicked.

use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle, Thread};

use anyhow::{Context as _, anyhow};
use sonde_sys::schedule::pin_to_cpu;

use crate::error::RunError;

/// A thread panicked. The panic message, which it printed, has the same name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread {name} failed; please report what it printed")]
pub struct ThreadPanicked {
    name: String,
}

impl ThreadPanicked {
    /// The error of `thread`.
    pub fn of(thread: &Thread) -> ThreadPanicked {
        ThreadPanicked { name: thread.name().unwrap_or_default().to_owned() }
    }
}

/// Starts a thread with a name.
///
/// # Errors
/// The system refuses a further one.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, RunError> {
    let thread = Builder::new().name(name.into()).spawn(work);
    Ok(thread.context("cannot start a thread; 'ulimit -u' bounds them")?)
}

/// Waits for a thread's end.
///
/// # Errors
/// It panicked.
pub fn join<T>(thread: JoinHandle<T>) -> Result<T, ThreadPanicked> {
    let panicked = ThreadPanicked::of(thread.thread());
    thread.join().map_err(|_| panicked)
}

/// The same for a thread of a scope.
///
/// # Errors
/// It panicked.
pub fn join_scoped<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, ThreadPanicked> {
    let panicked = ThreadPanicked::of(thread.thread());
    thread.join().map_err(|_| panicked)
}

/// The same where no caller takes the error: it is logged. `None`: the thread panicked.
pub fn join_logged<T>(thread: JoinHandle<T>) -> Option<T> {
    join(thread).inspect_err(|panicked| tracing::error!("{panicked}")).ok()
}

/// Starts a thread of `scope` with a name.
///
/// # Panics
/// As [`Scope::spawn`]: the system refuses a further thread.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let thread = Builder::new().name(name.into()).spawn_scoped(scope, work);
    thread
        .unwrap_or_else(|e| panic!("cannot start the thread {name}: {e}; 'ulimit -u' bounds them"))
}

/// Pins this thread to the processor that the setting `key` asks for.
///
/// # Errors
/// This host has no such processor, or does not let this process have it.
pub fn pin(key: &str, cpu: usize) -> Result<(), RunError> {
    pin_to_cpu(cpu).map_err(|error| {
        let why = format!("`{key}`: cannot run on processor {cpu}; 'lscpu -e' lists them: {error}");
        RunError::Host(anyhow!(why))
    })
}

/// Whether a thread can be [pinned](pin), before anything is opened.
///
/// # Errors
/// As [`pin`].
pub fn can_pin(key: &str, cpu: Option<usize>) -> Result<(), RunError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let tried =
        std::thread::scope(|scope| join_scoped(spawn_scoped(scope, "sonde-pin", || pin(key, cpu))));
    tried.map_err(anyhow::Error::from)?
}

#[cfg(test)]
mod tests {
    use std::fmt;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;

    /// Keeps the messages of errors.
    #[derive(Clone, Default)]
    struct Errors(Arc<Mutex<Vec<String>>>);

    impl Visit for Errors {
        fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }

    impl Subscriber for Errors {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == Level::ERROR
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_thread_that_panics_is_logged_by_its_name_and_one_that_ends_is_not() {
        let errors = Errors::default();
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        tracing::subscriber::with_default(errors.clone(), || {
            let fine = named("sonde-fine").spawn(|| 7).unwrap();
            assert_eq!(join_logged(fine), Some(7));
            let broken = named("sonde-broken").spawn(|| panic!("as this test wants it")).unwrap();
            assert_eq!(join_logged::<()>(broken), None);
        });
        let want = "the thread sonde-broken failed; please report what it printed";
        assert_eq!(*errors.0.lock().unwrap(), [want]);
    }

    #[test]
    fn a_processor_that_is_not_there_is_the_hosts_matter() {
        let error = can_pin("engine.cpu", Some(1_000_000)).unwrap_err();
        assert!(matches!(error, RunError::Host(_)), "{error}");
        assert!(error.to_string().starts_with("`engine.cpu`: cannot run on processor 1000000"));
        assert!(can_pin("engine.cpu", None).is_ok());
    }

    #[test]
    fn a_scoped_thread_that_panics_is_an_error_with_its_name() {
        std::thread::scope(|scope| {
            let fine = spawn_scoped(scope, "sonde-fine", || 7);
            let broken = spawn_scoped(scope, "sonde-broken", || panic!("as this test wants it"));
            assert_eq!(join_scoped(fine), Ok(7));
            let panicked = join_scoped::<()>(broken).unwrap_err();
            assert!(panicked.to_string().contains("thread sonde-broken failed"), "{panicked}");
        });
    }
}
