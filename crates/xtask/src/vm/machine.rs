//! One run of a virtual machine.
//! Owns: QEMU's command line, its output and exit status, facts. Not here: what is in the guest (`initramfs`).
//! Invariant: the machine is gone when `run` returns, and it ends by itself after its time.

use super::kernel::{Release, kernel};
use super::{Lab, LabError, at, initramfs, lab_error, output_of};
use crate::programs::packages;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `timeout` ends with when it has ended the machine.
const TIMED_OUT: i32 = 124;

/// A raw image, in the guest under `/disk/` by its file name.
pub(crate) struct Disk {
    /// The file; its name has at most 20 characters, as virtio's serial numbers do.
    pub(crate) image: PathBuf,
    /// The guest may not write to it.
    pub(crate) is_read_only: bool,
}

/// What a script found out: it prints `fact NAME KEY VALUE`; by name and key.
pub(crate) type Facts = BTreeMap<(String, String), String>;

/// What to run.
pub(crate) struct Machine {
    /// The distribution whose kernel boots.
    pub(crate) release: Release,
    /// In order: `/dev/vda`, `/dev/vdb`, ...
    pub(crate) disks: Vec<Disk>,
    /// A shell script.
    pub(crate) script: String,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// The machine is killed after this time.
    pub(crate) seconds_max: u32,
    /// Programs of the host that the script needs besides those that every guest has.
    pub(crate) programs: Vec<PathBuf>,
}

/// Everything that QEMU can emulate, but for CMPXCHG16B: after it QEMU 7.2 leaves garbage in the flags register, and
/// the guest's kernel, which allocates memory with it, dies at a random moment of its boot.
const CPU: &str = "max,-cx16";

/// PCI gives every slot 8 functions; slots 5 to 28 are the disks'.
const DISKS_MAX: usize = 8 * 24;
const SERIAL_BYTES_MAX: usize = 20;

/// A script that is to be cut off says this after its end, from the background.
const POWER_CUT: &str = "power-cut";
/// More requests than these a second wait in QEMU, and are lost with it.
const SLOW: &str = ",throttling.iops-write=20";

