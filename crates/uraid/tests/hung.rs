//! A member whose server hangs: which requests wait for it, and for how long.
//! Owns: a FUSE server under one member that hangs and goes on, on every redundant level, with io_uring and with helper
//! threads.
//! Not here: a member that never answers at any moment (`uraid-sim`), what the ring owes (`host::ring::answers`).

use crate::common::stubborn::StubbornFile;
use crate::common::{Done, MIB, Scratch, Served, pattern, wait};
use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const LEVELS: [(&str, usize); 4] = [("1", 3), ("10", 4), ("5", 4), ("6", 4)];
const RINGS: [&str; 2] = ["auto", "threads"];
/// Enough for rows on every member.
const BYTES: usize = 2 << 20;

/// An array whose member `hung` is a stubborn file, served.
struct Rig {
    // The first field, so that it is dropped first: otherwise a failed test would wait for a process with a hanging
    // request.
    member: StubbornFile,
    served: Served,
    members: Vec<PathBuf>,
    // Dropped after the mount.
    scratch: Scratch,
}

fn rig(level: &str, count: usize, hung: usize, options: &[&str]) -> Rig {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", count, 4 * MIB);
    let member = StubbornFile::in_place_of(&mut members, hung);
    scratch.create("hung", &format!("-l {level} -n {count} --assume-clean"), &members);
    let served = scratch.ready(options, &members);
    let mut client = served.client();
    assert_eq!(client.write(0, &pattern(1, BYTES)).expect("connected"), 0);
    assert_eq!(client.flush().expect("connected"), 0);
    Rig { served, member, members, scratch }
}

impl Rig {
    /// A client that writes all again and flushes, on a thread of its own: what comes is the answers' numbers.
    fn write_all(&self, seed: u64) -> mpsc::Receiver<(u32, u32)> {
        let (sender, answer) = mpsc::channel();
        let mut client = self.served.client();
        std::thread::spawn(move || {
            let written = client.write(0, &pattern(seed, BYTES)).expect("connected");
            // The caller may have stopped waiting.
            let _ = sender.send((written, client.flush().expect("connected")));
        });
        answer
    }

    fn says(&self, words: &[&str]) -> String {
        self.scratch.uraid(words).expect_done().stdout
    }
}

/// Stops a server that has requests in flight to a hanging member. The array is stopped without that member. The kernel
/// keeps the process until the member answers, which `go_on` makes it do.
fn stop_while_hung(served: Served, free: &[PathBuf], go_on: impl FnOnce()) -> Done {
    let socket = served.socket();
    served.signal(rustix::process::Signal::TERM);
    let is_stopped = wait(|| !socket.exists());
    // Other processes can claim the members that do answer.
    let locked: Vec<&PathBuf> =
        free.iter().filter(|path| File::open(path).is_ok_and(|file| file.try_lock().is_err())).collect();
    go_on();
    let done = served.end();
    assert!(is_stopped.is_ok(), "the stop waited for the member: {done:?}");
    assert!(locked.is_empty(), "{locked:?}: {done:?}");
    done
}

const ANSWERED_IN: Duration = Duration::from_secs(30);

#[test]
fn a_member_that_hangs_holds_up_what_needs_it_until_it_is_failed() {
    for (level, count) in LEVELS {
        for (ring, hung) in [(RINGS[0], 0), (RINGS[1], count - 1)] {
            let case = format!("raid{level}, {ring}, member {hung}");
            let rig = rig(level, count, hung, &["--ring", ring, "--member-timeout", "0"]);
            // Also when it hangs under a clean-up of the idle array.
            rig.member.hang();
            let answer = rig.write_all(2);
            std::thread::sleep(Duration::from_millis(500));
            assert!(answer.try_recv().is_err(), "{case}: the member has not answered");
            // The control socket and new connections do not wait.
            assert!(rig.says(&["detail", "hung"]).contains("hung"), "{case}");
            assert!(rig.says(&["list"]).contains("hung"), "{case}");
            assert_eq!(rig.served.client().size % 512, 0);
            rig.says(&["fail", "hung", &hung.to_string()]);
            assert_eq!(answer.recv_timeout(ANSWERED_IN), Ok((0, 0)), "{case}");
            let read = rig.served.client().read(0, BYTES).expect("connected");
            assert!(read.as_ref() == Ok(&pattern(2, BYTES)), "{case}");
            let Rig { served, member, mut members, scratch } = rig;
            members.remove(hung);
            let stopped = stop_while_hung(served, &members, || member.go_on());
            assert_eq!(stopped.code, Some(0), "{case}: {stopped:?}");
            drop(member);
            let again = scratch.ready(&["--run"], &members);
            let read = again.client().read(0, BYTES).expect("connected");
            assert!(read.as_ref() == Ok(&pattern(2, BYTES)), "{case}: after a restart");
            assert_eq!(again.stop().code, Some(0));
        }
    }
}

