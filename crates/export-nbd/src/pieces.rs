//! Trim and write-zeroes in pieces: one request may cover the whole device.
//! Owns: the length and the end of a piece, the pause between two pieces, how much time they take from other clients' reads
//! and writes.
//! Not here: what a piece does (`Device`), which request is next (`clears`), replies (`connection`).
//! Invariant: a request that has to end early ends after a piece, with an error. A request with FUA is flushed after
//! its last piece, before its answer.

use crate::clears::{ClearRequest, Lane};
use crate::connection::Connection;
use crate::machine::{Machine, Transport};
use crate::request::Clear;
use std::pin::pin;
use std::time::Duration;
use uraid_block::local::{Either, Permit, race};
use uraid_block::{Device, ErrorKind, Fua, Geometry, IoError, Range, Sector, Sectors};

/// The longest piece of zeroes. 4 MiB: a member that has to write them, at 100 MB/s, is done after 40 ms.
pub(crate) const ZEROES_MAX: Sectors = Sectors(4 << 11);
/// The longest piece of a trim, which moves no data.
const TRIM_MAX: Sectors = Sectors(32 << 11);
/// The longest piece of zeroes while other clients read or write.
const ZEROES_BESIDE_OTHERS_MAX: Sectors = Sectors(1 << 11);
/// A request up to this length takes no longer than a write, and has a shorter pause.
pub(crate) const SHORT_MAX: Sectors = Sectors(64 << 1);
/// While other clients read or write, a piece of a long request that took 1 ms is followed by a pause of 23 ms, one of a
/// short request by 3 ms: all pieces of a device on a shard together take a 24th and a quarter of the time, and one client
/// at depth 1 the rest, however many others there are. A short one costs its sender 28 bytes, not the 64 KiB of a write,
/// but guests that turn writes of zeroes into it should not wait for seconds.
const PAUSE_FACTORS: [u32; 2] = [3, 23];
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A piece that takes longer waits for a member that does not answer: the next one need not wait for it.
const TURN_TIME_MAX: Duration = Duration::from_secs(1);
/// Others count as reading and writing for so long after their last answer: a client at depth 1 has none in flight
/// between two requests.
const BESIDE_OTHERS: Duration = Duration::from_millis(100);

/// The turn of a piece beside other clients, and how long to wait before the next one has it.
pub(crate) struct Pause {
    turn: Permit,
    time: Duration,
}

impl Pause {
    /// Ends the turn after the pause. A client that leaves does not shorten it.
    pub(crate) async fn pass(self, machine: &impl Machine) {
        machine.sleep(self.time).await;
        drop(self.turn);
    }
}

/// Clears the first piece of what is left of the request, and flushes after the last one where FUA asks for it. Returns
/// the outcome once nothing is left - [`ErrorKind::Stopping`] if the connection ends before - and the pause that is due.
pub(crate) async fn clear_piece<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    what: Clear,
    request: &mut ClearRequest,
) -> (Result<Option<()>, IoError>, Option<Pause>) {
    // One piece of the device's lane at a time, including its pause.
    let mut turn = match is_contended(connection) {
        true => take_turn(connection, request.lane()).await,
        false => None,
    };
    if connection.is_given_up() {
        return (Err(ErrorKind::Stopping.into()), None);
    }
    let machine = &connection.server.machine;
    let begin = machine.now();
    let piece = first_piece(connection.device().geometry(), longest(what, turn.is_some()), request.rest);
    let factor = PAUSE_FACTORS[request.lane() as usize];
    let outcome = {
        let mut clearing = pin!(clear_range(connection.device(), what, piece, request));
        if turn.is_some() {
            match race(clearing.as_mut(), machine.sleep(TURN_TIME_MAX)).await {
                Either::Left(outcome) => outcome,
                Either::Right(()) => {
                    turn = None;
                    clearing.await
                }
            }
        } else {
            clearing.await
        }
    };
    let pause = turn.map(|turn| Pause { turn, time: (machine.now().since(begin) * factor).min(PAUSE_MAX) });
    (outcome, pause)
}

async fn clear_range<D: Device>(
    device: &D,
    what: Clear,
    piece: Range,
    request: &mut ClearRequest,
) -> Result<Option<()>, IoError> {
    let outcome = match what {
        Clear::Trim => device.discard(piece).await,
        Clear::Zeroes => device.write_zeroes(piece).await,
    };
    request.rest = match (what, outcome) {
        (Clear::Trim | Clear::Zeroes, Ok(())) => Range::between(piece.end(), request.rest.end()),
        // A trim is a hint: if the device does not support it, it is done.
        (Clear::Trim, Err(IoError { kind: ErrorKind::Unsupported, .. })) => {
            Range::new(request.rest.end(), Sectors::ZERO)
        }
        (Clear::Trim | Clear::Zeroes, Err(error)) => return Err(error),
    };
    if !request.rest.length.is_zero() {
        return Ok(None);
    }
    match request.fua() {
        // Flush after all pieces, to cover each of them.
        Fua::Yes => device.flush().await?,
        Fua::No => {}
    }
    Ok(Some(()))
}

