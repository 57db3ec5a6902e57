//! Verbs for arrays that run: each asks the process that serves the array, and prints its answer.
//! Owns: the calls, the lines and tables about the answers, waiting, exit codes. Not here: what the array does
//! (`uraid_serve::overseer`), the options (`cli`). Called by `main`; `doctor` takes the report of an array from `detail`.
//!
//! ```text
//!   access       readonly, readwrite             membership   add, re-add, remove, replace, write-mostly, failfast
//!   check        check, repair                   passes       idle, freeze, unfreeze, speed
//! ```
//!
//! Each other verb is in the file of its name. `detail` reads members, too, if their array does not run.

pub(crate) mod access;
pub(crate) mod bitmap;
pub(crate) mod check;
pub(crate) mod detail;
pub(crate) mod fail;
pub(crate) mod list;
pub(crate) mod mdstat;
pub(crate) mod membership;
pub(crate) mod no_member;
pub(crate) mod passes;
pub(crate) mod stop;
pub(crate) mod wait;
mod words;
