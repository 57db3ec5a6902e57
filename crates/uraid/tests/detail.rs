//! `uraid detail` on the members of an array that does not run.
//! Owns: what is said about members that were not given, left out, or keep the array from starting.
//! Not here: running arrays (`life`), the decision (`engine::assemble`).

use crate::common::golden::{golden, golden_names, restored};
use crate::common::loop_device::LoopDevice;
use crate::common::superblock::{BAD_BLOCK_SHIFT, FEATURES, Raw, SIZE};
use crate::common::{Done, MIB, Scratch, wait};
use std::collections::BTreeMap;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[test]
fn members_tell_what_is_missing_and_what_would_refuse_to_start() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 20 * MIB);
    scratch.create("away", "-l 6 -n 4 -c 64K", &members);
    let detail = |words: &[&str], count: usize| {
        let words =
            ["detail"].iter().chain(words).map(Path::new).chain(members[..count].iter().map(|path| path.as_path()));
        scratch.uraid(words).expect_done().stdout
    };
    let whole = detail(&["--verbose"], 4);
    assert!(!whole.contains("not given") && !whole.contains("Would Not Start"), "{whole}");
    assert!(whole.contains("    mkfs.xfs -d su=64k,sw=2 DEVICE\n"), "{whole}");
    assert!(whole.contains("    mkfs.ext4 -b 4096 -E stride=16,stripe_width=32 DEVICE\n"), "{whole}");
    assert!(whole.contains("    ARRAY <ignore> UUID="), "{whole}");
    // Assumed clean, so that nothing but the missing member keeps it from starting.
    scratch.create("away", "--run -l 6 -n 4 -c 64K --assume-clean", &members);
    let part = detail(&[], 3);
    assert!(part.contains("        3      removed\n") && part.contains("Not Given : slot 3: "), "{part}");
    assert!(part.contains("Would Not Start : found 3 members, the superblocks count 4"), "{part}");
    let json: serde_json::Value = serde_json::from_str(&detail(&["--json"], 3)).expect("JSON");
    assert_eq!(json["members"][3]["state"], "not given", "{json}");
    assert!(json["refusal"].as_str().is_some_and(|text| text.contains("--run")), "{json}");
    scratch.create("away", "--run -l 6 -n 4 -c 64K -e 1.0", &members);
    assert!(detail(&[], 4).contains("           Version : 1.0\n"));
}

/// `uraid detail WORDS MEMBERS`, to its end.
fn detail<'a>(scratch: &Scratch, words: &[&str], members: impl IntoIterator<Item = &'a PathBuf>) -> Done {
    let words = ["detail"].iter().chain(words).map(PathBuf::from);
    scratch.uraid(words.chain(members.into_iter().cloned()))
}

#[test]
fn the_halves_of_two_arrays_are_two_reports_and_an_error() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 4, 20 * MIB), scratch.members("r", 3, 20 * MIB));
    scratch.create("left", "-l 5 -n 4 -c 64K --assume-clean", &left);
    scratch.create("right", "-l 0 -n 3 -c 64K", &right);
    let halves = || left[..2].iter().chain(&right[..2]);
    let done = detail(&scratch, &[], halves());
    let shown = done.expect_refused(&["the members belong to 2 arrays, expected one"]).stdout;
    let (one, other) =
        shown.split_once("\n\n/dev/md/left:\n").or_else(|| shown.split_once("\n\n/dev/md/right:\n")).expect("two");
    for report in [one, other] {
        assert!(report.contains("State : clean, FAILED, Not Started"), "{shown}");
        assert!(report.contains("Would Not Start : found 2 of "), "{shown}");
    }
    assert!(shown.contains("        3      removed\n"), "{shown}");
    // The size of a raid0 is that of its members together, and one of them is not known.
    assert_eq!(shown.matches("Array Size").count(), 1, "{shown}");
    let done = detail(&scratch, &["--json"], halves()).expect_refused(&[]);
    let json: serde_json::Value = serde_json::from_str(&done.stdout).expect("JSON");
    let names = |key: &str| json.as_array().expect("two").iter().map(|report| report[key].clone()).collect::<Vec<_>>();
    assert!(names("name").contains(&"left".into()) && names("name").contains(&"right".into()), "{json}");
    let drawn = detail(&scratch, &["--draw"], &right[..2]);
    drawn.expect_refused(&["right: its layout is not known: raid0 is laid out by the sizes of its members"]);
}

