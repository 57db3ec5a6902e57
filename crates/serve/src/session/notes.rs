//! The history of the arrays of a process.
//! Owns: entries of an array, the mark of maintenance. Not here: what happens (`overseer`, `life`), writing
//! (`uraid_control::history`).
//! Invariant: nothing waits for an entry to be written.

use super::Session;
use crate::stack::StackError;
use uraid_arrays::ArrayIndex;
use uraid_control::history::{self, Actor, Entry, Event};
use uraid_control::log::with_causes;
use uraid_format::uuid;

impl Session {
    /// An entry of an array, to be noted.
    pub(crate) fn entry(&self, index: ArrayIndex, event: Event, actor: Actor, text: &str) -> Entry {
        let array = self.setup().stack.array(index);
        let mut entry = Entry::new(&array.name, &self.uuid_text(index), event, actor, text);
        entry.maintenance = self.runs[index.0].maintenance.get().is_some();
        entry
    }

    /// Notes what an array did by itself.
    pub(crate) fn note(&self, index: ArrayIndex, event: Event, text: &str) {
        history::note(self.entry(index, event, Actor::Engine, text));
    }

    /// Notes that an array is stopped, and why.
    pub(crate) fn note_stop(&self, index: ArrayIndex, error: Option<&StackError>) {
        let reason = self.stop_reason.borrow();
        let text = match error {
            None => format!("stopped ({reason})"),
            Some(error) => format!("not stopped cleanly ({reason}): {}", with_causes(error)),
        };
        self.note(index, Event::Stopped, &text);
    }

    pub(crate) fn uuid_text(&self, index: ArrayIndex) -> String {
        uuid::text(&self.setup().stack.array(index).plan.template.set_uuid)
    }
}
