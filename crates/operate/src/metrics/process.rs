//! The metrics of the processes that serve arrays, and of the scrape itself.
//! Owns: these samples. Not here: the arrays' own (`array`).
//! Invariant: what a process counts for all its arrays together is there once, with the first of their devices, so that a
//! sum over all samples is right.

use super::array::Of;
use super::family::{Families, Labels};
use super::names;
use uraid_control::report::{Clients, Report};

/// Adds those of the process of one array. `is_first`: no array before was of this process.
pub(super) fn add(families: &mut Families, of: &Of, report: &Report, is_first: bool) {
    let Some(server) = &report.server else { return };
    families.whole(names::SERVER_READY, of.labels(), server.is_ready.into());
    families.whole(names::SERVER_SHARDS, of.labels(), server.shards.into());
    if let Some(us) = server.last_record_us {
        families.real(names::RECORD_SECONDS, of.labels(), us as f64 / 1e6);
    }
    if let (Some(clients), true) = (&report.clients, is_first) {
        self::clients(families, &of.device, clients);
    }
}

fn clients(families: &mut Families, device: &str, clients: &Clients) {
    let server = || -> Labels { vec![("server", device.to_owned()), ("frontend", "nbd".to_owned())] };
    let with = |name: &'static str, value: &str| {
        let mut labels = server();
        labels.push((name, value.to_owned()));
        labels
    };
    families.whole(names::CONNECTIONS, server(), clients.connected);
    families.whole(names::CONNECTIONS_ALL, server(), clients.connections);
    for (op, count) in [
        ("read", clients.reads),
        ("write", clients.writes),
        ("flush", clients.flushes),
        ("trim", clients.trims),
        ("write-zeroes", clients.write_zeroes),
        ("cache", clients.caches),
        ("block-status", clients.block_statuses),
    ] {
        families.whole(names::CLIENT_REQUESTS, with("op", op), count);
    }
    families.whole(names::CLIENT_BYTES, with("op", "read"), clients.read_bytes);
    families.whole(names::CLIENT_BYTES, with("op", "write"), clients.written_bytes);
    families.whole(names::CLIENT_ERRORS, with("kind", "refused"), clients.refused);
    families.whole(names::CLIENT_ERRORS, with("kind", "failed"), clients.failed);
}
