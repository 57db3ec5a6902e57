//! What a rescue may never do, and what it may: members that are not overwritten, options that mean nothing, and arrays
//! that were refused for reasons that are untrue.
//! Owns: `copy` and `update` on members with rare superblocks, made here byte by byte. Not here: the rescue cases of the
//! documentation (`rescue`), reshapes (`reshaped`).

use crate::common::loop_device::LoopDevice;
use crate::common::superblock::{EVENTS, FEATURES, Raw, SIZE, write_at};
use crate::common::{Done, MIB, Scratch, pattern};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Fields of a superblock, and bits of its feature map.
const LAYOUT: usize = 76;
const RECOVERY_OFFSET: usize = 152;
const RESYNC_OFFSET: usize = 208;
const LOGICAL_BLOCK_SIZE: usize = 224;
const ROLES: usize = 256;
const RECOVERING: u32 = 2;
const JOURNAL: u32 = 1 << 9;
const FAULTY: u16 = 0xfffe;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A stopped array, and what it holds.
fn filled(scratch: &Scratch, name: &str, options: &str, members: &[PathBuf]) -> Vec<u8> {
    scratch.create(name, &format!("{options} --assume-clean"), members);
    let served = scratch.ready(&[], members);
    let bytes = pattern(5, served.client().size as usize);
    served.write_all(0, &bytes);
    served.stop().expect_done();
    bytes
}

fn copy(scratch: &Scratch, options: &str, members: &[PathBuf], out: &Path) -> Done {
    let words = ["copy"].into_iter().chain(options.split_whitespace()).map(PathBuf::from);
    scratch.uraid(words.chain(members.iter().cloned()).chain([out.to_owned()]))
}

fn change(members: &[PathBuf], fields: &[(usize, &[u8])]) {
    for member in members {
        let mut raw = Raw::read(member);
        fields.iter().for_each(|(field, bytes)| raw.set(*field, bytes));
        raw.write();
    }
}

/// The role of a device number, in the table of each of these.
fn set_role(members: &[PathBuf], number: usize, role: u16) {
    change(members, &[(ROLES + 2 * number, &role.to_le_bytes())]);
}

/// Gives a disk an MBR with one partition of 6 MiB at 1 MiB, with this content.
fn partition(disk: &Path, content: &Path) {
    let mut record = [0; 66];
    record[4] = 0xfd;
    record[8..12].copy_from_slice(&2048_u32.to_le_bytes());
    record[12..16].copy_from_slice(&(6 * 2048_u32).to_le_bytes());
    record[64..].copy_from_slice(&[0x55, 0xaa]);
    write_at(disk, 446, &record);
    write_at(disk, MIB, &fs::read(content).expect("a member"));
}

#[test]
fn a_copy_never_replaces_a_member_whatever_it_is_called() {
    for version in ["1.0", "1.1", "1.2"] {
        let scratch = Scratch::new();
        let members = scratch.members("m", 3, 8 * MIB);
        filled(&scratch, "home", &format!("-l 5 -n 3 -e {version}"), &members);
        let others = scratch.members("o", 2, 8 * MIB);
        filled(&scratch, "other", &format!("-l 1 -n 2 -e {version}"), &others);
        let before: Vec<Vec<u8>> =
            members.iter().chain(&others).map(|path| fs::read(path).expect("a member")).collect();
        let (link, hard, dotted) = (scratch.path("link"), scratch.path("hard"), scratch.path("./m2"));
        symlink(&members[2], &link).expect("a link");
        fs::hard_link(&members[2], &hard).expect("a link");
        let names = [&members[2], &link, &hard, &dotted];
        for options in ["--overwrite --run", "--overwrite --force", "--overwrite --run --force", "--run"] {
            // OUT was forgotten: the last member is taken for it.
            for out in names {
                let done = copy(&scratch, options, &members[..2], out).expect_refused(&["nothing was copied"]);
                assert!(done.stderr.contains("uraid zero-superblock"), "{version} {options}: {}", done.stderr);
            }
            copy(&scratch, options, &members[..2], &others[0]).expect_refused(&["was OUT forgotten?"]);
            let done = copy(&scratch, options, &members, &members[1]);
            done.expect_refused(&["which a copy must not change"]);
            let assumed = format!("--assume -l 5 -n 2 {options}").replace("--run", "").replace("--force", "");
            copy(&scratch, &assumed, &members[..2], &members[2]).expect_refused(&["uraid zero-superblock"]);
        }
        let after: Vec<Vec<u8>> = members.iter().chain(&others).map(|path| fs::read(path).expect("a member")).collect();
        assert!(before == after, "{version}: a member was changed");
        // When the mark is gone, so is the objection.
        scratch.uraid(["zero-superblock", &text(&members[2])]).expect_done();
        copy(&scratch, "--overwrite --run", &members[..2], &members[2]).expect_done();
    }
}

