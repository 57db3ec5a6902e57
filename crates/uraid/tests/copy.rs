//! `uraid copy` on the real binary: every byte, nothing overwritten unasked, every end of it resumable.
//! Owns: these promises. Not here: broken members (`rescue`), other user errors (`errors`).

use crate::common::loop_device::LoopDevice;
use crate::common::stubborn::StubbornFile;
use crate::common::{MIB, Scratch, Served, pattern};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Levels and what they are made with; four members each.
const KINDS: [(&str, &str); 6] = [
    ("linear", "-l linear -n 4"),
    ("raid0", "-l 0 -n 4 -c 64K"),
    ("raid1", "-l 1 -n 4 --assume-clean"),
    ("raid10", "-l 10 -n 4 -c 64K -p f2 --assume-clean"),
    ("raid5", "-l 5 -n 4 -c 64K --assume-clean"),
    ("raid6", "-l 6 -n 4 -c 64K --assume-clean"),
];

fn words(options: &[&str], members: &[PathBuf], out: &Path) -> Vec<PathBuf> {
    let options = ["copy"].into_iter().chain(options.iter().copied()).map(PathBuf::from);
    options.chain(members.iter().cloned()).chain([out.to_owned()]).collect()
}

/// An array with data in the first half of it, a bit at its end, and zeroes between; gives all of its bytes.
fn filled(scratch: &Scratch, name: &str, options: &str, members: &[PathBuf]) -> Vec<u8> {
    scratch.create(name, options, members);
    let served = scratch.ready(&[], members);
    let mut client = served.client();
    let mut bytes = pattern(7, client.size as usize);
    let (from, to) = (bytes.len() / 2, bytes.len() - 4096 - 512);
    bytes[from..to].fill(0);
    for (at, part) in [(0, &bytes[..from]), (to, &bytes[to..])] {
        for (nth, piece) in part.chunks(MIB as usize).enumerate() {
            assert_eq!(client.write((at + nth * MIB as usize) as u64, piece).expect("the server is there"), 0);
        }
    }
    drop(client);
    served.stop().expect_done();
    bytes
}

#[test]
fn every_level_is_copied_whole_and_degraded_and_the_members_stay_as_they_are() {
    let scratch = Scratch::new();
    for (level, options) in KINDS {
        let members = scratch.members(level, 4, 8 * MIB);
        let bytes = filled(&scratch, level, options, &members);
        let before: Vec<Vec<u8>> = members.iter().map(|member| fs::read(member).expect("a member")).collect();
        let out = scratch.path(&format!("{level}.out"));
        scratch.uraid(words(&[], &members, &out)).expect_done().expect_said(&["copy done"]);
        assert!(fs::read(&out).expect("a copy") == bytes, "{level}");
        let map = fs::read_to_string(scratch.path(&format!("{level}.out.map"))).expect("a map");
        assert!(map.ends_with(&format!("0x00000000  0x{:08X}  +\n", bytes.len())), "{map}");
        let lost: &[usize] = match level {
            "raid6" => &[1, 2],
            "raid5" | "raid10" | "raid1" => &[2],
            _ => &[],
        };
        if !lost.is_empty() {
            let left: Vec<PathBuf> = (0..4).filter(|at| !lost.contains(at)).map(|at| members[at].clone()).collect();
            let said = scratch.uraid(words(&["--run", "--overwrite"], &left, &out)).expect_done();
            said.expect_said(&["is copied degraded"]);
            assert!(fs::read(&out).expect("a copy") == bytes, "{level} degraded");
        }
        let after: Vec<Vec<u8>> = members.iter().map(|member| fs::read(member).expect("a member")).collect();
        assert!(before == after, "{level}: a member was changed");
    }
}