#[test]
fn too_few_members_are_shown_before_the_error() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 20 * MIB);
    scratch.create("few", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let done = detail(&scratch, &[], &members[1..3]).expect_refused(&["found 2 of 4 members, raid5 needs at least 3"]);
    assert!(done.stdout.contains("State : clean, FAILED, Not Started \n"), "{}", done.stdout);
    assert!(done.stdout.contains("        Array Size : 58368 "), "{}", done.stdout);
    assert!(done.stdout.contains("Not Given : slot 0, 3: "), "{}", done.stdout);
    assert_eq!(done.stdout.matches("removed\n").count(), 2, "{}", done.stdout);
    // A lost array can still be drawn.
    let drawn = detail(&scratch, &["--draw", "--stripes", "1"], &members[1..3]).expect_refused(&[]).stdout;
    assert!(drawn.contains("    0       0  [D0]    D1    D2   [P]\n"), "{drawn}");
}

#[test]
fn dirty_and_degraded_is_told_with_everybody_in_place() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 20 * MIB);
    scratch.create("hole", "-l 5 -n 3 -c 64K", &members);
    let done = detail(&scratch, &[], &members[..2]).expect_refused(&["the raid5 is dirty and degraded"]);
    assert!(done.stdout.contains("State : active, degraded, Not Started \n"), "{}", done.stdout);
    assert!(done.stdout.contains("Would Not Start : the raid5 is dirty and degraded"), "{}", done.stdout);
    assert!(done.stdout.contains("       2      removed\n"), "{}", done.stdout);
}

#[test]
fn a_stale_member_is_left_out_with_its_reason() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 20 * MIB);
    scratch.create("stale", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let served = scratch.ready(&["--run"], &members[..3]);
    assert_eq!(served.client().write(0, &[7; 4096]).expect("served"), 0);
    assert_eq!(served.stop().code, Some(0));
    let all = detail(&scratch, &[], &members).expect_done().stdout;
    assert!(all.contains("State : clean, degraded, Not Started \n"), "{all}");
    assert!(all.contains("       3      removed\n") && all.contains("m3: stale: has "), "{all}");
    assert!(!all.contains("Would Not Start"), "{all}");
    let json = detail(&scratch, &["--json"], &members).expect_done().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(json["left_out"][0]["path"].as_str().is_some_and(|path| path.ends_with("m3")), "{json}");
    assert!(json["hints"]["mdadm_conf"].as_str().is_some_and(|line| line.starts_with("ARRAY <ignore> UUID=")));
    let few =
        detail(&scratch, &[], &members[1..]).expect_refused(&["needs at least 3", "m3: left out: stale: has "]).stdout;
    assert!(few.contains("m3: stale: has ") && few.contains("FAILED"), "{few}");
    assert!(few.contains("       0      removed\n") && few.contains("       3      removed\n"), "{few}");
}

/// `copy`, `serve` and `detail` all say why the member that was given does not help.
#[test]
fn a_stale_member_is_named_when_a_dirty_degraded_array_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 20 * MIB);
    scratch.create("hole", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let served = scratch.ready(&["--run"], &members[..3]);
    assert_eq!(served.client().write(0, &[7; 4096]).expect("served"), 0);
    served.kill_unawaited();
    served.end();
    let said = ["m3: left out: stale: has ", "the raid5 is dirty and degraded, slots without a member: 3"];
    let out = scratch.path("out");
    for options in [&[][..], &["--run"]] {
        let words =
            ["copy"].iter().chain(options).map(PathBuf::from).chain(members.iter().cloned()).chain([out.clone()]);
        scratch.uraid(words).expect_refused(&said);
        scratch.serve(options, &members).end().expect_refused(&said);
    }
    assert!(!out.exists());
    let done = detail(&scratch, &[], &members);
    let shown = done.expect_refused(&["the raid5 is dirty and degraded", "m3: left out: stale: has "]).stdout;
    assert!(shown.contains("State : active, degraded, Not Started \n"), "{shown}");
    assert!(shown.contains("Left Out : ") && shown.contains("m3: stale: has "), "{shown}");
}

