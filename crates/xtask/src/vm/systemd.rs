//! A Debian with systemd and our package: arrays from mdadm.conf at boot, a member that goes, mail, a spare, a reboot in
//! its recovery, a scheduled scrub, an upgrade under load.
//! Owns: the system's disk, one boot for each stage of the script, disks that are kept to boot a stage again. Not here: what
//! is checked (`tests/vm/systemd.sh`), the package (`dist`).
//! Invariant: a stage that did not reach its end has failed. Nothing of the host is changed but the lab's cache, and the
//! folder that the caller names.

use super::kernel::cache;
use super::machine::Scratch;
use super::{Lab, LabError, at, lab_error, output_of};
use crate::programs::packages;
use crate::programs::stage::Tally;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("../../../../tests/vm/systemd.sh");
const SUITE: &str = "bookworm";
const ARCHIVE: &str = "http://deb.debian.org/debian";
/// What the system has besides Debian's smallest.
const PACKAGES: &str = "systemd-sysv,udev,dbus,kmod,e2fsprogs,fio,libnbd-bin,procps,util-linux,mdadm";
/// Installed when the system is whole: the kernel's scripts make an initial file system.
const KERNEL: &[&str] = &["linux-image-cloud-amd64", "initramfs-tools", "zstd", "busybox"];

/// Each boot performs one, and ends the machine.
const STAGES: usize = 4;
const DISKS: usize = 8;
const DISK_BYTES: u64 = 64 << 20;
const ROOT_BYTES: u64 = 1400 << 20;
/// Of one boot. An emulated machine needs one or two minutes until the script begins, a busy one much more.
const SECONDS_MAX: &str = "5400";

/// Runs the script at the end of the boot, and shows what it prints on the console.
const UNIT: &str = "\
[Unit]
Description=the steps of the test
After=multi-user.target
RequiresMountsFor=/test
[Service]
Type=oneshot
ExecStart=/bin/bash /test/systemd.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
";

/// The package and the script lie on a disk of their own, so that a stage that is booted again has today's.
const FSTAB: &str = "\
/dev/vda / ext4 defaults 0 1
/dev/disk/by-id/virtio-test /test ext4 ro 0 0
";
const USAGE: &str = "vm systemd takes a package, that of `cargo xtask dist deb`; then --folder FOLDER, which keeps the disks \
                     there, and --from STAGE, which begins with that boot on the disks in this folder";

/// What one run is asked for.
struct Options<'a> {
    package: &'a Path,
    /// Where the disks are kept; else they are gone at the end.
    folder: Option<&'a Path>,
    /// The first boot.
    from: usize,
}

impl Options<'_> {
    fn of<'a>(words: &[&'a str]) -> Option<Options<'a>> {
        let [package, rest @ ..] = words else { return None };
        let mut options = Options { package: Path::new(*package), folder: None, from: 1 };
        let mut rest = rest;
        while let [name, value, others @ ..] = rest {
            match *name {
                "--folder" => options.folder = Some(Path::new(*value)),
                "--from" => options.from = value.parse().ok().filter(|stage| (1..=STAGES).contains(stage))?,
                _ => return None,
            }
            rest = others;
        }
        let is_kept = options.from == 1 || options.folder.is_some();
        (rest.is_empty() && is_kept).then_some(options)
    }
}

/// `vm systemd PACKAGE.deb [--folder FOLDER [--from STAGE]]`: whether every check of every stage passed.
pub(crate) fn command(words: &[&str]) -> bool {
    let Some(options) = Options::of(words) else {
        println!("{USAGE}");
        return false;
    };
    match run(&options) {
        Ok(tally) => {
            println!("{} passed, {} failed", tally.passed, tally.failed);
            tally.failed == 0 && tally.passed > 0
        }
        Err(error) => {
            println!("vm: {error}");
            false
        }
    }
}