#[test]
fn a_copy_is_sparse_and_a_pipe_gets_every_byte_in_order() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 24 * MIB);
    let bytes = filled(&scratch, "holes", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let out = scratch.path("out");
    scratch.uraid(words(&[], &members, &out)).expect_done();
    let status = fs::metadata(&out).expect("a copy");
    assert_eq!(status.len(), bytes.len() as u64);
    assert!(status.blocks() * 512 < bytes.len() as u64 * 6 / 10, "{} blocks", status.blocks());
    let mut child = scratch.command(words(&[], &members, Path::new("-"))).stdout(Stdio::piped()).spawn().expect("runs");
    let mut piped = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut piped).expect("a pipe");
    assert!(child.wait().expect("our child").success());
    assert!(piped == bytes);
    assert!(!scratch.path("-.map").exists());
}

#[test]
fn nothing_that_is_there_is_overwritten_unasked_and_a_member_never() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("keep", "-l 1 -n 2 --assume-clean", &members);
    let out = scratch.path("out");
    fs::write(&out, b"dear").expect("room");
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["out: is not empty", "--overwrite"]);
    assert_eq!(fs::read(&out).expect("a file"), b"dear");
    let before = fs::read(&members[1]).expect("a member");
    let twice = scratch.path("another-name");
    fs::hard_link(&members[1], &twice).expect("a link");
    scratch.uraid(words(&["--overwrite"], &members, &twice)).expect_refused(&["is the member", "m1"]);
    assert!(fs::read(&members[1]).expect("a member") == before);
    // Also a member that was named and is left out.
    let blank = scratch.member("blank", 8 * MIB);
    let named = [&members[..], std::slice::from_ref(&blank)].concat();
    scratch.uraid(words(&["--overwrite"], &named, &blank)).expect_refused(&["is the member", "blank"]);
    assert_eq!(fs::metadata(&blank).expect("a file").len(), 8 * MIB);
    fs::write(scratch.path("out.map"), b"my notes").expect("room");
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["out.map: line 1 does not belong in a map"]);
    // --overwrite allows losing OUT, but not another program's file in the map's place.
    scratch
        .uraid(words(&["--overwrite"], &members, &out))
        .expect_refused(&["out.map: line 1 does not belong in a map"]);
    fs::remove_file(scratch.path("out.map")).expect("it is there");
    scratch.uraid(words(&["--overwrite"], &members, &out)).expect_done();
    scratch.uraid(words(&[], &members, &scratch.path(""))).expect_refused(&["is not a file, block device or pipe"]);
}

#[test]
fn a_second_run_goes_on_where_the_map_says_and_reads_nothing_else() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 8 * MIB);
    let bytes = filled(&scratch, "again", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let (out, map) = (scratch.path("out"), scratch.path("out.map"));
    scratch.uraid(words(&[], &members, &out)).expect_done();
    // The map is made to say that the second MiB is missing and a sector was unreadable; what OUT holds is spoilt
    // everywhere, so that what the second run copies shows.
    let text = fs::read_to_string(&map).expect("a map");
    let head = text.lines().take_while(|line| !line.starts_with("0x")).collect::<Vec<_>>().join("\n");
    let size = bytes.len();
    let rows = format!(
        "0x0 ? 1\n0x0 0x100000 +\n0x100000 0x100000 ?\n0x200000 0x200 -\n0x200200 0x{:x} +\n",
        size - 0x20_0200
    );
    fs::write(&map, format!("{head}\n{rows}")).expect("room");
    fs::write(&out, vec![0xee; size]).expect("room");
    scratch.uraid(words(&[], &members, &out)).expect_done().expect_said(&["goes on", "1 sectors were unreadable"]);
    let again = fs::read(&out).expect("a copy");
    assert!(again[0x10_0000..0x20_0200] == bytes[0x10_0000..0x20_0200]);
    assert!(again[..0x10_0000].iter().chain(&again[0x20_0200..]).all(|byte| *byte == 0xee));
    // Now it is complete: a third run changes nothing. Of another array, or after writes, it is refused.
    scratch.uraid(words(&[], &members, &out)).expect_done();
    assert!(fs::read(&out).expect("a copy") == again);
    let others = scratch.members("o", 4, 8 * MIB);
    scratch.create("other", "-l 5 -n 4 -c 64K --assume-clean", &others);
    scratch.uraid(words(&[], &others, &out)).expect_refused(&["is the map of another copy"]);
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &[1; 512]).expect("it serves"), 0);
    served.stop().expect_done();
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["is the map of another copy", "events"]);
    fs::remove_file(&out).expect("it is there");
    fs::write(&map, text).expect("room");
}

