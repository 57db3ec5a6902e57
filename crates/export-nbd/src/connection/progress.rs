//! What a client has done, and what the server waits for it to do.
//! Owns: [`ClientProgress`] of one connection, [`Awaited`]. Not here: which clients are cut (`watchdog`).
//! Invariant: a client counts as stalled only if the server waits for it and it makes no progress.

use std::cell::Cell;
use std::time::Duration;
use uraid_block::Tick;

/// This many bytes of a payload are progress, and so is the payload's end. So 128 KiB/s are enough if the client holds
/// more than its share (64 KiB in half a second, 4 MiB in 32 s), and 2.1 KiB/s otherwise (64 KiB in 30 s). A client
/// that sends a byte a second keeps no buffer. While memory is short, up to 256 KiB are received before they are
/// counted, so 512 KiB/s are always enough.
const PROGRESS_BYTES: u64 = 64 << 10;

/// A client that has sent less than [`PROGRESS_BYTES`] of a payload for this long loses its connection if another client
/// needs one.
const STALLED_AFTER: Duration = Duration::from_secs(2);

/// What the server waits for the client to do, and what shows its progress. While the client has replies to receive,
/// bytes that it sends are no progress: otherwise one byte a second would let it keep the memory of all its replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    /// The client should take its replies.
    Replies {
        sends: u64,
        /// Sent bytes that the client has not received. Within one large send, they show that a slow client makes
        /// progress.
        unsent: usize,
    },
    /// The client should send the rest of a payload.
    Payload { payloads: u64, received_bytes: u64 },
}

impl Awaited {
    /// Whether the client has made too little progress since `before`.
    fn stands_still(self, before: Awaited) -> bool {
        match (before, self) {
            (Awaited::Replies { .. }, Awaited::Replies { .. }) => self == before,
            (
                Awaited::Payload { payloads: before, received_bytes: bytes_before },
                Awaited::Payload { payloads, received_bytes },
            ) => {
                assert!(payloads >= before && received_bytes >= bytes_before, "both only grow");
                payloads == before && received_bytes - bytes_before < PROGRESS_BYTES
            }
            // A send has ended or begun, and gets its own time limit.
            (Awaited::Replies { .. }, Awaited::Payload { .. }) | (Awaited::Payload { .. }, Awaited::Replies { .. }) => {
                false
            }
        }
    }
}

/// A client that stands still, as one check found it.
#[derive(Clone, Copy)]
struct Stall {
    awaited: Awaited,
    /// The time of the first check that found the client so.
    since: Tick,
    /// Whether the last check found the time limit exceeded.
    is_overdue: bool,
}

/// The progress of one client, and what the server waits for.
#[derive(Default)]
pub(crate) struct ClientProgress {
    /// The server's count of receives and sends when this client last had one.
    last_activity: Cell<u64>,
    /// Sends that the client's socket took.
    sends: Cell<u64>,
    received_bytes: Cell<u64>,
    /// Payloads that arrived completely.
    payloads: Cell<u64>,
    is_payload_due: Cell<bool>,
    is_sending: Cell<bool>,
    stall: Cell<Option<Stall>>,
}

impl ClientProgress {
    /// Bytes arrived. `activity`: the server's count of receives and sends.
    pub(crate) fn received(&self, bytes: usize, activity: u64) {
        assert!(bytes > 0, "an end is no progress");
        self.was_active(activity);
        self.received_bytes.update(|received| received + bytes as u64);
    }

    /// The client's socket took replies.
    pub(crate) fn sent(&self, sends: u64, activity: u64) {
        assert!(sends > 0);
        self.was_active(activity);
        self.sends.update(|sent| sent + sends);
    }

    fn was_active(&self, activity: u64) {
        assert!(activity > self.last_activity.get(), "the count grows with each receive and send");
        self.last_activity.set(activity);
    }

    /// The number of the client's last receive or send. Of several clients, the lowest number is the longest ago.
    pub(crate) fn last_activity(&self) -> u64 {
        self.last_activity.get()
    }

    /// The server has buffers for a payload and waits for its bytes.
    pub(crate) fn payload_begins(&self) {
        assert!(!self.is_payload_due.get(), "payloads arrive one after the other");
        self.is_payload_due.set(true);
    }

    /// The payload arrived completely.
    pub(crate) fn payload_ends(&self) {
        self.is_payload_due.set(false);
        self.payloads.update(|payloads| payloads + 1);
    }

    pub(crate) fn is_payload_due(&self) -> bool {
        self.is_payload_due.get()
    }

    /// Replies wait for the client's socket. No other send may overtake them.
    pub(crate) fn send_begins(&self) {
        self.is_sending.set(true);
    }

    /// The replies were sent.
    pub(crate) fn send_ends(&self) {
        assert!(self.is_sending.get());
        self.is_sending.set(false);
    }

    pub(crate) fn is_sending(&self) -> bool {
        self.is_sending.get()
    }

    /// What the server waits for now, if anything. `unsent`: bytes that were sent and that the client has not received.
    pub(crate) fn awaited(&self, unsent: impl FnOnce() -> usize) -> Option<Awaited> {
        if self.is_sending.get() {
            return Some(Awaited::Replies { sends: self.sends.get(), unsent: unsent() });
        }
        let (payloads, received_bytes) = (self.payloads.get(), self.received_bytes.get());
        self.is_payload_due.get().then_some(Awaited::Payload { payloads, received_bytes })
    }

    /// A check found that nothing is awaited.
    pub(crate) fn forget_stall(&self) {
        self.stall.set(None);
    }

    /// One check. Returns whether this check and the one before it found that the client has stood still for more than
    /// `time_max`. One check is not enough: this thread may have been delayed and not have seen the client's progress
    /// yet.
    pub(crate) fn has_stalled(&self, awaited: Awaited, now: Tick, time_max: Duration) -> bool {
        let before = self.stall.get().filter(|stall| awaited.stands_still(stall.awaited));
        // Compare with the first check of the stall: the bytes of several checks together may be enough.
        let (awaited, since) = before.map_or((awaited, now), |stall| (stall.awaited, stall.since));
        let is_overdue = now.since(since) > time_max;
        self.stall.set(Some(Stall { awaited, since, is_overdue }));
        is_overdue && before.is_some_and(|stall| stall.is_overdue)
    }

    /// Whether the client has sent too little since a check of more than [`STALLED_AFTER`] ago.
    pub(crate) fn has_stopped_sending(&self, awaited: Awaited, now: Tick) -> bool {
        let before = self.stall.get().filter(|stall| awaited.stands_still(stall.awaited));
        before.is_some_and(|stall| now.since(stall.since) >= STALLED_AFTER)
    }
}
