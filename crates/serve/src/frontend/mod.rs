//! The ways in which clients reach the arrays of a process: NBD, files of a FUSE mount.
//! Owns: [`Frontend`], what every one of them offers; [`Frontends`], those of a process. Not here: the protocols
//! (`export-nbd`, `export-fuse`), when clients are served and let go (`life`). Called by `session`, `overseer`, `life`.
//! Invariant: an array that is a member of another one is not exported. Nothing outside of this room knows which
//! frontends there are.
//!
//! ```text
//!   FrontendPlan    what was asked for; how much memory it takes
//!      | open, before the privileges are dropped
//!   Frontend        of the process: the socket, the mount; what `detail` and `stop` say of it
//!      | on_shard, before the arrays start
//!   Serving         of one shard: serve when the arrays are started, stop with what was left, counts
//! ```

mod client_log;
mod fuse;
mod listen;
mod nbd;

pub use fuse::{FusePlan, guard};
pub use listen::{Places, listen, plans};
pub use nbd::{Address, NbdPlan, parse_address};

use crate::memory::{Share, TakesMemory};
use crate::opening::ServeError;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::{ArrayIndex, HostArray};
use uraid_block::ShardIndex;
use uraid_control::device_name::DeviceName;
use uraid_control::report;
use uraid_export_nbd::Statistics;
use uraid_host::{Listener, Local};

/// An array that clients can use.
#[derive(Clone, Debug)]
pub struct ArrayExport {
    /// Which one.
    pub array: ArrayIndex,
    /// The name of the export.
    pub name: String,
    /// Whether clients may only read, even if the array takes writes.
    pub read_only: bool,
}

/// A frontend that was asked for and is not open yet.
pub trait FrontendPlan: TakesMemory {
    /// Opens it for these exports, with buffers of this share: clients may connect and wait from now on.
    fn open(
        self: Box<Self>,
        exports: &[ArrayExport],
        shards: u16,
        share: Share,
    ) -> Result<Box<dyn Frontend>, ServeError>;
}

/// The memory that each of them takes.
pub fn memory_of(plans: &[Box<dyn FrontendPlan>]) -> Vec<&dyn TakesMemory> {
    plans.iter().map(|plan| &**plan as &dyn TakesMemory).collect()
}

/// A frontend of a process; all threads share it. Exports are named by their place in [`Frontends::exports`].
pub trait Frontend: Send + Sync {
    /// Its part on one shard. The arrays are built and not started.
    fn on_shard(&self, at: &OnShard<'_>) -> Rc<dyn Serving>;

    /// Where clients find an export: a URI or a path.
    fn address(&self, export: usize) -> String;

    /// Adds to a report what it knows of an export.
    fn show(&self, export: usize, server: &mut report::Server, of: &mut report::Export);

    /// What of it a stop without --force must not take away: `/mnt/home is open once`.
    fn in_use(&self) -> Option<String> {
        None
    }

    /// The process needs memory that the kernel never has to wait for: the kernel itself is a client.
    fn serves_kernel(&self) -> bool {
        false
    }

    /// Takes no more clients, and gives its names in the system back.
    fn close(&self);

    /// Closes it while the arrays are stopped, and waits until nothing of it is left in the system.
    fn leave<'a>(&'a self, _local: &'a Local) -> Later<'a, ()> {
        Box::pin(async {})
    }
}

/// A frontend's part on one shard.
pub trait Serving {
    /// Serves from now on: the arrays are started.
    fn serve(self: Rc<Self>);

    /// Takes a client over that another shard has accepted.
    fn adopt(&self, client: OwnedFd) {
        drop(client);
    }

    /// Lets its clients finish. Returns how many of their requests are left after `time_max`.
    fn stop(&self, time_max: Duration) -> Later<'_, usize>;

    /// What its clients have asked for so far.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

/// A future behind a trait object.
pub type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One shard, for a frontend's part on it.
pub struct OnShard<'a> {
    /// The shard.
    pub local: &'a Local,
    /// The arrays of the exports, in order.
    pub served: Vec<Served<'a>>,
    /// Gives a client to another shard, whose part then adopts it.
    pub give: Rc<dyn Fn(ShardIndex, OwnedFd)>,
}

/// An export, with its array on this shard.
pub struct Served<'a> {
    /// The export.
    pub export: &'a ArrayExport,
    /// Its array.
    pub array: Rc<HostArray>,
    /// The array's name.
    pub array_name: &'a str,
    /// Whether clients may only read.
    pub read_only: bool,
}

/// All frontends of a process, its control sockets and its device names.
pub struct Frontends {
    /// The exports; a client that gives no name gets the first.
    pub exports: Vec<ArrayExport>,
    /// In the order in which their addresses are printed.
    pub list: Vec<Box<dyn Frontend>>,
    /// The sockets for `detail`, `fail` and `stop`: one for each array, in order.
    pub controls: Vec<Listener>,
    /// `md127` of each array, in order.
    pub devices: Vec<DeviceName>,
}

impl Frontends {
    /// The exports of an array, by their places.
    fn of_array(&self, array: ArrayIndex) -> impl Iterator<Item = usize> + '_ {
        (0..self.exports.len()).filter(move |export| self.exports[*export].array == array)
    }

    /// Where clients find an array.
    pub(crate) fn addresses(&self, array: ArrayIndex) -> Vec<String> {
        let places = |frontend| self.of_array(array).map(move |export| (frontend, export));
        self.list.iter().flat_map(places).map(|(frontend, export)| frontend.address(export)).collect()
    }

    /// Adds the exports of an array to a report. `is_read_only`: now, whatever the export says.
    pub(crate) fn show(&self, array: ArrayIndex, is_read_only: bool, server: &mut report::Server) {
        for export in self.of_array(array) {
            let ArrayExport { name, read_only, .. } = &self.exports[export];
            let mut shown =
                report::Export { name: name.clone(), read_only: *read_only || is_read_only, mode: None, file: None };
            self.list.iter().for_each(|frontend| frontend.show(export, server, &mut shown));
            server.exports.push(shown);
        }
    }

    /// Gives up the sockets and the mounts. Accepted connections have ended by then, or end with their shard.
    pub(crate) fn close(&self) {
        self.list.iter().for_each(|frontend| frontend.close());
        self.controls.iter().for_each(Listener::close);
    }
}