#[test]
fn a_copy_that_is_interrupted_leaves_a_map_to_go_on_with() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 64 * MIB);
    let bytes = filled(&scratch, "stop", "-l 1 -n 2 --assume-clean", &members);
    let fifo = scratch.path("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is part of every system");
    assert!(made.success());
    let map = scratch.path("fifo.map");
    let line = words(&["--map", &map.display().to_string()], &members, &fifo);
    let copy = Served::start(&mut scratch.command(line));
    // A reader that takes 4 MiB and then stops: the copy waits, and a signal still ends it.
    let mut reader = File::open(&fifo).expect("a pipe");
    let mut first = vec![0; 4 * MIB as usize];
    reader.read_exact(&mut first).expect("the copy is there");
    assert!(first == bytes[..first.len()]);
    copy.signal(rustix::process::Signal::INT);
    let done = copy.end();
    done.expect_refused(&["interrupted"]);
}

#[test]
fn a_copy_that_has_read_everything_is_still_interrupted_while_its_output_stands() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    filled(&scratch, "last", "-l 1 -n 2 --assume-clean", &members);
    let (fifo, map) = (scratch.path("fifo"), scratch.path("fifo.map"));
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo is part of every system");
    assert!(made.success());
    let line = words(&["--map", &map.display().to_string()], &members, &fifo);
    let copy = Served::start(&mut scratch.command(line));
    let _reader = File::open(&fifo).expect("a pipe");
    crate::common::wait(|| map.exists()).expect("the map is there from the beginning");
    // All of it fits the queue: only the writer is left, waiting for the pipe's reader.
    std::thread::sleep(std::time::Duration::from_millis(500));
    copy.signal(rustix::process::Signal::TERM);
    copy.end().expect_refused(&["interrupted"]);
}

#[test]
fn a_killed_copy_goes_on_and_ends_with_the_right_bytes() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 48 * MIB);
    let bytes = filled(&scratch, "kill", "-l 6 -n 4 -c 64K --assume-clean", &members);
    let left = [members[0].clone(), members[3].clone()];
    let (out, map) = (scratch.path("out"), scratch.path("out.map"));
    let copy = Served::start(&mut scratch.command(words(&["--run"], &left, &out)));
    crate::common::wait(|| map.exists()).expect("the map is there from the beginning");
    copy.kill_unawaited();
    copy.end();
    scratch.uraid(words(&["--run"], &left, &out)).expect_done();
    assert!(fs::read(&out).expect("a copy") == bytes);
}

/// The map is made before its output: a copy that is killed in between has lost nothing.
#[test]
fn a_copy_that_was_killed_before_it_made_its_output_begins_again() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 4 * MIB);
    let bytes = filled(&scratch, "kill", "-l 1 -n 2 --assume-clean", &members);
    let (out, map) = (scratch.path("out"), scratch.path("out.map"));
    scratch.uraid(words(&[], &members, &out)).expect_done();
    // As it was at the beginning: nothing is marked as copied.
    let text = fs::read_to_string(&map).expect("a map").replace(" +\n", " ?\n");
    for is_there in [true, false] {
        fs::write(&map, &text).expect("room");
        if is_there {
            File::create(&out).expect("an empty file");
        } else {
            fs::remove_file(&out).expect("it was there");
        }
        scratch.uraid(words(&[], &members, &out)).expect_done();
        assert!(fs::read(&out).expect("a copy") == bytes);
    }
}

#[test]
fn a_copy_to_a_closed_standard_output_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    filled(&scratch, "lost", "-l 1 -n 2 --assume-clean", &members);
    let line = format!(
        "exec {} copy {} {} - \"$@\" >&-",
        scratch.binary().display(),
        members[0].display(),
        members[1].display()
    );
    let output = std::process::Command::new("sh").args(["-c", &line]).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("standard output is closed"), "{said}");
    // /dev/null by a shell is what somebody wants who measures.
    let mut command = scratch.command(words(&[], &members, Path::new("-")));
    assert!(command.stdout(Stdio::null()).status().expect("runs").success());
}