#[test]
fn a_member_that_takes_too_long_is_failed_by_itself() {
    for ((level, count), ring) in LEVELS.into_iter().flat_map(|level| RINGS.map(|ring| (level, ring))) {
        let case = format!("raid{level}, {ring}");
        let rig = rig(level, count, 0, &["--ring", ring, "--member-timeout", "1s"]);
        rig.member.hang();
        let answer = rig.write_all(2);
        assert_eq!(answer.recv_timeout(ANSWERED_IN), Ok((0, 0)), "{case}");
        rig.served.wait_for("is faulty: it did not answer ");
        assert!(!rig.served.stderr().contains("gone or shrank"), "{case}: {}", rig.served.stderr());
        assert!(rig.says(&["detail", "hung"]).contains("faulty"), "{case}");
        // Its answers come too late now.
        rig.member.go_on();
        assert_eq!(rig.write_all(3).recv_timeout(ANSWERED_IN), Ok((0, 0)), "{case}");
        let read = rig.served.client().read(0, BYTES).expect("connected");
        assert!(read.as_ref() == Ok(&pattern(3, BYTES)), "{case}");
        assert_eq!(rig.served.stop().code, Some(0), "{case}");
    }
}

#[test]
fn a_write_waits_for_a_member_no_longer_than_the_member_timeout() {
    for (ring, level) in RINGS.into_iter().zip(["1", "5"]) {
        let rig = rig(level, 3, 0, &["--ring", ring, "--member-timeout", "1s"]);
        let began = Instant::now();
        // Its attributes, which each write asks for first, are not answered either.
        rig.member.hang();
        assert_eq!(rig.served.client().write(0, &pattern(2, 4096)).expect("connected"), 0);
        let took = began.elapsed();
        // A flush may take four times as long.
        assert!(took < Duration::from_secs(3), "raid{level}, {ring}: {took:?}");
        rig.member.go_on();
        assert_eq!(rig.served.stop().code, Some(0));
    }
}

#[test]
fn a_level_that_needs_the_member_fails_its_requests_and_serves_again_when_it_answers() {
    for ring in RINGS {
        let rig = rig("0", 2, 0, &["--ring", ring, "--member-timeout", "1s"]);
        rig.member.hang();
        let mut client = rig.served.client();
        // The first chunk is on the member that hangs, the second one is not.
        assert_eq!(client.write(0, &pattern(2, 4096)).expect("connected"), 5, "{ring}: EIO, in time");
        let second = 512 << 10;
        assert_eq!(client.write(second, &pattern(3, 4096)).expect("connected"), 0, "{ring}");
        assert_eq!(client.write(0, &pattern(4, 4096)).expect("connected"), 5, "{ring}: it owes an answer");
        rig.member.go_on();
        wait(|| rig.served.client().write(0, &pattern(5, 4096)).expect("connected") == 0).expect("it answers again");
        // Each thread has its own requests that the member answers.
        let client = RefCell::new(client);
        let read = || client.borrow_mut().read(0, 4096).expect("connected");
        wait(|| read().is_ok()).expect("it answers this client's thread, too");
        assert!(read() == Ok(pattern(5, 4096)), "{ring}");
        assert_eq!(rig.served.stop().code, Some(0), "{ring}");
    }
}

#[test]
fn the_log_names_a_member_that_the_array_needs_without_a_command_to_fail_it() {
    for (level, count, lacks) in [("0", 2, None), ("5", 3, Some("2"))] {
        let rig = rig(level, count, 0, &["--member-timeout", "0"]);
        lacks.map(|slot| rig.says(&["fail", "hung", slot]));
        rig.member.hang();
        let answer = rig.write_all(2);
        rig.served.wait_for(&format!("{} has not answered a request for ", rig.members[0].display()));
        rig.member.go_on();
        rig.served.wait_for(&format!("{} answers again, after ", rig.members[0].display()));
        assert_eq!(answer.recv_timeout(ANSWERED_IN), Ok((0, 0)), "raid{level}");
        let stopped = rig.served.stop();
        assert!(!stopped.stderr.contains("takes it out"), "raid{level}: {stopped:?}");
    }
}

