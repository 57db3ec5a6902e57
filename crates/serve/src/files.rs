//! The exports as files of a FUSE mount: `--fuse`.
//! Owns: [`Files`]: the mount, the files' names, what the start says about rights. Not here: serving the files
//! (`export-fuse`), mounting (`host`), when they are served and closed (`session`).
//! Invariant: the mount is made before the privileges are dropped, and is gone when the process has ended.

use crate::frontends::ArrayExport;
use crate::opening::ServeError;
use crate::session::HostServer;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::{ArrayIndex, HostArray};
use uraid_control::log::warn;
use uraid_control::names;
use uraid_export_fuse::{Common, Export, Server};
use uraid_host::{ArenaBlocks, FuseMount, Local, guard_against_reclaim};

/// How long a stop waits until the mount is gone.
const UNMOUNT_TIME_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The mount of a process, with one file for each export.
pub struct Files {
    mount: FuseMount,
    common: Common,
    blocks: ArenaBlocks,
}

impl Files {
    /// Mounts at `folder`, and gives the exports their files. `blocks`: the buffers of each shard.
    pub fn mount(
        folder: &Path,
        exports: &mut [ArrayExport],
        shards: u16,
        blocks: ArenaBlocks,
    ) -> Result<Files, ServeError> {
        let file_names: Vec<String> = exports.iter().map(|export| names::file_name(&export.name)).collect();
        for (at, name) in file_names.iter().enumerate() {
            if name.is_empty() || file_names[..at].contains(name) {
                return Err(ServeError::FileName { name: exports[at].name.clone() });
            }
        }
        let mount = FuseMount::new(folder, shards)?;
        for (export, name) in exports.iter_mut().zip(&file_names) {
            export.file = Some(mount.path().join(name));
        }
        Ok(Files { mount, common: Common::new(exports.len()), blocks })
    }

    /// The server of one shard, for the exports in order and whether each is read-only.
    pub(crate) fn server(
        &self,
        local: &Local,
        exports: impl Iterator<Item = (PathBuf, bool, Rc<HostArray>)>,
    ) -> Rc<HostServer> {
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let exports = exports.map(|(path, read_only, array)| (Export { name: name(&path), read_only }, array));
        let device = self.mount.take_device(local.index()).expect("each shard takes its own once");
        Server::new(local.clone(), device, exports.collect(), self.common.clone(), self.blocks)
    }

    /// How often the file of export `index` is open.
    pub(crate) fn opens(&self, index: usize) -> u64 {
        self.common.opens(index)
    }

    /// Lets the mount go; the shards have closed their parts of it.
    pub(crate) fn let_go(&self) {
        self.mount.let_go();
    }

    /// Lets the mount go, and waits until it is gone.
    pub(crate) async fn unmount(&self, local: &Local) {
        self.let_go();
        let end = local.now() + UNMOUNT_TIME_MAX;
        while !self.mount.is_gone() && local.now() < end {
            local.sleep(LOOK_AGAIN_AFTER).await;
        }
    }

    /// The mount has ended although the server has not: by umount, for instance.
    pub(crate) fn say_ended(&self, error: &dyn std::error::Error) {
        let path = self.mount.path().display();
        warn(&format!("{path}: {error}: its files are not served any more; NBD clients are"));
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

/// What a stop says while files of the process are open; `None`: none is. `exports`: all of them, in order.
pub(crate) fn open_text(files: &Files, exports: &[ArrayExport]) -> Option<String> {
    let open = exports.iter().enumerate().map(|(index, export)| (export, files.opens(index)));
    let open: Vec<String> = open
        .filter(|(_, opens)| *opens > 0)
        .filter_map(|(export, opens)| {
            let times = if opens == 1 { "once".to_owned() } else { format!("{opens} times") };
            Some(format!("{} is open {times}", export.file.as_ref()?.display()))
        })
        .collect();
    (!open.is_empty()).then(|| open.join(", "))
}

/// The files of an array's exports.
pub(crate) fn of_array(exports: &[ArrayExport], array: ArrayIndex) -> Vec<String> {
    let its = exports.iter().filter(|export| export.array == array);
    its.filter_map(|export| Some(export.file.as_ref()?.display().to_string())).collect()
}