#[test]
fn an_output_that_ends_early_is_said_with_its_reason() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    filled(&scratch, "full", "-l 1 -n 2 --assume-clean", &members);
    let done = scratch.uraid(words(&[], &members, Path::new("/dev/full")));
    done.expect_refused(&["/dev/full: writing failed: no space left on device"]);
    let mut child = scratch.command(words(&[], &members, Path::new("-")));
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("our child").code(), Some(1));
    assert!(said.contains("standard output: writing failed: broken pipe"), "{said}");
}

#[test]
fn an_output_that_lost_what_its_map_calls_copied_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let bytes = filled(&scratch, "dev", "-l 1 -n 2 --assume-clean", &members);
    let out = scratch.path("out");
    scratch.uraid(words(&[], &members, &out)).expect_done();
    // Shorter than the map promises: refused, because part of what it calls copied is gone.
    File::options().write(true).open(&out).and_then(|file| file.set_len(MIB)).expect("a file");
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["out: has 1048576 bytes, expected"]);
    fs::remove_file(&out).expect("it is there");
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["is not there or empty", "--overwrite"]);
    scratch.uraid(words(&["--overwrite"], &members, &out)).expect_done();
    let mut back = vec![0; bytes.len()];
    File::open(&out).and_then(|file| file.read_exact_at(&mut back, 0)).expect("a copy");
    assert!(back == bytes);
}

#[test]
fn an_output_that_is_in_use_a_block_device_or_a_terminal_is_refused_and_so_is_a_map_that_is_none() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("refuse", "-l 1 -n 2 --assume-clean", &members);
    let out = scratch.path("out");
    let held = File::create(&out).expect("room");
    held.lock().expect("no other thread has the lock");
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["nothing was copied", "out: is in use"]);
    drop(held);
    // Longer than any map; and one that cannot be read at all.
    let map = scratch.path("out.map");
    File::create(&map).and_then(|file| file.set_len(1 << 30)).expect("a sparse file");
    scratch
        .uraid(words(&[], &members, &out))
        .expect_refused(&["out.map: is not a map of uraid copy: it has 1073741824"]);
    fs::remove_file(&map).and_then(|()| fs::create_dir(&map)).expect("room");
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["out.map: reading the map failed: is a directory"]);
    let nowhere = scratch.path("nowhere/out");
    scratch.uraid(words(&[], &members, &nowhere)).expect_refused(&["nowhere/out: making failed: not found"]);
    assert_eq!(fs::metadata(&out).expect("a file").len(), 0, "nothing was copied");
    // The controlling end of a pseudoterminal is one, too.
    let terminal = File::options().read(true).write(true).open("/dev/ptmx").expect("Linux has it");
    let output = scratch.command(words(&[], &members, Path::new("-"))).stdout(terminal).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("standard output is a terminal: give a file, or a pipe to a program"), "{said}");
    // It is refused before it is opened: whether we could open it does not matter.
    let is_block_device = |path: &PathBuf| fs::metadata(path).is_ok_and(|status| status.file_type().is_block_device());
    // Loop devices are those of other tests, which have them in use.
    let is_loop = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("loop"));
    let devices = fs::read_dir("/dev").expect("Linux has it").flatten().map(|entry| entry.path());
    let devices = devices.filter(|path| !is_loop(path));
    match devices.into_iter().find(is_block_device) {
        Some(device) => {
            let done = scratch.uraid(words(&[], &members, &device));
            done.expect_refused(&["is a block device; --overwrite replaces what it holds"]);
        }
        None => eprintln!("NOT TESTED: /dev has no block device, none could be given as OUT"),
    }
}

