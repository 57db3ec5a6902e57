//! The control socket of a running array, on shard 0.
//! Owns: connections, lines, answers. Not here: the lines' form (`rpc`), what the methods do ([`Controlled`]).
//! Invariant: whatever a client sends or however it leaves, the array and other clients do not notice; connections
//! and lines are bounded.

use crate::report::Report;
use crate::rpc::{self, LINE_BYTES_MAX, Method, RpcError};
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Semaphore, race};
use uraid_block::{Lease, ReadPieces, WritePieces};
use uraid_host::{CLIENT_ARENA, Listener, Local, NetError, Stream};

/// Clients at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may keep a place without a request while all places are taken: a client of ours asks at once.
const IDLE_TIME_MAX: Duration = Duration::from_millis(200);
/// Bytes received at once.
const RECEIVE_BYTES: usize = 4096;
/// How long to wait when there is no buffer or no file descriptor now.
const RETRY_AFTER: Duration = Duration::from_millis(20);

/// What can be asked of a running array.
#[allow(async_fn_in_trait, reason = "static dispatch on one shard, no Send bound is wanted")]
pub trait Controlled {
    /// Its state now.
    async fn report(&self) -> Report;
    /// Declares a member, by path or slot, failed; ends when that is recorded.
    async fn fail(&self, member: &str) -> Result<Value, RpcError>;
    /// Stops the array, with `all` others too that end with it; ends when they are marked clean.
    async fn stop(&self, all: bool) -> Result<(), RpcError>;
    /// An answer was sent, or could not be.
    fn answered(&self, method: &Method);
}

/// Accepts and serves clients until dropped.
pub async fn serve<C: Controlled + 'static>(local: Local, listener: Listener, array: Rc<C>) {
    let places = Semaphore::new(CONNECTIONS_MAX);
    loop {
        let place = places.acquire(1).await;
        match listener.accept(&local).await {
            Ok(stream) => {
                let (on, array, all) = (local.clone(), array.clone(), places.clone());
                local.spawn(async move {
                    // However the connection ended, it concerns its client alone.
                    let _ = connection(&on, &stream, &*array, &all).await;
                    drop(place);
                });
            }
            Err(_) => local.sleep(RETRY_AFTER).await,
        }
    }
}

async fn connection<C: Controlled>(
    local: &Local,
    stream: &Stream,
    array: &C,
    places: &Semaphore,
) -> Result<(), NetError> {
    let mut received = Vec::new();
    loop {
        let buffer = receive_buffer(local).await;
        let (lease, count) = match race(stream.recv(buffer), no_place_is_left(local, places)).await {
            Either::Left(received) => received?,
            Either::Right(()) => return Ok(()),
        };
        if count == 0 {
            return Ok(());
        }
        received.extend_from_slice(&lease[..count]);
        drop(lease);
        while let Some(end) = received.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = received.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                answer(local, stream, array, &line).await?;
            }
        }
        if received.len() > LINE_BYTES_MAX {
            let error = RpcError::new(RpcError::INVALID_REQUEST, format!("a line is longer than {LINE_BYTES_MAX}"));
            return send(local, stream, &rpc::answer_line(&Value::Null, Err(error))).await;
        }
    }
}

/// Ends at a look that finds all places taken. Those who look at once leave one after another, so that no more go than
/// others come for.
async fn no_place_is_left(local: &Local, places: &Semaphore) {
    loop {
        local.sleep(IDLE_TIME_MAX).await;
        if places.free() == 0 {
            return;
        }
    }
}

async fn answer<C: Controlled>(local: &Local, stream: &Stream, array: &C, line: &[u8]) -> Result<(), NetError> {
    let call = match rpc::parse_call(line) {
        Ok(call) => call,
        Err((id, error)) => return send(local, stream, &rpc::answer_line(&id, Err(error))).await,
    };
    let outcome = match &call.method {
        Method::Status => Ok(json!(array.report().await)),
        Method::Fail { member } => array.fail(member).await,
        Method::Stop { all } => array.stop(*all).await.map(|()| json!({ "stopped": true })),
    };
    let sent = match &call.id {
        Some(id) => send(local, stream, &rpc::answer_line(id, outcome)).await,
        None => Ok(()),
    };
    array.answered(&call.method);
    sent
}

async fn send(local: &Local, stream: &Stream, text: &str) -> Result<(), NetError> {
    // A report of many members is longer than one buffer of a small arena: it goes out in parts.
    for part in text.as_bytes().chunks(RECEIVE_BYTES) {
        let mut pieces = take(local, part.len()).await;
        pieces.copy_from(part);
        let pieces: WritePieces = pieces.freeze();
        stream.send(pieces).await?;
    }
    Ok(())
}

async fn receive_buffer(local: &Local) -> Lease {
    let pieces = take(local, RECEIVE_BYTES).await;
    pieces.into_iter().next().expect("one block holds what is received at once")
}

/// Buffers may all be out to the faces: they come back.
async fn take(local: &Local, bytes: usize) -> ReadPieces {
    loop {
        match local.arena(CLIENT_ARENA).take(bytes) {
            Ok(pieces) => return pieces,
            Err(_) => local.sleep(RETRY_AFTER).await,
        }
    }
}
