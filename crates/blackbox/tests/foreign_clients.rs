//! Common NBD clients: nbdinfo, nbdcopy, qemu-img, qemu-io, fio.
//! Owns: one scenario per client, each on raid0, raid10 and raid6. Not here: file systems (`filesystems`).
//! If a program is missing, its test is skipped with a message, or fails if `URAID_REQUIRE_CLIENTS` is set.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::nbd::{Connection, Options, Request};
use uraid_blackbox::programs::binary::{Finished, run};
use uraid_blackbox::programs::foreign;
use uraid_blackbox::programs::server::Server;
use uraid_blackbox::random::Random;

const ARRAYS: [Shape; 3] = [
    Shape { level: "raid0", layout: "", members: 3, tolerates: 0, chunk: "64K", member_mib: 16 },
    Shape { level: "raid10", layout: "n2", members: 4, tolerates: 1, chunk: "64K", member_mib: 16 },
    Shape { level: "raid6", layout: "", members: 6, tolerates: 2, chunk: "64K", member_mib: 16 },
];

/// An array that is being served.
struct Served {
    scratch: Scratch,
    members: Vec<PathBuf>,
    server: Server,
    shape: Shape,
}

impl Served {
    fn new(shape: &Shape) -> Served {
        let scratch = Scratch::new();
        let members = create(&scratch, "client", shape);
        let server = Server::start(scratch.path(), &members, &[]);
        Served { scratch, members, server, shape: *shape }
    }

    fn uri(&self) -> &str {
        self.server.uri()
    }

    fn bytes(&self) -> u64 {
        let said = client("nbdinfo", ["--size", self.uri()]);
        said.out.trim().parse().unwrap_or_else(|_| panic!("{}: {}", said.line, said.out))
    }

    /// A file of the array's size (what `nbdinfo` says), full of random bytes.
    fn image(&self, seed: u64) -> PathBuf {
        let mut bytes = vec![0; usize::try_from(self.bytes()).expect("a small array")];
        Random(seed).fill(&mut bytes);
        let path = self.scratch.file(&format!("image{seed}"));
        fs::write(&path, bytes).expect("the folder is ours");
        path
    }

    fn fail_tolerated(&self) {
        for member in &self.members[..usize::from(self.shape.tolerates)] {
            self.server.fail(member);
        }
    }
}

/// Runs a foreign program that has to succeed.
#[track_caller]
fn client<S: AsRef<std::ffi::OsStr>>(program: &str, words: impl IntoIterator<Item = S>) -> Finished {
    run(&mut foreign::command(program, words)).expect_done()
}

#[track_caller]
fn assert_same(one: &Path, other: &Path) {
    let (left, right) = (fs::read(one).expect("a file"), fs::read(other).expect("a file"));
    assert_eq!(left.len(), right.len());
    let differs = left.iter().zip(&right).position(|(a, b)| a != b);
    assert_eq!(differs, None, "{} and {} differ from this byte on", one.display(), other.display());
}

#[test]
fn nbdinfo_sees_one_export_with_everything_it_can_offer() {
    if !foreign::has(&["nbdinfo"]) {
        return;
    }
    for shape in &ARRAYS {
        let served = Served::new(shape);
        let said = client("nbdinfo", ["--json", served.uri()]).out;
        for offer in ["flush", "fua", "zero", "multi_conn"] {
            assert!(said.contains(&format!("\"can_{offer}\": true")), "{offer} is missing from {said}");
        }
        // The members are files, which give zeroes after a discard: parity levels take them, too.
        assert!(said.contains("\"can_trim\": true"), "{}: {said}", shape.level);
        assert!(said.contains("\"is_read_only\": false"), "{said}");
        // QEMU aborts on a preferred block size that is no power of two.
        let preferred = number_of(&said, "block_size_preferred");
        assert!(preferred.is_power_of_two() && preferred >= 64 * 1024, "{said}");
        assert!(number_of(&said, "block_size_minimum") <= 512, "{said}");
        assert!(number_of(&said, "block_size_maximum") <= 32 << 20, "{said}");
        let listed = client("nbdinfo", ["--list", served.uri()]).out;
        assert!(listed.contains("client"), "{listed}");
        served.server.stop();
    }
}

fn number_of(json: &str, key: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key} is missing from {json}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{key} has no number in {json}"))
}

