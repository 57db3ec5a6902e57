//! What clients are told of an array as a device.
//! Owns: its limits and abilities, by its shape and its members. Not here: the size and the layout (`state::shape`).

use crate::World;
use crate::state::shape::Shape;
use uraid_block::{Device, Geometry, Sectors};

/// The largest request a client is told to send.
const IO_MAX_BYTES: u64 = 32 << 20;

pub(super) fn geometry_of<W: World>(shape: &Shape, members: &[W::Member], has_log: bool) -> Geometry {
    let layout = shape.layout();
    let stripe = layout.stripe();
    let largest = IO_MAX_BYTES / uraid_block::SECTOR_BYTES as u64;
    // A client that cuts at the largest request then cuts on stripe edges: 24 sectors a stripe -> 65520, not 65536.
    let io_max = if stripe.0 == 0 || stripe.0 > largest { largest } else { largest / stripe.0 * stripe.0 };
    // A spare may take a slot later.
    let active = || members.iter().map(Device::geometry);
    let fast_holes = !has_log && active().all(|member| member.fast_holes);
    let fast_zeroes = !has_log && active().all(|member| member.fast_zeroes);
    // A discard of a parity level is a hole of whole rows, so that parity stays right.
    let (granularity, is_certain) = match layout.level().is_parity() {
        true => (stripe, fast_holes),
        false => (Sectors(1), true),
    };
    let can_discard = is_certain && active().all(|member| !member.discard_granularity.is_zero());
    Geometry {
        size: shape.size(),
        logical_block: Sectors(1),
        physical_block: active().map(|member| member.physical_block).max().unwrap_or(Sectors(1)),
        chunk: layout.chunk(),
        stripe,
        io_max: Sectors(io_max),
        segments_max: 1024,
        discard_granularity: if can_discard { granularity } else { Sectors::ZERO },
        fast_holes,
        fast_zeroes,
        volatile_cache: true,
    }
}
