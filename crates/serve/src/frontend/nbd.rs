//! NBD clients of a process.
//! Owns: [`Nbd`]: the socket, the addresses of the exports, the memory of connections; [`NbdError`]. Not here: the
//! protocol (`export-nbd`), which address is wanted (`listen`), lines about clients (`client_log`).
//! Invariant: shard 0 accepts, and gives each client to the shard that has the fewest.

use super::client_log::ClientLog;
use super::{ArrayExport, Frontend, FrontendPlan, Later, OnShard, Serving};
use crate::memory::{Share, TakesMemory, block_bytes};
use crate::opening::ServeError;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_arrays::HostArray;
use uraid_block::ShardIndex;
use uraid_control::names;
use uraid_control::report;
use uraid_export_nbd::{Export, Limits, Server, Spread, Statistics};
use uraid_host::{ArenaBlocks, Listener, Local, Stream};

/// The fewest connections per thread for which a server is useful.
const CONNECTIONS_MIN: usize = 32;

/// The address of the NBD socket.
pub enum Address {
    /// A socket's path.
    Unix(PathBuf),
    /// A port; 0 lets the system choose.
    Tcp(SocketAddr),
}

/// Parses `unix:PATH` and `tcp:HOST:PORT`.
pub fn parse_address(text: &str) -> Option<Address> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Some(Address::Unix(path.into()));
    }
    let mut addresses = text.strip_prefix("tcp:")?.to_socket_addrs().ok()?;
    addresses.next().map(Address::Tcp)
}

/// Why an address is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum NbdError {
    /// A TCP address, which other users can reach.
    #[error(
        "--nbd tcp:{found}: {} could read and write the array: there is no TLS yet; \
         expected unix:PATH, or --insecure if that is meant",
        if found.ip().is_loopback() { "every user of this machine" } else { "everyone who reaches that address" }
    )]
    Insecure {
        /// The address.
        found: SocketAddr,
    },
    /// `--export-mode` with TCP, which has no mode.
    #[error(
        "--export-mode is the mode of a unix socket, and --nbd tcp:{address} has none: leave it out, or serve on unix:PATH"
    )]
    ModeOfTcp {
        /// The address.
        address: SocketAddr,
    },
}

impl From<NbdError> for ServeError {
    fn from(error: NbdError) -> ServeError {
        ServeError::Frontend(Box::new(error))
    }
}

/// A socket for NBD clients.
pub struct NbdPlan {
    /// Of a unix socket.
    mode: Option<u32>,
    listen: Box<dyn FnOnce() -> Result<(Listener, Address), ServeError>>,
}

impl NbdPlan {
    /// `mode`: of a unix socket. `listen` opens the socket, where clients may wait then, and knows its address.
    pub fn new(
        mode: Option<u32>,
        listen: impl FnOnce() -> Result<(Listener, Address), ServeError> + 'static,
    ) -> NbdPlan {
        NbdPlan { mode, listen: Box::new(listen) }
    }
}

impl TakesMemory for NbdPlan {
    fn buffer_bytes(&self, share: Share) -> u64 {
        let (small, large) = limits(share).own_blocks();
        block_bytes(&ArenaBlocks { small, large })
    }

    fn other_bytes(&self, share: Share) -> u64 {
        let limits = limits(share);
        limits.connection_bytes() * limits.connections_max as u64
    }
}

impl FrontendPlan for NbdPlan {
    fn open(
        self: Box<Self>,
        exports: &[ArrayExport],
        shards: u16,
        share: Share,
    ) -> Result<Box<dyn Frontend>, ServeError> {
        let NbdPlan { mode, listen } = *self;
        let (listener, address) = listen()?;
        let uri = |export: &ArrayExport| match &address {
            Address::Unix(path) => names::unix_uri(&export.name, path),
            Address::Tcp(address) => names::tcp_uri(&export.name, *address),
        };
        let uris = exports.iter().map(uri).collect();
        let (limits, spread) = (limits(share), Spread::new(shards));
        Ok(Box::new(Nbd { listener, uris, mode, limits, spread }))
    }
}

