//! The control socket of a running array, on shard 0.
//! Owns: connections, lines, answers, access checks. Not here: the lines' form (`rpc`), what the methods do
//! (`overseer`). Invariant: nothing that a caller sends, nor the way it leaves, affects the array or other callers.
//! The number of callers, the length of lines and the time per caller are bounded; callers that wait for the end of a
//! stop have a lower limit, and lose their place when they hang up. The control socket has its own buffers, so NBD
//! clients do not use them up.

use super::Overseer;
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::buffer::SMALL_BLOCK_BYTES;
use uraid_block::local::{Either, Notify, Semaphore, race, yield_now};
use uraid_block::{Arena, ReadPieces, Tick};
use uraid_control::history::Actor;
use uraid_control::protocol::{self, Call, LINE_BYTES_MAX, Method, RpcError};
use uraid_host::{Listener, Local, NetError, Peer, Stream};

/// Callers at once.
pub(crate) const CALLERS_MAX: usize = 32;
/// How many callers may wait for the end of a stop. A member may delay the stop until another caller fails the member.
const STOPS_MAX: usize = CALLERS_MAX / 2;
/// How often to check whether a caller that waits for the end of a stop has hung up.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How long an idle caller keeps its place while others wait. `uraid` as a caller sends and receives without delay.
const IDLE_TIME_MIN: Duration = Duration::from_millis(100);
/// How long a caller may take for its next line, or to take the next part of an answer.
const CALLER_TIME_MAX: Duration = Duration::from_secs(10);
/// How long to wait when there is no file descriptor now.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// One connection.
struct Caller {
    stream: Stream,
    /// When the server began to wait for the caller; `None` while the caller waits for the server.
    since: Cell<Option<Tick>>,
}

/// All connections, in the order of arrival.
struct Callers {
    local: Local,
    arena: Arena,
    places: RefCell<BTreeMap<u64, Rc<Caller>>>,
    /// Permits for callers that wait for the end of a stop.
    stops: Rc<Semaphore>,
    is_stopping: Box<dyn Fn() -> bool>,
    changed: Notify,
}

impl Callers {
    fn new(local: Local, is_stopping: impl Fn() -> bool + 'static) -> Callers {
        let arena = Arena::new(2 * CALLERS_MAX as u32, 0);
        let (stops, is_stopping) = (Semaphore::new(STOPS_MAX), Box::new(is_stopping));
        Callers { local, arena, places: RefCell::default(), stops, is_stopping, changed: Notify::new() }
    }
}

/// Accepts and serves callers until dropped. `is_stopping`: a stop is under way, whether its callers wait for it or not.
pub(crate) async fn serve(
    local: Local,
    listener: Listener,
    array: Rc<Overseer>,
    is_stopping: impl Fn() -> bool + 'static,
) {
    let callers = Rc::new(Callers::new(local.clone(), is_stopping));
    for name in 0.. {
        callers.make_room().await;
        let stream = loop {
            match listener.accept(&local).await {
                Ok(stream) if may_call(stream.peer()) => break stream,
                // Close the connection without an answer.
                Ok(_) => yield_now().await,
                Err(_) => local.sleep(RETRY_AFTER).await,
            }
        };
        let caller = Rc::new(Caller { stream, since: Cell::new(None) });
        callers.places.borrow_mut().insert(name, caller.clone());
        let (callers, array) = (callers.clone(), array.clone());
        local.spawn(async move {
            // An error of the connection affects only its caller.
            let _ = callers.converse(&caller, &array).await;
            callers.places.borrow_mut().remove(&name);
            callers.changed.notify_all();
        });
        yield_now().await;
    }
}

/// Only the user of this process and root may call.
fn may_call(peer: Peer) -> bool {
    match peer {
        Peer::User(user) => user == 0 || user == rustix::process::geteuid().as_raw(),
        Peer::Host(_) | Peer::Unknown => false,
    }
}

impl Callers {
    /// Waits until there is a place. If needed, drops the caller that the server has waited for longest.
    async fn make_room(&self) {
        while self.places.borrow().len() >= CALLERS_MAX {
            let oldest = |caller: &Rc<Caller>| caller.since.get().map(|since| (since, caller.clone()));
            let first = self.places.borrow().values().filter_map(oldest).min_by_key(|(since, _)| *since);
            let idle = first.as_ref().map_or(Duration::ZERO, |(since, _)| self.local.now().since(*since));
            if let Some((_, caller)) = first.filter(|_| idle >= IDLE_TIME_MIN) {
                caller.stream.shutdown();
                caller.since.set(None);
            }
            let is_free = || (self.places.borrow().len() < CALLERS_MAX).then_some(());
            race(self.changed.wait_for(is_free), self.local.sleep(RETRY_AFTER)).await;
        }
    }

