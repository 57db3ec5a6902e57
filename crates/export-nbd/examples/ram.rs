//! Serves memory over NBD: the server without an array, to measure it and to try clients on it.
//! Owns: the program. Not here: anything the product needs.
//! Invariant: none beyond the server's.
//!
//! ```text
//!   cargo run --release -p uraid-export-nbd --example ram -- /tmp/ram.sock 1024
//!   nbdinfo nbd+unix:///?socket=/tmp/ram.sock
//! ```

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{MemoryDevice, Sectors, ShardIndex};
use uraid_export_nbd::{Export, Limits, Server, Spread};
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Listener, Options, Shard, Signal};

async fn serve(shard: Shard<()>, listener: Listener, size: Sectors) -> Signal {
    let local = (*shard).clone();
    let export = Export { name: "ram".into(), description: "memory".into(), read_only: false };
    let device = Rc::new(MemoryDevice::new(vec![0; size.len_bytes()]));
    let server = Server::new(local.clone(), vec![(export, device)], Limits::default());
    let nowhere = |_: ShardIndex, _| unreachable!("there is one shard");
    local.spawn(server.clone().listen(listener, Spread::new(1), nowhere));
    let signal = local.terminated().await;
    let left = server.stop(Duration::from_secs(4)).await;
    println!("{:?}\n{left} requests left", server.statistics());
    signal
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().expect("usage: ram SOCKET [MIB]"));
    let mib: u64 = arguments.next().map_or(1024, |mib| mib.parse().expect("a number of MiB"));
    let listener = Listener::unix(&path, 0o600).expect("the socket can be made");
    let mut options = Options::default();
    options.arenas[CLIENT_ARENA] = ArenaBlocks { small: 4096, large: 1536 };
    println!("nbd+unix:///?socket={}", path.display());
    uraid_host::run(1, &options, |shard| serve(shard, listener.clone(), Sectors(mib << 11)));
}
