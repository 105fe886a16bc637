//! Where one reader collects the answers to many writes.
//!
//! A connection has hundreds of writes open at once, and a batch answers many of them: they are put
//! into one box and the reader is woken once, after the last. No more letters lie in a box than
//! its reader has writes open, so the inbox's room bounds it.
//!
//! A lone answer may be brought instead ([`Courier`]): while the sequencer has nothing else to do, it
//! passes the answer on itself, which spares a change of threads.

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
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

/// Passes the letters of a box on, on the thread that put them in.
pub(crate) trait Courier: Send + Sync {
    /// Answers `false` when the reader is at work itself and has to be woken. Never waits.
    fn bring(&self) -> bool;
}

/// The box.
#[derive(Default)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    reader: AtomicWaker,
    courier: OnceLock<Weak<dyn Courier>>,
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = self.letters.lock().len();
        f.debug_struct("Mailbox")
            .field("letters", &letters)
            .finish_non_exhaustive()
    }
}

impl Mailbox {
    /// A box whose letters `courier` may bring, for as long as it is there.
    pub(crate) fn brought_by(&self, courier: Weak<dyn Courier>) {
        // A box has one reader, who says this once.
        let _first = self.courier.set(courier);
    }

    fn bring(&self) {
        let courier = self.courier.get().and_then(Weak::upgrade);
        if !courier.is_some_and(|courier| courier.bring()) {
            self.reader.wake();
        }
    }

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

    /// Has the letters of a single reader brought; wakes where there are several.
    pub(crate) fn bring(&mut self) {
        if self.boxes.len() > 1 {
            return self.ring();
        }
        for mailbox in self.boxes.drain(..) {
            mailbox.bring();
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

    /// Counts what it was asked for; `true` when it can.
    struct Van(AtomicUsize, bool);

    impl Courier for Van {
        fn bring(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed);
            self.1
        }
    }

    #[test]
    fn a_lone_answer_is_brought_and_its_reader_woken_when_that_cannot_be() {
        for can in [true, false] {
            let (rung, van) = (Arc::new(Rung::default()), Arc::new(Van(0.into(), can)));
            let waker = Waker::from(Arc::clone(&rung));
            let (one, two) = (Arc::new(Mailbox::default()), Arc::new(Mailbox::default()));
            for mailbox in [&one, &two] {
                mailbox.take(&Context::from_waker(&waker), &mut Vec::new());
                let courier: Arc<dyn Courier> = Arc::clone(&van) as _;
                mailbox.brought_by(Arc::downgrade(&courier));
            }
            let mut round = Round::default();
            round.add(Envelope::new(&one, 1), answer(1));
            round.bring();
            assert_eq!(van.0.load(Ordering::Relaxed), 1);
            assert_eq!(rung.0.load(Ordering::Relaxed), usize::from(!can));
            let both = [&one, &two];
            for mailbox in both {
                mailbox.take(&Context::from_waker(&waker), &mut Vec::new());
                round.add(Envelope::new(mailbox, 2), answer(2));
            }
            round.bring();
            assert_eq!(van.0.load(Ordering::Relaxed), 1, "two readers are woken");
            assert_eq!(rung.0.load(Ordering::Relaxed), 2 + usize::from(!can));
            // A courier that is gone brings nothing.
            drop(van);
            one.take(&Context::from_waker(&waker), &mut Vec::new());
            round.add(Envelope::new(&one, 3), answer(3));
            round.bring();
            assert_eq!(rung.0.load(Ordering::Relaxed), 3 + usize::from(!can));
        }
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
