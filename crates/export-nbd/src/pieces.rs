//! Trim and write-zeroes in pieces: one request may cover the whole device.
//! Owns: how long a piece is and where it ends, what happens between two pieces, how much of this one connection may
//! have under way. Not here: what a piece does (`Device`), replies (`connection`).
//! Invariant: a request that has to end early ends at a piece, with an error; a request with FUA is flushed behind its
//! last piece, before its answer.

use crate::connection::Connection;
use crate::machine::{Machine, Transport};
use uraid_block::local::{Either, race, yield_now};
use uraid_block::{Device, ErrorKind, Fua, Geometry, IoError, Range, Sector, Sectors};

/// The longest piece of zeroes. 4 MiB: a member that has to write them, at 100 MB/s, is done after 40 ms.
const ZEROES_MAX: Sectors = Sectors(4 << 11);
/// The longest piece of a trim, which moves no data.
const TRIM_MAX: Sectors = Sectors(32 << 11);
/// Bytes that one connection may have under way in trims and write-zeroes. A request counts with its length, at most
/// with [`ZEROES_MAX`]: two long requests run at a time, so that a device does not idle between the pieces of one.
pub(crate) const CLEARING_BYTES_MAX: usize = 2 * ZEROES_MAX.len_bytes();

/// What a request makes of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clear {
    Trim,
    Zeroes,
}

/// What a request of this length counts for in [`CLEARING_BYTES_MAX`].
fn cost(length: Sectors) -> usize {
    length.min(ZEROES_MAX).len_bytes()
}

/// Does the whole range, piece by piece, and a flush behind it if `fua` asks for one. [`ErrorKind::Stopping`] when the
/// connection ends before the last piece.
pub(crate) async fn clear<M: Machine, T: Transport, D: Device + 'static>(
    connection: &Connection<M, T, D>,
    device: &D,
    what: Clear,
    range: Range,
    fua: Fua,
) -> Result<(), IoError> {
    // The others of this connection wait here; other connections do not.
    let _permit = match race(connection.closes(), connection.clearing.acquire(cost(range.length))).await {
        Either::Left(()) => return Err(ErrorKind::Stopping.into()),
        Either::Right(permit) => permit,
    };
    let mut rest = range;
    while !rest.length.is_zero() {
        if connection.is_given_up() {
            return Err(ErrorKind::Stopping.into());
        }
        let piece = first_piece(device.geometry(), what, rest);
        let outcome = match what {
            Clear::Trim => device.discard(piece).await,
            Clear::Zeroes => device.write_zeroes(piece).await,
        };
        match (what, outcome) {
            (Clear::Trim | Clear::Zeroes, Ok(())) => {}
            // A trim is a hint: a device that cannot take it has done its part.
            (Clear::Trim, Err(IoError { kind: ErrorKind::Unsupported, .. })) => break,
            (Clear::Trim | Clear::Zeroes, Err(error)) => return Err(error),
        }
        rest = Range::between(piece.end(), rest.end());
        // A device that answers at once would keep the shard for this request alone.
        yield_now().await;
    }
    match fua {
        // Behind all pieces, so that it covers each of them.
        Fua::Yes => device.flush().await,
        Fua::No => Ok(()),
    }
}

/// The piece at the start of `rest`. It ends where a stripe ends, if a stripe is no longer than a piece or its chunks
/// are not: so parity is not computed twice for the stripe that a cut goes through.
///
/// ```text
///   stripe 3 MiB, rest from 1 MiB on:   1..3  3..6  6..9  ...
/// ```
fn first_piece(geometry: &Geometry, what: Clear, rest: Range) -> Range {
    let longest = match what {
        Clear::Trim => TRIM_MAX,
        Clear::Zeroes => ZEROES_MAX,
    };
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
            let piece = first_piece(&geometry, what, rest);
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
