//! A disk that fails its reads, which the array can serve without it.
//! Owns: FUSE servers under members that fail every read: when such a member is failed, what is said and counted of it,
//! and when it stays. Not here: the arithmetic of the limit (`engine::read_errors`), failures at any moment (`uraid-sim`).

use crate::common::stubborn::StubbornFile;
use crate::common::{Client, MIB, Scratch, Served, pattern};
use serde_json::Value;
use std::path::PathBuf;

const BLOCK: usize = 4096;
/// Reads of these take several times the limit from every member.
const BYTES: usize = 2 << 20;

/// An array whose members are stubborn files, served, with bytes that no cache has.
struct Rig {
    served: Served,
    files: Vec<StubbornFile>,
    // Dropped after the mounts.
    scratch: Scratch,
}

impl Rig {
    fn new(level: &str, count: usize, options: &[&str]) -> Rig {
        let scratch = Scratch::new();
        let stored = scratch.members("m", count, 4 * MIB);
        let chunk = if level == "1" { "" } else { "-c 16" };
        scratch.create("dying", &format!("-l {level} -n {count} {chunk} --assume-clean"), &stored);
        let filling = scratch.ready(&[], &stored);
        assert_eq!(filling.client().write(0, &pattern(1, BYTES)).expect("connected"), 0);
        assert_eq!(filling.stop().code, Some(0));
        let files: Vec<StubbornFile> =
            stored.iter().map(|path| StubbornFile::new(&path.with_extension("mount"), path)).collect();
        let members: Vec<PathBuf> = files.iter().map(StubbornFile::path).collect();
        let served = scratch.ready(options, &members);
        Rig { served, files, scratch }
    }

    fn report(&self) -> Value {
        let done = self.scratch.uraid(["detail", "dying", "--json"]).expect_done();
        serde_json::from_str(&done.stdout).expect("JSON")
    }

    fn text(&self) -> String {
        self.scratch.uraid(["detail", "--verbose", "dying"]).expect_done().stdout
    }

    /// What `detail` says of one of the files.
    fn member(&self, file: usize) -> Value {
        let (report, path) = (self.report(), self.files[file].path());
        let members = report["members"].as_array().expect("a list").clone();
        members
            .into_iter()
            .find(|member| member["path"].as_str().map(PathBuf::from) == Some(path.clone()))
            .expect("it is there")
    }

    fn state(&self, file: usize) -> String {
        self.member(file)["state"].as_str().expect("a word").to_owned()
    }

    /// Lines of the log with this text.
    fn lines(&self, text: &str) -> usize {
        self.served.stderr().lines().filter(|line| line.contains(text)).count()
    }

    /// Reads all, block by block.
    #[track_caller]
    fn read_all(&self) {
        read_all(&mut self.served.client());
    }
}

#[track_caller]
fn read_all(client: &mut Client) {
    read_every(client, 1);
}

/// Reads one block in `step` and compares it.
#[track_caller]
fn read_every(client: &mut Client, step: usize) {
    let expected = pattern(1, BYTES);
    for at in (0..BYTES).step_by(step * BLOCK) {
        let read = client.read(at as u64, BLOCK).expect("connected");
        assert!(read.as_deref() == Ok(&expected[at..at + BLOCK]), "at {at}: {:?}", read.err());
    }
}