/// What mdadm says of a member of these arrays, and what follows from it.
#[test]
fn arrays_of_the_real_md_driver_show_their_policy_and_none_opens_read_only_for_it() {
    let scratch = Scratch::new();
    let mut seen = BTreeMap::new();
    for name in golden_names() {
        let array = golden(&name);
        let told = array["members"].as_array().expect("members");
        if told[0]["sectors"].as_u64().expect("a size") > 1 << 31 {
            continue;
        }
        let said: Vec<&str> = told.iter().filter_map(|member| member["examine"].as_str()).collect();
        let says = |what: &str| said.iter().any(|text| text.contains(what));
        let is_plain = says("Raid Level : raid0") || says("Raid Level : linear");
        let (policy, reason) = match () {
            () if says("Device Role : Journal") || says("JOURNAL") => ("journal", None),
            () if says("        PPL : ") => ("ppl", None),
            () if says("Internal Bitmap : ") => ("bitmap", None),
            () if is_plain => ("none", None),
            () => ("resync", None),
        };
        let old = name.starts_with("v090").then_some("its superblocks are of version 0.90");
        let reason = old.or(reason);
        let paths = (0..).zip(told).map(|(n, member)| restored(scratch.path(&format!("{name}-{n}")), member));
        let paths: Vec<PathBuf> = paths.collect();
        let shown = detail(&scratch, &[], &paths).stdout;
        assert!(shown.contains(&format!("Consistency Policy : {policy}\n")), "{name}: {shown}");
        if says("Recovery Offset : ") && policy != "journal" {
            assert!(shown.contains("      spare rebuilding "), "{name}: {shown}");
        }
        if policy != "journal" {
            let line = shown.lines().find_map(|line| line.trim().strip_prefix("Read-Only : "));
            assert_eq!(line.is_some(), reason.is_some(), "{name}: {shown}");
            assert!(line.unwrap_or("").starts_with(reason.unwrap_or("")), "{name}: {shown}");
        }
        let json = detail(&scratch, &["--json"], &paths).stdout;
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["consistency_policy"], policy, "{name}");
        assert_eq!(json["read_only"].is_string(), reason.is_some() || policy == "journal", "{name}: {json}");
        *seen.entry((policy, reason.is_some())).or_insert(0) += 1;
        paths.iter().for_each(|path| std::fs::remove_file(path).expect("it was made here"));
    }
    let kinds = [("none", false), ("resync", false), ("bitmap", false), ("ppl", false), ("journal", false)];
    assert!(kinds.iter().all(|kind| seen.contains_key(kind)), "{seen:?}");
}

#[test]
fn a_server_of_an_array_that_opens_read_only_says_why() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 20 * MIB);
    scratch.create("seen", "-l 1 -n 2 --assume-clean", &members);
    for (member, listed) in [(&members[0], true), (&members[1], false)] {
        let mut raw = Raw::read(member);
        if listed {
            // The list counts in blocks of eight sectors.
            raw.set(BAD_BLOCK_SHIFT, &[3]);
            raw.list_bad(&[(8, 8)]);
        }
    }
    let show = || detail(&scratch, &[], [&PathBuf::from("seen")]).expect_done().stdout;
    let served = scratch.ready(&[], &members);
    let shown = show();
    let path = members[0].canonicalize().expect("a member");
    let reason = format!("\n         Read-Only : {} has a list of bad blocks in units", path.display());
    assert!(shown.contains(&reason), "{shown}");
    served.stop().expect_done();
    scratch.create("seen", "--run -l 1 -n 2 --assume-clean", &members);
    for (flags, said) in [(&["--read-only"][..], true), (&[], false)] {
        let served = scratch.ready(flags, &members);
        assert_eq!(show().contains("\n         Read-Only : as requested\n"), said);
        served.stop().expect_done();
    }
}

