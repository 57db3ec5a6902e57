//! Several arrays in one process, and arrays made of arrays.
//! Owns: what a user sees of them. Not here: one array alone (`life`), what goes wrong with one (`errors`).

use crate::common::{MIB, Scratch, Served, pattern, wait};
use std::path::{Path, PathBuf};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// `serve OPTIONS --array GROUP --array GROUP ...`, started.
fn serve(scratch: &Scratch, options: &[&str], groups: &[&[PathBuf]]) -> Served {
    let groups =
        groups.iter().flat_map(|group| ["--array".to_owned()].into_iter().chain(group.iter().map(|m| text(m))));
    let options = options.iter().map(|&option| option.to_owned());
    Served::start(&mut scratch.command(["serve".to_owned()].into_iter().chain(options).chain(groups)))
}

#[test]
fn several_arrays_are_exports_of_one_process() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 3, 4 * MIB), scratch.members("r", 2, 6 * MIB));
    scratch.create("left", "-l 5 -n 3 -c 64K", &left);
    scratch.create("right", "-l 1 -n 2", &right);
    let served = serve(&scratch, &[], &[&left, &right]);
    wait(|| scratch.uraid(["list"]).stdout.matches("nbd+unix").count() == 2).expect("both are listed");
    served.wait_until_ready();
    let mut written = Vec::new();
    for (export, seed) in [("left", 21), ("right", 22)] {
        let mut client = served.client_of(export);
        let data = pattern(seed, client.size as usize);
        assert_eq!(client.write(0, &data).expect("connected"), 0, "{export}");
        written.push((export, data));
    }
    // A failure concerns its array alone.
    scratch.uraid(["fail", "left", &text(&left[1])]).expect_done();
    served.wait_for("left: member");
    let shown = scratch.uraid(["detail", "left"]).expect_done().stdout;
    assert!(shown.contains("[3/2] [U_U]") && shown.contains(", 1 write\n"), "{shown}");
    assert!(shown.contains("Parity By : "), "the instructions of a raid5: {shown}");
    let shown = scratch.uraid(["detail", &text(&right[0])]).expect_done().stdout;
    assert!(
        shown.starts_with("/dev/md/right:") && shown.contains("[2/2] [UU]") && shown.contains(", 1 write\n"),
        "{shown}"
    );
    assert!(!shown.contains("Parity By"), "a mirror has none: {shown}");
    for (export, data) in &written {
        let mut client = served.client_of(export);
        assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(data), "{export}");
    }
    // A stop of one array only is refused, and both continue.
    scratch.uraid(["stop", "right"]).expect_refused(&["right is not stopped alone", "left", "--all"]);
    scratch.uraid(["stop", &text(&left[0])]).expect_refused(&["left is not stopped alone", "right", "--all"]);
    assert!(served.client_of("right").read(0, 512).expect("connected").is_ok());
    scratch.uraid(["stop", "--all", "right"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    for member in [&left[0], &left[2], &right[0], &right[1]] {
        let shown = scratch.uraid(["examine", &text(member)]).expect_done().stdout;
        assert!(shown.contains("State : clean\n"), "{shown}");
    }
    let served = scratch.ready(&[], &right);
    assert!(served.client().read(0, written[1].1.len()).expect("connected").as_ref() == Ok(&written[1].1));
}

#[test]
fn arrays_of_one_name_are_told_apart_and_copies_of_one_array_are_refused() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.members("a", 2, 4 * MIB), scratch.members("b", 2, 4 * MIB));
    scratch.create("same", "-l 1 -n 2 --assume-clean", &one);
    scratch.create("same", "-l 1 -n 2 --assume-clean --uuid 00112233:00000000:00000000:00000001", &two);
    let served = serve(&scratch, &[], &[&one, &two]);
    served.wait_for("two arrays are called same: the second is called 00112233 here");
    served.wait_until_ready();
    assert!(served.client_of("00112233").write(0, &[1; 512]).expect("connected") == 0);
    scratch.uraid(["stop", "--all", "00112233"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    let control = text(&scratch.path("x.ctl"));
    for option in [["--export-name", "x"], ["--control", &control]] {
        serve(&scratch, &option, &[&one, &two]).end().expect_refused(&["are for one array, and 2 are served"]);
    }
    for (from, to) in two.iter().zip(&one) {
        std::fs::copy(from, to).expect("both are ours");
    }
    // The third array of this name, whose UUID begins with digits that are in use, too.
    let three = scratch.members("c", 2, 4 * MIB);
    scratch.create("same", "-l 1 -n 2 --assume-clean", &three);
    let groups: [&[PathBuf]; 3] = [&three, &one, &two];
    serve(&scratch, &[], &groups).end().expect_refused(&["are copies of one array"]);
}

/// `create OPTIONS --name NAME --array GROUP --array GROUP ...`
fn create_over(scratch: &Scratch, name: &str, options: &str, groups: &[&[PathBuf]]) -> crate::common::Done {
    let fixed = ["create", "--homehost", "none", "--name", name].map(str::to_owned);
    let options = options.split_whitespace().map(str::to_owned);
    let groups =
        groups.iter().flat_map(|group| ["--array".to_owned()].into_iter().chain(group.iter().map(|m| text(m))));
    scratch.uraid(fixed.into_iter().chain(options).chain(groups))
}

/// Two raid6 of four members of 4 MiB.
fn two_raid6(scratch: &Scratch) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (left, right) = (scratch.members("l", 4, 4 * MIB), scratch.members("r", 4, 4 * MIB));
    scratch.create("left", "-l 6 -n 4 -c 64K", &left);
    scratch.create("right", "-l 6 -n 4 -c 64K", &right);
    (left, right)
}