#[test]
fn a_disk_whose_partition_holds_a_member_and_a_loop_device_over_one_are_not_replaced() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    filled(&scratch, "home", "-l 1 -n 2", &members);
    let other = scratch.members("o", 2, 6 * MIB);
    filled(&scratch, "other", "-l 1 -n 2", &other);
    let disk = scratch.member("disk", 16 * MIB);
    partition(&disk, &other[0]);
    let before = fs::read(&disk).expect("a disk");
    let refused = copy(&scratch, "--overwrite", &members, &disk);
    refused.expect_refused(&[&format!("{}@p1: carries md metadata 1.2", text(&disk)), "zero-superblock"]);
    assert!(before == fs::read(&disk).expect("a disk"));
    if let Some(device) = LoopDevice::new(&other[0]) {
        let refused = copy(&scratch, "--overwrite", &members, device.path());
        refused.expect_refused(&["carries md metadata"]);
        // A shell opens it, and asks nobody.
        let device = fs::File::options().write(true).open(device.path()).expect("a device");
        let mut command = scratch.command(["copy", &text(&members[0]), &text(&members[1]), "-"]);
        let done = command.stdout(device).output().expect("it runs");
        assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).contains("carries md metadata"));
    }
    // Only the data of the member, as a partition of a whole-disk member would be.
    if let Some(device) = LoopDevice::with_options(&other[0], &["-o", "1M"]) {
        let refused = copy(&scratch, "--overwrite", &members, device.path());
        refused.expect_refused(&["lies in the data of"]);
    }
    assert!(fs::read(&other[0]).expect("a member") == before[MIB as usize..7 * MIB as usize]);
}

/// The bytes of an array may be those of a member of another one.
#[test]
fn a_copy_of_an_array_that_holds_a_member_goes_on_and_begins_anew() {
    let scratch = Scratch::new();
    let inner = scratch.members("i", 2, 6 * MIB);
    filled(&scratch, "inner", "-l 1 -n 2", &inner);
    let member = fs::read(&inner[0]).expect("a member");
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    served.write_all(0, &member);
    served.stop().expect_done();
    let out = scratch.path("out");
    copy(&scratch, "", &members, &out).expect_done();
    let whole = fs::read(&out).expect("a copy");
    assert!(whole[..member.len()] == member);
    // As an interrupted run leaves it: the map is saved after the data.
    let map = fs::read_to_string(scratch.path("out.map")).expect("a map");
    let first = map.lines().position(|line| line.starts_with("0x00000000  ")).expect("a stretch");
    let tried: Vec<String> = map.lines().map(str::to_owned).collect();
    let begun: Vec<String> = (0..)
        .zip(&tried)
        .map(|(nth, line)| if nth == first { line.replace("  +", "  ?") } else { line.clone() })
        .collect();
    fs::write(scratch.path("out.map"), begun.join("\n") + "\n").expect("a map");
    copy(&scratch, "", &members, &out).expect_done();
    copy(&scratch, "--overwrite", &members, &out).expect_done();
    assert!(fs::read(&out).expect("a copy") == whole);
    // Without its map, it looks like any member.
    fs::remove_file(scratch.path("out.map")).expect("a map");
    copy(&scratch, "--overwrite", &members, &out).expect_refused(&["was OUT forgotten?"]);
}

#[test]
fn a_size_without_a_meaning_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    filled(&scratch, "home", "-l 1 -n 2", &members);
    let out = scratch.path("out");
    copy(&scratch, "--run --size 3M", &members[..1], &out).expect_refused(&["--size has no effect here"]);
    assert!(!out.exists());
}

#[test]
fn a_role_with_a_vendors_flag_is_told_and_read_by_force() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 6 * MIB);
    let bytes = filled(&scratch, "nas", "-l 5 -n 4 -c 64K", &members);
    set_role(&members, 0, FAULTY);
    set_role(&members, 3, 0x8003);
    let (left, out) = (&members[1..], scratch.path("out"));
    let shown = scratch.uraid(["examine", &text(&members[3])]).expect_done().stdout;
    assert!(shown.contains("Active device 32771 (0x8003: no slot of this array; bit 15 set: slot 3 with"), "{shown}");
    let hint = "has role 32771 (0x8003), and the array has 4 slots: without bit 15";
    copy(&scratch, "--run", left, &out).expect_refused(&[hint, "`uraid copy --force` reads it there"]);
    copy(&scratch, "--force", left, &out).expect_done().expect_said(&["is taken as slot 3, its role without bit 15"]);
    assert!(fs::read(&out).expect("a copy") == bytes);
}

