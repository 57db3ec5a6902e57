//! What a row logs before it is written, in an array with a partial parity log.
//! Owns: the entry and the partial parity of an interval, how long the log keeps it. Not here: the log (`ppl`).
//! Invariant: an interval that is logged covers data chunks that follow one another. The log keeps it until no write of it
//! is under way, and the superblocks record the members that missed it.

use super::RowIo;
use crate::row::parity::{NewParity, take_out};
use crate::row::plan::Interval;
use crate::shard::buffers;
use crate::shard::mail::{Call, LogOutcome, LogRequest, Mail, Message, STEWARD};
use crate::shard::shared::Shared;
use crate::state::view::View;
use crate::words::mark::{self, Mark};
use crate::{Pool, World};
use std::rc::Rc;
use uraid_block::{ArraySector, IoError, Sectors, Slot, WritePieces};
use uraid_format::ppl::{PplEntry, parity_checksum};
use uraid_layout::{Row, RowMap};

/// Keeps an interval in the log until it is dropped.
pub(super) struct Logged<W: World> {
    shared: Rc<Shared<W>>,
    slot: Slot,
}

impl<W: World> Drop for Logged<W> {
    fn drop(&mut self) {
        self.shared.world.post(STEWARD, Mail(Message::Written(self.slot)));
    }
}

impl<W: World> RowIo<W> {
    /// Logs an interval, durably, before it is written. `None`: it need not be.
    pub(super) async fn log(
        &self,
        map: &RowMap,
        interval: &Interval,
        parity: &NewParity,
        view: &View,
    ) -> Result<Option<Logged<W>>, IoError> {
        let at = map.start + interval.start;
        // What the resync has not reached is made consistent by it: until then the log is not relied upon.
        if !self.shared.has_log || !self.is_in_sync(at, interval.length) {
            return Ok(None);
        }
        if !view.writable().contains(map.parity) {
            // The member may have old parity, and return with it: it must be known to have missed this write.
            if !view.is_recorded {
                let _recorded = self.shared.settle_planned(None, &[]).await?;
            }
            return Ok(None);
        }
        let parity = self.partial_parity(map, interval, parity).await;
        let first = interval.new.first().expect("something is written").data;
        let data_bytes = interval.length.len_bytes() * interval.new.len();
        self.log_stretch(map.row, map.parity, (first, interval.start), data_bytes, parity).await
    }

    /// Logs a stretch of `data_bytes` of a row's data, from a place in one of its data chunks on, with its partial parity.
    /// The data and the parity are not written yet. `None`: the parity has no member, and the superblocks say so.
    pub(super) async fn log_stretch(
        &self,
        row: Row,
        slot: Slot,
        (data, start): (usize, Sectors),
        data_bytes: usize,
        parity: WritePieces,
    ) -> Result<Option<Logged<W>>, IoError> {
        let sector = row.0 * self.layout().stripe().0 + data as u64 * self.layout().chunk().0 + start.0;
        let entry = PplEntry {
            data_sector: ArraySector(sector),
            parity_bytes: parity.bytes() as u32,
            data_bytes: data_bytes as u32,
            parity_slot: slot.0.into(),
            checksum: parity_checksum(parity.iter().next().map_or(&[], |piece| &piece[..])),
        };
        assert!(parity.count() <= 1, "the sum is of all of the partial parity");
        let request = LogRequest { slot, entry, parity };
        match self.shared.calls.call(STEWARD, Call::LogParity(request)).await.logged()? {
            LogOutcome::Logged => Ok(Some(Logged { shared: self.shared.clone(), slot })),
            LogOutcome::NoMember => {
                mark::hit(Mark::LogNoMember);
                Ok(None)
            }
        }
    }

    /// The runs of data chunks that follow one another, if there are several: each is written by itself then.
    pub(super) fn runs_to_log(&self, interval: &Interval) -> Option<Vec<Interval>> {
        let follows = |one: &[crate::row::plan::Segment]| one[0].data + 1 == one[1].data;
        if !self.shared.has_log || interval.new.windows(2).all(follows) {
            return None;
        }
        mark::hit(Mark::LogRunsApart);
        let mut runs: Vec<Interval> = Vec::new();
        for segment in &interval.new {
            match runs.last_mut() {
                Some(run) if run.new.last().is_some_and(|last| last.data + 1 == segment.data) => {
                    run.new.push(segment.clone());
                }
                Some(_) | None => {
                    let new = smallvec::smallvec![segment.clone()];
                    runs.push(Interval {
                        start: interval.start,
                        length: interval.length,
                        new,
                        is_hole: interval.is_hole,
                    });
                }
            }
        }
        Some(runs)
    }

    /// The xor of the data that is not to be written: the new parity without the new data. Nothing if all is written.
    async fn partial_parity(&self, map: &RowMap, interval: &Interval, parity: &NewParity) -> WritePieces {
        if interval.new.len() == map.data.len() {
            return WritePieces::new();
        }
        let mut partial = buffers::take_contiguous(&self.shared.world, Pool::Row, interval.length).await;
        parity.p.as_ref().expect("the parity is written").copy_to(&mut partial);
        interval.new.iter().for_each(|new| take_out(&mut partial, &new.from));
        buffers::one_piece(partial).freeze()
    }
}
