//! Which connections are admitted, and which connection is closed for a new one.
//! Owns: [`decide`], a pure decision over all connections. Not here: ending a connection (`server`).
//! Invariant: no peer has more than its share of the places. A connection with a request in flight is never closed, unless
//! the client has stopped sending that request.

use crate::limits::Limits;
use std::collections::BTreeMap;
use uraid_host::Peer;

/// The state of a connection that is not ending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its number, in the order of arrival.
    pub(crate) name: u64,
    pub(crate) peer: Peer,
    pub(crate) use_: Use,
}

/// What a connection currently does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    Handshake,
    /// The client has begun to send a write, and sends no more of it. `moved` as below.
    Stalled {
        moved: u64,
    },
    /// No request and no reply is in flight. `moved`: the lower, the longer ago the last one was.
    Idle {
        moved: u64,
    },
    Busy,
}

/// Whether a new connection is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Free,
    /// Admitted if this connection is closed.
    Instead(u64),
    Full,
}

/// A peer that has its share gives up a connection of its own. If all places are taken, the peer with the most gives
/// one up: so a peer that takes all it can locks out itself first.
pub(crate) fn decide(places: &[Place], newcomer: Peer, limits: &Limits) -> Verdict {
    let of = |peer: Peer| places.iter().filter(move |place| place.peer == peer);
    let half_open = places.iter().filter(|place| place.use_ == Use::Handshake);
    let instead = |name: Option<u64>| name.map_or(Verdict::Full, Verdict::Instead);
    if half_open.clone().count() >= limits.handshakes_max {
        let most = by_count(half_open.clone()).first().copied();
        return instead(half_open.filter(|place| Some(place.peer) == most).map(|place| place.name).min());
    }
    if of(newcomer).count() >= limits.peer_connections_max {
        return instead(first_to_go(of(newcomer)));
    }
    if places.len() >= limits.connections_max {
        return instead(by_count(places.iter()).into_iter().find_map(|peer| first_to_go(of(peer))));
    }
    Verdict::Free
}

/// The idle connection to close if the machine has no resources for one more. Not one in its handshake: the system
/// refuses to accept even if no client waits, so a connection in its handshake is the one that room was made for.
pub(crate) fn least_used(places: &[Place]) -> Option<u64> {
    let idle = || places.iter().filter(|place| matches!(place.use_, Use::Idle { .. } | Use::Stalled { .. }));
    let most = by_count(idle()).first().copied()?;
    first_to_go(idle().filter(|place| place.peer == most))
}

/// The peers, ordered by their number of connections, descending.
fn by_count<'a>(places: impl Iterator<Item = &'a Place>) -> Vec<Peer> {
    let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
    for place in places {
        *counts.entry(place.peer).or_default() += 1;
    }
    let mut peers: Vec<(Peer, usize)> = counts.into_iter().collect();
    peers.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    peers.into_iter().map(|(peer, _)| peer).collect()
}

/// The oldest one in its handshake, else the one that has stalled for longest, else the one that has been idle for longest.
fn first_to_go<'a>(places: impl Iterator<Item = &'a Place>) -> Option<u64> {
    let rank = |place: &Place| match place.use_ {
        Use::Handshake => Some((0, place.name, place.name)),
        Use::Stalled { moved } => Some((1, moved, place.name)),
        Use::Idle { moved } => Some((2, moved, place.name)),
        Use::Busy => None,
    };
    places.filter_map(rank).min().map(|(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> Limits =
        || Limits { connections_max: 6, peer_connections_max: 4, handshakes_max: 3, ..Limits::default() };
    const ANN: Peer = Peer::User(1);
    const BOB: Peer = Peer::User(2);
    const EVE: Peer = Peer::User(3);

    fn places(all: &[(Peer, Use)]) -> Vec<Place> {
        all.iter().zip(0..).map(|(&(peer, use_), name)| Place { name, peer, use_ }).collect()
    }

    fn idle(moved: u64) -> Use {
        Use::Idle { moved }
    }

    #[test]
    fn a_peer_with_its_share_gives_up_its_own_least_used_connection() {
        let four = places(&[(EVE, Use::Busy), (ANN, idle(0)), (EVE, idle(9)), (EVE, idle(3)), (EVE, idle(7))]);
        assert_eq!(decide(&four, EVE, &LIMITS()), Verdict::Instead(3));
        assert_eq!(decide(&four, ANN, &LIMITS()), Verdict::Free);
        let busy = places(&[(EVE, Use::Busy); 4]);
        assert_eq!(decide(&busy, EVE, &LIMITS()), Verdict::Full);
        assert_eq!(decide(&busy, BOB, &LIMITS()), Verdict::Free);
        let working =
            [(EVE, Use::Busy), (EVE, Use::Busy), (EVE, Use::Busy), (EVE, idle(9)), (ANN, idle(0)), (ANN, idle(1))];
        assert_eq!(decide(&places(&working), EVE, &LIMITS()), Verdict::Instead(3), "ANN has more that are idle");
    }

    #[test]
    fn where_all_places_are_taken_the_peer_with_the_most_gives_one_up() {
        let mut all = places(&[
            (ANN, idle(0)),
            (EVE, idle(5)),
            (EVE, idle(4)),
            (EVE, Use::Handshake),
            (BOB, idle(1)),
            (BOB, Use::Busy),
        ]);
        assert_eq!(decide(&all, ANN, &LIMITS()), Verdict::Instead(3), "a handshake goes before an idle one");
        assert_eq!(least_used(&all), Some(2), "but not for want of descriptors");
        all[3].use_ = Use::Busy;
        assert_eq!(decide(&all, ANN, &LIMITS()), Verdict::Instead(2));
        for place in &mut all[1..4] {
            place.use_ = Use::Busy;
        }
        assert_eq!(decide(&all, ANN, &LIMITS()), Verdict::Instead(4), "of the next peer");
        all.iter_mut().for_each(|place| place.use_ = Use::Busy);
        assert_eq!(decide(&all, ANN, &LIMITS()), Verdict::Full);
        assert_eq!(least_used(&all), None);
    }

    #[test]
    fn one_that_has_stalled_goes_before_one_that_is_idle() {
        let four = places(&[
            (EVE, idle(1)),
            (EVE, Use::Stalled { moved: 9 }),
            (EVE, Use::Stalled { moved: 7 }),
            (EVE, Use::Busy),
        ]);
        assert_eq!(decide(&four, EVE, &LIMITS()), Verdict::Instead(2));
        assert_eq!(least_used(&four), Some(2));
        assert_eq!(decide(&four[..1], EVE, &LIMITS()), Verdict::Free);
    }

    #[test]
    fn of_too_many_handshakes_the_oldest_of_the_peer_with_the_most_goes() {
        let open = places(&[(ANN, Use::Handshake), (EVE, Use::Handshake), (EVE, Use::Handshake)]);
        assert_eq!(decide(&open, BOB, &LIMITS()), Verdict::Instead(1));
        assert_eq!(decide(&open[..2], BOB, &LIMITS()), Verdict::Free);
    }
}
