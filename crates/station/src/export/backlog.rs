//! What waits to be sent by one exporter: bounded in octets, the oldest given up first.

use std::collections::VecDeque;

/// What goes out in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payload {
    /// What is sent.
    pub body: Vec<u8>,
    /// Samples, data points or lines in it.
    pub points: u64,
}

/// What waits, oldest first.
#[derive(Debug, Default)]
pub struct Backlog {
    waiting: VecDeque<(u64, Payload)>,
    octets: usize,
    most_octets: usize,
    next: u64,
    dropped_points: u64,
}

impl Backlog {
    /// An empty one that holds so many octets at most.
    pub fn new(most_octets: usize) -> Backlog {
        Backlog { most_octets, ..Backlog::default() }
    }

    /// Adds one. Where there is no room the oldest go, and are counted; one that is larger than
    /// all the room goes itself.
    pub fn push(&mut self, payload: Payload) {
        if payload.body.len() > self.most_octets {
            self.dropped_points += payload.points;
            return;
        }
        self.octets += payload.body.len();
        self.waiting.push_back((self.next, payload));
        self.next += 1;
        while self.octets > self.most_octets {
            let Some((_, oldest)) = self.waiting.pop_front() else { break };
            self.octets -= oldest.body.len();
            self.dropped_points += oldest.points;
        }
    }

    /// The oldest, with the number to end it by.
    pub fn front(&self) -> Option<(u64, Payload)> {
        self.waiting.front().cloned()
    }

    /// Takes one out that was sent or given up. It may have gone for want of room meanwhile.
    pub fn done(&mut self, number: u64) {
        if self.waiting.front().is_some_and(|(first, _)| *first == number) {
            let gone = self.waiting.pop_front();
            self.octets -= gone.map_or(0, |(_, payload)| payload.body.len());
        }
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Octets that wait.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// Points that found no room.
    pub fn dropped_points(&self) -> u64 {
        self.dropped_points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(octets: usize, points: u64) -> Payload {
        Payload { body: vec![0; octets], points }
    }

    #[test]
    fn the_oldest_go_where_there_is_no_room_and_are_counted() {
        let mut backlog = Backlog::new(100);
        (1..=5).for_each(|n| backlog.push(payload(30, n)));
        // Three of 30 fit.
        assert_eq!((backlog.len(), backlog.octets(), backlog.dropped_points()), (3, 90, 1 + 2));
        let (number, oldest) = backlog.front().unwrap();
        assert_eq!(oldest.points, 3);
        // What is being sent may go meanwhile: its end then changes nothing.
        backlog.push(payload(100, 6));
        assert_eq!((backlog.len(), backlog.dropped_points()), (1, 15));
        backlog.done(number);
        assert_eq!(backlog.len(), 1);
        let (number, _) = backlog.front().unwrap();
        backlog.done(number);
        assert_eq!((backlog.len(), backlog.octets()), (0, 0));
    }

    #[test]
    fn what_is_larger_than_all_the_room_keeps_nothing_out() {
        let mut backlog = Backlog::new(100);
        backlog.push(payload(50, 1));
        backlog.push(payload(101, 7));
        assert_eq!((backlog.len(), backlog.dropped_points()), (1, 7));
    }
}
