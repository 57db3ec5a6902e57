//! A Debian with systemd and our package: arrays from mdadm.conf at boot, a member that goes, mail, a spare, a reboot in
//! its recovery, a scheduled scrub, an upgrade under load.
//! Owns: the system's disk, one boot for each stage of the script. Not here: what is checked (`tests/vm/systemd.sh`), the
//! package (`dist`).
//! Invariant: a stage that did not reach its end has failed. Nothing of the host is changed but the lab's cache.

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
/// Of one boot. An emulated machine needs one or two minutes until the script begins.
const SECONDS_MAX: &str = "1200";

/// Runs the script at the end of the boot, and shows what it prints on the console.
const UNIT: &str = "\
[Unit]
Description=the steps of the test
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /test/systemd.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
";

/// `vm systemd PACKAGE.deb`: whether every check of every stage passed.
pub(crate) fn command(words: &[&str]) -> bool {
    let [package] = words else {
        println!("vm systemd takes a package: that of `cargo xtask dist deb`");
        return false;
    };
    match run(Path::new(package)) {
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

fn run(package: &Path) -> Lab<Tally> {
    let system = system()?;
    let scratch = Scratch::new("uraid-systemd")?;
    let folder = scratch.path.as_path();
    let test = system.join("test");
    at(&test, std::fs::create_dir_all(&test))?;
    at(package, std::fs::copy(package, test.join("uraid.deb")))?;
    at(&test, std::fs::write(test.join("systemd.sh"), SCRIPT))?;
    sized(&folder.join("root"), ROOT_BYTES)?;
    output_of(Command::new("mkfs.ext4").args(["-q", "-F", "-d"]).arg(&system).arg(folder.join("root")))?;
    for disk in 0..DISKS {
        sized(&folder.join(format!("disk{disk}")), DISK_BYTES)?;
    }
    let mut sum = Tally::default();
    for stage in 1..=STAGES {
        println!("--- boot {stage} of {STAGES}");
        let (checks, is_whole) = boot(&system, folder)?;
        sum.add(checks);
        if !is_whole {
            println!("FAILED stage {stage}: it did not reach its end");
            sum.add(Tally::one(false));
            break;
        }
    }
    Ok(sum)
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
    let units = home.join("etc/systemd/system");
    at(&units, std::fs::write(units.join("uraid-test.service"), UNIT))?;
    let wanted = units.join("multi-user.target.wants");
    at(&wanted, std::fs::create_dir_all(&wanted))?;
    let link = wanted.join("uraid-test.service");
    at(&link, std::os::unix::fs::symlink("/etc/systemd/system/uraid-test.service", &link))?;
    for unit in ["apt-daily.timer", "apt-daily-upgrade.timer", "e2scrub_all.timer", "serial-getty@ttyS0.service"] {
        at(&units, std::os::unix::fs::symlink("/dev/null", units.join(unit)))?;
    }
    at(&home, std::fs::write(home.join("etc/fstab"), "/dev/vda / ext4 defaults 0 1\n"))?;
    at(&mark, std::fs::write(&mark, ""))?;
    Ok(home)
}

/// Boots once; the checks of this stage, and whether it reached its end.
fn boot(system: &Path, folder: &Path) -> Lab<(Tally, bool)> {
    let mut child = machine(system, folder)?
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
fn machine(system: &Path, folder: &Path) -> Lab<Command> {
    let Some(qemu) = packages::find("qemu-system-x86_64") else { return lab_error("qemu-system-x86_64 is missing") };
    let accelerator = std::env::var("URAID_VM_ACCEL").unwrap_or_else(|_| "tcg,thread=multi".to_string());
    let mut command = Command::new("timeout");
    command.args(["--foreground", "--kill-after=5", SECONDS_MAX]).arg(qemu);
    command.args(["-no-user-config", "-nodefaults", "-no-reboot", "-display", "none", "-machine", "q35"]);
    command.args(["-accel", &accelerator, "-cpu", "max,-cx16", "-smp", "2", "-m", "1500M", "-serial", "stdio"]);
    command.arg("-kernel").arg(newest(&system.join("boot"), "vmlinuz")?);
    command.arg("-initrd").arg(newest(&system.join("boot"), "initrd.img")?);
    let options = "root=/dev/vda rw console=ttyS0 panic=-1 mitigations=off audit=0 random.trust_cpu=on no_timer_check \
                   quiet systemd.show_status=0";
    command.args(["-append", options]);
    let drive = |name: &str| format!("if=none,id={name},file={}/{name},format=raw,cache=unsafe", folder.display());
    command.args(["-drive", &drive("root"), "-device", "virtio-blk-pci,drive=root"]);
    for disk in 0..DISKS {
        let name = format!("disk{disk}");
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
