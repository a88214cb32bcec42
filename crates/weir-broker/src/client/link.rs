//! The way to a broker: one session after another, each a task of its own. An edge has one to its broker, and a broker one
//! to each neighbour.
//!
//! What takes time runs beside the loop of whoever keeps the leases, because a lease that ends must be seen.

use super::{Said, Word};
use crate::book::Request;
use crate::http::HttpError;
use crate::{Nanos, SECOND};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use weir_core::Random;

/// The first pause before the broker is tried again. It doubles up to [`LONGEST`].
const SHORTEST: Nanos = SECOND / 4;
/// The longest pause: a broker that is back hears of every lease within 5 s.
const LONGEST: Nanos = 2 * SECOND;
/// How long a session may take to end when its keeper does.
const PARTING: Duration = Duration::from_millis(100);

/// Whether the broker can be reached.
pub(crate) struct Link {
    random: Random,
    /// If the session is lost before it has begun, this long passes before the next one.
    pause: Nanos,
    now: State,
}

enum State {
    Down { again: Instant },
    Up(Session),
}

/// A session at the broker.
struct Session {
    words: UnboundedSender<Word>,
    said: UnboundedReceiver<Said>,
    task: Task,
    reached: bool,
    /// It has not read all that was asked.
    open: bool,
}

/// Ends with who keeps it.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// No session yet. The seed is that of the jitter.
    pub fn new(seed: u64) -> Link {
        Link { random: Random::new(seed), pause: SHORTEST, now: State::Down { again: Instant::now() } }
    }

    /// How long until another session is to be begun. None: one is there.
    pub fn begins_in(&self) -> Option<Nanos> {
        match self.now {
            State::Down { again } => {
                Some(again.saturating_duration_since(Instant::now()).as_nanos() as Nanos)
            }
            State::Up(_) => None,
        }
    }

    /// Begins a session: the task that `session` makes.
    pub fn begin<F>(&mut self, session: impl FnOnce(UnboundedReceiver<Word>, UnboundedSender<Said>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let ((words, to), (from, said)) = (unbounded_channel(), unbounded_channel());
        let task = Task(tokio::spawn(session(to, from)));
        self.now = State::Up(Session { words, said, task, reached: false, open: false });
    }

    /// Whether the broker is there and has read all that was asked.
    pub fn is_free(&self) -> bool {
        matches!(self.now, State::Up(Session { reached: true, open: false, .. }))
    }

    /// Asks. The link is not free until the broker has read it.
    pub fn ask(&mut self, wishes: Vec<Request>) {
        if let State::Up(session) = &mut self.now {
            session.open = true;
        }
        self.say(Word::Ask(wishes));
    }

    /// Says something that has no answer.
    pub fn say(&self, word: Word) {
        if let State::Up(session) = &self.now {
            // If the session has ended, that is heard next.
            let _ = session.words.send(word);
        }
    }

    /// The next thing that was heard. May be dropped and called again at any time.
    pub async fn next(&mut self) -> Said {
        let State::Up(session) = &mut self.now else { return std::future::pending().await };
        let said = session.said.recv().await.unwrap_or_else(|| {
            Said::Lost(HttpError::Unreachable("the session has ended without a word: a defect".into()))
        });
        match &said {
            Said::Reached => (session.reached, self.pause) = (true, SHORTEST),
            Said::Heard => session.open = false,
            Said::Lost(_) => {
                let pause = self.pause - self.random.below(self.pause / 5 + 1);
                self.pause = (2 * self.pause).min(LONGEST);
                let again = Instant::now() + Duration::from_nanos(pause);
                self.now = State::Down { again };
            }
            _ => {}
        }
        said
    }

    /// Lets the session say that this side goes.
    pub async fn part(&mut self) {
        let down = State::Down { again: Instant::now() };
        if let State::Up(Session { words, mut task, .. }) = std::mem::replace(&mut self.now, down) {
            drop(words);
            // The broker need not hear it.
            let _ = timeout(PARTING, &mut task.0).await;
        }
    }
}
