//! Exports, and what clients are told about them.
//! Owns: [`Export`], [`Offer`]. Not here: sending it (`handshake`), checking requests against it (`request`).
//! Invariant: the offer is legal NBD for any geometry. Spec: proto.md, "Block size constraints".

use uraid_block::{Geometry, Sectors};
use uraid_nbd::words::PAYLOAD_BYTES_MAX;
use uraid_nbd::{BlockSizes, ExportInfo, TransmissionFlags};

/// One export of a server.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its unique name; a client that gives no name gets the first export.
    pub name: String,
    /// A description for users, possibly empty.
    pub description: String,
    /// Whether writes are refused. An export of a device that is read-only now is read-only for clients that come now.
    pub read_only: bool,
}

/// What clients are told, and what their requests are checked against.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) info: ExportInfo,
    pub(crate) sizes: BlockSizes,
    /// The largest read or write that is served, in bytes. A client that did not ask for block sizes may exceed
    /// `sizes.maximum`, which is rounded down to whole stripes.
    pub(crate) payload_max: u32,
    /// Whether write-zeroes costs no more than a trim, if it may make holes.
    pub(crate) fast_holes: bool,
    /// The same if it may not.
    pub(crate) fast_zeroes: bool,
}

impl Offer {
    /// The offer for a device, with an arena of `arena_bytes` for the clients' data. Panics if the arena cannot hold
    /// two small requests, or the device is larger than 2^63 bytes. No client can change either.
    pub(crate) fn new(export: &Export, geometry: &Geometry, arena_bytes: usize) -> Offer {
        let minimum = geometry.logical_block.bytes().max(512);
        let minimum = u32::try_from(minimum).expect("a logical block is some KiB");
        assert!(minimum.is_power_of_two() && minimum <= 64 << 10);
        // Half of the arena, so that one request never takes it all.
        let payload_max = u64::from(PAYLOAD_BYTES_MAX).min(geometry.io_max.bytes()).min(arena_bytes as u64 / 2);
        let payload_max = payload_max as u32 / minimum * minimum;
        assert!(payload_max >= 4096.max(minimum) && payload_max <= PAYLOAD_BYTES_MAX);
        assert!(payload_max.is_multiple_of(minimum), "the largest request is whole blocks");
        let offer = Offer {
            name: export.name.clone(),
            description: export.description.clone(),
            info: ExportInfo { size: 0, flags: flags(export.read_only, !geometry.discard_granularity.is_zero()) },
            sizes: sizes(geometry, minimum, payload_max),
            payload_max,
            fast_holes: geometry.fast_holes,
            fast_zeroes: geometry.fast_zeroes,
        };
        offer.with_size(geometry.size)
    }

    /// The same of a device that has this size now.
    pub(crate) fn with_size(mut self, size: Sectors) -> Offer {
        let minimum = u64::from(self.sizes.minimum);
        self.info.size = size.bytes() / minimum * minimum;
        assert!(i64::try_from(self.info.size).is_ok());
        self
    }

    /// The same, read-only if it is not yet and `is_read_only`.
    pub(crate) fn with_read_only(mut self, is_read_only: bool) -> Offer {
        self.info.flags = self.info.flags.with_if(is_read_only, TransmissionFlags::READ_ONLY);
        self
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.info.flags.contains(TransmissionFlags::READ_ONLY)
    }
}

fn flags(read_only: bool, takes_trim: bool) -> TransmissionFlags {
    TransmissionFlags::HAS_FLAGS
        | TransmissionFlags::SEND_FLUSH
        | TransmissionFlags::SEND_FUA.with_if(takes_trim, TransmissionFlags::SEND_TRIM)
        | TransmissionFlags::SEND_WRITE_ZEROES
        | TransmissionFlags::SEND_FAST_ZERO
        | TransmissionFlags::SEND_DF
        | TransmissionFlags::SEND_CACHE
        | TransmissionFlags::CAN_MULTI_CONN.with_if(read_only, TransmissionFlags::READ_ONLY)
}

