//! Events as lines on stdout.
//! Owns: the line, and its JSON. Not here: the log of the monitor itself, which is on stderr.

use super::{Channel, Job, NotTold, Told};
use serde_json::json;
use uraid_control::dates;
use uraid_control::log::print;

/// Lines on stdout.
pub(crate) struct Print {
    /// One JSON object a line.
    pub is_json: bool,
}

impl Channel for Print {
    fn name(&self) -> &'static str {
        "print"
    }

    fn tell(&mut self, job: &Job) -> Result<Told, NotTold> {
        if self.is_json {
            print(&format!("{}\n", json(job)));
        } else {
            print(&format!("{}: {}\n", dates::stamp(job.event.time), job.event));
        }
        Ok(Told::Done)
    }
}

/// The event for programs.
pub(super) fn json(job: &Job) -> serde_json::Value {
    let mut event = json!(job.event);
    event["severity"] = json!(job.event.kind.severity());
    event["message"] = json!(job.event.to_string());
    event["again"] = json!(job.is_again);
    event
}
