//! The legal contents after a crash at one moment.
//! Owns: [`Expectation`]: legal contents per sector, rows in which a lost member is computed from wrong parity, members
//! that may be left out. Not here: the history of each sector (`oracle`).
//! Invariant: what a flush covered is the only legal content. Without force nothing is undefined.
//!
//! | a sector                                         | may read as                    |
//! |--------------------------------------------------|--------------------------------|
//! | not written, or its last write is flushed         | that one content               |
//! | written and not flushed, or being written        | old or any of the new contents |
//! | the same, forced start, its member lost or out   | anything                       |
//! | of a row being written, forced, its member lost  | anything                       |
//! | not flushed, its member lost, in a log's entry   | anything                       |
//!
//! With a partial parity log no start needs force. What an entry names as being written is all that a lost member may lose.

use super::content::Content;
use super::lab::{Lab, slots_of};
use super::recover::{Restarted, Start};
use super::script::Script;
use crate::reference::oracle::Oracle;
use uraid_block::SECTOR_BYTES;

/// What may be found after a crash at one moment.
#[derive(Clone, Default, Debug)]
pub struct Expectation {
    legal: Vec<Vec<Content>>,
    // Per row of sectors: whether something in it is not durable on every member.
    suspect: Vec<bool>,
    // Per sector: whether it is not durable on every member.
    uncertain: Vec<bool>,
    given_up: Vec<bool>,
    /// Slots whose member had failed or was missing before, so that it may be left out although it is present.
    pub may_miss: u32,
}

impl Expectation {
    /// For a crash now, in the middle of a script.
    pub fn new(lab: &Lab, script: &Script, oracle: &mut Oracle, may_miss: u32) -> Expectation {
        let size = lab.model.array_size();
        let mut legal = Vec::with_capacity(size as usize);
        for x in 0..size {
            let requests = script.groups.iter().flatten();
            let writers = (1u64..).zip(requests).filter(|(_, request)| request.sectors().contains(&x));
            let tags = std::iter::once(0).chain(writers.map(|(op, _)| op)).map(|op| lab.tag(x, op));
            let zero = lab.contents.borrow_mut().number(&[0; SECTOR_BYTES]);
            let mut may = |content: &Content| {
                let bytes = *lab.contents.borrow().bytes(*content);
                oracle.may_hold_after_crash(x, &bytes).is_ok()
            };
            legal.push(tags.chain([zero]).filter(&mut may).collect());
        }
        let mut suspect = vec![false; lab.model.rows.len()];
        let mut uncertain = vec![false; size as usize];
        if lab.model.is_parity() {
            for x in oracle.uncertain() {
                suspect[lab.model.row_of[x as usize]] = true;
                uncertain[x as usize] = true;
            }
        }
        Expectation { legal, suspect, uncertain, given_up: vec![false; size as usize], may_miss }
    }

    /// For a crash during this start.
    pub fn after_start(&self, lab: &Lab, start: &Start) -> Expectation {
        let mut next = self.clone();
        next.may_miss |= start.missing;
        for x in 0..next.given_up.len() {
            next.given_up[x] |= self.is_guessed(lab, x, start);
        }
        next
    }

    /// Whether a lost member's sector is computed from parity that the crash may have left half written.
    fn is_guessed(&self, lab: &Lab, x: usize, start: &Start) -> bool {
        let is_out = lab.model.copies[x].iter().all(|place| start.missing & 1 << place.slot != 0);
        let is_suspect = || lab.model.is_parity() && self.suspect[lab.model.row_of[x]];
        is_out && (start.is_forced && is_suspect() || start.logged.contains(&x) && self.uncertain[x])
    }

    /// Returns how many sectors were rightly undefined after a forced start, or what is wrong.
    pub fn judge(&self, lab: &Lab, lost: u32, outcome: &Restarted) -> Result<u64, String> {
        let known = lost | self.may_miss | lab.tiny.missing;
        let Start { is_forced, missing, .. } = outcome.start;
        if missing & !known != 0 {
            let left_out = slots_of(missing & !known);
            return Err(format!("members {left_out:?} had no fault and are left out"));
        }
        if is_forced && (!lab.model.is_parity() || missing == 0) {
            return Err("refused as dirty and degraded without a member missing".to_string());
        }
        if is_forced && lab.tiny.has_ppl {
            return Err("refused as dirty and degraded although it has a partial parity log".to_string());
        }
        for (x, content) in &outcome.mdadm_force {
            if !self.legal[*x].contains(content) && !self.given_up[*x] {
                let found = lab.describe(*content);
                return Err(format!("mdadm --force would take a member back whose sector {x} holds {found}"));
            }
        }
        let mut undefined = 0;
        for (x, content) in outcome.found.iter().enumerate() {
            if self.legal[x].contains(content) {
                continue;
            }
            if self.given_up[x] || self.is_guessed(lab, x, &outcome.start) {
                undefined += 1;
                continue;
            }
            let legal: Vec<String> = self.legal[x].iter().map(|content| lab.describe(*content)).collect();
            return Err(format!("sector {x} holds {}; legal are: {}", lab.describe(*content), legal.join("; ")));
        }
        Ok(undefined)
    }
}