    async fn converse(&self, caller: &Caller, array: &Overseer) -> Result<(), NetError> {
        let mut received = Vec::new();
        let mut buffer = self.take(SMALL_BLOCK_BYTES).await.into_iter().next().expect("one block is one piece");
        let mut deadline = Deadline::ForCaller;
        loop {
            let begun = self.local.now();
            // Measure from the first byte of a line, so that a caller that sends byte by byte is the first to be
            // dropped.
            let count = loop {
                caller.since.set(Some(begun));
                let (lease, count) = self.in_time(deadline, begun, caller.stream.recv(buffer)).await?;
                buffer = lease;
                received.extend_from_slice(&buffer[..count]);
                // Only what is new can hold the end of the line.
                if count == 0 || received.len() > LINE_BYTES_MAX || buffer[..count].contains(&b'\n') {
                    break count;
                }
            };
            caller.since.set(None);
            while let Some(end) = received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = received.drain(..=end).collect();
                if !line.trim_ascii().is_empty() {
                    deadline = self.answer(caller, array, &line).await?;
                }
            }
            if count == 0 {
                return Ok(());
            }
            if received.len() > LINE_BYTES_MAX {
                let error = RpcError::new(RpcError::INVALID_REQUEST, format!("a line is longer than {LINE_BYTES_MAX}"));
                return self.send(caller, &protocol::answer_line(&Value::Null, Err(error))).await;
            }
        }
    }

    /// Answers a line; returns the deadline for the next one.
    async fn answer(&self, caller: &Caller, array: &Overseer, line: &[u8]) -> Result<Deadline, NetError> {
        let call = match protocol::parse_call(line) {
            Ok(call) => call,
            Err((id, error)) => {
                self.send(caller, &protocol::answer_line(&id, Err(error))).await?;
                return Ok(Deadline::ForCaller);
            }
        };
        let is_stop = matches!(call.method, Method::Stop { .. });
        let actor = caller.stream.peer_process().map_or(Actor::Engine, |peer| Actor::of_process(peer.pid, peer.user));
        let outcome = if is_stop {
            let Some(_place) = self.stops.try_acquire(1) else {
                let text = format!(
                    "the array is being stopped, and {STOPS_MAX} commands wait for that already: `uraid list` shows when \
                     it is gone"
                );
                self.reply(caller, &call, Err(RpcError::refused(text))).await?;
                return Ok(Deadline::ForCaller);
            };
            match race(array.call(&call.method), self.abandons_stop(caller)).await {
                Either::Left(outcome) => outcome,
                Either::Right(()) => {
                    array.session().stop_answered();
                    return Err(NetError::Closed);
                }
            }
        } else {
            array.call(&call.method).await
        };
        let has_stopped = is_stop && outcome.is_ok();
        array.note_command(actor, &call.method, &outcome);
        let sent = self.reply(caller, &call, outcome).await;
        if is_stop {
            array.session().stop_answered();
        }
        sent?;
        Ok(if has_stopped { Deadline::EndOfProcess } else { Deadline::ForCaller })
    }

    /// Returns once a stop is under way and the caller has hung up, so that it needs no answer. A caller may hang up
    /// right after it has asked for the stop; the stop still happens.
    async fn abandons_stop(&self, caller: &Caller) {
        while !(self.is_stopping)() || !caller.stream.is_abandoned() {
            self.local.sleep(LOOK_PERIOD).await;
        }
    }

    async fn reply(&self, caller: &Caller, call: &Call, outcome: Result<Value, RpcError>) -> Result<(), NetError> {
        self.send(caller, &protocol::answer_line(&call.id, outcome)).await
    }

    async fn send(&self, caller: &Caller, text: &str) -> Result<(), NetError> {
        // A report of many members is longer than a block: send it in parts.
        for part in text.as_bytes().chunks(SMALL_BLOCK_BYTES) {
            let mut pieces = self.take(part.len()).await;
            pieces.copy_from(part);
            let begun = self.local.now();
            caller.since.set(Some(begun));
            self.in_time(Deadline::ForCaller, begun, caller.stream.send(pieces.freeze())).await?;
            caller.since.set(None);
        }
        Ok(())
    }

    async fn in_time<T>(
        &self,
        deadline: Deadline,
        begun: Tick,
        operation: impl Future<Output = Result<T, NetError>>,
    ) -> Result<T, NetError> {
        match deadline {
            Deadline::EndOfProcess => operation.await,
            Deadline::ForCaller => {
                let left = CALLER_TIME_MAX.saturating_sub(self.local.now().since(begun));
                match race(operation, self.local.sleep(left)).await {
                    Either::Left(outcome) => outcome,
                    Either::Right(()) => Err(NetError::Closed),
                }
            }
        }
    }

    /// A buffer of at most one block of the control socket's own arena. The arena has one block to receive and one to
    /// send for each caller; a caller that has just left returns its blocks at once.
    async fn take(&self, bytes: usize) -> ReadPieces {
        loop {
            match self.arena.take(bytes) {
                Ok(pieces) => return pieces,
                Err(_) => self.local.sleep(RETRY_AFTER).await,
            }
        }
    }
}

/// The deadline for a caller's next line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Deadline {
    ForCaller,
    /// None: the caller has stopped the array and waits for the end of the process.
    EndOfProcess,
}
