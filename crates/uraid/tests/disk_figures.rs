//! Arrays as disks, in figures: mkfs and fstrim of large arrays beside one file (report S0), whole stripes of XFS under its
//! mount options (report S2), what each path to an array costs.
//! Owns: the times, the member requests, the rows. Not here: that file systems are right (`fuse_loop`), `doctor`'s own tests.
//! Measures, and needs root with loop devices, so it runs only when asked for:
//! `cargo test --release -p uraid --test figures disk_figures:: -- --ignored --nocapture`.

use crate::common::loop_device::{LoopDevice, RamFolder};
use crate::common::xfs_bmap::{BmapExtent, xfs_bmap};
use crate::common::{Scratch, Served};
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// An array as a file with a loop device on it, and a folder for its file system.
struct Disk {
    is_mounted: bool,
    device: LoopDevice,
    control: PathBuf,
    served: Served,
    _without_discards: Option<(LoopDevice, RamFolder)>,
    scratch: Scratch,
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.umount();
    }
}

#[track_caller]
fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; `cargo xtask packages` installs it"));
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("ASCII")
}

impl Disk {
    /// Over sparse files of this size. The first may be a device that takes no discards.
    fn of_files(level: &str, layout: &[&str], slots: usize, member: u64, lacks_discards: bool) -> Disk {
        Disk::of_files_with(level, layout, slots, member, lacks_discards, "2")
    }

    /// Served by this many threads.
    fn of_files_with(
        level: &str,
        layout: &[&str],
        slots: usize,
        member: u64,
        lacks_discards: bool,
        shards: &str,
    ) -> Disk {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", slots, member);
        let without_discards = lacks_discards.then(|| {
            let ram = RamFolder::mount(scratch.path("ram"));
            (LoopDevice::new(&ram.file("m0", member)).expect("root and losetup"), ram)
        });
        if let Some((device, _)) = &without_discards {
            members[0] = device.path().to_owned();
        }
        let clean = if matches!(level, "raid0" | "linear") { "" } else { "--assume-clean --bitmap=none" };
        scratch.create("disk", &format!("-l {level} -n {slots} {clean} {}", layout.join(" ")), &members);
        let (folder, control) = (scratch.path("files"), scratch.path("disk.ctl"));
        fs::create_dir(&folder).expect("a folder");
        let served = scratch.ready(&["--fuse", text(&folder), "--shards", shards], &members);
        let mut disk = Disk::new(scratch, served, control, &folder.join("disk"));
        disk._without_discards = without_discards;
        disk
    }

    /// Over members in memory, each request of which takes some time.
    fn of_memory(trial: &[&str], member: &str) -> Disk {
        let scratch = Scratch::new();
        let (folder, control, socket) = (scratch.path("files"), scratch.path("trial.ctl"), scratch.path("trial.nbd"));
        fs::create_dir(&folder).expect("a folder");
        let places = ["--serve", text(&socket), "--fuse", text(&folder), "--control", text(&control)];
        let words = ["bench"].iter().chain(trial).chain(&places).copied().chain([member]);
        let served = Served::start(&mut scratch.command(words));
        served.wait_until_ready();
        Disk::new(scratch, served, control, &folder.join("trial"))
    }

    fn new(scratch: Scratch, served: Served, control: PathBuf, file: &Path) -> Disk {
        let device = LoopDevice::with_options(file, &["--direct-io=on"]).expect("root and losetup");
        fs::create_dir(scratch.path("root")).expect("a folder");
        Disk { is_mounted: false, device, control, served, _without_discards: None, scratch }
    }

    fn root(&self) -> PathBuf {
        self.scratch.path("root")
    }

    fn device(&self) -> &str {
        text(self.device.path())
    }

    fn mount(&mut self, options: &str) {
        run("mount", &["-o", options, self.device(), text(&self.root())]);
        self.is_mounted = true;
    }

    fn umount(&mut self) {
        if std::mem::take(&mut self.is_mounted) {
            run("umount", &[text(&self.root())]);
        }
    }

    fn report(&self) -> Value {
        let shown = self.scratch.uraid(["detail", "--json", "--control", text(&self.control)]).expect_done().stdout;
        serde_json::from_str(&shown).expect("JSON")
    }

    /// Requests of this kind, of all members.
    fn member_requests(&self, kind: &str) -> u64 {
        let report = self.report();
        let members = report["members"].as_array().expect("a list");
        members.iter().map(|member| member["io"][kind]["count"].as_u64().unwrap_or(0)).sum()
    }

