//! Memory with a simulated cost per request: it shows the cost of splitting and the gain of merging.
//! Owns: [`TrialMember`]. Not here: the cost (`cost`), waiting until the time has passed (`ring::trials`).

use super::claim::{Backing, Claim};
use crate::ring::{Kind, Trial};
use std::sync::Arc;
use uraid_block::Tick;

/// The most bytes that one Linux system call transfers.
const TRANSFER_MAX: usize = 0x7fff_f000;

/// A claimed member with a cost; its requests bypass the ring.
pub(super) struct TrialMember {
    claim: Arc<Claim>,
}

impl TrialMember {
    /// `None` for a member without a cost.
    pub(super) fn of(claim: &Arc<Claim>) -> Option<Box<dyn Trial>> {
        claim.completion.cost().is_some().then(|| Box::new(TrialMember { claim: claim.clone() }) as Box<dyn Trial>)
    }
}

impl Trial for TrialMember {
    fn due(&self, now: Tick, bytes: u64) -> Tick {
        self.claim.completion.cost().expect("looked at when this was made").due(now, bytes)
    }

    unsafe fn run(&self, kind: &Kind, segments: &[libc::iovec]) -> i32 {
        let bytes: usize = segments.iter().map(|segment| segment.iov_len).sum();
        // Like Linux, transfer at most this much at once; the caller continues.
        let count = bytes.min(TRANSFER_MAX) as i32;
        let memory = match &self.claim.backing {
            Backing::Memory(memory) => Some(memory),
            Backing::Null => None,
            Backing::File { .. } => panic!("a file takes the time it takes"),
        };
        match kind {
            Kind::Read { at } | Kind::Write { at, .. } if self.claim.bad.check_bytes(*at, bytes as u64).is_err() => {
                -libc::EIO
            }
            Kind::Read { at } => {
                let Some(memory) = memory else { return count };
                let mut at = *at;
                for segment in segments {
                    // SAFETY: the caller's promise: a live buffer that nothing else uses.
                    let into = unsafe { std::slice::from_raw_parts_mut(segment.iov_base.cast(), segment.iov_len) };
                    memory.read(at, into);
                    at += segment.iov_len as u64;
                }
                count
            }
            Kind::Write { at, .. } => {
                let Some(memory) = memory else { return count };
                let mut at = *at;
                for segment in segments {
                    // SAFETY: the caller's promise: a live buffer that nothing writes.
                    let from = unsafe { std::slice::from_raw_parts(segment.iov_base.cast(), segment.iov_len) };
                    memory.write(at, from);
                    at += segment.iov_len as u64;
                }
                count
            }
            Kind::Sync => 0,
            Kind::Allocate { at, length, .. } => memory.map_or(0, |memory| memory.zero(*at, *length)),
            Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } | Kind::Call(_) => panic!("not for a member"),
        }
    }
}
