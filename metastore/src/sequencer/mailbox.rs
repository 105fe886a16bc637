//! Where one reader collects the answers to many writes.
//!
//! A connection has hundreds of writes open at once, and a batch answers many of them: they are put
//! into one box and the reader is woken once, after the last. No more letters lie in a box than
//! its reader has writes open, so the inbox's room bounds it.

use std::sync::Arc;
use std::task::Context;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use super::request::Said;
use crate::Error;

/// The answer to the write that was posted under a number.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) ticket: u64,
    pub(crate) outcome: Result<Said, Error>,
}

/// The box.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    reader: AtomicWaker,
}

impl Mailbox {
    /// Puts a letter in; answers whether it is the first, so that the reader must be woken.
    fn put(&self, letter: Letter) -> bool {
        let mut letters = self.letters.lock();
        letters.push(letter);
        letters.len() == 1
    }

    /// Puts a letter in and wakes the reader.
    pub(crate) fn put_alone(&self, letter: Letter) {
        if self.put(letter) {
            self.reader.wake();
        }
    }

    /// Takes all there is into `into`, and wakes the task of `cx` for the next one.
    pub(crate) fn take(&self, cx: &Context<'_>, into: &mut Vec<Letter>) {
        self.reader.register(cx.waker());
        let mut letters = self.letters.lock();
        if into.is_empty() {
            std::mem::swap(&mut *letters, into);
        } else {
            into.append(&mut letters);
        }
    }
}

/// Where one write's answer goes. Dropped without one, it says that the outcome is unknown.
#[derive(Debug)]
pub(crate) struct Envelope {
    mailbox: Arc<Mailbox>,
    ticket: u64,
    is_sent: bool,
}

impl Envelope {
    pub(crate) fn new(mailbox: &Arc<Mailbox>, ticket: u64) -> Self {
        Envelope {
            mailbox: Arc::clone(mailbox),
            ticket,
            is_sent: false,
        }
    }

    /// Sends the answer and wakes its reader at once.
    pub(crate) fn send(mut self, outcome: Result<Said, Error>) {
        self.is_sent = true;
        let ticket = self.ticket;
        self.mailbox.put_alone(Letter { ticket, outcome });
    }

    /// Sends the answer, and leaves it to `round` to wake its reader.
    fn send_with(mut self, outcome: Result<Said, Error>, round: &mut Round) {
        self.is_sent = true;
        let ticket = self.ticket;
        if self.mailbox.put(Letter { ticket, outcome }) {
            round.boxes.push(Arc::clone(&self.mailbox));
        }
    }
}

impl Drop for Envelope {
    fn drop(&mut self) {
        if !self.is_sent {
            let outcome = Err(Error::Uncertain {
                reason: "the sequencer ended before it answered".to_owned(),
            });
            let ticket = self.ticket;
            self.mailbox.put_alone(Letter { ticket, outcome });
        }
    }
}

/// Boxes that got their first letter and whose readers are still to be woken.
#[derive(Debug, Default)]
pub(crate) struct Round {
    boxes: Vec<Arc<Mailbox>>,
}

impl Round {
    pub(crate) fn add(&mut self, envelope: Envelope, outcome: Result<Said, Error>) {
        envelope.send_with(outcome, self);
    }

    /// Wakes them.
    pub(crate) fn ring(&mut self) {
        for mailbox in self.boxes.drain(..) {
            mailbox.reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::Revision;
    use crate::txn::TxnAnswer;

    #[derive(Default)]
    struct Rung(AtomicUsize);

    impl Wake for Rung {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn answer(revision: u64) -> Result<Said, Error> {
        Ok(Said::Answer(TxnAnswer {
            revision: Revision::new(revision),
            succeeded: true,
            answers: Vec::new(),
        }))
    }

    #[test]
    fn a_round_of_answers_wakes_its_reader_once() {
        let rung = Arc::new(Rung::default());
        let waker = Waker::from(Arc::clone(&rung));
        let cx = Context::from_waker(&waker);
        let mailbox = Arc::new(Mailbox::default());
        let mut letters = Vec::new();
        mailbox.take(&cx, &mut letters);
        let mut round = Round::default();
        for ticket in 0..5 {
            round.add(Envelope::new(&mailbox, ticket), answer(ticket));
        }
        assert_eq!(rung.0.load(Ordering::Relaxed), 0);
        round.ring();
        assert_eq!(rung.0.load(Ordering::Relaxed), 1);
        mailbox.take(&cx, &mut letters);
        let tickets: Vec<u64> = letters.iter().map(|letter| letter.ticket).collect();
        assert_eq!(tickets, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_envelope_lost_on_the_way_says_that_nobody_knows() {
        let mailbox = Arc::new(Mailbox::default());
        drop(Envelope::new(&mailbox, 7));
        let mut letters = Vec::new();
        mailbox.take(&Context::from_waker(Waker::noop()), &mut letters);
        let [letter] = letters.as_slice() else {
            panic!("one letter, not {letters:?}");
        };
        assert_eq!(letter.ticket, 7);
        assert!(matches!(letter.outcome, Err(Error::Uncertain { .. })));
    }
}
