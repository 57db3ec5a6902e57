//! Events of clients, for a log.
//! Owns: [`News`]. Not here: the texts, and the rate limit of the log (the caller).

use uraid_host::Peer;

/// An event of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// The client's handshake is done.
    Connected {
        /// The client.
        peer: Peer,
        /// The index of its export in the server's list.
        export: usize,
    },
    /// The client left after its handshake.
    Left {
        /// The client.
        peer: Peer,
        /// The export that it had chosen.
        export: usize,
        /// The connection ended inside a message, the client sent invalid bytes, or the server cut the connection.
        is_broken: bool,
    },
    /// The client was refused because too many connections were open.
    TurnedAway {
        /// The client.
        peer: Peer,
    },
}