/// Members that were given and are left out are shown as long as the array runs, with the reason.
#[test]
fn a_running_array_shows_what_it_was_started_without() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("home", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let served = scratch.ready(&["--run"], &members[..2]);
    assert_eq!(served.client().write(0, &[7; 4096]).expect("served"), 0);
    served.stop().expect_done();
    let blank = scratch.member("blank", 8 * MIB);
    let away = scratch.path("away");
    let served = scratch.ready(&[], &[&members[..], &[blank.clone(), away.clone()]].concat());
    let shown = detail(&scratch, &[], [&PathBuf::from("home")]).expect_done().stdout;
    let reasons = [(&members[2], "stale: has "), (&blank, "no md superblock: "), (&away, "not found\n")];
    for (path, reason) in reasons {
        let path = path
            .parent()
            .and_then(|folder| folder.canonicalize().ok())
            .expect("the scratch folder")
            .join(path.file_name().expect("a name"));
        assert!(shown.contains(&format!("Left Out : {}: {reason}", path.display())), "{reason}: {shown}");
    }
    let fail = |path: &PathBuf| scratch.uraid([PathBuf::from("fail"), PathBuf::from("home"), path.clone()]);
    fail(&members[2]).expect_refused(&["m2: was left out at the start: stale: has "]);
    fail(&blank).expect_refused(&["blank: was left out at the start: no md superblock"]);
    fail(&scratch.path("other")).expect_refused(&["other: no such member or slot"]);
    served.stop().expect_done();
}

/// md's bit for a bitmap that several hosts share; the checksum is made anew.
#[test]
fn a_clustered_bitmap_is_called_so_and_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("shared", "-l 1 -n 2 --assume-clean", &members);
    for member in &members {
        let mut raw = Raw::read(member);
        raw.set(FEATURES, &(1u32 << 8).to_le_bytes());
        raw.write();
    }
    let shown = detail(&scratch, &[], &members);
    let shown = shown.expect_refused(&["has a clustered bitmap, which is not supported: start it with md"]).stdout;
    assert!(shown.contains("Consistency Policy : clustered bitmap\n"), "{shown}");
    assert!(shown.contains("Would Not Start : the array has a clustered bitmap"), "{shown}");
}

/// What md uses of a member is whole rows of all far copies: of 159 chunks 158, and 156 where there are four.
#[test]
fn sizes_are_told_as_mdadm_tells_them() {
    let scratch = Scratch::new();
    let sectors_of_data = 159 * 128;
    let members = scratch.members("m", 4, (2048 + sectors_of_data) * 512);
    for (layout, chunks) in [("n2", 159), ("f2", 158), ("o2", 158), ("f3", 159), ("f4", 156), ("o4", 156)] {
        let options = format!("--run -l 10 -n 4 -c 64K -p {layout} --data-offset 1M --assume-clean");
        scratch.create("far", &options, &members);
        let shown = detail(&scratch, &[], &members).expect_done().stdout;
        let kib = chunks * 64;
        assert!(shown.contains(&format!("     Used Dev Size : {kib} (")), "{layout}: {shown}");
        assert_eq!(Raw::read(&members[2]).u64(SIZE), kib * 2, "{layout}");
        // A superblock with a larger size than is used: mdadm writes it so, and the kernel corrects it when it starts
        // the array.
        for member in &members {
            let mut raw = Raw::read(member);
            raw.set(SIZE, &(159u64 * 128).to_le_bytes());
            raw.write();
        }
        let again = detail(&scratch, &[], &members).expect_done().stdout;
        assert!(again.contains(&format!("     Used Dev Size : {kib} (")), "{layout}: {again}");
    }
    let members = scratch.members("large", 2, 1539 * MIB);
    scratch.create("large", "-l 1 -n 2 --assume-clean --data-offset 1M --size 1536M", &members);
    let shown = detail(&scratch, &[], &members).expect_done().stdout;
    assert!(shown.contains("        Array Size : 1572864 (1536.00 MiB 1610.61 MB)\n"), "{shown}");
    scratch.create("small", "--run -l 1 -n 2 --assume-clean --data-offset 1M --size 4992K", &members);
    let shown = detail(&scratch, &[], &members).expect_done().stdout;
    assert!(shown.contains("        Array Size : 4992\n     Used Dev Size : 4992\n"), "{shown}");
}