#[test]
fn nbdcopy_copies_an_image_in_and_out_also_degraded() {
    if !foreign::has(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    for shape in &ARRAYS {
        let served = Served::new(shape);
        let image = served.image(1);
        let (path, out) = (image.display().to_string(), served.scratch.sparse("out", 0));
        let out_path = out.display().to_string();
        client("nbdcopy", ["--connections=2", "--flush", &path, served.uri()]);
        client("nbdcopy", ["--connections=2", served.uri(), &out_path]);
        assert_same(&image, &out);
        served.fail_tolerated();
        client("nbdcopy", [served.uri(), &out_path]);
        assert_same(&image, &out);
        let second = served.image(2);
        client("nbdcopy", [&second.display().to_string(), served.uri()]);
        client("nbdcopy", ["--synchronous", served.uri(), &out_path]);
        assert_same(&second, &out);
        served.server.stop();
    }
}

/// Writes random bytes from 1 to 2 MiB, over holes everywhere else.
fn write_one_mib(served: &Served) -> Vec<u8> {
    let mut data = vec![0; 1 << 20];
    Random(7).fill(&mut data);
    let mut connection = Connection::open(served.server.address(), &Options::default()).expect("a server");
    connection.write(1 << 20, &data).expect("a write");
    connection.flush().expect("a flush");
    data
}

/// Checks a map of (start, length, is zero): whole, true where data lies, and mostly holes.
#[track_caller]
fn assert_map(map: &[(u64, u64, bool)], bytes: u64) {
    let mut at = 0;
    for (start, length, is_zero) in map {
        assert_eq!(*start, at, "{map:?}");
        at += length;
        assert!(!is_zero || at <= 1 << 20 || *start >= 2 << 20, "data called zero: {map:?}");
    }
    assert_eq!(at, bytes);
    let zeroes: u64 = map.iter().filter(|(_, _, is_zero)| *is_zero).map(|(_, length, _)| length).sum();
    assert!(zeroes > bytes / 2, "{zeroes} of {bytes} bytes are known to be zero: {map:?}");
}

#[test]
fn nbdinfo_and_qemu_img_map_a_sparse_array_and_nbdcopy_skips_its_holes() {
    if !foreign::has(&["nbdinfo", "nbdcopy", "qemu-img"]) {
        return;
    }
    for shape in &ARRAYS {
        let served = Served::new(shape);
        let data = write_one_mib(&served);
        let bytes = served.bytes();
        let said = client("nbdinfo", ["--map", served.uri()]).out;
        let map: Vec<(u64, u64, bool)> = said
            .lines()
            .map(|line| {
                let words: Vec<u64> = line.split_whitespace().take(3).map(|word| word.parse().expect(line)).collect();
                (words[0], words[1], words[2] & 2 != 0)
            })
            .collect();
        assert_map(&map, bytes);
        let said = client("qemu-img", ["map", "-f", "raw", "--output=json", served.uri()]).out;
        let map: Vec<(u64, u64, bool)> = said
            .lines()
            .filter(|line| line.contains("\"start\""))
            .map(|line| (number_of(line, "start"), number_of(line, "length"), line.contains("\"zero\": true")))
            .collect();
        assert_map(&map, bytes);
        let out = served.scratch.sparse("out", 0);
        client("nbdcopy", [served.uri(), &out.display().to_string()]);
        let copied = fs::read(&out).expect("a file");
        assert!(copied.len() as u64 == bytes && copied[1 << 20..2 << 20] == data);
        assert!(copied[..1 << 20].iter().chain(&copied[2 << 20..]).all(|&byte| byte == 0));
        let stored = fs::metadata(&out).expect("a file").blocks() * 512;
        assert!(stored < bytes / 2, "{stored} of {bytes} bytes are stored");
        served.server.stop();
    }
}

#[test]
fn extents_reported_as_zero_read_as_zeroes_after_random_writes_and_degraded() {
    for shape in &ARRAYS {
        let served = Served::new(shape);
        let options = Options { allocation: true, ..Options::default() };
        let mut connection = Connection::open(served.server.address(), &options).expect("a server");
        let sectors = connection.export().bytes / 512;
        let mut random = Random(11);
        for round in 0..3 {
            for _ in 0..20 {
                let length = 1 + random.below(100);
                let at = random.below(sectors - length) * 512;
                let mut data = vec![0; (length * 512) as usize];
                random.fill(&mut data);
                connection.write(at, &data).expect("a write");
                let length = u32::try_from(length * 512).expect("short");
                let at = random.below(sectors - 100) * 512;
                connection.call(&Request::WriteZeroes { at, length, no_hole: false }).expect("zeroes");
            }
            if round == 1 {
                served.fail_tolerated();
            }
            let mut zeroes = 0;
            let mut at = 0;
            while at < sectors * 512 {
                let length = u32::try_from(sectors * 512 - at).expect("a small array");
                for (length, is_zero) in connection.status(at, length).expect("block status") {
                    for piece in (at..at + length).step_by(1 << 20).filter(|_| is_zero) {
                        let bytes = (at + length - piece).min(1 << 20);
                        let read = connection.read(piece, u32::try_from(bytes).expect("short")).expect("a read");
                        assert!(read.iter().all(|&byte| byte == 0), "{}: {piece} + {bytes} is not zero", shape.level);
                        zeroes += bytes;
                    }
                    at += length;
                }
            }
            assert_eq!(at, sectors * 512);
            println!("{} round {round}: {zeroes} of {at} bytes are known to be zero", shape.level);
            assert!(round > 0 || zeroes > 0, "{}", shape.level);
        }
        drop(connection);
        served.server.stop();
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    if !foreign::has(&["qemu-img", "nbdinfo"]) {
        return;
    }
    for shape in &ARRAYS {
        let served = Served::new(shape);
        let image = served.image(3);
        let path = image.display().to_string();
        let qcow = served.scratch.file("out.qcow2").display().to_string();
        client("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &path, served.uri()]);
        client("qemu-img", ["compare", "-f", "raw", "-F", "raw", &path, served.uri()]);
        served.fail_tolerated();
        client("qemu-img", ["compare", "-f", "raw", "-F", "raw", &path, served.uri()]);
        client("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", served.uri(), &qcow]);
        client("qemu-img", ["compare", "-f", "raw", "-F", "qcow2", &path, &qcow]);
        // A sparse source is written with write-zeroes.
        let sparse = served.scratch.sparse("sparse", served.bytes()).display().to_string();
        client("qemu-img", ["convert", "-n", "-f", "raw", "-O", "raw", &sparse, served.uri()]);
        client("qemu-img", ["compare", "-f", "raw", "-F", "raw", &sparse, served.uri()]);
        served.server.stop();
    }
}

#[test]
fn qemu_io_reads_back_what_it_wrote_zeroed_and_overwrote() {
    if !foreign::has(&["qemu-io"]) {
        return;
    }
    for shape in &ARRAYS {
        let served = Served::new(shape);
        let commands = [
            "write -P 0x5a 1M 3M",
            "write -f -P 0x11 1537k 130k",
            "write -z 2M 100k",
            "write -z -u 2560k 512",
            "aio_write -P 0x77 5M 1M",
            "aio_write -P 0x78 6M 1M",
            "aio_flush",
            "flush",
            "read -P 0x5a 1M 513k",
            "read -P 0x11 1537k 130k",
            "read -P 0x5a 1667k 381k",
            "read -P 0 2M 100k",
            "read -P 0 2560k 512",
            "read -P 0x5a 2621952 1k",
            "read -P 0x77 5M 1M",
            "read -P 0x78 6M 1M",
            "discard 8M 1M",
            "write -P 0x33 8M 1M",
            "read -P 0x33 8M 1M",
        ];
        let qemu_io = |commands: &[&str]| {
            let words = commands.iter().flat_map(|command| ["-c", command]);
            let said = client("qemu-io", ["-f", "raw"].into_iter().chain(words).chain([served.uri()]));
            // Not every version of qemu-io reports a mismatch in its exit code: check the output.
            assert!(!said.out.contains("verification failed") && !said.out.contains("failed:"), "{}", said.out);
        };
        qemu_io(&commands);
        served.fail_tolerated();
        let reads: Vec<_> = commands.iter().copied().filter(|command| command.starts_with("read")).collect();
        qemu_io(&reads);
        served.server.stop();
    }
}

/// What fio's engine is asked to do, on two connections at once.
fn fio(uri: &str, words: &[&str]) {
    let uri = format!("--uri={uri}");
    let common = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        "--rw=randwrite",
        "--numjobs=2",
        "--size=12M",
        "--offset_increment=12M",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--do_verify=1",
        "--verify_state_save=0",
        "--group_reporting",
        "--output-format=terse",
    ];
    client("fio", common.iter().copied().chain(words.iter().copied()));
}

fn has_fio_with_nbd() -> bool {
    if !foreign::has(&["fio"]) {
        return false;
    }
    let engines = run(&mut foreign::command("fio", ["--enghelp"])).out;
    let has_engine = engines.split_whitespace().any(|engine| engine == "nbd");
    assert!(has_engine || !foreign::are_required(), "this fio has no nbd engine");
    if !has_engine {
        foreign::skipped("this fio has no nbd engine");
    }
    has_engine
}

#[test]
fn fio_verifies_its_random_writes_on_two_connections() {
    if !has_fio_with_nbd() {
        return;
    }
    for shape in &ARRAYS {
        let served = Served::new(shape);
        fio(served.uri(), &["--bs=4k"]);
        fio(served.uri(), &["--bsrange=512-96k", "--blockalign=512", "--fsync=32"]);
        served.server.stop();
    }
}

#[test]
fn fio_verifies_its_writes_while_members_fail() {
    if !has_fio_with_nbd() {
        return;
    }
    for shape in ARRAYS.iter().filter(|shape| shape.tolerates > 0) {
        let served = Served::new(shape);
        std::thread::scope(|scope| {
            let fio = scope.spawn(|| fio(served.uri(), &["--bs=4k", "--loops=3", "--rate_iops=4000"]));
            std::thread::sleep(std::time::Duration::from_millis(700));
            served.fail_tolerated();
            fio.join().expect("fio finds what it wrote");
        });
        served.server.stop();
    }
}
