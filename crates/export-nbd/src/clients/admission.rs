//! Which connections are admitted, and which connection is closed for a new one.
//! Owns: [`decide`], a pure decision over all connections. Not here: ending a connection (`server`).
//! Invariant: no peer has more than its share of the connections. A connection with a request in flight is never closed,
//! unless the client has stopped sending that request.

use crate::shared::limits::Limits;
use std::collections::BTreeMap;
use uraid_host::Peer;

/// A connection that is not ending, and may be closed for a new one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// In the order of arrival.
    pub(crate) number: u64,
    pub(crate) peer: Peer,
    pub(crate) activity: Activity,
}

/// What a connection currently does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    Handshake,
    /// The client has begun to send a write, and sends no more of it.
    Stalled {
        /// The number of the last receive or send. Of several connections, the lowest number is the longest ago.
        last: u64,
    },
    /// No request and no reply is in flight.
    Idle {
        /// As above.
        last: u64,
    },
    Busy,
}

/// Whether a new connection is admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Admit,
    /// Admit it, and close this connection.
    Replace(u64),
    Refuse,
}

/// A new connection of a peer at its limit replaces one of the same peer. At the limit of all connections, it replaces
/// one of the peer with the most. So a peer that opens too many closes its own connections first.
pub(crate) fn decide(candidates: &[Candidate], new_peer: Peer, limits: &Limits) -> Admission {
    let of = |peer: Peer| candidates.iter().filter(move |candidate| candidate.peer == peer);
    let half_open = candidates.iter().filter(|candidate| candidate.activity == Activity::Handshake);
    let replace = |number: Option<u64>| number.map_or(Admission::Refuse, Admission::Replace);
    if half_open.clone().count() >= limits.handshakes_max {
        let most = by_count(half_open.clone()).first().copied();
        return replace(
            half_open.filter(|candidate| Some(candidate.peer) == most).map(|candidate| candidate.number).min(),
        );
    }
    if of(new_peer).count() >= limits.peer_connections_max {
        return replace(first_to_close(of(new_peer)));
    }
    if candidates.len() >= limits.connections_max {
        return replace(by_count(candidates.iter()).into_iter().find_map(|peer| first_to_close(of(peer))));
    }
    Admission::Admit
}

/// The idle connection to close if the machine has no resources for one more. Never one in its handshake: accept fails
/// for lack of descriptors even if no client waits, so the connection for which room was just made may be in its
/// handshake.
pub(crate) fn idle_to_close(candidates: &[Candidate]) -> Option<u64> {
    let idle = || {
        candidates
            .iter()
            .filter(|candidate| matches!(candidate.activity, Activity::Idle { .. } | Activity::Stalled { .. }))
    };
    let most = by_count(idle()).first().copied()?;
    first_to_close(idle().filter(|candidate| candidate.peer == most))
}

/// The peers, ordered by their number of connections, descending.
fn by_count<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Vec<Peer> {
    let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
    for candidate in candidates {
        *counts.entry(candidate.peer).or_default() += 1;
    }
    let mut peers: Vec<(Peer, usize)> = counts.into_iter().collect();
    peers.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    assert!(peers.windows(2).all(|two| two[0].1 >= two[1].1));
    peers.into_iter().map(|(peer, _)| peer).collect()
}

/// The oldest one in its handshake, else the one that has stalled for longest, else the one that has been idle for longest.
fn first_to_close<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<u64> {
    let rank = |candidate: &Candidate| match candidate.activity {
        Activity::Handshake => Some((0, candidate.number, candidate.number)),
        Activity::Stalled { last } => Some((1, last, candidate.number)),
        Activity::Idle { last } => Some((2, last, candidate.number)),
        Activity::Busy => None,
    };
    candidates.filter_map(rank).min().map(|(_, _, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: fn() -> Limits =
        || Limits { connections_max: 6, peer_connections_max: 4, handshakes_max: 3, ..Limits::default() };
    const ANN: Peer = Peer::User(1);
    const BOB: Peer = Peer::User(2);
    const EVE: Peer = Peer::User(3);

    fn candidates(all: &[(Peer, Activity)]) -> Vec<Candidate> {
        all.iter().zip(0..).map(|(&(peer, activity), number)| Candidate { number, peer, activity }).collect()
    }

    fn idle(last: u64) -> Activity {
        Activity::Idle { last }
    }

    #[test]
    fn a_peer_with_its_share_gives_up_its_own_least_used_connection() {
        let four = candidates(&[(EVE, Activity::Busy), (ANN, idle(0)), (EVE, idle(9)), (EVE, idle(3)), (EVE, idle(7))]);
        assert_eq!(decide(&four, EVE, &LIMITS()), Admission::Replace(3));
        assert_eq!(decide(&four, ANN, &LIMITS()), Admission::Admit);
        let busy = candidates(&[(EVE, Activity::Busy); 4]);
        assert_eq!(decide(&busy, EVE, &LIMITS()), Admission::Refuse);
        assert_eq!(decide(&busy, BOB, &LIMITS()), Admission::Admit);
        let working = [
            (EVE, Activity::Busy),
            (EVE, Activity::Busy),
            (EVE, Activity::Busy),
            (EVE, idle(9)),
            (ANN, idle(0)),
            (ANN, idle(1)),
        ];
        assert_eq!(decide(&candidates(&working), EVE, &LIMITS()), Admission::Replace(3), "ANN has more that are idle");
    }

    #[test]
    fn where_all_places_are_taken_the_peer_with_the_most_gives_one_up() {
        let mut all = candidates(&[
            (ANN, idle(0)),
            (EVE, idle(5)),
            (EVE, idle(4)),
            (EVE, Activity::Handshake),
            (BOB, idle(1)),
            (BOB, Activity::Busy),
        ]);
        assert_eq!(decide(&all, ANN, &LIMITS()), Admission::Replace(3), "a handshake goes before an idle one");
        assert_eq!(idle_to_close(&all), Some(2), "but not for want of descriptors");
        all[3].activity = Activity::Busy;
        assert_eq!(decide(&all, ANN, &LIMITS()), Admission::Replace(2));
        for candidate in &mut all[1..4] {
            candidate.activity = Activity::Busy;
        }
        assert_eq!(decide(&all, ANN, &LIMITS()), Admission::Replace(4), "of the next peer");
        all.iter_mut().for_each(|candidate| candidate.activity = Activity::Busy);
        assert_eq!(decide(&all, ANN, &LIMITS()), Admission::Refuse);
        assert_eq!(idle_to_close(&all), None);
    }

    #[test]
    fn one_that_has_stalled_goes_before_one_that_is_idle() {
        let four = candidates(&[
            (EVE, idle(1)),
            (EVE, Activity::Stalled { last: 9 }),
            (EVE, Activity::Stalled { last: 7 }),
            (EVE, Activity::Busy),
        ]);
        assert_eq!(decide(&four, EVE, &LIMITS()), Admission::Replace(2));
        assert_eq!(idle_to_close(&four), Some(2));
        assert_eq!(decide(&four[..1], EVE, &LIMITS()), Admission::Admit);
    }

    #[test]
    fn of_too_many_handshakes_the_oldest_of_the_peer_with_the_most_goes() {
        let open = candidates(&[(ANN, Activity::Handshake), (EVE, Activity::Handshake), (EVE, Activity::Handshake)]);
        assert_eq!(decide(&open, BOB, &LIMITS()), Admission::Replace(1));
        assert_eq!(decide(&open[..2], BOB, &LIMITS()), Admission::Admit);
    }
}