#[test]
fn an_array_with_a_journal_is_read_without_it_by_force() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 6 * MIB);
    let bytes = filled(&scratch, "home", "-l 5 -n 3 -c 64K", &members);
    change(&members, &[(FEATURES, &JOURNAL.to_le_bytes())]);
    let out = scratch.path("out");
    copy(&scratch, "", &members, &out).expect_refused(&["has a journal", "--force reads it without"]);
    let done = copy(&scratch, "--force", &members, &out).expect_done();
    done.expect_said(&["writes that were only there are missing"]);
    assert!(fs::read(&out).expect("a copy") == bytes);
    let served = scratch.ready(&["--force"], &members);
    assert!(served.client().is_read_only);
}

#[test]
fn an_old_raid0_is_read_where_both_layouts_are_the_same_and_else_told_how() {
    let scratch = Scratch::new();
    let out = scratch.path("out");
    // Of one zone with an even number of chunks, and of one with an odd number, before zones of two members.
    for (name, first, is_same) in [("even", 6 * MIB, true), ("odd", 6 * MIB + 65_536, false)] {
        let mut members = scratch.members(name, 3, 8 * MIB);
        members[0] = scratch.member(&format!("{name}0"), first);
        let bytes = filled(&scratch, name, "-l 0 -n 3 -c 64K -p original", &members);
        change(&members, &[(LAYOUT, &[0; 4]), (FEATURES, &[0; 4])]);
        if is_same {
            copy(&scratch, "--overwrite", &members, &out).expect_done();
        } else {
            let hints = ["made before Linux 5.4", "-p original", "uraid update layout-original"];
            copy(&scratch, "--overwrite", &members, &out).expect_refused(&hints);
            let words = |layout: &str| ["update".into(), layout.into()].into_iter().chain(members.iter().cloned());
            scratch.uraid(words("layout-alternate").take(4)).expect_refused(&["2 of its array's 3 members are named"]);
            // A wrong choice is no harm: no data is moved.
            scratch.uraid(words("layout-alternate")).expect_done();
            copy(&scratch, "--overwrite", &members, &out).expect_done();
            assert!(fs::read(&out).expect("a copy") != bytes, "{name}: in another order");
            scratch.uraid(words("layout-original")).expect_done();
            copy(&scratch, "--overwrite", &members, &out).expect_done();
        }
        assert!(fs::read(&out).expect("a copy") == bytes, "{name}");
    }
}

/// Kernels before 6.19 do not start an array with this field, and no other tool takes it away.
#[test]
fn a_recorded_block_size_is_taken_away_also_from_members_of_a_dirty_degraded_array() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 6 * MIB);
    let bytes = filled(&scratch, "home", "-l 5 -n 3 -c 64K", &members);
    change(&members, &[(LOGICAL_BLOCK_SIZE, &512_u32.to_le_bytes()), (RESYNC_OFFSET, &[0; 8])]);
    let shown = scratch.uraid(["examine", &text(&members[1])]).expect_done().stdout;
    assert!(shown.contains("Logical Block Size : 512 bytes (kernels before 6.19 do not start it)"), "{shown}");
    let before = fs::read(&members[1]).expect("a member");
    let words = ["update", "logical-block-size"].map(PathBuf::from).into_iter().chain(members[1..].iter().cloned());
    let words: Vec<PathBuf> = words.collect();
    let said = "home: logical block size: not recorded; kernels before 6.19 can start the array, on 2 members\n";
    assert_eq!(scratch.uraid(&words).expect_done().stdout, said);
    assert!(scratch.uraid(&words).expect_done().stdout.contains("already, on 2 members"));
    let after = fs::read(&members[1]).expect("a member");
    let changed: Vec<usize> = (0..after.len()).filter(|at| before[*at] != after[*at]).collect();
    // The field and the checksum.
    let of_superblock = |at: &usize| (4096 + 216..4096 + 228).contains(at);
    assert!(!changed.is_empty() && changed.iter().all(of_superblock), "{changed:?}");
    let out = scratch.path("out");
    copy(&scratch, "--force", &members, &out).expect_done();
    assert!(fs::read(&out).expect("a copy") == bytes);
}

