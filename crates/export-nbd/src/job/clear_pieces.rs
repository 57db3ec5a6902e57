//! Trim and write-zeroes in pieces: one request may cover the whole device.
//! Owns: the length and the end of a piece, and the pause between two pieces, which bounds their share of the time
//! beside other clients' reads and writes.
//! Not here: what a piece does (`Device`), which request is next (`clear_queue`), replies (`connection`).
//! Invariant: a request that has to end early ends after a piece, with an error. A request with FUA is flushed after
//! its last piece, before its answer.

use crate::connection::Connection;
use crate::machine::{Machine, Transport};
use crate::request::Clear;
use crate::request::clear_queue::{ClearRequest, Group, Lane, ZEROES_MAX};
use std::pin::pin;
use std::time::Duration;
use uraid_block::local::{Either, Permit, race};
use uraid_block::{Device, ErrorKind, Geometry, IoError, Range, Sector, Sectors};

/// The longest piece that moves no data: a trim, or zeroes where these are fast. While no other client reads or writes,
/// that is as much as a request of NBD's 32 bits can name: each member gets its part of it as one request.
const HOLE_MAX: Sectors = Sectors(4 << 21);
/// The same while other clients read or write.
const HOLE_BESIDE_OTHERS_MAX: Sectors = Sectors(32 << 11);
/// The longest piece of zeroes while other clients read or write.
const ZEROES_BESIDE_OTHERS_MAX: Sectors = Sectors(1 << 11);
/// The pause after a piece, as a multiple of the time that the piece took, while other clients read or write: 3 for
/// short requests, 23 for long ones. So all pieces of a device on a shard together take 1/4 (short) or 1/24 (long) of
/// the time. A client at depth 1 has the rest, no matter how many clients send trims and zeroes. The factor for short
/// requests is small, although one costs its sender only 28 bytes, and a write 64 KiB: guests that turn writes of
/// zeroes into short requests should not wait for seconds.
const PAUSE_FACTORS: [u32; 2] = [3, 23];
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// A piece that takes longer is taken to wait for a member that does not answer, and the next piece does not wait for
/// it.
const PERMIT_TIME_MAX: Duration = Duration::from_secs(1);

/// The permit of a piece that runs beside other clients, and how long to wait before the next piece gets the permit.
pub(crate) struct Pause {
    permit: Permit,
    time: Duration,
}

impl Pause {
    /// Gives the permit back after the pause. A client that leaves does not shorten the pause.
    pub(crate) async fn pass(self, machine: &impl Machine) {
        machine.sleep(self.time).await;
        drop(self.permit);
    }
}

/// Clears the first piece of the rest of the group, and flushes after it if a request with FUA ends with it. Returns the
/// requests that end with the piece, their outcome, and the pause that is due. The outcome is [`ErrorKind::Stopping`], of
/// all, if the connection ends first.
pub(crate) async fn clear_piece<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    group: &mut Group,
) -> (Vec<ClearRequest>, Result<(), IoError>, Option<Pause>) {
    // One piece of the device's lane at a time, including its pause.
    let mut permit = match connection.is_contended() {
        true => acquire_permit(connection, group.lane()).await,
        false => None,
    };
    if connection.is_given_up() {
        return (group.advance_to(group.rest().end()), Err(ErrorKind::Stopping.into()), None);
    }
    let machine = connection.shared().machine();
    let begin = machine.now();
    let device = connection.device().device();
    let longest = longest(&device.geometry(), group.what(), permit.is_some());
    let piece = first_piece(&device.geometry(), longest, group.rest());
    let factor = PAUSE_FACTORS[group.lane() as usize];
    let (end, outcome) = {
        let mut clearing = pin!(clear_range(device, piece, group));
        if permit.is_some() {
            match race(clearing.as_mut(), machine.sleep(PERMIT_TIME_MAX)).await {
                Either::Left(outcome) => outcome,
                Either::Right(()) => {
                    permit = None;
                    clearing.await
                }
            }
        } else {
            clearing.await
        }
    };
    let pause = permit.map(|permit| Pause { permit, time: (machine.now().since(begin) * factor).min(PAUSE_MAX) });
    let ended = match outcome {
        Ok(()) => group.advance_to(end),
        Err(_) => group.give_up_to(end),
    };
    (ended, outcome, pause)
}