fn without(members: &[PathBuf], lost: &[usize]) -> Vec<PathBuf> {
    members.iter().enumerate().filter(|(index, _)| !lost.contains(index)).map(|(_, path)| path.clone()).collect()
}

#[test]
fn a_stripe_over_two_raid6_loses_two_members_of_each_and_no_byte() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    let made = create_over(&scratch, "wide", "-l 0 -n 2 -c 64K", &[&left, &right]).expect_done();
    assert!(made.stdout.contains("array wide") && made.stdout.contains("next: uraid serve --array "), "{made:?}");
    // The order of the arrays on the command line does not matter.
    let served = serve(&scratch, &[], &[&right, &left]);
    served.wait_until_ready();
    let mut client = served.client_of("wide");
    let mut data = pattern(31, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    assert_eq!(client.flush().expect("connected"), 0);
    let shown = scratch.uraid(["detail", "wide"]).expect_done().stdout;
    assert!(shown.contains("raid0") && shown.contains("active sync   left\n"), "{shown}");
    scratch.uraid(["fail", "left", &text(&left[1])]).expect_done();
    scratch.uraid(["fail", "right", "3"]).expect_done();
    scratch.uraid(["fail", "wide", "left"]).expect_refused(&["cannot serve without"]);
    assert_eq!(scratch.uraid(["list"]).expect_done().stdout.lines().count(), 3);
    let part = pattern(32, 300 * 512);
    for at in [0, 70_144, data.len() - part.len()] {
        assert_eq!(client.write(at as u64, &part).expect("connected"), 0);
        data[at..at + part.len()].copy_from_slice(&part);
    }
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "one lost of each");
    // A member array stops with the array above it, never alone.
    scratch.uraid(["stop", "left"]).expect_refused(&["left is not stopped alone", "wide"]);
    scratch.uraid(["stop", "--force", "wide"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    let (left, right) = (without(&left, &[0, 1]), without(&right, &[2, 3]));
    for member in left.iter().chain(&right) {
        let shown = scratch.uraid(["examine", &text(member)]).expect_done().stdout;
        assert!(shown.contains("State : clean\n"), "{shown}");
    }
    let served = serve(&scratch, &["--run"], &[&left, &right]);
    served.wait_until_ready();
    let mut client = served.client_of("wide");
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "two lost of each");
    assert_eq!(client.write(65_024, &part).expect("connected"), 0);
    data[65_024..65_024 + part.len()].copy_from_slice(&part);
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data), "written with two lost of each");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn a_mirror_over_arrays_goes_on_when_one_of_them_is_lost() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.members("a", 2, 4 * MIB), scratch.members("b", 2, 4 * MIB));
    scratch.create("one", "-l 0 -n 2 -c 64K", &one);
    scratch.create("two", "-l 0 -n 2 -c 64K", &two);
    create_over(&scratch, "both", "-l 1 -n 2", &[&one, &two]).expect_done();
    let served = serve(&scratch, &[], &[&one, &two]);
    served.wait_until_ready();
    let mut client = served.client_of("both");
    let data = pattern(33, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    // A member of a stripe vanishes: the stripe fails, and the mirror goes on without it.
    std::fs::File::options().write(true).open(&one[1]).and_then(|file| file.set_len(0)).expect("our file");
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    served.wait_for("both: member one (slot 0) is faulty");
    assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    let shown = scratch.uraid(["detail", "both"]).expect_done().stdout;
    assert!(shown.contains("[2/1] [_U]"), "{shown}");
    served.stop();
    let served = serve(&scratch, &[], &[&two]);
    served.wait_until_ready();
    assert!(served.client_of("both").read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn what_cannot_be_made_over_arrays_is_refused_before_anything_changes() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    let all =
        || -> Vec<Vec<u8>> { left.iter().chain(&right).map(|path| std::fs::read(path).expect("a member")).collect() };
    let before = all();
    create_over(&scratch, "wide", "-l 0 -n 3", &[&left, &right]).expect_refused(&["3"]);
    create_over(&scratch, "wide", "-l 0 -n 2", &[&left, &left]).expect_refused(&["a member is named twice"]);
    create_over(&scratch, "wide", "-l 1 -n 2 -z 1G", &[&left, &right]).expect_refused(&["left"]);
    assert!(all() == before, "nothing was changed");
    create_over(&scratch, "wide", "-l 0 -n 2", &[&left, &right]).expect_done();
    create_over(&scratch, "again", "-l 0 -n 2", &[&left, &right])
        .expect_refused(&["left: carries", "2 of the members carry something already"]);
    create_over(&scratch, "again", "-l 1 -n 2 --run", &[&left, &right]).expect_done();
    // Without --array, an array is served alone, although it is a member.
    assert_eq!(scratch.ready(&[], &left).stop().code, Some(0));
    serve(&scratch, &[], &[&left]).end().expect_refused(&["--run"]);
}

#[test]
fn a_member_of_an_array_is_not_made_read_only_by_itself() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    create_over(&scratch, "wide", "-l 1 -n 2", &[&left, &right]).expect_done();
    let served = serve(&scratch, &[], &[&left, &right]);
    served.wait_until_ready();
    let refused = scratch.uraid(["readonly", "left"]).expect_refused(&["left: is a member of an array, which writes"]);
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    scratch.uraid(["readonly", "wide"]).expect_done();
    let mut client = served.client_of("wide");
    assert!(client.is_read_only && client.write(0, &[1; 512]).expect("connected") == 1, "EPERM");
    scratch.uraid(["readwrite", "wide"]).expect_done();
    assert_eq!(served.client_of("wide").write(0, &[1; 512]).expect("connected"), 0);
    drop(client);
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn after_kill_9_both_floors_are_made_consistent_and_the_inner_array_carries_an_ordinary_superblock() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    create_over(&scratch, "wide", "-l 1 -n 2", &[&left, &right]).expect_done();
    let served = serve(&scratch, &[], &[&left, &right]);
    served.wait_until_ready();
    let mut client = served.client_of("wide");
    let data = pattern(34, MIB as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    served.kill_unawaited();
    let served = serve(&scratch, &[], &[&left, &right]);
    served.wait_until_ready();
    for name in ["left", "right", "wide"] {
        served.wait_for(&format!("{name}: was not stopped cleanly or is new"));
    }
    assert!(served.client_of("wide").read(0, data.len()).expect("connected").as_ref() == Ok(&data));
    // Until its resync has ended, a stop leaves an array marked dirty.
    let waited = scratch.uraid(["wait", "left", "right", "wide"]);
    assert!(matches!(waited.code, Some(0 | 1)), "{waited:?}");
    assert_eq!(served.stop().code, Some(0));
    // Without --array the inner array is an export like any other, and its bytes are a member of the outer one.
    let served = scratch.ready(&["--read-only"], &left);
    let mut client = served.client();
    let bytes = client.read(0, client.size as usize).expect("connected").expect("an array reads");
    let copy = scratch.path("copy.img");
    std::fs::write(&copy, bytes).expect("the temporary folder is writable");
    let shown = scratch.uraid(["examine", &text(&copy)]).expect_done().stdout;
    assert!(shown.contains("Raid Level : raid1") && shown.contains("State : clean\n"), "{shown}");
    assert_eq!(served.stop().code, Some(0));
}

/// `copy OPTIONS OUT --array GROUP --array GROUP ...`
fn copy(scratch: &Scratch, options: &[&str], out: &Path, groups: &[&[PathBuf]]) -> crate::common::Done {
    let fixed = ["copy"].iter().chain(options).map(|&word| word.to_owned()).chain([text(out)]);
    let groups =
        groups.iter().flat_map(|group| ["--array".to_owned()].into_iter().chain(group.iter().map(|m| text(m))));
    scratch.uraid(fixed.chain(groups))
}

/// An array of this kind over two raid6, full of data; returns the data.
fn filled_over(scratch: &Scratch, options: &str, left: &[PathBuf], right: &[PathBuf]) -> Vec<u8> {
    create_over(scratch, "wide", options, &[left, right]).expect_done();
    let served = serve(scratch, &[], &[left, right]);
    served.wait_until_ready();
    let mut client = served.client_of("wide");
    let data = pattern(35, client.size as usize);
    assert_eq!(client.write(0, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    data
}

#[test]
fn a_stripe_over_two_raid6_is_copied_without_a_server_whole_and_with_members_missing_of_each() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    let data = filled_over(&scratch, "-l 0 -n 2 -c 64K", &left, &right);
    let all =
        || -> Vec<Vec<u8>> { left.iter().chain(&right).map(|path| std::fs::read(path).expect("a member")).collect() };
    let before = all();
    let out = scratch.path("out");
    copy(&scratch, &[], &out, &[&right, &left]).expect_done().expect_said(&["copy done"]);
    assert!(std::fs::read(&out).expect("a copy") == data, "whole");
    for lost in [&[2][..], &[0, 3]] {
        let groups = [without(&left, lost), without(&right, lost)];
        copy(&scratch, &["--overwrite"], &out, &[&groups[0], &groups[1]]).expect_refused(&["--run"]);
        let done = copy(&scratch, &["--overwrite", "--run"], &out, &[&groups[0], &groups[1]]).expect_done();
        done.expect_said(&["left: raid6 is copied degraded", "right: raid6 is copied degraded"]);
        assert!(std::fs::read(&out).expect("a copy") == data, "without {lost:?}");
    }
    // Sectors that too few members of one raid6 can read are lost, and no others.
    let bad = |member: &PathBuf| PathBuf::from(format!("bad:6000:{}", text(member)));
    let spoilt: Vec<PathBuf> = left[..3].iter().map(bad).chain([left[3].clone()]).collect();
    let done = copy(&scratch, &["--overwrite"], &out, &[&spoilt, &right]);
    done.expect_refused(&["sectors could not be read and are zeroes in the copy"]);
    let copied = std::fs::read(&out).expect("a copy");
    let differ: Vec<usize> =
        (0..data.len() / 512).filter(|&n| copied[n * 512..][..512] != data[n * 512..][..512]).collect();
    assert!(!differ.is_empty() && differ.len() <= 2, "sectors {differ:?} differ: no more than the data of one row");
    assert!(all() == before, "no member was changed");
    // A copy can be resumed only if the array was not written since.
    copy(&scratch, &[], &out, &[&left, &right]).expect_done().expect_said(&["goes on"]);
    assert!(std::fs::read(&out).expect("a copy") == data, "once the sectors can be read");
    let served = serve(&scratch, &[], &[&left, &right]);
    served.wait_until_ready();
    assert_eq!(served.client_of("wide").write(0, &[1; 512]).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    copy(&scratch, &[], &out, &[&left, &right]).expect_refused(&["is the map of another copy"]);
}

#[test]
fn a_mirror_over_arrays_is_copied_from_the_one_that_is_left_with_a_member_missing() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    let data = filled_over(&scratch, "-l 1 -n 2", &left, &right);
    let left = without(&left, &[1]);
    let out = scratch.path("out");
    copy(&scratch, &["--run"], &out, &[&left])
        .expect_done()
        .expect_said(&["left: raid6 is copied degraded", "wide: raid1 is copied degraded, 1 of 2 slots"]);
    assert!(std::fs::read(&out).expect("a copy") == data);
}

#[test]
fn a_raid5_over_mirrors_writes_beside_a_sector_that_one_of_their_members_cannot_read() {
    let scratch = Scratch::new();
    let mirrors = ["a", "b", "c"].map(|name| {
        let members = scratch.members(name, 2, 8 * MIB);
        scratch.create(name, "-l 1 -n 2", &members);
        members
    });
    let groups: Vec<&[PathBuf]> = mirrors.iter().map(Vec::as_slice).collect();
    create_over(&scratch, "wide", "-l 5 -n 3 -c 64K", &groups).expect_done();
    let served = serve(&scratch, &[], &groups);
    served.wait_until_ready();
    let before = pattern(36, 128 << 10);
    assert_eq!(served.client_of("wide").write(0, &before).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    let images: Vec<(&PathBuf, Vec<u8>)> =
        mirrors.iter().flatten().map(|path| (path, std::fs::read(path).expect("a member"))).collect();
    // One member of the mirror that holds the second chunk cannot read any of it, the other one can: where the mirror
    // reads that one first, it gives the row other buffers than it was given.
    let holds = |member: &PathBuf, chunk: &[u8]| {
        let bytes = std::fs::read(member).expect("a member");
        bytes.chunks(4096).position(|block| block == &chunk[..4096])
    };
    for which in [0, 1] {
        // A member that failed to read is no longer one.
        images.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("a member"));
        let mut data = before.clone();
        let mut count = 0;
        let mut spoil = |members: &Vec<PathBuf>| {
            let mut members = members.clone();
            if let Some(at) = holds(&members[which], &data[64 << 10..]) {
                members[which] = format!("bad:{}+128:{}", at * 8, text(&members[which])).into();
                count += 1;
            }
            members
        };
        let spoilt: Vec<Vec<PathBuf>> = mirrors.iter().map(&mut spoil).collect();
        assert_eq!(count, 1);
        let groups: Vec<&[PathBuf]> = spoilt.iter().map(Vec::as_slice).collect();
        let served = serve(&scratch, &["--shards", "1"], &groups);
        served.wait_until_ready();
        let mut client = served.client_of("wide");
        // Beside it, in the first chunk: the row needs the other one to make its parity.
        for (n, length) in [(1, 8192), (3, 12288), (6, 16384), (11, 8192), (13, 8192), (15, 512)] {
            let at = n * 4096;
            data[at..at + length].copy_from_slice(&pattern(40 + n as u64, length));
            assert_eq!(client.write(at as u64, &data[at..at + length]).expect("connected"), 0, "{length} bytes");
        }
        assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(&data));
        let ended = served.stop();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn arrays_that_are_not_one_and_a_copy_to_a_member_of_one_are_refused() {
    let scratch = Scratch::new();
    let (left, right) = two_raid6(&scratch);
    let out = scratch.path("out");
    copy(&scratch, &[], &out, &[&left, &right])
        .expect_refused(&["left, right: they carry no superblocks of an outer array", "without --array"]);
    // An array without a superblock on it is itself copied.
    copy(&scratch, &[], &out, &[&left]).expect_done();
    filled_over(&scratch, "-l 0 -n 2 -c 64K", &left, &right);
    copy(&scratch, &["--overwrite"], &out, &[&left])
        .expect_refused(&["cannot start the array that these arrays are members of", "1 of 2 members"]);
    let before = std::fs::read(&right[3]).expect("a member");
    copy(&scratch, &["--overwrite"], &right[3], &[&left, &right]).expect_refused(&["is the member", "r3"]);
    // If OUT is missing, or follows --array, no member is taken as OUT.
    let words = ["copy", "--overwrite", "--run", "--array"].map(str::to_owned);
    let done = scratch.uraid(words.into_iter().chain(right.iter().map(|member| text(member))));
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.stderr.contains("OUT --array MEMBER..."), "{done:?}");
    assert!(std::fs::read(&right[3]).expect("a member") == before);
}

#[test]
fn create_over_arrays_that_is_interrupted_leaves_them_as_dirty_as_they_were() {
    let scratch = Scratch::new();
    // Large enough not to be done before the signal comes.
    let (left, right) = (scratch.members_to_pass("l", 2, 256 << 30), scratch.members_to_pass("r", 2, 256 << 30));
    scratch.create("left", "-l 1 -n 2", &left);
    scratch.create("right", "-l 1 -n 2", &right);
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::TERM] {
        let words = ["create", "-l", "0", "-n", "2", "--name", "wide", "--array"].map(str::to_owned);
        let words = words.into_iter().chain(left.iter().map(|member| text(member))).chain(["--array".to_owned()]);
        let made = Served::start(&mut scratch.command(words.chain(right.iter().map(|member| text(member)))));
        made.wait_for("left: resync [");
        made.signal(signal);
        let done = made.end().expect_refused(&[
            "no array was made: left was stopped before it was consistent: it stays marked dirty, and its next start continues its resync",
        ]);
        assert!(done.stdout.is_empty(), "{done:?}");
        for member in left.iter().chain(&right) {
            let shown = scratch.uraid(["examine", &text(member)]).expect_done().stdout;
            assert!(shown.contains("State : active\n"), "{shown}");
        }
    }
    // Nothing was written to what they hold either.
    copy(&scratch, &[], &scratch.path("out"), &[&left, &right]).expect_refused(&["they carry no superblock"]);
}
