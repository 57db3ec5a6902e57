//! The exports as files of a FUSE mount: `--fuse`.
//! Owns: [`Fuse`]: the mount, the files' names, why there is none, what the start says about rights. Not here: serving
//! the files (`export-fuse`), mounting (`host`), when they are served and closed (`life`).
//! Invariant: the mount is made before the privileges are dropped, and is gone when the process has ended.

use super::{ArrayExport, Frontend, FrontendPlan, Later, OnShard, Serving};
use crate::memory::{Share, TakesMemory, block_bytes};
use crate::opening::ServeError;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_arrays::HostArray;
use uraid_block::ShardIndex;
use uraid_control::log::warn;
use uraid_control::names;
use uraid_control::report;
use uraid_export_fuse::{ARENA_BLOCKS, ARENA_BLOCKS_MIN, Common, Export, Server};
use uraid_host::{ArenaBlocks, FuseMount, Local, MountError, guard_against_reclaim};

/// How long a stop waits until the mount is gone.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// Why nothing is mounted.
#[derive(Debug, thiserror::Error)]
enum FuseError {
    /// Nothing could be mounted.
    #[error("--fuse")]
    Mount(#[source] MountError),
    /// An export has no name of its own as a file.
    #[error("--fuse: export {name:?} has no file name of its own; expected --export-name with another name")]
    FileName {
        /// The name of the export.
        name: String,
    },
}

impl From<FuseError> for ServeError {
    fn from(error: FuseError) -> ServeError {
        ServeError::Frontend(Box::new(error))
    }
}

/// The folder of `--fuse`.
pub struct FusePlan {
    /// Where the files shall be.
    pub folder: PathBuf,
}

impl TakesMemory for FusePlan {
    fn buffer_bytes(&self, share: Share) -> u64 {
        block_bytes(&blocks(share))
    }

    fn other_bytes(&self, _: Share) -> u64 {
        0
    }
}

/// The buffers of each shard for the files.
fn blocks(share: Share) -> ArenaBlocks {
    let of = |least: u32, full: u32| share.of(least.into(), full.into()) as u32;
    ArenaBlocks {
        small: of(ARENA_BLOCKS_MIN.small, ARENA_BLOCKS.small),
        large: of(ARENA_BLOCKS_MIN.large, ARENA_BLOCKS.large),
    }
}

impl FrontendPlan for FusePlan {
    fn open(
        self: Box<Self>,
        exports: &[ArrayExport],
        shards: u16,
        share: Share,
    ) -> Result<Box<dyn Frontend>, ServeError> {
        let file_names: Vec<String> = exports.iter().map(|export| names::file_name(&export.name)).collect();
        for (at, name) in file_names.iter().enumerate() {
            if name.is_empty() || file_names[..at].contains(name) {
                return Err(FuseError::FileName { name: exports[at].name.clone() }.into());
            }
        }
        let mount = Arc::new(FuseMount::new(&self.folder, shards).map_err(FuseError::Mount)?);
        let common = Common::new(exports.len());
        Ok(Box::new(Fuse { mount, file_names, common, blocks: blocks(share) }))
    }
}

/// The mount of a process, with one file for each export.
pub(crate) struct Fuse {
    mount: Arc<FuseMount>,
    /// Of each export.
    file_names: Vec<String>,
    common: Common,
    blocks: ArenaBlocks,
}

impl Fuse {
    fn file(&self, export: usize) -> PathBuf {
        self.mount.path().join(&self.file_names[export])
    }
}

impl Frontend for Fuse {
    fn on_shard(&self, at: &OnShard<'_>) -> Rc<dyn Serving> {
        let exports = at.served.iter().zip(&self.file_names);
        let exports = exports
            .map(|(served, name)| (Export { name: name.clone(), read_only: served.read_only }, served.array.clone()));
        let device = self.mount.take_device(at.local.index()).expect("each shard takes its own once");
        let server = Server::new(at.local.clone(), device, exports.collect(), self.common.clone(), self.blocks);
        Rc::new(OfShard { local: at.local.clone(), server, mount: self.mount.clone() })
    }

    fn address(&self, export: usize) -> String {
        self.file(export).display().to_string()
    }

    fn show(&self, export: usize, _: &mut report::Server, of: &mut report::Export) {
        of.file = Some(self.address(export));
    }

    fn in_use(&self) -> Option<String> {
        let open = (0..self.file_names.len()).map(|export| (export, self.common.opens(export)));
        let open: Vec<String> = open
            .filter(|(_, opens)| *opens > 0)
            .map(|(export, opens)| {
                let times = if opens == 1 { "once".to_owned() } else { format!("{opens} times") };
                format!("{} is open {times}", self.address(export))
            })
            .collect();
        (!open.is_empty()).then(|| {
            format!(
                "{}, perhaps by a loop device with a file system on it; unmount it, detach it (losetup -d) and close the \
                 file",
                open.join(", ")
            )
        })
    }

    fn serves_kernel(&self) -> bool {
        true
    }

    fn close(&self) {
        self.mount.let_go();
    }

    fn leave<'a>(&'a self, local: &'a Local) -> Later<'a, ()> {
        Box::pin(async {
            self.mount.let_go();
            let end = local.now() + UNMOUNT_TIME_MAX;
            while !self.mount.is_gone() && local.now() < end {
                local.sleep(LOOK_AGAIN_AFTER).await;
            }
        })
    }
}

struct OfShard {
    local: Local,
    server: Rc<Server<HostArray>>,
    mount: Arc<FuseMount>,
}

impl Serving for OfShard {
    /// Until the stop, or until the files are unmounted.
    fn serve(self: Rc<Self>) {
        let at = self.clone();
        self.local.spawn(async move {
            let ended = at.server.clone().serve().await;
            if let Some(error) = ended.filter(|_| at.local.index() == ShardIndex(0)) {
                let path = at.mount.path().display();
                warn(&format!("{path}: {error}: its files are not served any more; NBD clients are"));
            }
        });
    }

    fn stop(&self, time_max: Duration) -> Later<'_, usize> {
        Box::pin(self.server.stop(time_max))
    }
}

/// Keeps the kernel from waiting for this process while this process waits for the kernel, when memory is short. Says
/// what is refused.
pub fn guard() {
    let guard = guard_against_reclaim();
    let refused = [(guard.io_flusher, "PR_SET_IO_FLUSHER"), (guard.locked, "mlockall")];
    let refused: Vec<&str> = refused.iter().filter(|(outcome, _)| outcome.is_err()).map(|(_, name)| *name).collect();
    if !refused.is_empty() {
        warn(&format!(
            "{} refused: a file system of this machine on the array may hang it when memory is short; root with \
             CAP_SYS_RESOURCE and CAP_IPC_LOCK is not refused",
            match refused[..] {
                [one] => format!("{one} is"),
                _ => format!("{} are", refused.join(" and ")),
            }
        ));
    }
}
