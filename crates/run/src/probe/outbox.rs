//! Events on their way to the reader.

use std::collections::VecDeque;

use super::event::Event;
use crate::running::{RecordSender, Stop};

/// Hands events over in order and loses none: what finds no room is held, and as long as
/// something is held the workers keep theirs. They have bounds of their own: intervals get
/// longer, and single packets are dropped and counted.
pub struct Outbox {
    sender: RecordSender<Event>,
    held: VecDeque<Event>,
    /// The end has come: waits for room, unless it is urgent.
    waits: Option<Stop>,
}

impl Outbox {
    pub fn new(sender: RecordSender<Event>) -> Outbox {
        Outbox { sender, held: VecDeque::new(), waits: None }
    }

    /// Hands one over, after those that are held.
    pub fn push(&mut self, event: Event) {
        self.held.push_back(event);
        self.has_room();
    }

    /// Hands over what is held; whether there is room for more.
    pub fn has_room(&mut self) -> bool {
        while let Some(event) = self.held.pop_front() {
            let offered = match &self.waits {
                Some(stop) => self.sender.push_unless_urgent(event, stop),
                None => self.sender.offer(event),
            };
            match offered {
                Ok(()) => {}
                Err(_) if self.waits.is_some() => self.sender.lose(1),
                Err(event) => {
                    self.held.push_front(event);
                    return false;
                }
            }
        }
        true
    }

    /// From now on waits for the reader, until that one has gone. Where an urgent end is asked for,
    /// one who takes nothing for a second is waited for no longer: the rest is counted as lost.
    pub fn wait(&mut self, stop: &Stop) {
        self.waits = Some(stop.clone());
        self.has_room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::running::{Next, records};

    fn stream(event: Option<Event>) -> Option<u32> {
        event.map(|event| match event {
            Event::Ended(streams) => streams[0],
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_late_reader_gets_all_in_order() {
        let (sender, reader) = records(2);
        let mut outbox = Outbox::new(sender);
        for n in 0..5 {
            assert_eq!(outbox.has_room(), n < 3, "{n}");
            outbox.push(Event::Ended(vec![n]));
        }
        assert_eq!(stream(reader.next_now()), Some(0));
        assert!(!outbox.has_room(), "2 of 3 are still held");
        let reading = std::thread::spawn(move || {
            let all = std::iter::from_fn(|| match reader.next(PATIENCE) {
                Next::Record(event) => stream(Some(event)),
                _ => None,
            });
            (all.collect::<Vec<_>>(), reader.lost())
        });
        outbox.wait(&Stop::default());
        outbox.push(Event::Ended(vec![5]));
        drop(outbox);
        assert_eq!(reading.join().unwrap(), (vec![1, 2, 3, 4, 5], 0));
    }

    #[test]
    fn the_end_does_not_wait_for_a_reader_who_has_gone() {
        let (sender, reader) = records(1);
        let mut outbox = Outbox::new(sender);
        (0..3).for_each(|n| outbox.push(Event::Ended(vec![n])));
        drop(reader);
        outbox.wait(&Stop::default());
        assert!(outbox.has_room());
    }

    #[test]
    fn an_urgent_end_waits_for_no_reader_who_takes_nothing() {
        let (sender, reader) = records(1);
        let mut outbox = Outbox::new(sender);
        (0..3).for_each(|n| outbox.push(Event::Ended(vec![n])));
        let stop = Stop::default();
        stop.hurry();
        outbox.wait(&stop);
        // One second for all of them.
        (3..1_003).for_each(|n| outbox.push(Event::Ended(vec![n])));
        assert_eq!(stream(reader.next_now()), Some(0));
        assert_eq!(reader.lost(), 1_002);
    }

    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
}
