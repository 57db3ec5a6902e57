//! `readonly` and `readwrite` of a running array.
//! Owns: which arrays take them, what is answered. Not here: the steps (`engine`), how calls arrive (`control_socket`).

use super::Overseer;
use serde_json::{Value, json};
use uraid_control::names;
use uraid_control::protocol::RpcError;
use uraid_engine::AccessError;

impl Overseer {
    /// Takes no more writes, or takes them again. Returns when it is so.
    pub(super) async fn change_access(&self, is_read_only: bool) -> Result<Value, RpcError> {
        let (name, stack) = (self.name(), &self.session.setup().stack);
        if stack.is_member(self.index) {
            let text = format!("{name}: is a member of an array, which writes to it; make that array read-only");
            return Err(RpcError::refused(text));
        }
        if stack.array(self.index).plan.read_only.is_some() && is_read_only {
            return Ok(json!({ "array": name, "read_only": true, "changed": false }));
        }
        self.say_changes();
        let outcome = match is_read_only {
            true => self.array.become_read_only().await,
            false => self.array.become_writable().await,
        };
        self.say_changes();
        let is_changed = outcome.map_err(|error| RpcError::refused(format!("{name}: {}", self.access_text(&error))))?;
        Ok(json!({ "array": name, "read_only": is_read_only, "changed": is_changed }))
    }

    fn access_text(&self, error: &AccessError) -> String {
        match error {
            AccessError::OpenedReadOnly => {
                "it was started read-only; stop it, and serve it again without --read-only".to_owned() + &self.why()
            }
            AccessError::Frozen(_) => match self.frozen_over() {
                Some(reason) => format!("{error} ({reason})"),
                // It was read-only then, so nothing is lost.
                None => format!("{error}: too many members failed while it was read-only; stop it and serve it again"),
            },
            AccessError::NotOpen => error.to_string(),
        }
    }

    /// What a command that changes a read-only array is told.
    pub(super) fn is_read_only_text(&self) -> String {
        let name = names::printable(self.name());
        let is_by_command = self.session.setup().stack.array(self.index).plan.read_only.is_none();
        let help = match is_by_command {
            true => format!(": `uraid readwrite {name}` lets it take writes again"),
            false => format!(", it was started so{}", self.why()),
        };
        format!("{name}: the array is read-only{help}")
    }

    /// Why it was started read-only, unless it was asked for.
    fn why(&self) -> String {
        let reason = self.session.setup().stack.read_only_text(self.index);
        reason.map_or_else(String::new, |reason| format!(" ({reason})"))
    }
}
