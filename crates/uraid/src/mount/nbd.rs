//! Block devices of the kernel's NBD driver, by nbd-client.
//! Owns: attaching one to an export, detaching it, the devices of its partitions. Not here: when (`mount`).
//! Spec: nbd-client(8), the kernel's drivers/block/nbd.c: `pid` in sysfs is there while a device is connected.

use super::MountError;
use crate::shared::program::{ProgramError, run};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use uraid_bench::nbd::{Address, Endpoint};

const PROGRAM: &str = "nbd-client";
/// A server with default memory takes requests of 32 MiB; this is two stripes of 16 chunks of 128 KiB.
const REQUEST_KIB_MAX: u32 = 4096;
/// How long the kernel may take to show the partitions of a new device.
const PARTITIONS_TIME_MAX: Duration = Duration::from_secs(2);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Whether the kernel has the driver, which is loaded if that is needed, and nbd-client is installed.
pub(super) fn is_available() -> bool {
    let quietly = |program: &str, word: &str| {
        let mut command = Command::new(program);
        command.arg(word).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok()
    };
    quietly(PROGRAM, "-V") && (has_driver() || quietly("modprobe", "nbd") && has_driver())
}

fn has_driver() -> bool {
    folder_of(Path::new("/dev/nbd0")).is_some_and(|folder| folder.exists())
}

/// Attaches the first free device to the export at this URI. The device, and what [`user_of`] says of it now.
pub(super) fn attach(uri: &str, read_only: bool) -> Result<(PathBuf, u32), MountError> {
    let failed = |text: String| MountError::Program(ProgramError { program: PROGRAM.to_owned(), text });
    let Address { endpoint, export } = Address::parse(uri).map_err(|error| failed(error.to_string()))?;
    let devices = (0..).map(|nth: u32| PathBuf::from(format!("/dev/nbd{nth}")));
    let exists = |device: &PathBuf| folder_of(device).is_some_and(|folder| folder.exists());
    for device in devices.take_while(exists).filter(|device| user_of(device).is_none()) {
        let mut command = Command::new(PROGRAM);
        match &endpoint {
            Endpoint::Unix(socket) => command.arg("-unix").arg(socket),
            Endpoint::Tcp(at) => {
                command.args(at.rsplit_once(':').map_or([at.as_str(), "10809"], |(host, port)| [host, port]))
            }
        };
        command.arg(&device).args(["-name", &export]).args(read_only.then_some("-readonly"));
        match (run(&mut command), user_of(&device)) {
            (Ok(_), Some(user)) => return Ok((device, user)),
            (Ok(_), None) => return Err(failed(format!("{} is not connected", device.display()))),
            // Another process took it meanwhile.
            (Err(_), Some(_)) => {}
            (Err(error), None) => return Err(error.into()),
        }
    }
    Err(failed("no /dev/nbdN is free: load the module nbd, with a larger nbds_max if it is loaded".to_owned()))
}

/// Lets requests be longer than the driver's 128 KiB, so that whole stripes arrive as such. Of a server that takes them:
/// the kernel does not ask it.
pub(super) fn allow_long_requests(device: &Path) {
    let Some(queue) = folder_of(device).map(|folder| folder.join("queue")) else { return };
    let longest = fs::read_to_string(queue.join("max_hw_sectors_kb")).ok();
    if let Some(longest) = longest.and_then(|text| text.trim().parse::<u32>().ok()) {
        // Without it the disk is slower, and nothing else.
        let _ = fs::write(queue.join("max_sectors_kb"), longest.min(REQUEST_KIB_MAX).to_string());
    }
}

/// Begins to detach it.
pub(super) fn detach(device: &Path) -> Result<(), MountError> {
    run(Command::new(PROGRAM).arg("-d").arg(device))?;
    Ok(())
}

/// The process that has connected it, which tells two connections apart. `None`: it is not connected.
pub(super) fn user_of(device: &Path) -> Option<u32> {
    fs::read_to_string(folder_of(device)?.join("pid")).ok()?.trim().parse().ok()
}

/// The device of a partition, when the kernel has read the table.
pub(super) fn partition(device: &Path, number: u32) -> Result<PathBuf, MountError> {
    let partition = PathBuf::from(format!("{}p{number}", device.display()));
    // It reads the table when the device is opened.
    let source = File::open(device).err();
    let end = Instant::now() + PARTITIONS_TIME_MAX;
    while source.is_none() && Instant::now() < end {
        if partition.exists() {
            return Ok(partition);
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
    let text = format!("the kernel shows no {}: is the module loaded with max_part=0?", partition.display());
    let text = source.map_or(text, |error| error.to_string());
    Err(ProgramError { program: PROGRAM.to_owned(), text }.into())
}

fn folder_of(device: &Path) -> Option<PathBuf> {
    Some(Path::new("/sys/block").join(device.file_name()?))
}
