//! Block status: what a device knows of its sectors, as extents of `base:allocation`.
//! Owns: [`extents`] and its bounds. Not here: where the knowledge comes from (`Device::allocation`), bytes (`nbd`).
//! Invariant: what is called zero is zero in the device's own words; extents are whole blocks of the smallest size that
//! clients may ask for, and lie inside of what was asked. Spec: proto.md, "Metadata querying", "base:allocation".

use crate::outbox::EXTENTS_MAX;
use uraid_block::{Device, IoError, Range, Sector, Sectors};
use uraid_nbd::StatusExtent;
use uraid_nbd::metadata::{STATE_HOLE, STATE_ZERO};

/// So often a device is asked for one reply: the reply ends earlier than what was asked, and the client goes on there.
const QUESTIONS_MAX: usize = 1024;

/// The extents from the start of `range`: at least one, at most [`EXTENTS_MAX`], neighbours of different states.
/// `minimum`: the smallest block in bytes; `one`: the first extent only. What failed behind the first extent is left
/// to the next request.
pub(crate) async fn extents<D: Device>(
    device: &D,
    range: Range,
    minimum: u32,
    one: bool,
) -> Result<Vec<StatusExtent>, IoError> {
    assert!(!range.length.is_zero());
    let block = Sectors::from_bytes(minimum.into()).expect("the smallest block is whole sectors").0;
    let mut list: Vec<StatusExtent> = Vec::new();
    let mut rest = range;
    for _ in 0..QUESTIONS_MAX {
        let found = match device.allocation(rest).await {
            Ok(found) => found,
            Err(error) if list.is_empty() => return Err(error),
            Err(_) => break,
        };
        assert!(!found.length.is_zero() && found.length <= rest.length);
        // A block that is only in part zero counts as data.
        let whole = found.length.0 / block * block;
        let is_zero = found.is_zero && whole > 0;
        let length = if is_zero { whole } else { found.length.0.next_multiple_of(block).min(rest.length.0) };
        let state = if is_zero { STATE_HOLE | STATE_ZERO } else { 0 };
        let count = list.len();
        match list.last_mut() {
            Some(last) if last.state == state => last.length += Sectors(length).bytes(),
            Some(_) if one || count == EXTENTS_MAX => break,
            Some(_) | None => list.push(StatusExtent { length: Sectors(length).bytes(), state }),
        }
        if length == rest.length.0 {
            break;
        }
        rest = Range::new(Sector(rest.start.0 + length), Sectors(rest.length.0 - length));
    }
    assert!(!list.is_empty());
    Ok(list)
}
