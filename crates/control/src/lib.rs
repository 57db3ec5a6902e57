//! Asking running arrays: what a monitor, an exporter, a test or any other program beside the server needs.
//! Owns: the control protocol, its reports and its client; the runtime directory and the names in it; the state directory
//! and the history;//! words and lines for people, the log. Not here: what a running array answers (`serve`), how it runs (`engine`, `arrays`), the command line.
//! Invariant: nothing here opens a member or changes a byte of one.

pub mod asking;
pub mod client;
pub mod history;
pub mod log;
pub mod member_name;
pub mod protocol;
pub mod report;
pub mod runtime;
pub mod state;
pub mod words;

pub use runtime::device_name;
pub use words::{dates, names};
