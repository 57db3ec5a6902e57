//! What a server tells of its clients, for a log.
//! Owns: [`News`]. Not here: the words, and how many of them a log takes (the caller).

use uraid_host::Peer;

/// Something has happened to a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum News {
    /// Its handshake is done.
    Connected {
        /// Who it is.
        peer: Peer,
        /// The export that it has chosen, by its place in the server's list.
        export: usize,
    },
    /// It is gone, after it was connected.
    Left {
        /// Who it was.
        peer: Peer,
        /// The export that it had chosen.
        export: usize,
        /// Its connection ended inside a message, sent what is no request, or was cut by the server.
        is_broken: bool,
    },
    /// There was no place for it.
    TurnedAway {
        /// Who it was.
        peer: Peer,
    },
}