/// Example: 6 data members with chunks of 64 KiB. The stripe, 384 KiB, is no power of two, so 64 KiB is preferred, but
/// the maximum is 85 whole stripes, so that the cuts of a long transfer fall on stripe edges.
fn sizes(geometry: &Geometry, minimum: u32, payload_max: u32) -> BlockSizes {
    let (stripe, chunk) = (geometry.stripe.bytes(), geometry.chunk.bytes());
    let maximum = match u64::from(payload_max).checked_div(stripe) {
        Some(stripes) if stripes > 0 => stripes * stripe,
        Some(_) | None => payload_max.into(),
    };
    let maximum = maximum as u32 / minimum * minimum;
    let can_prefer = |bytes: u64| bytes.is_power_of_two() && (minimum.into()..=maximum.into()).contains(&bytes);
    let preferred = [stripe, chunk].into_iter().find(|&bytes| can_prefer(bytes)).unwrap_or(4096.max(minimum.into()));
    let sizes = BlockSizes { minimum, preferred: preferred as u32, maximum };
    assert!(sizes.is_legal());
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sectors;

    fn geometry(chunk_kib: u64, stripe_kib: u64) -> Geometry {
        Geometry {
            size: Sectors(1 << 21),
            logical_block: Sectors(1),
            physical_block: Sectors(8),
            chunk: Sectors(chunk_kib * 2),
            stripe: Sectors(stripe_kib * 2),
            io_max: Sectors(1 << 32),
            segments_max: 1024,
            discard_granularity: Sectors(0),
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        }
    }

    fn offered(geometry: &Geometry) -> (u32, u32, u32) {
        let export = Export { name: "md0".into(), description: String::new(), read_only: false };
        let sizes = Offer::new(&export, geometry, 256 << 20).sizes;
        (sizes.minimum, sizes.preferred, sizes.maximum)
    }

    #[test]
    fn trim_is_offered_where_the_device_takes_it() {
        let export = Export { name: "md0".into(), description: String::new(), read_only: false };
        for granularity in [0, 1] {
            let geometry = Geometry { discard_granularity: Sectors(granularity), ..geometry(64, 256) };
            let flags = Offer::new(&export, &geometry, 256 << 20).info.flags;
            assert_eq!(flags.contains(TransmissionFlags::SEND_TRIM), granularity == 1);
        }
    }

    #[test]
    fn preferred_is_the_stripe_else_the_chunk_else_a_page_and_maximum_whole_stripes() {
        assert_eq!(offered(&geometry(64, 256)), (512, 256 << 10, 32 << 20));
        assert_eq!(offered(&geometry(64, 384)), (512, 64 << 10, (85 * 384) << 10));
        assert_eq!(offered(&geometry(0, 0)), (512, 4096, 32 << 20));
        assert_eq!(offered(&geometry(12, 36)), (512, 4096, ((32 << 10) / 36 * 36) << 10));
        assert_eq!(offered(&geometry(64 << 10, 256 << 10)), (512, 4096, 32 << 20), "a stripe above 32 MiB");
        assert_eq!(offered(&Geometry { logical_block: Sectors(8), ..geometry(64, 192) }).0, 4096);
    }

    #[test]
    fn what_is_offered_is_legal_for_any_chunk_and_number_of_members() {
        for chunk_kib in [1, 4, 12, 64, 100, 512, 1024, 8192, 40_000] {
            for data in 1..=64 {
                for arena in [64 << 10, 20 << 20, 1 << 30] {
                    let export = Export { name: String::new(), description: String::new(), read_only: true };
                    let offer = Offer::new(&export, &geometry(chunk_kib, chunk_kib * data), arena);
                    assert!(offer.sizes.is_legal());
                    assert!(offer.sizes.preferred <= offer.sizes.maximum);
                    assert!(offer.sizes.maximum <= offer.payload_max && offer.is_read_only());
                    assert!(offer.payload_max as usize <= arena / 2, "a request waits for memory that there is");
                }
            }
        }
    }
}
