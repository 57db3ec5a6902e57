//! A whole session of NBD: the server of `export-nbd` over a device in memory, against a client that sends any bytes.
//! Owns: the session, what must hold of it. Not here: how a client follows what is said (`nbd_client`).
//! Input: three bytes for the circumstances, then what the client sends; a handshake may be given.
//! Checked: every reply is accepted by the client's parsers and belongs to an unanswered request; complete requests are
//! answered; when the input ends, so does the connection, and it holds no memory.

use super::nbd_client;
use crate::allocation::aside;
use crate::input::Input;
use bench::{Bench, Pipe, Ram, TestServer, connect, hello, hello_extended};
use std::rc::Rc;
use std::time::Duration;
use uraid_block::ErrorKind;
use uraid_export_nbd::{Export, Limits, Machine, Server};

/// The machine, the pipe and the device that export-nbd's own tests have.
#[path = "../../../crates/export-nbd/tests/common/mod.rs"]
mod bench;

/// With longer inputs the replies, which are kept, could exceed the bound of one allocation.
pub(crate) const BYTES_MAX: usize = 600;
/// Above the size from which requests get large blocks.
const DEVICE_BYTES: usize = 20 << 10;

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(BYTES_MAX)]);
    let (given, device, piece) = (input.byte(), input.byte(), input.byte());
    let mut sent = match given % 4 {
        0 => Vec::new(),
        1 => hello(false),
        2 => hello(true),
        _ => hello_extended(),
    };
    sent.extend_from_slice(input.rest());
    // Allocations at the server's start are not caused by hostile bytes.
    let (bench, ram, server) = aside(|| served(device & 1 != 0));
    ram.failure.set((device & 2 != 0).then_some(ErrorKind::Media));
    ram.hold(device & 4 != 0);
    let pipe = connect(&bench, &server);
    let mut got = pipe.take();
    for part in sent.chunks([1, 7, 28, 200, BYTES_MAX][usize::from(piece) % 5]) {
        pipe.write(part);
        bench.settle();
        got.extend(pipe.take());
    }
    ram.hold(false);
    // Some wait for buffers.
    bench.pass(Duration::from_secs(2));
    got.extend(pipe.take());
    nbd_client::follow(&sent, &got);
    assert!(pipe.is_shut_down() || server.connections() == 1);
    close(&bench, &server, &pipe);
}

/// A server of two exports, which differ in their devices.
fn served(read_only: bool) -> (Bench, Rc<Ram>, Rc<TestServer>) {
    let (bench, ram) = (Bench::new(32, 8), Ram::new(DEVICE_BYTES));
    let exports = ["md0", "other"]
        .map(|name| (Export { name: name.to_string(), description: "a test".to_string(), read_only }, ram.clone()));
    let limits = Limits { connections_max: 1, requests_max: 4, ..Limits::default() };
    let server = Server::new(bench.clone(), exports.to_vec(), limits);
    (bench, ram, server)
}

/// The input has ended: the connection must end too, and leave nothing behind.
fn close(bench: &Bench, server: &Rc<TestServer>, pipe: &Pipe) {
    pipe.close();
    bench.pass(Duration::from_secs(1));
    assert!(pipe.is_shut_down(), "the connection does not end");
    assert_eq!((server.connections(), server.requests_running()), (0, 0));
    assert_eq!(bench.arena().blocks_in_use(), 0, "a buffer is kept");
    assert_eq!(bench.end(), 1, "more is left than the server's own watch");
}
