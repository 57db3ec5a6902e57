//! The process that serves an array, in a report.
//! Owns: [`Server`], [`Export`], their JSON and text. Not here: the source of the facts (`overseer`).
//! Invariant: text and JSON say the same.

use super::field;
use serde::{Deserialize, Serialize};

/// The process that serves an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Server {
    /// The process.
    pub pid: u32,
    /// Of its exports.
    pub uris: Vec<String>,
    /// Whether it takes requests yet.
    pub is_ready: bool,
    /// Threads that serve.
    pub shards: u16,
    /// How long the last failed member took from the error to the durable superblocks of the others, in microseconds.
    pub last_record_us: Option<u64>,
    /// On a parity level: the instruction set that computes P and Q, such as `avx512+gfni`.
    #[serde(default)]
    pub kernel: Option<String>,
    /// How long a member may take to answer, in milliseconds; 0: no limit.
    #[serde(default)]
    pub member_timeout_ms: Option<u64>,
    /// The file that has its log.
    #[serde(default)]
    pub log: Option<String>,
    /// The exports of the array.
    #[serde(default)]
    pub exports: Vec<Export>,
}

/// One export of an array.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Export {
    /// The name that clients ask for.
    pub name: String,
    /// Whether writes of clients are refused.
    pub read_only: bool,
    /// The mode of its unix socket, octal; none over TCP.
    pub mode: Option<String>,
    /// Its file, if there is a FUSE mount.
    #[serde(default)]
    pub file: Option<String>,
}

impl Server {
    /// Its lines in `uraid detail`.
    pub(super) fn write(&self, out: &mut String) {
        let is_ready = if self.is_ready { "" } else { ", not ready yet" };
        field(out, "Served By", &format!("process {}, {} shards{is_ready}", self.pid, self.shards));
        if let Some(us) = self.last_record_us {
            field(out, "Last Record", &format!("{:.1} ms from the failure to the other superblocks", us as f64 / 1e3));
        }
        if let Some(kernel) = &self.kernel {
            field(out, "Parity By", kernel);
        }
        if let Some(ms) = self.member_timeout_ms {
            let text = if ms == 0 { "none".to_owned() } else { format!("{} s", ms as f64 / 1e3) };
            field(out, "Member Timeout", &text);
        }
        for Export { name, read_only, mode, file: _ } in &self.exports {
            let rights = if *read_only { "read-only" } else { "read-write" };
            let way = mode.as_ref().map_or("TCP".to_owned(), |mode| format!("socket mode {mode}"));
            field(out, "Export", &format!("{name}, {rights}, {way}"));
        }
        let files = self.exports.iter().filter_map(|export| export.file.as_ref());
        for place in self.uris.iter().chain(files) {
            field(out, "Served At", place);
        }
        if let Some(log) = &self.log {
            field(out, "Log", log);
        }
    }
}