/// Clears the piece. Returns where it, or what needs no clearing behind it, ends.
async fn clear_range<D: Device>(device: &D, piece: Range, group: &Group) -> (Sector, Result<(), IoError>) {
    let outcome = match group.what() {
        Clear::Trim => device.discard(piece).await,
        Clear::Zeroes => device.write_zeroes(piece).await,
        Clear::Holes => device.punch_hole(piece).await,
    };
    let end = match (group.what(), outcome) {
        (Clear::Trim | Clear::Zeroes | Clear::Holes, Ok(())) => piece.end(),
        // A trim is a hint: if the device does not support it, it is done.
        (Clear::Trim, Err(IoError { kind: ErrorKind::Unsupported, .. })) => group.rest().end(),
        (Clear::Trim | Clear::Zeroes | Clear::Holes, Err(error)) => return (piece.end(), Err(error)),
    };
    // Flush after all pieces of a request, to cover each of them.
    let flushed = if group.is_flushed_at(end) { device.flush().await } else { Ok(()) };
    (end, flushed)
}

/// Waits until no other piece of the device's lane runs or pauses; `None` if no other client reads or writes by then, or
/// the connection closes.
async fn acquire_permit<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    lane: Lane,
) -> Option<Permit> {
    let permits = connection.device().piece_permit(lane);
    if let Some(permit) = permits.try_acquire(1) {
        return Some(permit);
    }
    match race(connection.closes(), permits.acquire(1)).await {
        Either::Left(()) => None,
        Either::Right(permit) => connection.is_contended().then_some(permit),
    }
}

/// The longest piece.
fn longest(geometry: &Geometry, what: Clear, is_contended: bool) -> Sectors {
    let moves_data = match what {
        Clear::Trim => false,
        Clear::Holes => !geometry.fast_holes,
        Clear::Zeroes => !geometry.fast_zeroes,
    };
    match (moves_data, is_contended) {
        (false, false) => HOLE_MAX,
        (false, true) => HOLE_BESIDE_OTHERS_MAX,
        (true, false) => ZEROES_MAX,
        (true, true) => ZEROES_BESIDE_OTHERS_MAX,
    }
}

/// The piece at the start of `rest`, not much longer than `longest`. It ends at the end of a stripe, if a stripe or at
/// least a chunk is no longer than a piece, because the parity of a stripe that is cut would be computed twice.
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
    assert!(end > rest.start.0 && end <= rest.end().0, "a piece of what is left, and not nothing");
    Range::between(rest.start, Sector(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 2048;

    const GIB: u64 = MIB << 10;

    fn geometry(stripe: u64, chunk: u64) -> Geometry {
        Geometry {
            size: Sectors(1 << 40),
            logical_block: Sectors(1),
            physical_block: Sectors(8),
            chunk: Sectors(chunk),
            stripe: Sectors(stripe),
            io_max: Sectors(1 << 16),
            segments_max: 1024,
            discard_granularity: Sectors(1),
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        }
    }

    fn pieces(stripe: u64, chunk: u64, what: Clear, start: u64, length: u64) -> Vec<(u64, u64)> {
        let geometry = geometry(stripe, chunk);
        let mut rest = Range::new(Sector(start), Sectors(length));
        let mut list = Vec::new();
        while !rest.length.is_zero() {
            let piece = first_piece(&geometry, longest(&geometry, what, false), rest);
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
        assert_eq!(pieces(128, 128, Clear::Trim, 0, 5 * GIB), [(0, 4 * GIB), (4 * GIB, GIB)]);
    }

    #[test]
    fn what_moves_no_data_is_cut_for_other_clients_only() {
        let (slow, fast) = (geometry(0, 0), Geometry { fast_holes: true, fast_zeroes: false, ..geometry(0, 0) });
        let lengths = |what| {
            [(&slow, false), (&slow, true), (&fast, false), (&fast, true)]
                .map(|(geometry, is_contended)| longest(geometry, what, is_contended).0)
        };
        assert_eq!(lengths(Clear::Trim), [4 * GIB, 32 * MIB, 4 * GIB, 32 * MIB]);
        assert_eq!(lengths(Clear::Holes), [4 * MIB, MIB, 4 * GIB, 32 * MIB]);
        assert_eq!(lengths(Clear::Zeroes), [4 * MIB, MIB, 4 * MIB, MIB], "zeroes that keep their space may be written");
    }

    #[test]
    fn a_stripe_longer_than_a_piece_is_one_piece_where_its_chunks_are_not() {
        assert_eq!(pieces(8 * MIB, MIB, Clear::Zeroes, MIB, 10 * MIB), [(MIB, 7 * MIB), (8 * MIB, 3 * MIB)]);
        let long_chunks = pieces(16 * MIB, 8 * MIB, Clear::Zeroes, 0, 12 * MIB);
        assert_eq!(long_chunks, [(0, 4 * MIB), (4 * MIB, 4 * MIB), (8 * MIB, 4 * MIB)]);
    }
}
