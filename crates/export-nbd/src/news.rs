//! Events of clients, for a log.
//! Owns: [`News`]. Not here: the texts, and the rate limit of the log (the caller).

use uraid_host::Peer;

/// An event of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Its handshake is done.
    Connected {
        /// The client.
        peer: Peer,
        /// The index of its export in the server's list.
        export: usize,
    },
    /// It left after it was connected.
    Left {
        /// The client.
        peer: Peer,
        /// The export that it had chosen.
        export: usize,
        /// Its connection ended inside a message, sent invalid bytes, or was cut by the server.
        is_broken: bool,
    },
    /// It was refused because too many connections were open.
    TurnedAway {
        /// The client.
        peer: Peer,
    },
}