/// Whether other connections have reads or writes under way, or had one answered lately.
fn is_contended<M: Machine, T: Transport, D: Device + 'static>(connection: &Connection<M, T, D>) -> bool {
    let (server, clearing) = (&connection.server, &connection.clearing);
    let counts = server.statistics();
    let others = counts.reads + counts.writes - clearing.transfers.get();
    let now = server.machine.now();
    if clearing.seen_of_others.replace(others) != others {
        clearing.others_seen_at.set(Some(now));
    }
    let is_lately = clearing.others_seen_at.get().is_some_and(|at| now.since(at) <= BESIDE_OTHERS);
    is_lately || server.has_transfers_of_others(connection)
}

/// Waits until no other piece of the device's lane runs or pauses; `None` if no other client reads or writes by then, or
/// the connection closes.
async fn take_turn<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    lane: Lane,
) -> Option<Permit> {
    let turns = &connection.server.clearing_turns(connection.export())[lane as usize];
    if let Some(turn) = turns.try_acquire(1) {
        return Some(turn);
    }
    match race(connection.closes(), turns.acquire(1)).await {
        Either::Left(()) => None,
        Either::Right(turn) => is_contended(connection).then_some(turn),
    }
}

/// The longest piece.
fn longest(what: Clear, is_contended: bool) -> Sectors {
    match (what, is_contended) {
        (Clear::Trim, _) => TRIM_MAX,
        (Clear::Zeroes, false) => ZEROES_MAX,
        (Clear::Zeroes, true) => ZEROES_BESIDE_OTHERS_MAX,
    }
}

/// The piece at the start of `rest`, not much longer than `longest`. It ends at the end of a stripe, if a stripe, or at
/// least its chunks, are no longer than a piece: a cut through a stripe would compute its parity twice.
///
/// ```text
///   stripe 3 MiB, rest from 1 MiB on:   1..3  3..6  6..9  ...
/// ```
fn first_piece(geometry: &Geometry, longest: Sectors, rest: Range) -> Range {
    let stripe = geometry.stripe;
    let furthest = if longest < stripe && geometry.chunk <= longest { stripe } else { longest };
    let end = rest.start.0 + furthest.0.min(rest.length.0);
    let aligned = end.checked_rem(stripe.0).map_or(end, |beyond| end - beyond);
    let end = if end < rest.end().0 && aligned > rest.start.0 { aligned } else { end };
    Range::between(rest.start, Sector(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 2048;

    fn pieces(stripe: u64, chunk: u64, what: Clear, start: u64, length: u64) -> Vec<(u64, u64)> {
        let geometry = Geometry {
            size: Sectors(1 << 40),
            logical_block: Sectors(1),
            physical_block: Sectors(8),
            chunk: Sectors(chunk),
            stripe: Sectors(stripe),
            io_max: Sectors(1 << 16),
            segments_max: 1024,
            discard_granularity: Sectors(1),
            zeroes_after_discard: false,
            volatile_cache: true,
        };
        let mut rest = Range::new(Sector(start), Sectors(length));
        let mut list = Vec::new();
        while !rest.length.is_zero() {
            let piece = first_piece(&geometry, longest(what, false), rest);
            assert_eq!(piece.start, rest.start);
            list.push((piece.start.0, piece.length.0));
            rest = Range::between(piece.end(), rest.end());
        }
        list
    }

    #[test]
    fn pieces_end_with_stripes_and_cover_the_range() {
        let all = [(MIB, 2 * MIB), (3 * MIB, 3 * MIB), (6 * MIB, 3 * MIB), (9 * MIB, 2 * MIB)];
        assert_eq!(pieces(3 * MIB, MIB, Clear::Zeroes, MIB, 10 * MIB), all);
        let one = [(5, 4 * MIB)];
        assert_eq!(pieces(3 * MIB, MIB, Clear::Zeroes, 5, 4 * MIB), one, "what fits one piece is not cut");
        let no_stripes = [(5, 4 * MIB), (5 + 4 * MIB, 1)];
        assert_eq!(pieces(0, 0, Clear::Zeroes, 5, 4 * MIB + 1), no_stripes);
        assert_eq!(pieces(128, 128, Clear::Trim, 0, 40 * MIB), [(0, 32 * MIB), (32 * MIB, 8 * MIB)]);
    }

    #[test]
    fn a_stripe_longer_than_a_piece_is_one_piece_where_its_chunks_are_not() {
        assert_eq!(pieces(8 * MIB, MIB, Clear::Zeroes, MIB, 10 * MIB), [(MIB, 7 * MIB), (8 * MIB, 3 * MIB)]);
        let long_chunks = pieces(16 * MIB, 8 * MIB, Clear::Zeroes, 0, 12 * MIB);
        assert_eq!(long_chunks, [(0, 4 * MIB), (4 * MIB, 4 * MIB), (8 * MIB, 4 * MIB)]);
    }
}