#[test]
fn a_stop_has_an_end_though_no_member_answers_and_the_array_stays_dirty() {
    for ring in RINGS {
        let scratch = Scratch::new();
        let stored = scratch.members("m", 2, 4 * MIB);
        let files: Vec<StubbornFile> =
            stored.iter().map(|path| StubbornFile::new(&path.with_extension("mount"), path)).collect();
        let members: Vec<PathBuf> = files.iter().map(StubbornFile::path).collect();
        scratch.create("hung", "-l 1 -n 2 --assume-clean", &members);
        let served = scratch.ready(&["--ring", ring, "--member-timeout", "1s"], &members);
        let mut client = served.client();
        assert_eq!(client.write(0, &pattern(1, BYTES)).expect("connected"), 0);
        files.iter().for_each(StubbornFile::hang);
        let (sender, answer) = mpsc::channel();
        std::thread::spawn(move || drop(sender.send(client.write(0, &pattern(2, BYTES)))));
        std::thread::sleep(Duration::from_millis(100));
        let stopped = stop_while_hung(served, &[], || files.iter().for_each(StubbornFile::go_on));
        assert_eq!(stopped.code, Some(1), "{stopped:?}");
        assert!(stopped.stderr.contains("stays marked dirty"), "{stopped:?}");
        // An error, or none where the connection ended before it was answered, but no success.
        let answered = answer.recv_timeout(ANSWERED_IN).expect("it ended");
        assert!(!matches!(answered, Ok(0)), "{ring}: {answered:?}");
        let again = scratch.ready(&[], &members);
        let read = again.client().read(0, BYTES).expect("connected").expect("both copies are back");
        let is_old_or_new = |at: usize| {
            let sector = at..at + 512;
            [1, 2].iter().any(|seed| read[sector.clone()] == pattern(*seed, BYTES)[sector.clone()])
        };
        assert!((0..BYTES).step_by(64 << 10).all(is_old_or_new), "{ring}");
        assert_eq!(again.stop().code, Some(0));
    }
}

#[test]
fn a_flush_that_a_member_of_a_raid0_does_not_answer_freezes_the_array_which_says_so() {
    let rig = rig("0", 2, 0, &["--member-timeout", "200ms"]);
    let mut client = rig.served.client();
    assert_eq!(client.write(0, &pattern(2, 4096)).expect("connected"), 0);
    rig.member.hang();
    assert_eq!(client.flush().expect("connected"), 5, "EIO");
    rig.served.wait_for("takes no more writes");
    assert_ne!(client.write(512 << 10, &pattern(3, 4096)).expect("connected"), 0);
    let over = format!("{}: it did not answer a flush in time (--member-timeout)", rig.members[0].display());
    let shown = rig.says(&["detail", "hung"]);
    assert!(shown.contains("State : broken \n") && shown.contains(&format!("Frozen : {over}\n")), "{shown}");
    rig.member.go_on();
    let stopped = rig.served.stop();
    assert!(stopped.stderr.contains(&format!("hung: takes no more writes: {over}; reads are served")), "{stopped:?}");
    let last = format!(
        "hung: the array was stopped: it was frozen ({over}); what was written since its last good flush may be lost\n"
    );
    stopped.expect_refused(&[&last]);
}

/// A raid1 of two stubborn files with nothing in the page cache from 1 MiB on. The files are last, so that they are dropped
/// first and a test that fails ends.
fn mirror_of_two(options: &[&str]) -> (Scratch, Served, [StubbornFile; 2]) {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 2, 32 * MIB);
    let hung = [0, 1].map(|at| StubbornFile::in_place_of(&mut members, at));
    scratch.create("hung", "-l 1 -n 2 --assume-clean", &members);
    let served = scratch.ready(&[&["--member-timeout", "60s"], options].concat(), &members);
    (scratch, served, hung)
}

