//! `fail` of a running array.
//! Owns: which members a caller means, what is answered and said. Not here: the steps (`engine`), how calls arrive
//! (`control_socket`).

use super::Overseer;
use crate::lines::lost::lost_line;
use serde_json::{Value, json};
use uraid_block::SlotSet;
use uraid_control::log::with_causes;
use uraid_control::protocol::RpcError;
use uraid_control::words::member_words;
use uraid_engine::{FailError, StaysFrozen};
use uraid_layout::Level;

impl Overseer {
    /// Declares members failed, each by path or slot; returns when that is recorded. If one of them is unknown, none is
    /// failed.
    pub(super) async fn fail(&self, members: &[String]) -> Result<Value, RpcError> {
        let (words, members): (Vec<String>, Vec<String>) =
            members.iter().cloned().partition(|member| *member == member_words::DETACHED);
        let (replacements, firsts): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| self.replacement_called(member).is_some());
        let named = firsts.into_iter().map(|member| self.slot_of(member)).collect::<Result<SlotSet, RpcError>>()?;
        let detached = if words.is_empty() { SlotSet::EMPTY } else { self.detached_slots().await };
        let slots = named.or(detached);
        self.say_changes();
        for member in replacements {
            self.fail_replacement(member).await?;
        }
        if !slots.is_empty() {
            self.is_failing.set(true);
            let outcome = self.array.fail(slots).await;
            self.is_failing.set(false);
            let outcome = outcome.map_err(|error| RpcError::refused(self.fail_text(slots, &error)));
            self.say_changes();
            outcome?;
        }
        let (picture, lost) = (self.status().picture(), self.status().without_source);
        let caution = (!lost.is_zero()).then(|| lost_line(lost, ""));
        let detached = detached.minus(named).iter().map(|slot| self.member_or_slot(slot));
        let members: Vec<String> = members.into_iter().chain(detached).collect();
        Ok(json!({ "array": self.name(), "members": members, "slots": picture, "caution": caution }))
    }

    /// The engine's words, with paths in place of slots.
    fn fail_text(&self, slots: SlotSet, error: &FailError) -> String {
        match error {
            FailError::NoMember { slot } => match self.member_in(*slot) {
                // The superblocks do not list it in its slot yet.
                Some(member) if self.status().members.iter().any(|state| state.slot() == Some(*slot)) => {
                    format!("{member}: takes its slot just now; try again")
                }
                Some(member) => format!("{member}: has failed already"),
                None => format!("{slot}: no member works there"),
            },
            FailError::Needed { left: _, working, needed } => {
                let members: Vec<String> = slots.iter().map(|slot| self.member_or_slot(slot)).collect();
                let members = members.join(", ");
                let why = match self.array.layout().level() {
                    // The number says nothing: it matters which members hold copies of the same data.
                    Level::Raid1 | Level::Raid10 => "some data would have no copy left".to_owned(),
                    Level::Linear | Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 => {
                        format!("{working} members work, {needed} are needed")
                    }
                };
                format!("the array cannot serve without {members}: {why}")
            }
            FailError::StaysFrozen(StaysFrozen::CannotWrite { slot, error }) => {
                let member = self.member_or_slot(*slot);
                format!(
                    "the array stays frozen: {member} would stay and cannot be written: make room for it, or name it in \
                     the same command ({error})"
                )
            }
            FailError::StaysFrozen(StaysFrozen::CannotRead { slot, error }) => {
                let member = self.member_or_slot(*slot);
                format!(
                    "the array stays frozen: {member} cannot be read where a write was left half done; stop it and start \
                     it again ({error})"
                )
            }
            FailError::StaysFrozen(StaysFrozen::LostData { slot }) => {
                let member = self.member_or_slot(*slot);
                format!(
                    "the array stays frozen: a write was left half done in a stripe that lacks the data of {member}; stop \
                     it and start it again"
                )
            }
            FailError::Frozen(_) => match self.frozen_over() {
                Some(reason) => format!("{error} ({reason})"),
                None => with_causes(error),
            },
            FailError::ReadOnly => self.is_read_only_text(),
            FailError::NotOpen | FailError::StaysFrozen(_) => with_causes(error),
        }
    }
}
