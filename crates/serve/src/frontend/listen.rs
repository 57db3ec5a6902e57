//! Where the clients and callers of running arrays find them: sockets in the runtime directory, or as asked.
//! Owns: [`Places`], the sockets' paths, `--nbd`; which frontends were asked for ([`plans`]), opening them all
//! ([`listen`]). Not here: what each of them does (`nbd`, `fuse`), calls (`control_socket`).
//! Invariant: TCP needs --insecure.

use crate::frontend::fuse::FusePlan;
use crate::frontend::nbd::{Address, NbdError, NbdPlan};
use crate::frontend::{ArrayExport, FrontendPlan, Frontends};
use crate::memory::Share;
use crate::opening::{ServeError, Timeouts};
use crate::stack::{Assembled, AssembledStack};
use std::path::{Path, PathBuf};
use uraid_arrays::ArrayIndex;
use uraid_control::device_name::{DeviceName, Named};
use uraid_control::log::warn;
use uraid_control::names;
use uraid_control::runtime;
use uraid_host::Listener;

/// Only the owner reaches the exports, unless --export-mode says otherwise.
const EXPORT_MODE: u32 = 0o600;
/// Only the owner reaches the control sockets.
const CONTROL_MODE: u32 = 0o600;

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

/// The frontends that are asked for. None of them is open yet.
pub fn plans(
    places: &Places,
    stack: &AssembledStack,
    timeouts: &Timeouts,
) -> Result<Vec<Box<dyn FrontendPlan>>, ServeError> {
    let served = stack.tops();
    if served.len() > 1 && (places.control.is_some() || places.export_name.is_some()) {
        return Err(ServeError::OneName { count: served.len() });
    }
    let mut plans: Vec<Box<dyn FrontendPlan>> =
        vec![Box::new(nbd_plan(places, &stack.array(served[0]).name, *timeouts)?)];
    if let Some(folder) = &places.fuse {
        plans.push(Box::new(FusePlan { folder: folder.clone() }));
    }
    Ok(plans)
}

/// The NBD socket; by default it has the name of the first array.
fn nbd_plan(places: &Places, first: &str, timeouts: Timeouts) -> Result<NbdPlan, ServeError> {
    let mode = places.export_mode.unwrap_or(EXPORT_MODE);
    let unix = |path: PathBuf| {
        NbdPlan::new(Some(mode), move || {
            let listener = timeouts.listen(&path, mode)?;
            Ok((listener, Address::Unix(std::path::absolute(&path).unwrap_or(path))))
        })
    };
    match &places.nbd {
        None => Ok(unix(runtime_socket(first, "nbd")?)),
        Some(Address::Unix(path)) => Ok(unix(path.clone())),
        Some(Address::Tcp(found)) if !places.insecure => Err(NbdError::Insecure { found: *found }.into()),
        Some(Address::Tcp(address)) if places.export_mode.is_some() => {
            Err(NbdError::ModeOfTcp { address: *address }.into())
        }
        Some(Address::Tcp(address)) => {
            let address = *address;
            Ok(NbdPlan::new(None, move || {
                let failed = |source| ServeError::Listen { at: address.to_string(), source };
                let listener = Listener::tcp(address).map_err(failed)?;
                let chosen = listener.tcp_address().unwrap_or(address);
                Ok((listener, Address::Tcp(chosen)))
            }))
        }
    }
}

/// Opens the frontends and the control sockets.
pub fn listen(
    places: &Places,
    plans: Vec<Box<dyn FrontendPlan>>,
    stack: &AssembledStack,
    shards: u16,
    share: Share,
    timeouts: &Timeouts,
) -> Result<Frontends, ServeError> {
    let export = |array| {
        let name = places.export_name.as_ref().unwrap_or(&stack.array(array).name).clone();
        ArrayExport { array, name, read_only: places.export_read_only }
    };
    let exports: Vec<ArrayExport> = stack.tops().into_iter().map(export).collect();
    let list = plans.into_iter().map(|plan| plan.open(&exports, shards, share)).collect::<Result<_, _>>()?;
    let control = |index| timeouts.listen(&control_socket(places.control.as_deref(), stack, index)?, CONTROL_MODE);
    let controls = stack.indexes().map(control).collect::<Result<_, _>>()?;
    let devices = stack.arrays.iter().map(device_name).collect();
    Ok(Frontends { exports, list, controls, devices })
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
fn control_socket(control: Option<&Path>, stack: &AssembledStack, index: ArrayIndex) -> Result<PathBuf, ServeError> {
    let name = &stack.array(index).name;
    match control {
        None => runtime_socket(name, "ctl"),
        Some(path) if stack.is_member(index) => Ok(path.with_file_name(format!("{}.ctl", names::file_name(name)))),
        Some(path) => Ok(path.to_owned()),
    }
}

fn runtime_socket(name: &str, extension: &str) -> Result<PathBuf, ServeError> {
    let directory = runtime::make()?;
    Ok(directory.join(format!("{}.{extension}", names::file_name(name))))
}