#[test]
fn a_map_takes_the_place_of_nothing_but_a_map() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let bytes = filled(&scratch, "m", "-l 1 -n 2 --assume-clean", &members);
    let whole = fs::read(&members[0]).expect("a member");
    let out = scratch.path("out");
    let member = members[0].to_str().expect("a name of letters");
    // A member in the place of the map, of the new map before it is renamed, or of the default map.
    let refused = |options: &[&str], members: &[PathBuf], out: &Path, said: &str| {
        scratch.uraid(words(options, members, out)).expect_refused(&["nothing was copied", said]);
    };
    refused(&["--overwrite", "--map", member], &members, &out, "line 1 does not belong in a map");
    for name in ["x.map", "x.map.new"] {
        let linked = scratch.path(name);
        fs::hard_link(&members[0], &linked).expect("a link");
        refused(&["--overwrite"], &members, &scratch.path("x"), "line 1 does not belong in a map");
        fs::remove_file(linked).expect("it is there");
    }
    // A file that belongs to another program.
    let note = scratch.path("y.map.new");
    fs::write(&note, "do not lose me").expect("a file");
    refused(&[], &members, &scratch.path("y"), "y.map.new: line 1 does not belong in a map");
    assert_eq!(fs::read(&note).expect("it is there"), b"do not lose me");
    // OUT itself, there or not.
    for _ in 0..2 {
        refused(&["--overwrite", "--map", out.to_str().expect("letters")], &members, &out, "cannot be its map too");
        fs::write(&out, "").expect("a file");
    }
    assert!(fs::read(&members[0]).expect("a member") == whole);
    scratch.uraid(words(&[], &members, &out)).expect_done();
    assert!(fs::read(&out).expect("a copy") == bytes);
}

#[test]
fn a_copy_that_is_begun_anew_and_fails_at_once_is_not_taken_for_the_old_one() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let bytes = filled(&scratch, "m", "-l 0 -n 2 -c 64K", &members);
    let out = scratch.path("out");
    scratch.uraid(words(&[], &members, &out)).expect_done();
    // The map cannot be written: OUT stays as it was.
    fs::create_dir(scratch.path("out.map.new")).expect("a folder");
    scratch.uraid(words(&["--overwrite"], &members, &out)).expect_refused(&["out.map.new: reading the map failed"]);
    assert!(fs::read(&out).expect("a copy") == bytes);
    fs::remove_dir(scratch.path("out.map.new")).expect("it is empty");
    let nowhere = scratch.path("nowhere/map").display().to_string();
    let done = scratch.uraid(words(&["--overwrite", "--map", &nowhere], &members, &out));
    done.expect_refused(&["nowhere/map: writing the map failed"]);
    assert!(fs::read(&out).expect("a copy") == bytes, "the map says first that all is given up");
    scratch.uraid(words(&[], &members, &out)).expect_done();
    assert!(fs::read(&out).expect("a copy") == bytes);
}

#[test]
fn a_copy_of_an_array_without_redundancy_is_not_gone_on_with_after_writes() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    filled(&scratch, "m", "-l 0 -n 2 -c 64K", &members);
    let out = scratch.path("out");
    scratch.uraid(words(&[], &members, &out)).expect_done();
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &pattern(9, MIB as usize)).expect("the server is there"), 0);
    served.stop().expect_done();
    scratch.uraid(words(&[], &members, &out)).expect_refused(&["is the map of another copy"]);
}

/// Where a file has holes a block device has what it held before: zeroes are written there, both those that no member
/// holds and those that a client wrote.
#[test]
fn a_block_device_has_zeroes_where_the_array_has_them_whatever_it_held() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 8 * MIB);
    let bytes = filled(&scratch, "holes", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let written = bytes.len() / 2;
    assert_eq!(served.client().write(written as u64, &vec![0; MIB as usize]).expect("it serves"), 0);
    served.stop().expect_done();
    let held = scratch.path("held");
    fs::write(&held, vec![0xee; bytes.len() + MIB as usize]).expect("room");
    let Some(device) = LoopDevice::new(&held) else {
        eprintln!("SKIPPED: a loop device cannot be made here (needs root and losetup)");
        return;
    };
    let map = scratch.path("map").display().to_string();
    scratch.uraid(words(&["--overwrite", "--map", &map], &members, device.path())).expect_done();
    drop(device);
    let found = fs::read(&held).expect("a file");
    assert!(found[..bytes.len()] == bytes);
    assert!(found[bytes.len()..].iter().all(|byte| *byte == 0xee), "what is behind the copy stays");
}