#[test]
fn a_recovery_offset_past_the_end_is_that_of_a_whole_member_and_another_one_a_part() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 6 * MIB);
    let bytes = filled(&scratch, "home", "-l 5 -n 3 -c 64K", &members);
    let size = Raw::read(&members[1]).u64(SIZE);
    let out = scratch.path("out");
    for (offset, is_whole) in [(u64::MAX, true), (size, true), (size + 8, true), (size / 2 / 128 * 128, false)] {
        change(&members[1..2], &[(FEATURES, &RECOVERING.to_le_bytes()), (RECOVERY_OFFSET, &offset.to_le_bytes())]);
        let left = &members[..2];
        copy(&scratch, "--overwrite --run", left, &out).expect_refused(&["--run --force copies what is left"]);
        let by_force = copy(&scratch, "--overwrite --force", left, &out);
        if is_whole {
            by_force.expect_done().expect_said(&["it is read as a whole member"]);
            assert!(fs::read(&out).expect("a copy") == bytes, "{offset}");
            continue;
        }
        by_force.expect_refused(&["raid5 needs at least 2"]);
        let done = copy(&scratch, "--overwrite --run --force", left, &out);
        assert_eq!(done.code, Some(1), "{done:?}");
        assert!(done.stderr.contains("was recovered to ") && done.stderr.contains("could not be read"), "{done:?}");
        let copied = fs::read(&out).expect("a copy");
        let rows = (offset * 512 * 2) as usize;
        assert!(copied[..rows] == bytes[..rows], "all rows below the position");
        let is_kept = |(found, right): (&[u8], &[u8])| found == right || found.iter().all(|byte| *byte == 0);
        assert!(copied.chunks(512).zip(bytes.chunks(512)).all(is_kept), "no sector is wrong");
    }
}

#[test]
fn force_takes_a_stale_member_only_where_no_current_one_has_a_copy() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 5, 6 * MIB);
    // Two copies on five members: chunks on 0 1, 2 3, 4 0, 1 2, 3 4.
    let old = filled(&scratch, "home", "-l 10 -n 5 -p n2 -c 64K", &members);
    let stale: Vec<Vec<u8>> = members.iter().map(|path| fs::read(path).expect("a member")).collect();
    let served = scratch.ready(&[], &members);
    let new = pattern(6, old.len());
    served.write_all(0, &new);
    served.stop().expect_done();
    // 1 and 3 left before the second write, as the table of 0, the only current one, says; 2 and 4 are lost.
    for at in [1, 3] {
        fs::write(&members[at], &stale[at]).expect("a member");
        change(&members[at..=at], &[(EVENTS, &20_u64.to_le_bytes())]);
    }
    change(&members[..1], &[(EVENTS, &40_u64.to_le_bytes())]);
    (1..5).for_each(|number| set_role(&members[..1], number, FAULTY));
    let given = [members[0].clone(), members[1].clone(), members[3].clone()];
    let expected: Vec<u8> = new
        .chunks(65_536)
        .zip(old.chunks(65_536))
        .enumerate()
        .flat_map(|(chunk, (new, old))| if [0, 2].contains(&(chunk % 5)) { new } else { old })
        .copied()
        .collect();
    let out = scratch.path("out");
    copy(&scratch, "", &given, &out).expect_refused(&["--force to take stale members"]);
    copy(&scratch, "--force", &given, &out).expect_done();
    assert!(fs::read(&out).expect("a copy") == expected, "the newest copies of all");
    let served = scratch.serve(&["--force"], &given);
    served.wait_until_ready();
    assert_eq!(served.first_difference(&expected), None, "while it is made consistent");
    served.kill_unawaited();
    drop(served);
    // Killed in the middle or not: the same again.
    let served = scratch.ready(&["--force"], &given);
    assert_eq!(served.first_difference(&expected), None);
    served.stop().expect_done();
    copy(&scratch, "--overwrite", &given, &out).expect_done();
    assert!(fs::read(&out).expect("a copy") == expected, "without --force");
}

#[test]
fn an_old_array_of_a_whole_disk_is_told_from_that_of_its_partition_before_any_advice() {
    let scratch = Scratch::new();
    let disks = scratch.members("d", 2, 16 * MIB);
    filled(&scratch, "old", "-l 1 -n 2 -e 1.0", &disks);
    let parts = scratch.members("p", 2, 6 * MIB);
    filled(&scratch, "today", "-l 1 -n 2", &parts);
    partition(&disks[0], &parts[0]);
    let said = format!("and its partition {}@p1 is a member of another array, today", text(&disks[0]));
    let out = scratch.path("out");
    let refused = copy(&scratch, "", &disks[..1], &out);
    refused.expect_refused(&[&said, "--run to start degraded; but first read what is said of"]);
    scratch.serve(&[], &disks[..1]).end().expect_refused(&[&said]);
    assert!(scratch.uraid(["examine", &text(&disks[0])]).expect_done().stderr.contains(&said));
    let detail = scratch.uraid(["detail", &text(&disks[0])]);
    assert!(detail.stderr.contains(&said) && detail.stdout.contains("but first read"), "{detail:?}");
}