impl Machine {
    fn contents(&self) -> initramfs::Run<'_> {
        initramfs::Run { script: &self.script, arguments: &self.arguments, programs: &self.programs }
    }

    /// Boots, passes on what the script says, and returns the facts among it; a script that fails is an error.
    pub(crate) fn facts(&self) -> Lab<Facts> {
        self.facts_until_cut(&[])
    }

    /// The same, but the machine is gone at once when the script says [`POWER_CUT`]. Writes to the disks of these images
    /// take long: those of the others are done when they are not.
    pub(crate) fn facts_until_cut(&self, slow: &[PathBuf]) -> Lab<Facts> {
        let mut facts = Facts::new();
        let status = self.run_until_cut(slow, &mut |line| match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["fact", name, key, value] => {
                facts.insert(((*name).to_string(), (*key).to_string()), (*value).to_string());
            }
            [POWER_CUT] => {}
            _ => println!("guest: {line}"),
        })?;
        if status == 0 { Ok(facts) } else { lab_error(format!("the guest's script ended with {status}")) }
    }

    /// Boots, hands every line of the script's output to `line`, and returns the script's exit status.
    pub(crate) fn run(&self, line: &mut dyn FnMut(&str)) -> Lab<u8> {
        self.run_until_cut(&[], line)
    }

    fn run_until_cut(&self, slow: &[PathBuf], line: &mut dyn FnMut(&str)) -> Lab<u8> {
        let kernel = kernel(self.release)?;
        let scratch = Scratch::new("uraid-vm")?;
        let initrd = scratch.path.join("initrd");
        at(&initrd, std::fs::write(&initrd, initramfs::build(&kernel, &self.contents())?))?;
        let console = scratch.path.join("console");
        let status = scratch.path.join("status");
        let mut command = self.command(&kernel.image, &initrd, &console, &status, slow)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| LabError::Trouble(format!("cannot start QEMU: {error}")))?;
        let output = child.stdout.take().expect("stdout is piped");
        for text in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&text);
            let text = text.trim_end_matches('\r');
            line(text);
            if text == POWER_CUT {
                kill_child_of(child.id())?;
            }
        }
        let ended = at(&scratch.path, child.wait())?;
        let told = std::fs::read_to_string(&status).unwrap_or_default();
        if let Ok(status) = told.trim().parse::<u8>() {
            return Ok(status);
        }
        let log = String::from_utf8_lossy(&std::fs::read(&console).unwrap_or_default()).into_owned();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(30)..].join("\n");
        let what =
            format!("the guest ended without a status ({ended}; limit {} s); its console:\n{last}", self.seconds_max);
        // Without an exit code a signal ended it: QEMU itself has crashed. And its processors may run an old copy of an
        // instruction that the guest's kernel is just patching, which ends the boot with this.
        let is_emulator = matches!(ended.code(), Some(TIMED_OUT) | None) || log.contains("Oops: int3");
        Err(if is_emulator { LabError::Hung(what) } else { LabError::Trouble(what) })
    }

    /// Wrapped in `timeout`, so that the machine ends even if this process does not.
    fn command(&self, image: &Path, initrd: &Path, console: &Path, status: &Path, slow: &[PathBuf]) -> Lab<Command> {
        let Some(qemu) = packages::find("qemu-system-x86_64") else {
            return lab_error("qemu-system-x86_64 is missing");
        };
        let accelerator = std::env::var("URAID_VM_ACCEL").unwrap_or_else(|_| "tcg,thread=multi".to_string());
        let mut command = Command::new("timeout");
        command.args(["--foreground", "--kill-after=5", &self.seconds_max.to_string()]).arg(qemu);
        command.args(["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35"]);
        command.args(["-accel", &accelerator, "-cpu", CPU, "-smp", "2", "-m", "1G"]);
        command.arg("-kernel").arg(image).arg("-initrd").arg(initrd);
        // A busy host's emulated timer can be late for the kernel's test of it, which would end the boot in a panic.
        let options = "console=ttyS0 panic=-1 mitigations=off audit=0 random.trust_cpu=on no_timer_check";
        command.args(["-append", options]);
        command.arg("-serial").arg(format!("file:{}", escaped(console)));
        command.args(["-device", "virtio-serial-pci,addr=2", "-chardev", "file,id=out,path=/dev/stdout"]);
        command.arg("-chardev").arg(format!("file,id=status,path={}", escaped(status)));
        for name in ["out", "status"] {
            command.args(["-device", &format!("virtserialport,chardev={name},name=lab.{name}")]);
        }
        if self.disks.len() > DISKS_MAX {
            return lab_error(format!("{} disks, at most {DISKS_MAX}", self.disks.len()));
        }
        for (index, disk) in self.disks.iter().enumerate() {
            let serial = disk.image.file_name().and_then(|name| name.to_str()).unwrap_or("");
            if serial.is_empty() || serial.len() > SERIAL_BYTES_MAX || serial.contains(',') || !disk.image.is_file() {
                return lab_error(format!(
                    "{}: not a file whose name has at most {SERIAL_BYTES_MAX} characters and no comma",
                    disk.image.display()
                ));
            }
            let read_only = if disk.is_read_only { "on" } else { "off" };
            // The guest's flushes need not reach the host's disk: power cuts are not tested here.
            let limit = if slow.contains(&disk.image) { SLOW } else { "" };
            command.arg("-drive").arg(format!(
                "if=none,id=disk{index},file={},format=raw,discard=unmap,cache=unsafe,read-only={read_only}{limit}",
                escaped(&disk.image)
            ));
            let multifunction = if index % 8 == 0 { ",multifunction=on" } else { "" };
            command.arg("-device").arg(format!(
                "virtio-blk-pci,drive=disk{index},serial={serial},num-queues=1,addr={:x}.{:x}{multifunction}",
                5 + index / 8,
                index % 8
            ));
        }
        Ok(command)
    }
}

/// Ends the child of `timeout`, which then ends, too; it could not hand this signal on.
pub(crate) fn kill_child_of(parent: u32) -> Lab<()> {
    let children = PathBuf::from(format!("/proc/{parent}/task/{parent}/children"));
    let child = at(&children, std::fs::read_to_string(&children))?;
    output_of(Command::new("kill").args(["-s", "KILL", child.trim()])).map(|_| ())
}

/// A comma in a QEMU option value is written twice.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// A folder that goes away with its owner.
pub(crate) struct Scratch {
    /// Where it is.
    pub(crate) path: PathBuf,
}

impl Scratch {
    /// An empty folder of our own among the system's temporary files.
    pub(crate) fn new(prefix: &str) -> Lab<Scratch> {
        let base = std::env::temp_dir();
        for attempt in 0..100 {
            let path = base.join(format!("{prefix}-{}-{attempt}", std::process::id()));
            if std::fs::create_dir(&path).is_ok() {
                return Ok(Scratch { path });
            }
        }
        lab_error(format!("{}: no folder can be made here", base.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
