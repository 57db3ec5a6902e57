//! Lost write-back: a flush reports it, even if it was reported elsewhere before.

use crate::common::StartLock;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use uraid_block::{Device, ErrorKind, Fua, IoError, Sector};
use uraid_host::{Access, Claimed, Member, Options, RingChoice, Shard, run};

const MIB: usize = 1 << 20;

fn system(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

/// A disk of 4 MiB that can store less than one, and whose blocks are too large for direct I/O: it accepts writes and
/// loses them later.
struct LosingDisk {
    mount: PathBuf,
    device: Option<PathBuf>,
}

impl LosingDisk {
    fn new() -> Option<LosingDisk> {
        let mount = std::env::temp_dir().join(format!("uraid-losing-{}", std::process::id()));
        std::fs::create_dir_all(&mount).expect("a directory");
        let mut disk = LosingDisk { mount, device: None };
        system("mount", &["-t", "tmpfs", "-o", "size=1m", "none", text(&disk.mount)])?;
        let file = disk.mount.join("file");
        File::create(&file).expect("a file").set_len(4 * MIB as u64).expect("sparse");
        let device = system("losetup", &["--find", "--show", "--sector-size", "4096", text(&file)])?;
        disk.device = Some(device.into());
        Some(disk)
    }
}

impl Drop for LosingDisk {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            system("losetup", &["--detach", text(device)]);
        }
        system("umount", &["--lazy", text(&self.mount)]);
        let _ = std::fs::remove_dir(&self.mount);
    }
}

async fn write(shard: &Shard<()>, member: &Member, at: u64, bytes: usize, fua: Fua) -> Result<(), IoError> {
    let mut pieces = shard.arena(0).take(bytes).expect("room");
    pieces.copy_from(&vec![7; bytes]);
    member.write(Sector(at), pieces.freeze(), fua).await
}

#[test]
fn a_durable_write_does_not_consume_the_error_that_flush_must_report() {
    let _start_lock = StartLock::exclusive();
    for ring in [RingChoice::IoUring, RingChoice::Threads] {
        let Some(disk) = LosingDisk::new() else {
            eprintln!("SKIPPED: a_durable_write_does_not_take_the_report: may not mount or make a loop device here");
            return;
        };
        let device = disk.device.as_ref().expect("made");
        let claimed = Claimed::open(device, Access::ReadWrite).expect("claimed");
        assert!(!claimed.is_direct());
        run(1, &Options { ring, ..Options::default() }, async |shard: Shard<()>| {
            let (member, other) = (claimed.on_shard(&shard), claimed.on_shard(&shard));
            write(&shard, &member, 0, 4096, Fua::Yes).await.expect("room for one page");
            member.flush().await.expect("nothing is lost yet");
            for n in 1..4 {
                write(&shard, &member, n * 2048, MIB, Fua::No).await.expect("taken");
            }
            // Another description makes the system write back, as it does by itself after a while.
            OpenOptions::new().write(true).open(device).expect("there").sync_all().expect_err("lost");
            // There is room for this page. The system reports the other pages' loss to this write, once.
            write(&shard, &member, 0, 4096, Fua::Yes).await.expect_err("told");
            write(&shard, &member, 0, 4096, Fua::Yes).await.expect("told once");
            for flushing in [&member, &other, &member] {
                let error = flushing.flush().await.expect_err("these writes were answered and are lost");
                assert!(matches!(error.kind, ErrorKind::Media | ErrorKind::NoSpace), "{error}");
            }
        });
    }
}
