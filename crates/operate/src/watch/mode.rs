//! What the keys mean at a moment, and a command that waits or is done.
//! Owns: [`Mode`], [`Action`]. Not here: which key leads to which (`keys`).

use uraid_control::protocol::Method;

/// A command for one array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Action {
    /// The word that names the array and no other.
    pub(super) array: String,
    pub(super) method: Method,
    /// What is asked before.
    pub(super) question: String,
    /// What it is, for the line about its end.
    pub(super) words: String,
}

/// What the keys mean now.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    #[default]
    Watching,
    /// The path of a device is being typed.
    Typing(String),
    /// A command waits for `y`.
    Asking(Box<Action>),
}
