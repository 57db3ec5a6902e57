//! `maintenance` of a running array: no spare starts for a while.
//! Owns: its begin and its end, also by itself. Not here: what spares do (`engine`), the mark in the history (`session`).
//! Invariant: it ends after the time that was announced, whatever the clock does meanwhile; a stop ends it, too.

use super::Overseer;
use crate::session::Session;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::ArrayIndex;
use uraid_control::dates;
use uraid_control::history::Event;
use uraid_control::log::warn;
use uraid_control::protocol::RpcError;

/// The longest.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

impl Overseer {
    /// Begins it, changes its end, or ends it.
    pub(super) fn set_maintenance(&self, seconds: u64) -> Result<Value, RpcError> {
        let time = Duration::from_secs(seconds);
        if time > TIME_MAX {
            let days = TIME_MAX.as_secs() / (24 * 3600);
            return Err(RpcError::refused(format!("{}: maintenance is at most {days} days", self.name())));
        }
        let was_on = self.maintenance_until().is_some();
        if time.is_zero() {
            end(&self.session, self.index);
            return Ok(json!({ "array": self.name(), "until": null, "changed": was_on }));
        }
        let until = dates::now().saturating_add(seconds);
        self.session.runs[self.index.0].maintenance.set(Some(until));
        self.array.hold_spares(true);
        let text = format!("maintenance until {}: no spare starts", dates::stamp(until));
        warn(&format!("{}: {text}", self.name()));
        self.session.note(self.index, Event::MaintenanceBegan, &text);
        let (session, index) = (self.session.clone(), self.index);
        let local = session.local();
        local.clone().spawn(async move {
            local.sleep(time).await;
            // A later call may have given it another end.
            if session.runs[index.0].maintenance.get() == Some(until) {
                end(&session, index);
            }
        });
        Ok(json!({ "array": self.name(), "until": until, "changed": true }))
    }

    /// Until when, in seconds since 1970.
    pub(super) fn maintenance_until(&self) -> Option<u64> {
        self.session.runs[self.index.0].maintenance.get()
    }
}

fn end(session: &Rc<Session>, index: ArrayIndex) {
    if session.runs[index.0].maintenance.take().is_none() {
        return;
    }
    session.array(index).hold_spares(false);
    warn(&format!("{}: maintenance has ended: spares start again", session.setup().stack.array(index).name));
    session.note(index, Event::MaintenanceEnded, "maintenance has ended: spares start again");
}
