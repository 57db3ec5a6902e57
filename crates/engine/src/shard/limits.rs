//! What clients are told of an array as a device.
//! Owns: [`Limits`], what follows from them and the shape. Not here: the size and the layout (`state::shape`).
//! Invariant: nothing here changes with the shape: each answer is by that of its moment.

use crate::state::shape::Shape;
use uraid_block::{Device, Geometry, Sectors};

/// The largest request a client is told to send.
const IO_MAX_BYTES: u64 = 32 << 20;

/// What the members of an array can do, as far as all of them can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    physical_block: Sectors,
    can_discard: bool,
    fast_holes: bool,
    fast_zeroes: bool,
}

impl Limits {
    pub(crate) fn of(members: &[impl Device], has_log: bool) -> Limits {
        // A spare may take a slot later.
        let active = || members.iter().map(Device::geometry);
        Limits {
            physical_block: active().map(|member| member.physical_block).max().unwrap_or(Sectors(1)),
            can_discard: active().all(|member| !member.discard_granularity.is_zero()),
            fast_holes: !has_log && active().all(|member| member.fast_holes),
            fast_zeroes: !has_log && active().all(|member| member.fast_zeroes),
        }
    }

    /// The geometry of an array of such members that has this shape.
    pub(crate) fn geometry(&self, shape: &Shape) -> Geometry {
        let (layout, Limits { physical_block, can_discard, fast_holes, fast_zeroes }) = (shape.layout(), *self);
        let stripe = layout.stripe();
        let largest = IO_MAX_BYTES / uraid_block::SECTOR_BYTES as u64;
        // A client that cuts at the largest request then cuts on stripe edges: 24 sectors a stripe -> 65520, not 65536.
        let io_max = if stripe.0 == 0 || stripe.0 > largest { largest } else { largest / stripe.0 * stripe.0 };
        // A discard of a parity level is a hole of whole rows, so that parity stays right.
        let (granularity, is_certain) = match layout.level().is_parity() {
            true => (stripe, fast_holes),
            false => (Sectors(1), true),
        };
        Geometry {
            size: shape.size(),
            logical_block: Sectors(1),
            physical_block,
            chunk: layout.chunk(),
            stripe,
            io_max: Sectors(io_max),
            segments_max: 1024,
            discard_granularity: if is_certain && can_discard { granularity } else { Sectors::ZERO },
            fast_holes,
            fast_zeroes,
            volatile_cache: true,
        }
    }
}
