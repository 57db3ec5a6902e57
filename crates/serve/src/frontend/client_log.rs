//! NBD clients that connect and leave, as lines of the log.
//! Owns: the words, and the limit of lines per second. Not here: the clients (`export-nbd`), the log (`log`).
//! Invariant: a flood of clients gives the log a bounded number of lines.

use std::cell::Cell;
use std::net::IpAddr;
use uraid_control::log::warn;
use uraid_export_nbd::News;
use uraid_host::Peer;

/// In each second, all lines of one kind are written up to this many; after that only the 100th, the 1,000th and so on.
const LINES_PER_SECOND_MAX: u64 = 10;

/// Logs the client events of one shard.
pub(super) struct ClientLog {
    /// The array and the name of each export.
    names: Vec<(String, String)>,
    connected: Flood,
    left: Flood,
    turned_away: Flood,
}

impl ClientLog {
    pub(super) fn new(names: Vec<(String, String)>) -> ClientLog {
        let [connected, left, turned_away] = std::array::from_fn(|_| Flood::default());
        ClientLog { names, connected, left, turned_away }
    }

    /// Logs an event, unless there are too many; `second` is the time.
    pub(super) fn note(&self, news: News, second: u64) {
        let (array, name) = (|export: usize| &self.names[export].0, |export: usize| &self.names[export].1);
        let (flood, array, text) = match news {
            News::Connected { peer, export } => {
                let text = format!("{} has connected to the export {}", client(peer), name(export));
                (&self.connected, array(export), text)
            }
            News::Left { peer, export, is_broken } => {
                let how = if is_broken { "has lost its connection to" } else { "has left" };
                (&self.left, array(export), format!("{} {how} the export {}", client(peer), name(export)))
            }
            News::TurnedAway { peer } => {
                (&self.turned_away, array(0), format!("{} was refused: the server is full", client(peer)))
            }
        };
        match flood.count(second) {
            count if count <= LINES_PER_SECOND_MAX => warn(&format!("{array}: {text}")),
            count if is_power_of_ten(count) => warn(&format!("{array}: {text} ({count} such within a second)")),
            _ => {}
        }
    }
}

fn client(peer: Peer) -> String {
    match peer {
        Peer::User(user) => format!("a client of user {user}"),
        Peer::Host(IpAddr::V4(address)) => format!("a client at {address}"),
        Peer::Host(IpAddr::V6(network)) => format!("a client at {network}/64"),
        Peer::Unknown => "a client".to_owned(),
    }
}

/// Counts events within one second.
#[derive(Default)]
struct Flood {
    second: Cell<u64>,
    count: Cell<u64>,
}

impl Flood {
    fn count(&self, second: u64) -> u64 {
        let before = if self.second.replace(second) == second { self.count.get() } else { 0 };
        self.count.set(before + 1);
        before + 1
    }
}

fn is_power_of_ten(count: u64) -> bool {
    count == 10u64.pow(count.ilog10())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_is_counted_from_one() {
        let flood = Flood::default();
        assert_eq!((flood.count(7), flood.count(7), flood.count(8), flood.count(8)), (1, 2, 1, 2));
    }

    #[test]
    fn tenfold_counts_are_powers_of_ten() {
        assert_eq!((1..=2000).filter(|&count| is_power_of_ten(count)).collect::<Vec<_>>(), [1, 10, 100, 1000]);
    }
}
