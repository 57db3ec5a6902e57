//! The sockets of running arrays: the NBD socket with its exports, the control sockets; the mount of their files.
//! Owns: [`Frontends`], the sockets' paths, `--nbd`. Not here: the protocols (`export-nbd`, `control`), the mount itself
//! (`files`).
//! Invariant: an array that is a member of another one is not exported. TCP needs --insecure.

use crate::files::Files;
use crate::opening::{ServeError, Timeouts};
use crate::stack::{Assembled, Stack};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uraid_arrays::ArrayIndex;
use uraid_control::device_name::{DeviceName, Named};
use uraid_control::log::warn;
use uraid_control::names;
use uraid_control::runtime;
use uraid_export_nbd::Spread;
use uraid_host::{ArenaBlocks, Listener};

/// Only the owner reaches the exports, unless --export-mode says otherwise.
const EXPORT_MODE: u32 = 0o600;
/// Only the owner reaches the control sockets.
const CONTROL_MODE: u32 = 0o600;

/// The sockets of a process.
pub struct Frontends {
    /// The socket for NBD clients.
    pub nbd: Listener,
    /// The exports; a client that gives no name gets the first.
    pub exports: Vec<ArrayExport>,
    /// The sockets for `detail`, `fail` and `stop`: one for each array, in order.
    pub controls: Vec<Listener>,
    /// `md127` of each array, in order.
    pub devices: Vec<DeviceName>,
    /// The mount of `--fuse`.
    pub files: Option<Files>,
    /// How many clients each shard has.
    pub spread: Arc<Spread>,
}

impl Frontends {
    /// Removes the sockets and the mount, and closes connections that were not accepted yet. Accepted connections have ended by then,
    /// or end with their shard.
    pub(crate) fn close(&self) {
        self.nbd.close();
        self.controls.iter().for_each(Listener::close);
        self.files.iter().for_each(Files::let_go);
    }
}

/// An array that clients can use.
pub struct ArrayExport {
    /// Which one.
    pub array: ArrayIndex,
    /// The name of the export.
    pub name: String,
    /// Whether clients may only read, even if the array takes writes.
    pub read_only: bool,
    /// The mode of its socket; over TCP it has none.
    pub mode: Option<u32>,
    /// The URI that is printed for clients.
    pub uri: String,
    /// Its file, if there is a mount.
    pub file: Option<PathBuf>,
}

/// Where clients shall reach the arrays.
pub struct Places {
    /// The address of the NBD socket; by default one in the runtime directory.
    pub nbd: Option<Address>,
    /// The name of the only export, instead of the array's.
    pub export_name: Option<String>,
    /// The mode of the NBD socket.
    pub export_mode: Option<u32>,
    /// Whether clients may only read.
    pub export_read_only: bool,
    /// Whether the address may be one that other users reach.
    pub insecure: bool,
    /// The control socket; by default one in the runtime directory.
    pub control: Option<PathBuf>,
    /// Where the arrays are mounted as files.
    pub fuse: Option<PathBuf>,
}

/// Opens all sockets, and mounts the files. `file_blocks`: the buffers of each shard for the files.
pub fn listen(
    places: Places,
    stack: &Stack,
    shards: u16,
    file_blocks: ArenaBlocks,
    timeouts: &Timeouts,
) -> Result<Frontends, ServeError> {
    let served = stack.tops();
    if served.len() > 1 && (places.control.is_some() || places.export_name.is_some()) {
        return Err(ServeError::OneName { count: served.len() });
    }
    let first = &stack.array(served[0]).name;
    let mode = places.export_mode.unwrap_or(EXPORT_MODE);
    let (nbd, place) = match places.nbd {
        None => listen_unix(&runtime_socket(first, "nbd")?, mode, timeouts)?,
        Some(Address::Unix(path)) => listen_unix(&path, mode, timeouts)?,
        Some(Address::Tcp(address)) => {
            if !places.insecure {
                return Err(ServeError::Insecure { found: address });
            }
            if places.export_mode.is_some() {
                return Err(ServeError::ModeOfTcp { address });
            }
            let failed = |source| ServeError::Listen { at: address.to_string(), source };
            let listener = Listener::tcp(address).map_err(failed)?;
            let chosen = listener.tcp_address().unwrap_or(address);
            (listener, Address::Tcp(chosen))
        }
    };
    let exports = served.iter().map(|&array| {
        let name = places.export_name.as_ref().unwrap_or(&stack.array(array).name).clone();
        let (uri, mode) = match &place {
            Address::Unix(path) => (names::unix_uri(&name, path), Some(mode)),
            Address::Tcp(address) => (names::tcp_uri(&name, *address), None),
        };
        ArrayExport { array, name, read_only: places.export_read_only, mode, uri, file: None }
    });
    let mut exports: Vec<ArrayExport> = exports.collect();
    let control = |index| timeouts.listen(&control_socket(places.control.as_deref(), stack, index)?, CONTROL_MODE);
    let controls = stack.indexes().map(control).collect::<Result<_, _>>()?;
    let files = match &places.fuse {
        Some(folder) => Some(Files::mount(folder, &mut exports, shards, file_blocks)?),
        None => None,
    };
    let devices = stack.arrays.iter().map(device_name).collect();
    Ok(Frontends { nbd, exports, controls, devices, files, spread: Spread::new(shards) })
}

/// The array's name as a device, which the map in the runtime directory remembers.
fn device_name(array: &Assembled) -> DeviceName {
    let template = &array.plan.template;
    let metadata = template.version.name();
    let (device, error) = DeviceName::take(&Named { name: &array.name, metadata, uuid: template.set_uuid });
    if let Some(error) = error {
        let device = device.text();
        warn(&format!("{}: is {device} now, and may have another number at its next start: {error}", array.name));
    }
    device
}

/// `--control` is for the served array; its member arrays have theirs beside it.
fn control_socket(control: Option<&Path>, stack: &Stack, index: ArrayIndex) -> Result<PathBuf, ServeError> {
    let name = &stack.array(index).name;
    match control {
        None => runtime_socket(name, "ctl"),
        Some(path) if stack.is_member(index) => Ok(path.with_file_name(format!("{}.ctl", names::file_name(name)))),
        Some(path) => Ok(path.to_owned()),
    }
}

fn listen_unix(path: &Path, mode: u32, timeouts: &Timeouts) -> Result<(Listener, Address), ServeError> {
    let listener = timeouts.listen(path, mode)?;
    Ok((listener, Address::Unix(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))))
}

fn runtime_socket(name: &str, extension: &str) -> Result<PathBuf, ServeError> {
    let directory = runtime::make()?;
    Ok(directory.join(format!("{}.{extension}", names::file_name(name))))
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