/// md tells file systems the same: far and offset copies do not make a stripe shorter.
#[test]
fn mkfs_is_told_the_stripes_of_far_and_offset_copies() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 8 * MIB);
    for (layout, width) in [("n2", 2), ("f2", 4), ("o2", 4)] {
        scratch.create("wide", &format!("--run -l 10 -n 4 -c 64K -p {layout} --assume-clean"), &members);
        let shown = detail(&scratch, &["--verbose"], &members).expect_done().stdout;
        assert!(shown.contains(&format!("    mkfs.xfs -d su=64k,sw={width} DEVICE\n")), "{layout}: {shown}");
    }
}

#[test]
fn what_clients_asked_for_is_counted_and_shown() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 20 * MIB);
    scratch.create("asked", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&[], &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &[7; 8192]).expect("served"), 0);
    assert!(client.read(0, 4096).expect("served").is_ok());
    assert_eq!(client.cache(0, 4096).expect("served"), 0);
    assert_eq!(client.flush().expect("served"), 0);
    let shown = detail(&scratch, &[], [&PathBuf::from("asked")]).expect_done().stdout;
    assert!(shown.contains("   NBD Connections : 1 now, 1 in all\n"), "{shown}");
    let line = "      NBD Requests : 1 read (4.00 KiB), 1 write (8.00 KiB), 1 flush, 1 cache\n";
    assert!(shown.contains(line), "{shown}");
    let json = detail(&scratch, &["--json"], [&PathBuf::from("asked")]).expect_done().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let clients = &json["clients"];
    assert_eq!((&clients["caches"], &clients["block_statuses"]), (&1.into(), &0.into()), "{json}");
    assert_eq!((&clients["connections"], &clients["connected"]), (&1.into(), &1.into()), "{json}");
    drop(client);
    let shown = || detail(&scratch, &[], [&PathBuf::from("asked")]).expect_done().stdout;
    wait(|| shown().contains("   NBD Connections : 0 now, 1 in all\n")).unwrap_or_else(|()| panic!("{}", shown()));
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn each_word_is_told_in_one_line_with_query() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 -x 1 --assume-clean", &members);
    let plain = scratch.member("plain", 8 * MIB);
    let [first, spare, plain] = [&members[0], &members[2], &plain].map(|path| path.display().to_string());
    let query = |words: &[&str]| scratch.uraid([&["detail", "--query"][..], words].concat());
    let shown = query(&[&first, &spare, &plain]).expect_done().stdout;
    let expected = format!(
        "{first}: device 0 in 2 device raid1 array home that does not run. Use `uraid examine {first}` for more detail.\n\
         {spare}: spare in 2 device raid1 array home that does not run. Use `uraid examine {spare}` for more detail.\n\
         {plain}: is neither a running array nor a member of one\n"
    );
    assert_eq!(shown, expected);
    let served = scratch.ready(&[], &members);
    let shown = query(&["home", &first]).expect_done().stdout;
    let expected = format!(
        "home: 7168 KiB (7.00 MiB 7.34 MB) raid1 2 devices, 1 spare. Use `uraid detail home` for more detail.\n\
         {first}: device 0 in 2 device raid1 running array home. Use `uraid examine {first}` for more detail.\n"
    );
    assert_eq!(shown, expected);
    query(&["nowhere"]).expect_refused(&["nowhere"]);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn arrays_and_the_array_they_make_up_are_shown_together() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 3, 20 * MIB), scratch.members("r", 3, 20 * MIB));
    scratch.create("left", "-l 5 -n 3 -c 64K --assume-clean", &left);
    scratch.create("right", "-l 5 -n 3 -c 64K --assume-clean", &right);
    let arrays = |verb: &str, options: &str| {
        let words = [verb].into_iter().chain(options.split_whitespace()).map(PathBuf::from);
        let group = |members: &[PathBuf]| [PathBuf::from("--array")].into_iter().chain(members.to_vec());
        scratch.uraid(words.chain(group(&left)).chain(group(&right)))
    };
    let apart = arrays("detail", "").expect_done().stdout;
    assert_eq!(apart.matches("Raid Level : raid5").count(), 2, "{apart}");
    arrays("create", "-l 0 -n 2 -c 64K --homehost none -N wide").expect_done();
    let all = arrays("detail", "").expect_done().stdout;
    assert_eq!((all.matches("raid5").count(), all.matches("Raid Level : raid0").count()), (2, 1), "{all}");
    assert!(all.contains("\n/dev/md/wide:\n") && all.contains("        1      active sync   right\n"), "{all}");
    let drawn = arrays("detail", "--draw --stripes 1").expect_done().stdout;
    assert!(drawn.contains("wide: raid0, 2 members, chunk 64K"), "{drawn}");
    assert!(drawn.contains("  Row  Sector   left  right\n") || drawn.contains("  left  right\n"), "{drawn}");
}