fn run(options: &Options) -> Lab<Tally> {
    let system = system()?;
    let scratch = Scratch::new("uraid-systemd")?;
    let disks = scratch.path.join("disks");
    match options.folder {
        Some(folder) if options.from > 1 => copied(&folder.join(format!("before-{}", options.from)), &disks)?,
        _ => fresh(&system, &disks)?,
    }
    let mut sum = Tally::default();
    for stage in options.from..=STAGES {
        if let Some(folder) = options.folder {
            copied(&disks, &folder.join(format!("before-{stage}")))?;
        }
        println!("--- boot {stage} of {STAGES}");
        test_disk(options.package, stage, &scratch.path, &disks.join("test"))?;
        let (checks, is_whole) = boot(&system, &disks)?;
        sum.add(checks);
        if !is_whole {
            println!("FAILED stage {stage}: it did not reach its end");
            sum.add(Tally::one(false));
            break;
        }
    }
    Ok(sum)
}

/// The disks of a system that was never booted.
fn fresh(system: &Path, disks: &Path) -> Lab<()> {
    at(disks, std::fs::create_dir_all(disks))?;
    configured(system)?;
    sized(&disks.join("root"), ROOT_BYTES)?;
    output_of(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(system).arg(disks.join("root")))?;
    for disk in 0..DISKS {
        sized(&disks.join(format!("disk{disk}")), DISK_BYTES)?;
    }
    Ok(())
}

/// What the script finds under `/test`.
fn test_disk(package: &Path, stage: usize, scratch: &Path, disk: &Path) -> Lab<()> {
    let contents = scratch.join("test");
    at(&contents, std::fs::create_dir_all(&contents))?;
    let size = at(package, std::fs::copy(package, contents.join("uraid.deb")))?;
    at(&contents, std::fs::write(contents.join("systemd.sh"), SCRIPT))?;
    at(&contents, std::fs::write(contents.join("stage"), stage.to_string()))?;
    sized(disk, size.next_multiple_of(1 << 20) + (16 << 20))?;
    output_of(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&contents).arg(disk)).map(drop)
}

/// A copy of the disks in place of an earlier one.
fn copied(from: &Path, to: &Path) -> Lab<()> {
    let _ = std::fs::remove_dir_all(to);
    let parent = to.parent().unwrap_or(to);
    at(parent, std::fs::create_dir_all(parent))?;
    output_of(Command::new("cp").args(["-r", "--sparse=always"]).arg(from).arg(to)).map(drop)
}

fn sized(path: &Path, bytes: u64) -> Lab<()> {
    at(path, std::fs::File::create(path).and_then(|file| file.set_len(bytes)))
}

/// The folder with the system, made once.
fn system() -> Lab<PathBuf> {
    let home = cache()?.join(format!("{SUITE}-systemd"));
    let mark = home.with_extension("complete");
    if mark.is_file() {
        return Ok(home);
    }
    if packages::find("debootstrap").is_none() {
        return lab_error("debootstrap is missing; as root: apt-get install debootstrap");
    }
    println!("vm: making a Debian {SUITE} with systemd in {}", home.display());
    let _ = std::fs::remove_dir_all(&home);
    at(&home, std::fs::create_dir_all(&home))?;
    let include = format!("--include={PACKAGES}");
    output_of(Command::new("debootstrap").args(["--variant=minbase", &include, SUITE]).arg(&home).arg(ARCHIVE))?;
    let resolver = home.join("etc/resolv.conf");
    at(&resolver, std::fs::copy("/etc/resolv.conf", &resolver))?;
    let install =
        format!("DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends {}", KERNEL.join(" "));
    // A mount namespace of its own: /proc and /dev of the system go with it.
    let inside = "mount --bind /proc \"$1/proc\" && mount --bind /dev \"$1/dev\" && exec chroot \"$1\" sh -c \"$2\"";
    output_of(Command::new("unshare").args(["--mount", "sh", "-c", inside, "sh"]).arg(&home).arg(&install))?;
    at(&mark, std::fs::write(&mark, ""))?;
    Ok(home)
}

