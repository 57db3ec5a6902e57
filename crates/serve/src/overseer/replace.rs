//! `replace` of a running array, and `fail` of a member that replaces another one.
//! Owns: which members a caller names, what is answered. Not here: the steps (`engine`), how calls arrive (`control_socket`).

use super::Overseer;
use serde_json::{Value, json};
use uraid_block::Slot;
use uraid_control::log::with_causes;
use uraid_control::names;
use uraid_control::protocol::RpcError;
use uraid_engine::{MemberState, ReplaceError};

impl Overseer {
    /// Begins to copy members to spares: `with`, in the same order, or any. Returns when the superblocks say so.
    pub(super) async fn replace_members(&self, members: &[String], with: &[String]) -> Result<Value, RpcError> {
        if with.len() > members.len() {
            let (with, members) = (with.len(), members.len());
            return Err(RpcError::refused(format!("{with} spares are given for {members} members")));
        }
        let slots = members.iter().map(|member| self.slot_of(member)).collect::<Result<Vec<Slot>, RpcError>>()?;
        let spares = with.iter().map(|spare| self.spare_called(spare)).collect::<Result<Vec<usize>, RpcError>>()?;
        let mut taken = Vec::new();
        for (at, (slot, member)) in slots.into_iter().zip(members).enumerate() {
            let outcome = self.array.replace(slot, spares.get(at).copied()).await;
            self.say_changes();
            let spare = outcome.map_err(|error| self.not_replaced(member, with.get(at), &error))?;
            taken.push(self.member_paths(spare).path.clone());
        }
        Ok(json!({ "array": self.name(), "members": members, "with": taken, "slots": self.status().picture() }))
    }

    fn not_replaced(&self, member: &str, with: Option<&String>, error: &ReplaceError) -> RpcError {
        let name = self.name();
        let text = match (error, with) {
            (ReplaceError::NotASpare, Some(spare)) => format!("{spare}: {error}"),
            (ReplaceError::NoSpare, _) => format!("{member}: {error}: `uraid add {name} DEVICE`"),
            (ReplaceError::Frozen(_), _) => match self.frozen_over() {
                Some(reason) => format!("{name}: {error} ({reason})"),
                None => format!("{name}: {}", with_causes(error)),
            },
            (ReplaceError::ReadOnly, _) => self.is_read_only_text(),
            (ReplaceError::NoRedundancy { .. } | ReplaceError::NotOpen, _) => {
                format!("{name}: {}", with_causes(error))
            }
            (
                ReplaceError::NotInSync { .. }
                | ReplaceError::Already
                | ReplaceError::NotASpare
                | ReplaceError::Unrecorded
                | ReplaceError::Bitmap(_)
                | ReplaceError::Log(_)
                | ReplaceError::Failed(_),
                _,
            ) => format!("{member}: {}", with_causes(error)),
        };
        RpcError::refused(text)
    }

    /// The spare that a caller names.
    fn spare_called(&self, spare: &str) -> Result<usize, RpcError> {
        let unknown = || {
            let array = names::printable(self.name());
            let text = format!("{spare}: is no spare of the array: `uraid add {array} {spare}` comes first");
            RpcError::new(RpcError::NO_MEMBER, text)
        };
        let index = self.member_called(self.index, spare).ok_or_else(unknown)?;
        match self.array.status().members[index] {
            MemberState::Spare => Ok(index),
            MemberState::Active(_) | MemberState::Recovering { .. } | MemberState::Replacing { .. } => {
                Err(RpcError::refused(format!("{spare}: works in the array, and is no spare")))
            }
            MemberState::Faulty { .. } => Err(RpcError::refused(format!("{spare}: has failed, and is no spare"))),
            MemberState::Removed => Err(RpcError::refused(format!("{spare}: was removed, and is no spare"))),
        }
    }

    /// The slot of a member that is named by its path and replaces another one.
    pub(super) fn replacement_called(&self, member: &str) -> Option<Slot> {
        if member.parse::<u16>().is_ok() {
            return None;
        }
        let index = self.member_called(self.index, member)?;
        match self.array.status().members[index] {
            MemberState::Replacing { slot, .. } => Some(slot),
            MemberState::Active(_)
            | MemberState::Recovering { .. }
            | MemberState::Spare
            | MemberState::Faulty { .. }
            | MemberState::Removed => None,
        }
    }

    /// Ends a replacement: the new member fails, and the old one stays.
    pub(super) async fn fail_replacement(&self, member: &str) -> Result<(), RpcError> {
        let Some(slot) = self.replacement_called(member) else {
            return Err(RpcError::refused(format!("{member}: does not replace another member any more")));
        };
        let outcome = self.array.fail_replacement(slot).await;
        self.say_changes();
        outcome.map_err(|error| RpcError::refused(format!("{member}: {}", with_causes(&error))))
    }
}