#[test]
fn members_that_fail_every_read_are_failed_where_the_level_allows_it_and_no_client_notices() {
    for (level, count, dying) in [("6", 4, vec![0, 1]), ("5", 4, vec![2]), ("1", 3, vec![0, 1]), ("10", 4, vec![3])] {
        let rig = Rig::new(level, count, &[]);
        dying.iter().for_each(|&file| rig.files[file].fail_reads(true));
        // The copies of a mirror take turns at random reads.
        (0..2).for_each(|_| read_every(&mut rig.served.client(), 3));
        rig.read_all();
        for file in 0..count {
            let (state, is_dying) = (rig.state(file), dying.contains(&file));
            assert_eq!(state, if is_dying { "faulty" } else { "active sync" }, "raid{level}, {file}: {}", rig.text());
            if is_dying {
                let io = rig.member(file)["io"].clone();
                assert!((21..100).contains(&io["reads"]["errors"].as_u64().expect("a count")), "raid{level}: {io}");
                assert!(io["read_elsewhere_sectors"].as_u64() > Some(0), "{io}");
                assert!(rig.member(file)["reason"].as_str().expect("a reason").contains("--max-read-errors"));
            }
        }
        for slot in &dying {
            let why = "is faulty: more read errors than --max-read-errors allows, the last one: ";
            rig.served.wait_for(&format!("(slot {slot}) {why}"));
        }
        let text = rig.text();
        assert!(text.contains(" read ") && text.contains("Elsewhere"), "{text}");
        // One line for the first, for the tenth, and what follows; none for the hundredth.
        let lines = rig.lines("read error");
        assert!((2 * dying.len()..=3 * dying.len()).contains(&lines), "{}", rig.served.stderr());
        let Rig { served, files, scratch } = rig;
        assert_eq!(served.stop().code, Some(0));
        // It was recorded: the others start without them, and say that they are stale.
        dying.iter().for_each(|&file| files[file].fail_reads(false));
        let members: Vec<PathBuf> = files.iter().map(StubbornFile::path).collect();
        let again = scratch.ready(&["--run"], &members);
        again.wait_for("left out: ");
        read_all(&mut again.client());
        assert_eq!(again.stop().code, Some(0));
    }
}

#[test]
fn without_a_limit_a_member_stays_and_is_counted_with_few_lines() {
    let rig = Rig::new("6", 4, &["--max-read-errors", "0"]);
    rig.files[0].fail_reads(true);
    rig.read_all();
    assert_eq!(rig.state(0), "active sync");
    let errors = rig.member(0)["io"]["reads"]["errors"].as_u64().expect("a count");
    // A quarter of the blocks.
    assert!((100..1000).contains(&errors), "{errors}");
    rig.served.wait_for(", the last at its sector ");
    let lines = rig.lines("read error");
    assert!((1..=3).contains(&lines), "{}", rig.served.stderr());
    assert!(rig.served.stderr().contains("(errno 5)"), "{}", rig.served.stderr());
    assert_eq!(rig.served.stop().code, Some(0));
}

#[test]
fn an_error_of_all_members_at_once_fails_none_of_them() {
    for (level, count) in [("1", 2), ("6", 4)] {
        let rig = Rig::new(level, count, &[]);
        rig.files.iter().for_each(|file| file.fail_reads(true));
        let mut client = rig.served.client();
        let failed = (0..BYTES).step_by(BLOCK).filter(|&at| {
            let read = client.read(at as u64, BLOCK).expect("connected");
            read.is_err()
        });
        // Some are in the page cache.
        assert!(failed.count() > BYTES / BLOCK / 2, "raid{level}");
        rig.files.iter().for_each(|file| file.fail_reads(false));
        rig.read_all();
        for file in 0..count {
            assert_eq!(rig.state(file), "active sync", "raid{level}: {}", rig.served.stderr());
        }
        assert_eq!(rig.lines("is faulty"), 0, "{}", rig.served.stderr());
        assert_eq!(rig.served.stop().code, Some(0), "raid{level}: clean");
    }
}

#[test]
fn a_member_that_cannot_be_spared_stays_and_that_is_said_once() {
    let rig = Rig::new("5", 3, &["--max-read-errors", "5"]);
    rig.scratch.uraid(["fail", "dying", "2"]).expect_done();
    rig.files[0].fail_reads(true);
    let mut client = rig.served.client();
    for _ in 0..2 {
        for at in (0..BYTES).step_by(BLOCK) {
            // What only that member can give is an error.
            let read = client.read(at as u64, BLOCK).expect("connected");
            assert!(read.is_err() || read.as_deref() == Ok(&pattern(1, BYTES)[at..at + BLOCK]));
        }
    }
    let text = "more read errors than --max-read-errors allows, and stays: the array cannot serve without it";
    rig.served.wait_for(text);
    assert_eq!(rig.state(0), "active sync");
    assert_eq!(rig.member(0)["io"]["is_needed"], true);
    assert!(rig.text().contains("the array cannot serve without it"), "{}", rig.text());
    let listed = rig.scratch.uraid(["list"]).expect_done().stdout;
    let note = format!(", {} has too many read errors  nbd+unix:", rig.files[0].path().display());
    assert!(listed.contains(&note), "{listed}");
    rig.files[0].fail_reads(false);
    rig.read_all();
    let done = rig.served.stop();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.stderr.matches(text).count(), 1, "{done:?}");
}
