//! The jobs of a copy, from the shard that reads to the thread that writes.
//! Owns: [`Job`], both ends of the queue. Not here: what is done for a job (`uraid copy`).
//! Invariant: a sender that waits for room is woken by each job that is taken, and by the end of the other side.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use uraid_block::Range;

/// What to do with the next stretch. Stretches come in order.
pub enum Job {
    /// The stretch has these bytes.
    Data(Range, Vec<u8>),
    /// The stretch is all zeroes.
    Zero(Range),
    /// The stretch could not be read.
    Lost(Range),
}

/// A queue of at most `jobs_max` jobs.
pub fn queue(jobs_max: usize) -> (Queue, Jobs) {
    let (sender, receiver) = sync_channel(jobs_max);
    let waiting = Waiting::default();
    (Queue { sender, waiting: waiting.clone() }, Jobs { receiver, waiting: WakeLast(waiting) })
}

/// The sender that waits for room.
type Waiting = Arc<Mutex<Option<Waker>>>;

/// The sending end of the queue of jobs.
pub struct Queue {
    sender: SyncSender<Job>,
    waiting: Waiting,
}

/// The writer has ended early, and has taken no more jobs.
#[derive(Debug)]
pub struct Ended;

impl Queue {
    /// Queues a job as soon as there is room.
    pub async fn send(&self, job: Job) -> Result<(), Ended> {
        let mut job = Some(job);
        std::future::poll_fn(|context| {
            // Store the waker before the attempt: a job that is taken in between wakes it.
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            match self.sender.try_send(job.take().expect("polled until it is gone")) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(TrySendError::Disconnected(_)) => Poll::Ready(Err(Ended)),
                Err(TrySendError::Full(back)) => {
                    job = Some(back);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// The receiving end.
pub struct Jobs {
    // Fields are dropped in this order: a sender that is woken in the end finds that there is no receiver.
    receiver: Receiver<Job>,
    waiting: WakeLast,
}

impl Jobs {
    /// Waits for the next job; `None`: the queue is closed.
    pub fn next(&self) -> Option<Job> {
        let job = self.receiver.recv().ok()?;
        self.waiting.wake();
        Some(job)
    }
}

struct WakeLast(Waiting);

impl WakeLast {
    fn wake(&self) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

impl Drop for WakeLast {
    fn drop(&mut self) {
        self.wake();
    }
}
