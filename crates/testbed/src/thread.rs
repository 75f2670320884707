//! Threads that panicked: each is reported by its name, as [`sonde_run::running`] does.

use std::thread::JoinHandle;

/// A thread panicked; what it printed says where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread {name} failed; please report what it printed")]
pub(crate) struct ThreadPanicked {
    name: String,
}

impl ThreadPanicked {
    /// Of a thread that has ended before its time.
    pub(crate) fn of<T>(thread: &JoinHandle<T>) -> ThreadPanicked {
        ThreadPanicked { name: thread.thread().name().unwrap_or_default().to_owned() }
    }
}

/// Waits for a thread's end, where nobody takes its failure: that is logged. `None`: it panicked.
pub(crate) fn join_logged<T>(thread: JoinHandle<T>) -> Option<T> {
    let panicked = ThreadPanicked::of(&thread);
    let joined = thread.join().ok();
    if joined.is_none() {
        tracing::error!("{panicked}");
    }
    joined
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
}