#[test]
fn two_copies_to_one_new_file_are_kept_apart() {
    let scratch = Scratch::new();
    let (stored, others) = (scratch.members("m", 2, 8 * MIB), scratch.members("o", 2, 4 * MIB));
    let bytes = filled(&scratch, "slow", "-l 1 -n 2 --assume-clean", &stored);
    scratch.create("other", "-l 1 -n 2 --assume-clean", &others);
    let slow = StubbornFile::new(&scratch.path("mount"), &stored[0]);
    // Where no superblock is looked for.
    slow.hang_at_read_of(3 * MIB..5 * MIB);
    let out = scratch.path("out");
    let first = Served::start(&mut scratch.command(words(&["--run"], &[slow.path()], &out)));
    crate::common::wait(|| slow.is_hung()).expect("it reads the member");
    let again = scratch.path("again.map").display().to_string();
    let done = scratch.uraid(words(&["--overwrite", "--map", &again], &others, &out));
    slow.go_on();
    first.end().expect_done();
    done.expect_refused(&["nothing was copied", "out: is in use"]);
    assert!(fs::read(&out).expect("a copy") == bytes);
}

/// Members with different bytes at the same event count: what one run copied is not mixed with another's.
#[test]
fn a_copy_is_not_gone_on_with_by_members_that_tell_other_bytes() {
    let scratch = Scratch::new();
    let write = |members: &[PathBuf], seed: u64| {
        let served = scratch.ready(&["--run"], members);
        assert_eq!(served.client().write(0, &pattern(seed, MIB as usize)).expect("it serves"), 0);
        served.stop().expect_done();
    };
    let out = scratch.path("out");
    let copy = |options: &[&str], members: &[PathBuf]| scratch.uraid(words(options, members, &out));
    let of = |members: &[PathBuf], which: &[usize]| -> Vec<PathBuf> {
        which.iter().map(|at| members[*at].clone()).collect()
    };
    // Each half of a mirror ran alone.
    let halves = scratch.members("half", 2, 4 * MIB);
    scratch.create("half", "-l 1 -n 2 --assume-clean", &halves);
    write(&halves[..1], 1);
    write(&halves[1..], 2);
    copy(&["--run"], &halves[..1]).expect_done();
    copy(&["--run"], &halves[1..]).expect_refused(&["is the map of another copy"]);
    copy(&["--run"], &halves[..1]).expect_done();
    // A member that missed writes takes the place of one that did not.
    let members = scratch.members("m", 4, 4 * MIB);
    scratch.create("stale", "-l 5 -n 4 -c 64K --assume-clean", &members);
    write(&members[..3], 3);
    copy(&["--run", "--overwrite"], &members[..3]).expect_done();
    copy(&["--force"], &of(&members, &[0, 1, 3])).expect_refused(&["is the map of another copy", "slot 3 at "]);
    copy(&["--force", "--overwrite"], &of(&members, &[0, 1, 3])).expect_done();
    copy(&["--run"], &members[..3]).expect_refused(&["is the map of another copy"]);
    // Of a healthy array any sufficient set of members will do.
    let healthy = scratch.members("h", 3, 4 * MIB);
    scratch.create("healthy", "-l 5 -n 3 -c 64K --assume-clean", &healthy);
    write(&healthy, 4);
    copy(&["--run", "--overwrite"], &healthy[1..]).expect_done();
    copy(&[], &healthy).expect_done();
    // But not for data that was computed from parity that a crash may have left half-written.
    let served = scratch.ready(&[], &healthy);
    assert_eq!(served.client().write(0, &pattern(5, MIB as usize)).expect("it serves"), 0);
    served.kill_unawaited();
    served.end();
    copy(&["--force", "--overwrite"], &healthy[1..]).expect_done();
    copy(&[], &healthy).expect_refused(&["is the map of another copy", "slot 0 computed"]);
}