/// A member alone has nothing that it could differ from.
#[test]
fn a_mirror_with_one_member_left_is_clean_after_a_stop_that_says_so() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 6 * MIB);
    let bytes = filled(&scratch, "home", "-l 1 -n 2", &members);
    change(&members, &[(RESYNC_OFFSET, &[0; 8])]);
    let served = scratch.ready(&["--run"], &members[..1]);
    assert_eq!(served.first_difference(&bytes), None);
    served.stop().expect_done().expect_said(&["is stopped and clean"]);
    let shown = scratch.uraid(["examine", &text(&members[0])]).expect_done().stdout;
    assert!(shown.contains("State : clean"), "{shown}");
}

/// As md leaves it: which of the two is to stay is their owner's choice.
#[test]
fn a_complete_replacement_stays_beside_its_member_until_it_is_told_which_one_goes() {
    const DEV_NUMBER: usize = 160;
    const DEVICE_UUID: usize = 168;
    const REPLACEMENT: u32 = 16;
    for (command, gone, left) in [("fail", 2, 1), ("replace", 1, 2)] {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", 2, 6 * MIB);
        let bytes = filled(&scratch, "home", "-l 1 -n 2", &members);
        let second = scratch.path("second");
        fs::copy(&members[1], &second).expect("a copy");
        members.push(second);
        set_role(&members, 2, 1);
        let fields: [(usize, &[u8]); 3] =
            [(DEV_NUMBER, &2_u32.to_le_bytes()), (DEVICE_UUID, &[9; 16]), (FEATURES, &REPLACEMENT.to_le_bytes())];
        change(&members[2..], &fields);
        for _ in 0..2 {
            let served = scratch.ready(&[], &members);
            served.wait_for("slot 1 has two members that hold everything");
            let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
            assert!(
                shown.contains("active sync replacement")
                    && shown.contains("State : clean")
                    && shown.contains("Slots : [2/2] [UU]"),
                "{shown}"
            );
            served.write_all(0, &bytes[..4096]);
            served.stop().expect_done();
            let shown = scratch.uraid(["examine", &text(&members[2])]).expect_done().stdout;
            assert!(shown.contains("Device Role : Replacement device 1"), "{shown}");
        }
        let served = scratch.ready(&[], &members);
        let word = if command == "fail" { text(&members[2]) } else { "1".to_owned() };
        scratch.uraid([command, "home", &word]).expect_done();
        served.wait_for(if command == "fail" { "is faulty: by command" } else { "was replaced, and may be removed" });
        crate::common::wait(|| scratch.uraid(["remove", "home", &text(&members[gone])]).code == Some(0))
            .expect("it may be");
        scratch.uraid(["fail", "home", &text(&members[0])]).expect_done();
        assert_eq!(served.first_difference(&bytes), None, "{command}: member {left} has it all");
        served.stop().expect_done();
    }
}

/// Its data is all there: half of the array is no answer.
#[test]
fn a_member_without_its_superblock_beside_a_missing_one_is_read_by_the_command_that_is_told() {
    for (options, slots) in [("-l 5 -c 64K", 4), ("-l 6 -c 32K -p ra -e 1.1", 5), ("-l 10 -p f2 -c 64K -e 1.0", 4)] {
        let scratch = Scratch::new();
        let members = scratch.members("m", slots, 6 * MIB);
        let bytes = filled(&scratch, "home", &format!("{options} -n {slots}"), &members);
        let lost = if slots == 5 { vec![2, 3] } else { vec![2] };
        scratch.uraid(["zero-superblock", &text(&members[1])]).expect_done();
        let left: Vec<PathBuf> = (0..slots).filter(|at| !lost.contains(at)).map(|at| members[at].clone()).collect();
        let out = scratch.path("out");
        let said = copy(&scratch, "", &left, &out).expect_refused(&["only its superblock is lost"]).stderr;
        let (_, told) = said.split_once("can be read: uraid ").expect("a command");
        let (told, _) = told.split_once(" OUT").expect("its end");
        let words = told.split(' ').map(|word| match word.strip_prefix("MEMBER") {
            Some("1") => text(&members[1]),
            Some(_) => "missing".to_owned(),
            None => word.to_owned(),
        });
        scratch.uraid(words.chain([text(&out)])).expect_done();
        assert!(fs::read(&out).expect("a copy") == bytes, "{options}: {told}");
    }
}
