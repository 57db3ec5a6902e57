//! What the history says of a running array beside the lines of its log: passes and commands.
//! Owns: when a pass began and how it ended, the entry of a command. Not here: the lines (`watch`), checks (`checking`).
//! Invariant: a call that changes nothing has no entry.

use super::Overseer;
use super::seen::PassSeen;
use serde_json::{Value, json};
use uraid_control::history::{self, Actor, Event};
use uraid_control::protocol::{Method, RpcError};
use uraid_engine::view::Gate;
use uraid_engine::{PassKind, Progress, Status};

impl Overseer {
    /// Notes the pass that ended since the last call. What is returned is what [`Overseer::note_begin`] takes when the
    /// changes of members are noted: a recovery begins behind the failure that it mends.
    pub(super) fn note_end(&self, now: &Status) -> PassSeen {
        let seen = self.pass_seen.replace(PassSeen { pass: now.pass, usable: now.usable.count() });
        if now.gate != Gate::Closed {
            ended(&seen, now).iter().for_each(|(event, text)| self.session.note(self.index, *event, text));
        }
        seen
    }

    /// Notes the pass that began.
    pub(super) fn note_begin(&self, seen: &PassSeen, now: &Status) {
        if let Some(kind) = begun(seen, now) {
            self.session.note(self.index, Event::PassStarted, &format!("{} began", kind.names().word));
        }
    }

    /// Notes what somebody told the array to do, and what came of it.
    pub(crate) fn note_command(&self, actor: Actor, method: &Method, outcome: &Result<Value, RpcError>) {
        if !method.is_change() {
            return;
        }
        let call = json!(method);
        let word = call["method"].as_str().unwrap_or_default();
        let params = call["params"].as_object().filter(|params| !params.is_empty());
        let params = params.map_or(String::new(), |params| format!(" {}", json!(params)));
        let end = match outcome {
            Ok(_) => String::new(),
            Err(error) => format!(": refused: {}", error.message),
        };
        let entry = self.session.entry(self.index, Event::Command, actor, &format!("{word}{params}{end}"));
        history::note(entry.with("call", call.clone()).with("done", outcome.is_ok()));
    }
}

fn ended(seen: &PassSeen, now: &Status) -> Vec<(Event, String)> {
    let after = now.pass.map(|pass| pass.kind);
    let is_over = |progress: &Progress| Some(progress.kind) != after || now.gate != Gate::Open;
    let Some(progress) = seen.pass.filter(is_over).filter(|progress| !progress.kind.is_by_command()) else {
        return Vec::new();
    };
    let mut news = Vec::new();
    let word = progress.kind.names().word;
    let is_done = now.gate == Gate::Open
        && match progress.kind {
            PassKind::Resync | PassKind::Check | PassKind::Repair => true,
            PassKind::Recovery => now.usable.count() > seen.usable,
            PassKind::Replace => after != Some(PassKind::Recovery),
        };
    if is_done {
        news.push((Event::PassFinished, format!("{word} complete")));
    } else if Some(progress.kind) != after || now.gate == Gate::Stopped {
        let (done, total) = (progress.done, progress.total);
        news.push((Event::PassAborted, format!("{word} ended at {done} of {total}")));
    }
    if !progress.corrected.is_zero() {
        news.push((Event::Corrected, format!("{word}: {} were written again", progress.corrected)));
    }
    news
}

fn begun(seen: &PassSeen, now: &Status) -> Option<PassKind> {
    let kind = now.pass?.kind;
    (seen.pass.map(|pass| pass.kind) != Some(kind) && now.gate == Gate::Open).then_some(kind)
}