/// What of the system is the test's, so that a system of before has it, too.
fn configured(system: &Path) -> Lab<()> {
    let units = system.join("etc/systemd/system");
    at(&units, std::fs::write(units.join("uraid-test.service"), UNIT))?;
    let wanted = units.join("multi-user.target.wants");
    at(&wanted, std::fs::create_dir_all(&wanted))?;
    linked("/etc/systemd/system/uraid-test.service", &wanted.join("uraid-test.service"))?;
    for unit in ["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "serial-getty@ttyS0.service"] {
        linked("/dev/null", &units.join(unit))?;
    }
    // The package has an initial file system made, which an emulated machine does in minutes if every module is in it.
    let initramfs = system.join("etc/initramfs-tools");
    at(&initramfs, std::fs::write(initramfs.join("conf.d/uraid-test"), "MODULES=list\nCOMPRESS=gzip\n"))?;
    at(&initramfs, std::fs::write(initramfs.join("modules"), "virtio_pci\nvirtio_blk\next4\n"))?;
    let test = system.join("test");
    at(&test, std::fs::create_dir_all(&test))?;
    at(system, std::fs::write(system.join("etc/fstab"), FSTAB))
}

fn linked(to: &str, link: &Path) -> Lab<()> {
    let _ = std::fs::remove_file(link);
    at(link, std::os::unix::fs::symlink(to, link))
}

/// Boots once; the checks of this stage, and whether it reached its end.
fn boot(system: &Path, folder: &Path) -> Lab<(Tally, bool)> {
    // The one of the disk, which the package and its configuration have changed. This is what a boot loader does.
    let initrd = folder.with_file_name("initrd");
    let name = newest(&system.join("boot"), "initrd.img")?;
    let inside = format!("dump /boot/{} {}", name.file_name().unwrap_or_default().display(), initrd.display());
    output_of(Command::new("debugfs").args(["-R", &inside]).arg(folder.join("root")))?;
    let mut child = machine(system, folder, &initrd)?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| LabError::Trouble(format!("cannot start QEMU: {error}")))?;
    let output = child.stdout.take().expect("stdout is piped");
    let (mut sum, mut is_whole) = (Tally::default(), false);
    for text in BufReader::new(output).split(b'\n').map_while(Result::ok) {
        let text = String::from_utf8_lossy(&text);
        let text = text.trim_end_matches('\r');
        println!("guest: {text}");
        if text.contains("CHECK ok ") {
            sum.add(Tally::one(true));
        } else if text.contains("CHECK failed ") {
            sum.add(Tally::one(false));
        }
        is_whole |= text.contains("STAGE-END");
    }
    at(folder, child.wait())?;
    Ok((sum, is_whole))
}

/// Wrapped in `timeout`, so that the machine ends even if this process does not.
fn machine(system: &Path, folder: &Path, initrd: &Path) -> Lab<Command> {
    let Some(qemu) = packages::find("qemu-system-x86_64") else { return lab_error("qemu-system-x86_64 is missing") };
    let accelerator = std::env::var("URAID_VM_ACCEL").unwrap_or_else(|_| "tcg,thread=multi".to_string());
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", SECONDS_MAX]).arg(qemu);
    command.args(["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35"]);
    command.args(["-accel", &accelerator, "-cpu", "max,-cx16", "-smp", "2", "-m", "1500M", "-serial", "stdio"]);
    command.arg("-kernel").arg(newest(&system.join("boot"), "vmlinuz")?).arg("-initrd").arg(initrd);
    let options = "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off audit=0 random.trust_cpu=on no_timer_check \
                   quiet systemd.show_status=0";
    command.args(["-append", options]);
    let drive = |name: &str| format!("if=none,id={name},file={}/{name},format=raw,cache=unsafe", folder.display());
    command.args(["-drive", &drive("root"), "-device", "virtio-blk-pci,drive=root"]);
    for name in (0..DISKS).map(|disk| format!("disk{disk}")).chain(["test".to_owned()]) {
        command.args(["-drive", &drive(&name)]);
        command.args(["-device", &format!("virtio-blk-pci,drive={name},serial={name}")]);
    }
    Ok(command)
}

/// The file of that name with a version behind it.
fn newest(folder: &Path, name: &str) -> Lab<PathBuf> {
    let entries = at(folder, std::fs::read_dir(folder))?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.starts_with(&format!("{name}-")))
    };
    let found = entries.filter(is_it).max();
    found.ok_or_else(|| LabError::Trouble(format!("{}: no {name}", folder.display())))
}
