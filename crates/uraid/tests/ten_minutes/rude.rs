//! Misbehaving clients: they leave in the middle, send garbage, take no replies, zero for ever.
//! Owns: what they do, in turn. Not here: what it costs others (`probe`).

use crate::common::{Client, Served};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

const WRITE_ZEROES: u16 = 6;
const MIB: u32 = 1 << 20;

/// Runs misbehaving clients until told to stop. They write only zeroes, and only in the 1 MiB from `at` on.
pub(crate) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    served: &'scope Served,
    at: u64,
    may_be: &'scope AtomicBool,
    is_over: &'scope AtomicBool,
) {
    for first in 0..2 {
        scope.spawn(move || {
            let mut turn = first;
            while !is_over.load(Ordering::Relaxed) {
                if may_be.load(Ordering::Relaxed) {
                    // It may be cut off in the middle of a sentence, which is what it asked for.
                    let _ = be_rude(served, at, turn);
                    turn += 1;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

fn be_rude(served: &Served, at: u64, turn: u64) -> std::io::Result<()> {
    let moment = || std::thread::sleep(Duration::from_millis(200));
    match turn % 6 {
        0 => drop(Client::connect(&served.socket())?),
        1 => {
            // Half a handshake each.
            let half: Vec<_> = (0..50).map(|_| UnixStream::connect(served.socket())).collect();
            moment();
            drop(half);
        }
        2 => UnixStream::connect(served.socket())?.write_all(&[0xa5; 4096])?,
        3 => {
            let mut client = Client::connect(&served.socket())?;
            for _ in 0..64 {
                client.send_request(0, 0, MIB)?;
            }
            moment();
        }
        4 => Client::connect(&served.socket())?.write_half_and_leave(at, MIB, &[0; 4096]),
        _ => {
            let mut client = Client::connect(&served.socket())?;
            for _ in 0..64 {
                client.send_request(WRITE_ZEROES, at, MIB)?;
            }
            moment();
        }
    }
    Ok(())
}