    /// The discards that the loop device has ended.
    fn loop_discards(&self) -> u64 {
        let name = self.device.path().file_name().expect("a name");
        let stat = fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).expect("sysfs");
        stat.split_whitespace().nth(11).and_then(|word| word.parse().ok()).expect("the kernel counts discards")
    }
}

/// How long the call took, and the loop device's discards and the requests to members meanwhile.
fn timed(disk: &mut Disk, call: impl FnOnce(&mut Disk)) -> (f64, u64, u64) {
    let of_members = |disk: &Disk| ["discards", "zeroes", "writes"].iter().map(|kind| disk.member_requests(kind)).sum();
    let all = |disk: &Disk| -> (u64, u64) { (disk.loop_discards(), of_members(disk)) };
    let before = all(disk);
    let began = Instant::now();
    call(disk);
    let seconds = began.elapsed().as_secs_f64();
    let after = all(disk);
    (seconds, after.0 - before.0, after.1 - before.1)
}

/// A file of which every other block is removed, which leaves this many free extents of a block each.
fn age(root: &Path, extents: u64) {
    const BLOCK: u64 = 4096;
    let file = fs::File::create(root.join("aged")).expect("room");
    fallocate(&file, FallocateFlags::empty(), 0, 2 * extents * BLOCK).expect("room");
    for nth in 0..extents {
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 2 * nth * BLOCK, BLOCK).expect("the file system punches");
    }
    run("sync", &["-f", text(root)]);
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn mkfs_and_fstrim_of_large_arrays_beside_one_file() {
    const MEMBER: u64 = 1_900_000_000_000;
    const AGED: u64 = 100_000;
    let shapes: [(&str, &[&str], usize, u64, bool); 8] = [
        ("linear", &["--force"], 1, 2 * MEMBER, false),
        ("raid10", &["-p", "n2"], 4, MEMBER, false),
        ("raid10", &["-p", "f2"], 4, MEMBER, false),
        ("raid10", &["-p", "o2"], 4, MEMBER, false),
        ("raid5", &[], 4, MEMBER, false),
        ("raid6", &[], 4, MEMBER, false),
        ("raid10", &["-p", "n2"], 4, MEMBER, true),
        ("raid6", &[], 4, MEMBER, true),
    ];
    println!(
        "| array | mkfs.xfs | discards of the loop device | requests to members | fstrim after a delete | discards | requests | fstrim of ext4, 10^5 free extents | discards | requests |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (level, layout, slots, member, lacks_discards) in shapes {
        let mut disk = Disk::of_files(level, layout, slots, member, lacks_discards);
        let made = timed(&mut disk, |disk| drop(run("mkfs.xfs", &["-q", disk.device()])));
        disk.mount("defaults");
        let root = disk.root();
        for nth in 0..8 {
            let file = fs::File::create(root.join(format!("f{nth}"))).expect("room");
            (0..64).for_each(|at| file.write_all_at(&vec![nth; 4 << 20], at << 22).expect("room"));
        }
        run("sync", &["-f", text(&root)]);
        (0..8).for_each(|nth| fs::remove_file(root.join(format!("f{nth}"))).expect("ours"));
        run("sync", &["-f", text(&root)]);
        let trim = |disk: &mut Disk| {
            let done = Command::new("fstrim").arg(disk.root()).status().expect("util-linux has it");
            assert!(done.success() != lacks_discards, "refused where a member takes none");
        };
        let trimmed = timed(&mut disk, trim);
        disk.umount();
        run("xfs_repair", &["-n", disk.device()]);
        // ext4 trims each free extent; XFS leaves most of many small ones out.
        run("mkfs.ext4", &["-q", "-F", "-T", "largefile4", "-E", "nodiscard", disk.device()]);
        disk.mount("defaults");
        if !lacks_discards {
            trim(&mut disk);
        }
        age(&root, AGED);
        let aged = timed(&mut disk, trim);
        let cells = [made, trimmed, aged]
            .map(|(seconds, discards, requests)| format!("{seconds:.2} s | {discards} | {requests}"));
        let lacks = if lacks_discards { ", one without discards" } else { "" };
        println!("| {level} {} of {slots}{lacks} | {} |", layout.last().unwrap_or(&""), cells.join(" | "));
        disk.umount();
        run("e2fsck", &["-f", "-n", disk.device()]);
    }
}

/// One job of fio.
struct Job {
    name: &'static str,
    words: &'static [&'static str],
    /// Whether the figure is MB/s; otherwise it is thousands of requests a second.
    is_stream: bool,
}

