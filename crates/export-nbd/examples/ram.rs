//! Serves memory over NBD: the server without an array, to measure it and to try clients on it.
//! Owns: a memory device of one thread. Not here: anything the product needs.
//! Invariant: none beyond the server's.
//!
//! ```text
//!   cargo run --release -p uraid-export-nbd --example ram -- /tmp/ram.sock 1024
//!   nbdinfo nbd+unix:///?socket=/tmp/ram.sock
//! ```

use std::cell::{RefCell, RefMut};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::{Device, Fua, Geometry, IoError, Range, ReadPieces, Sector, Sectors, ShardIndex, WritePieces};
use uraid_export_nbd::{Export, Limits, Server, Spread};
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Listener, Options, Shard, Signal};

/// Bytes of one thread.
struct Ram {
    geometry: Geometry,
    bytes: RefCell<Vec<u8>>,
}

impl Ram {
    fn new(size: Sectors) -> Ram {
        let geometry = Geometry {
            size,
            logical_block: Sectors(1),
            physical_block: Sectors(8),
            chunk: Sectors(0),
            stripe: Sectors(0),
            io_max: Sectors(1 << 20),
            segments_max: 1024,
            discard_granularity: Sectors(1),
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: false,
        };
        Ram { geometry, bytes: RefCell::new(vec![0; size.len_bytes()]) }
    }

    fn span(&self, at: Sector, length: Sectors) -> RefMut<'_, [u8]> {
        let start = at.0 as usize * 512;
        RefMut::map(self.bytes.borrow_mut(), |bytes| &mut bytes[start..start + length.len_bytes()])
    }
}

impl Device for Ram {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    async fn read(&self, at: Sector, mut into: ReadPieces) -> Result<ReadPieces, IoError> {
        into.copy_from(&self.span(at, into.length()));
        Ok(into)
    }
    async fn write(&self, at: Sector, from: WritePieces, _: Fua) -> Result<(), IoError> {
        from.copy_to(&mut self.span(at, from.length()));
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }
    async fn discard(&self, _: Range) -> Result<(), IoError> {
        Ok(())
    }
    async fn write_zeroes(&self, range: Range) -> Result<(), IoError> {
        self.span(range.start, range.length).fill(0);
        Ok(())
    }
}

async fn serve(shard: Shard<()>, listener: Listener, size: Sectors) -> Signal {
    let local = (*shard).clone();
    let export = Export { name: "ram".into(), description: "memory".into(), read_only: false };
    let server = Server::new(local.clone(), vec![(export, Rc::new(Ram::new(size)))], Limits::default());
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