/// The limits of one shard's clients.
fn limits(share: Share) -> Limits {
    let full = Limits::default();
    let connections_max = share.of(CONNECTIONS_MIN as u64, full.connections_max as u64) as usize;
    let part = |of: usize| (of * connections_max / full.connections_max).max(1);
    Limits {
        connections_max,
        peer_connections_max: part(full.peer_connections_max),
        handshakes_max: part(full.handshakes_max).max(CONNECTIONS_MIN / 2),
        ..full
    }
}

/// NBD of a process.
pub(crate) struct Nbd {
    listener: Listener,
    /// Of each export.
    uris: Vec<String>,
    /// Of a unix socket.
    mode: Option<u32>,
    limits: Limits,
    /// How many clients each shard has.
    spread: Arc<Spread>,
}

impl Frontend for Nbd {
    fn on_shard(&self, at: &OnShard<'_>) -> Rc<dyn Serving> {
        let exports = at.served.iter().map(|served| {
            let description = format!("{} {}", served.array_name, served.array.layout().level().name());
            (
                Export { name: served.export.name.clone(), description, read_only: served.read_only },
                served.array.clone(),
            )
        });
        let server = Server::new(at.local.clone(), exports.collect(), self.limits.clone());
        let names = at.served.iter().map(|served| (served.array_name.to_owned(), served.export.name.clone()));
        let (log, local) = (ClientLog::new(names.collect()), at.local.clone());
        server.log_to(move |news| log.note(news, local.unix_seconds()));
        let (local, listener, spread) = (at.local.clone(), self.listener.clone(), self.spread.clone());
        Rc::new(OfShard { local, server, listener, spread, give: at.give.clone() })
    }

    fn address(&self, export: usize) -> String {
        self.uris[export].clone()
    }

    fn show(&self, export: usize, server: &mut report::Server, of: &mut report::Export) {
        server.uris.push(self.uris[export].clone());
        of.mode = self.mode.map(|mode| format!("{mode:o}"));
    }

    fn close(&self) {
        self.listener.close();
    }
}

struct OfShard {
    local: Local,
    server: Rc<Server<Local, Stream, HostArray>>,
    listener: Listener,
    spread: Arc<Spread>,
    give: Rc<dyn Fn(ShardIndex, OwnedFd)>,
}

impl Serving for OfShard {
    fn serve(self: Rc<Self>) {
        if self.local.index() != ShardIndex(0) {
            return;
        }
        let (listener, spread, give) = (self.listener.clone(), self.spread.clone(), self.give.clone());
        let server = self.server.clone();
        self.local.spawn(server.listen(listener, spread, move |to, client| give(to, client)));
    }

    fn adopt(&self, client: OwnedFd) {
        self.server.adopt(client, self.spread.clone());
    }

    fn stop(&self, time_max: Duration) -> Later<'_, usize> {
        Box::pin(self.server.stop(time_max))
    }

    fn statistics(&self) -> Statistics {
        self.server.statistics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_full_share_has_the_default_limits_and_the_least_one_some_clients() {
        let (full, least, default) = (limits(Share::FULL), limits(Share::LEAST), Limits::default());
        let counts = |of: &Limits| (of.connections_max, of.peer_connections_max, of.handshakes_max);
        assert_eq!(counts(&full), counts(&default));
        assert_eq!(counts(&least), (CONNECTIONS_MIN, CONNECTIONS_MIN / 2, CONNECTIONS_MIN / 2));
    }

    #[test]
    fn addresses_are_unix_paths_or_tcp_ports() {
        assert!(
            matches!(parse_address("unix:/tmp/a:b.nbd"), Some(Address::Unix(path)) if path == Path::new("/tmp/a:b.nbd"))
        );
        assert!(matches!(parse_address("tcp:127.0.0.1:10809"), Some(Address::Tcp(at)) if at.port() == 10809));
        assert!(matches!(parse_address("tcp:[::1]:1"), Some(Address::Tcp(at)) if at.is_ipv6()));
        for text in ["", "unix:", "tcp:", "tcp:10809", "/tmp/a.nbd", "tcp:127.0.0.1:99999"] {
            assert!(parse_address(text).is_none(), "{text}");
        }
    }
}