const JOBS: [Job; 6] = [
    Job { name: "4 KiB reads, one at a time", words: &["--rw=randread", "--bs=4k"], is_stream: false },
    Job { name: "4 KiB reads, 32 at once", words: &["--rw=randread", "--bs=4k", "--iodepth=32"], is_stream: false },
    Job { name: "4 KiB writes, one at a time", words: &["--rw=randwrite", "--bs=4k"], is_stream: false },
    Job { name: "4 KiB writes, 32 at once", words: &["--rw=randwrite", "--bs=4k", "--iodepth=32"], is_stream: false },
    Job { name: "1 MiB reads in order, 4 at once", words: &["--rw=read", "--bs=1m", "--iodepth=4"], is_stream: true },
    Job { name: "1 MiB writes in order, 4 at once", words: &["--rw=write", "--bs=1m", "--iodepth=4"], is_stream: true },
];

fn fio(job: &Job, place: &str, size: &str) -> f64 {
    const SECONDS: &str = "--runtime=3";
    let of = if place.starts_with("nbd") {
        vec!["--ioengine=nbd".to_owned(), format!("--uri={place}")]
    } else {
        vec!["--ioengine=io_uring".to_owned(), "--direct=1".to_owned(), format!("--filename={place}")]
    };
    let mut words = vec!["--name=path", "--output-format=json", "--time_based", SECONDS, size];
    words.extend(of.iter().map(String::as_str));
    words.extend(job.words);
    let said = run("fio", &words);
    // The engine for NBD writes a line before it.
    let value: Value = serde_json::from_str(&said[said.find('{').expect("JSON")..]).expect("JSON");
    let done = |way: &str, what: &str| value["jobs"][0][way][what].as_f64().expect("a number");
    let what = if job.is_stream { "bw_bytes" } else { "iops" };
    (done("read", what) + done("write", what)) / if job.is_stream { 1e6 } else { 1e3 }
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn fio_of_each_path_beside_a_bare_file() {
    const BYTES: u64 = 2 << 30;
    const ROUNDS: usize = 5;
    let disk = Disk::of_files("linear", &["--force"], 1, BYTES + (64 << 20), false);
    let bare = disk.scratch.path("bare");
    let bare_loop_file = disk.scratch.path("bare-under-loop");
    for file in [&bare, &bare_loop_file] {
        fs::File::create(file).and_then(|file| file.set_len(BYTES)).expect("room");
    }
    let bare_loop = LoopDevice::with_options(&bare_loop_file, &["--direct-io=on"]).expect("root and losetup");
    let uri = format!("nbd+unix:///disk?socket={}", text(&disk.served.socket()));
    let file = disk.scratch.path("files/disk");
    let places = [
        ("bare file", text(&bare)),
        ("loop device on a bare file", text(bare_loop.path())),
        ("file of --fuse", text(&file)),
        ("loop device on the file of --fuse", disk.device()),
        ("NBD, unix socket", uri.as_str()),
    ];
    let size = format!("--size={BYTES}");
    // Written once, so that no figure is of holes.
    for (_, place) in places.iter().filter(|(_, place)| *place != disk.device() && !place.starts_with("nbd")) {
        let fill = ["--name=fill", "--rw=write", "--bs=1m", "--iodepth=8", "--ioengine=io_uring", "--direct=1", &size];
        run("fio", &[&fill[..], &[&format!("--filename={place}")]].concat());
    }
    println!("| fio | {} |", places.map(|(name, _)| name).join(" | "));
    println!("|---|{}", "--:|".repeat(places.len()));
    for job in &JOBS {
        let mut figures = vec![Vec::new(); places.len()];
        for _ in 0..ROUNDS {
            places.iter().zip(&mut figures).for_each(|((_, place), one)| one.push(fio(job, place, &size)));
        }
        let cells = figures.iter_mut().map(|one| {
            one.sort_by(f64::total_cmp);
            format!("{:.1} ({:.1}..{:.1})", one[ROUNDS / 2], one[0], one[ROUNDS - 1])
        });
        println!("| {} | {} |", job.name, cells.collect::<Vec<_>>().join(" | "));
    }
}

/// What writing a file in order did to the rows, and what `doctor` says of it.
struct Written {
    seconds: f64,
    counted: [u64; 3],
    predicted: [u64; 3],
    extents: Vec<BmapExtent>,
}

const ROWS: [&str; 3] = ["rows_full", "rows_modified", "rows_reconstructed"];

impl Written {
    fn print(&self, name: &str, is_allocated_before: bool, kib: u64) {
        let share = Written::share;
        println!(
            "| {name} | {} | {:.0} | {:.1} % | {:.1} % | {:.1} % | {:.1} % | {} |",
            if is_allocated_before { "yes" } else { "no" },
            kib as f64 * 1024.0 / 1e6 / self.seconds,
            share(self.counted, 0),
            share(self.counted, 1),
            share(self.counted, 2),
            share(self.predicted, 0),
            self.extents.len()
        );
    }

    fn share(rows: [u64; 3], nth: usize) -> f64 {
        100.0 * rows[nth] as f64 / rows.iter().sum::<u64>().max(1) as f64
    }
}

/// Writes `count` blocks directly, one after the other, and asks the doctor.
fn write_in_order(disk: &Disk, block_kib: u64, count: u64, is_allocated_before: bool) -> Written {
    let path = disk.root().join("file");
    let path = text(&path);
    if is_allocated_before {
        run("fallocate", &["-l", &(block_kib * count * 1024).to_string(), path]);
    }
    let rows = |counts: &Value| ROWS.map(|row| counts[row].as_u64().expect("a number"));
    let before = rows(&disk.report()["counts"]);
    let began = Instant::now();
    let (bs, count_word, of) = (format!("bs={block_kib}K"), format!("count={count}"), format!("of={path}"));
    run("dd", &["if=/dev/zero", &of, &bs, &count_word, "oflag=direct", "conv=notrunc", "status=none"]);
    let seconds = began.elapsed().as_secs_f64();
    let after = rows(&disk.report()["counts"]);
    let bs = format!("{block_kib}K");
    let done = disk.scratch.uraid(["doctor", "--json", "--file", path, "--bs", &bs, "--control", text(&disk.control)]);
    let value: Value = serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{done:?}"));
    let extents = value["extents"].as_array().expect("a list").iter();
    let extents = extents.map(|one| {
        let number = |key: &str| one[key].as_u64().expect("a number");
        (
            number("file_sector"),
            number("array_sector"),
            number("sectors"),
            one["flags"].as_str().expect("a text").to_owned(),
        )
    });
    let counted = [0, 1, 2].map(|nth| after[nth] - before[nth]);
    Written { seconds, counted, predicted: rows(&value["cost"]), extents: extents.collect() }
}

#[test]
#[ignore = "measures; run with --release --nocapture"]
fn whole_stripes_of_xfs_under_its_mount_options() {
    print_heads_of_rows();
    for shards in ["1", "2"] {
        let trial = ["-l", "6", "-n", "12", "-c", "64K", "--shards", shards];
        for options in ["defaults", "swalloc", "noalign"] {
            for is_allocated_before in [false, true] {
                let mut disk = Disk::of_memory(&trial, "mem:512M,request=1ms");
                // Four groups: the file lies in the first. The others do not begin at a stripe, as mkfs.xfs makes them.
                run("mkfs.xfs", &["-q", "-d", "su=64k,sw=10,agcount=4", disk.device()]);
                disk.mount(options);
                let written = write_in_order(&disk, 1280, 819, is_allocated_before);
                assert_eq!(written.extents, xfs_bmap(&disk.root().join("file")), "the flags of xfs_bmap");
                written.print(&format!("{options}, shards: {shards}"), is_allocated_before, 819 * 1280);
            }
        }
    }
}

fn print_heads_of_rows() {
    println!(
        "| mount | allocated before | MB/s | rows written whole | read-modify-write | reconstruct-write | predicted whole | extents |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|");
}

/// raid5 of three with chunks of 512 KiB, a partition that begins 128 KiB into a chunk, and writes of 1 MiB, a stripe.
#[test]
#[ignore = "measures; run with --release --nocapture"]
fn whole_stripes_of_the_array_of_report_s2() {
    const START: u64 = 20_565_248;
    print_heads_of_rows();
    for shards in ["1", "2"] {
        let mut disk = Disk::of_files_with("raid5", &["-c", "512K"], 3, 8 << 30, false, shards);
        let file = disk.scratch.path("files/disk");
        let offset = format!("--offset={}", START * 512);
        disk.device = LoopDevice::with_options(&file, &["--direct-io=on", &offset]).expect("root and losetup");
        run("mkfs.xfs", &["-q", disk.device()]);
        disk.mount("defaults");
        for is_allocated_before in [false, true] {
            let written = write_in_order(&disk, 1024, 1024, is_allocated_before);
            assert!(written.extents.iter().all(|(_, at, ..)| *at >= START), "the extents are those of the array");
            written.print(&format!("shards: {shards}"), is_allocated_before, 1 << 20);
            fs::remove_file(disk.root().join("file")).expect("ours");
        }
    }
}