#[test]
fn reads_of_a_parity_array_go_on_without_a_member_that_hangs() {
    for (level, count, ring) in [("5", 3, "auto"), ("5", 4, "threads"), ("6", 4, "auto"), ("4", 3, "threads")] {
        let scratch = Scratch::new();
        let mut members = scratch.members("m", count, 32 * MIB);
        let member = StubbornFile::in_place_of(&mut members, 1);
        scratch.create("hung", &format!("-l {level} -n {count} -c 4K --assume-clean"), &members);
        let served = scratch.ready(&["--member-timeout", "0", "--ring", ring], &members);
        // Dropped first, so that a test that fails ends.
        let member = member;
        let (sender, ended) = mpsc::channel();
        let mut readers = [served.client(), served.client()];
        let mut writers = [(); 10].map(|()| served.client());
        // The array is dirty then: no write waits for a superblock.
        assert_eq!(writers[0].write(24 * MIB, &[0; 512]).expect("connected"), 0);
        member.hang();
        // Writes of 640 rows keep what memory writes of rows may have.
        for (n, writer) in (0..640).zip((0..10).cycle()) {
            writers[writer].send_write(1, 24 * MIB + n * 8192, &[7; 512]).expect("the server reads it");
        }
        std::thread::spawn(move || {
            // What was never written is not in the page cache.
            for (reader, n) in (0..60).flat_map(|n| [(0, n), (1, n)]) {
                let length = [512, 4096, 65_536, 1 << 20][n % 4];
                let read = readers[reader].read(MIB + n as u64 * 360_448, length).expect("connected");
                let _ = sender.send(read == Ok(vec![0; length]));
            }
        });
        let began = Instant::now();
        for n in 0..120 {
            assert_eq!(ended.recv_timeout(Duration::from_secs(5)), Ok(true), "raid{level}, {ring}: read {n}");
        }
        // A second and a quarter for the first read of each thread. If each read waited for it, they would take a minute.
        assert!(began.elapsed() < Duration::from_secs(30), "raid{level}, {ring}: {:?}", began.elapsed());
        assert!(scratch.uraid(["list"]).expect_done().stdout.contains(&"U".repeat(count)), "none is failed");
        member.go_on();
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_probe_that_a_page_cache_answers_does_not_bring_reads_back_to_a_member_that_hangs() {
    let (_scratch, served, members) = mirror_of_two(&[]);
    let mut client = served.client();
    for _ in 0..8 {
        client.read(0, 4096).expect("connected").expect("it answers");
    }
    members[1].hang();
    let (sender, ended) = mpsc::channel();
    let mut reader = served.client();
    std::thread::spawn(move || {
        // If reads went to the hanging member, every second one would take 500 ms.
        let are_good = (0..100).all(|n| reader.read(MIB + n * 131_072, 4096).expect("connected").is_ok());
        let _ = sender.send(are_good);
    });
    assert_eq!(ended.recv_timeout(Duration::from_secs(12)), Ok(true));
    members[1].go_on();
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn reads_of_a_mirror_whose_members_all_hang_go_on_with_the_first_that_answers() {
    let (_scratch, served, members) = mirror_of_two(&[]);
    let (sender, ended) = mpsc::channel();
    let clients: Vec<_> = (0..8).map(|_| served.client()).collect();
    members.iter().for_each(StubbornFile::hang);
    for (n, mut client) in (0..).zip(clients) {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let _ = sender.send(client.read(MIB + n * 1_048_576, 4096).expect("connected").is_ok());
        });
    }
    std::thread::sleep(Duration::from_secs(2));
    members[0].go_on();
    for n in 0..8 {
        assert_eq!(ended.recv_timeout(Duration::from_secs(12)), Ok(true), "read {n}");
    }
    members[1].go_on();
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn reads_go_on_beside_floods_of_writes_and_flushes_that_wait_for_a_member() {
    // NBD commands of each client, with their payload; the clients take no answers.
    for (command, clients, requests, bytes) in [(1, 20, 16u64, 1 << 20), (1, 60, 128, 4096), (3, 140, 128, 0)] {
        let (_scratch, served, members) = mirror_of_two(&["--shards", "1"]);
        let mut client = served.client();
        assert_eq!(client.write(0, &pattern(1, BYTES)).expect("connected"), 0);
        members[1].hang();
        let floods: Vec<_> = (0..clients)
            .map(|client| {
                let (mut flood, data) = (served.client(), vec![7; bytes]);
                std::thread::spawn(move || {
                    // The server reads no more once it holds enough of this client's requests.
                    let place = |n| 4 * MIB + (client * requests + n) * bytes as u64 % (24 * MIB);
                    let sent = (0..requests).all(|n| flood.send_write(command, place(n), &data).is_ok());
                    (flood, sent)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        let mut reads = 0;
        let (sender, ended) = mpsc::channel();
        let mut reader = served.client();
        std::thread::spawn(move || {
            for length in [512, 4096, 64 << 10, 256 << 10, 1 << 20].into_iter().cycle().take(40) {
                let read = reader.read(0, length).expect("connected");
                let _ = sender.send(read.as_ref() == Ok(&pattern(1, BYTES)[..length].to_vec()));
            }
        });
        while let Ok(is_right) = ended.recv_timeout(Duration::from_secs(5)) {
            assert!(is_right);
            reads += 1;
        }
        assert_eq!(reads, 40, "reads beside {clients} clients with {requests} commands {command} of {bytes} bytes");
        members[1].go_on();
        assert!(floods.into_iter().all(|flood| flood.join().expect("it ends").1));
        assert_eq!(served.stop().code, Some(0));
    }
}