/// The superblocks of a running array are not its state, so `detail` reports that another process has claimed its
/// members: here a server whose sockets are in another folder, as those of another user are.
#[test]
fn an_array_that_is_served_elsewhere_is_said_to_be_in_use() {
    let (here, elsewhere) = (Scratch::new(), Scratch::new());
    let members = elsewhere.members("m", 3, 8 * MIB);
    let paths: Vec<String> = members.iter().map(|path| path.display().to_string()).collect();
    elsewhere.create("away", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let not_started = "State : clean, Not Started \n";
    for options in [&[][..], &["--read-only"]] {
        let shown = detail(&here, &[], &members).expect_done().stdout;
        assert!(shown.contains(not_started) && !shown.contains("In Use"), "{shown}");
        let served = elsewhere.ready(options, &members);
        let shown = detail(&here, &[], &members).expect_done().stdout;
        assert!(shown.contains("In Use : by process "), "{options:?}: {shown}");
        let line = format!(
            "            In Use : by process {}: {}; this report is from the superblocks, which may be behind\n",
            served.pid(),
            paths.join(", ")
        );
        assert!(shown.contains(&line) && !shown.contains("mkfs"), "{options:?}: {shown}");
        let json = detail(&here, &["--json"], &members[1..]).expect_done().stdout;
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["in_use"][0], serde_json::json!({"path": paths[1], "pid": served.pid()}), "{json}");
        served.stop().expect_done();
    }
}

/// A block device that is open with O_EXCL, as md and mounts open theirs, shows as in use.
#[test]
fn a_member_that_the_kernel_has_is_said_to_be_in_use() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    let Some(device) = LoopDevice::new(&members[1]) else {
        eprintln!("SKIPPED a_member_that_the_kernel_has_...: a loop device cannot be made here (needs root)");
        return;
    };
    let members = [members[0].clone(), device.path().to_owned()];
    scratch.create("kernel", "-l 1 -n 2 --assume-clean", &members);
    assert!(detail(&scratch, &[], &members).expect_done().stdout.contains("clean, Not Started \n"));
    let exclusive = rustix::fs::OFlags::EXCL.bits() as i32;
    let held = std::fs::OpenOptions::new().read(true).custom_flags(exclusive).open(device.path()).expect("it is free");
    let shown = detail(&scratch, &[], &members).expect_done().stdout;
    let line = format!("In Use : by the kernel or another process: {}; this", device.path().display());
    assert!(shown.contains("State : clean, Not Started \n") && shown.contains(&line), "{shown}");
    drop(held);
    // A program that another test starts just now holds it until it runs.
    wait(|| !detail(&scratch, &[], &members).expect_done().stdout.contains("In Use")).expect("it is free again");
}
