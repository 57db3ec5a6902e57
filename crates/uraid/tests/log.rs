//! The log of a running server on stderr.
//! Owns: that no client, no command and no stop waits for the log; what is logged, with time and array. Not here: the
//! words for members that fail (`errors.rs`, `hung.rs`, `vanishing.rs`).

use crate::common::{MIB, Scratch, Served, pattern, wait};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::PathBuf;

const RAID1: &str = "--level 1 --raid-devices 3 --assume-clean";
const PIPE_BYTES: usize = 4096;

/// A pipe that takes not one byte more, until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    assert_eq!(rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES).expect("it can be small"), PIPE_BYTES);
    writer.write_all(&[b'\n'; PIPE_BYTES]).expect("it fits");
    (reader, writer)
}

/// A server of three mirrors whose stderr is not read.
fn stuck(scratch: &Scratch, options: &[&str]) -> (Served, PipeReader, Vec<PathBuf>) {
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("stuck", RAID1, &members);
    let (reader, writer) = full_pipe();
    let words = ["serve"].into_iter().chain(options.iter().copied()).map(PathBuf::from);
    let mut command = scratch.command(words.chain(members.iter().cloned()));
    let served = Served::start_with_stderr(&mut command, writer);
    served.wait_until_ready();
    (served, reader, members)
}

#[test]
fn a_log_that_is_not_read_holds_up_no_client_no_command_and_no_stop() {
    for ring in ["auto", "threads"] {
        let scratch = Scratch::new();
        let (served, reader, members) = stuck(&scratch, &["--shards", "2", "--ring", ring]);
        let mut client = served.client();
        let data = pattern(3, MIB as usize);
        assert_eq!(client.write(0, &data).expect("connected"), 0);
        scratch.uraid(["fail", "stuck", "1"]).expect_done();
        // The watch says this, too.
        std::fs::remove_file(&members[0]).expect("there");
        let shown = || scratch.uraid(["detail", "stuck"]).expect_done().stdout;
        wait(|| shown().contains("deleted: gone when the array stops")).expect("it is noticed");
        assert!(shown().contains("faulty"), "{}", shown());
        assert_eq!(client.write(MIB, &data).expect("connected"), 0);
        assert_eq!(client.read(0, data.len()).expect("connected").as_ref(), Ok(&data));
        let stopped = scratch.uraid(["stop", "--force", "stuck"]);
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
        assert_eq!(served.end().code, Some(0), "{ring}");
        drop(reader);
    }
}

#[test]
fn a_log_that_is_read_again_goes_on_where_it_stopped() {
    let scratch = Scratch::new();
    let (served, mut reader, _) = stuck(&scratch, &[]);
    scratch.uraid(["fail", "stuck", "2"]).expect_done();
    let collector = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    scratch.uraid(["stop", "stuck"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    let text = collector.join().expect("it only reads").expect("text");
    let texts = ["stuck: raid1 is started", "stuck: member ", "stuck: stops: ", "stuck: is stopped"];
    let places: Vec<usize> =
        texts.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"))).collect();
    assert!(places.is_sorted(), "{text}");
}

/// The lines that name the array; each must begin with the time, as `uraid: 2026-11-22T21:00:00Z NAME: `.
fn lines_of(stderr: &str, array: &str) -> Vec<String> {
    let name = format!(" {array}: ");
    let lines = stderr.lines().filter(|line| line.contains(&name)).map(|line| {
        let (time, text) = line.strip_prefix("uraid: ").and_then(|line| line.split_once(&name)).expect(line);
        let form: String = time.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(form, "0000-00-00T00:00:00Z", "{line}");
        text.to_owned()
    });
    lines.collect()
}

#[test]
fn start_clients_members_and_stop_are_logged_with_time_and_array() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("told", RAID1, &members);
    let served = scratch.ready(&["--export-name", "data"], &members);
    let uid = rustix::process::getuid().as_raw();
    drop(served.client_of("data"));
    served.wait_for("has left");
    scratch.uraid(["fail", "told", "0"]).expect_done();
    scratch.uraid(["stop", "told"]).expect_done();
    let done = served.end();
    let lines = lines_of(&done.stderr, "told");
    let expected = [
        "raid1 is started, 3 of 3 slots [UUU]: nbd+unix:///data?socket=".to_owned(),
        format!("a client of user {uid} has connected to the export data"),
        format!("a client of user {uid} has left the export data"),
        "member ".to_owned(),
        "stops: `uraid stop`".to_owned(),
        "is stopped and clean".to_owned(),
    ];
    assert_eq!(lines.len(), expected.len(), "{}", done.stderr);
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(&expected), "{line:?}, expected {expected:?}");
    }
    let again = scratch.ready(&["--run"], &members);
    let lines = lines_of(&again.stop().stderr, "told");
    assert!(lines.iter().any(|line| line == "stops: SIGTERM"), "{lines:?}");
}

#[test]
fn the_passes_of_an_array_are_logged_with_its_name() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("pass", "--level 1 --raid-devices 2", &members);
    let served = scratch.ready(&[], &members);
    let lines = lines_of(&served.stop().stderr, "pass");
    assert!(lines.iter().any(|line| line.starts_with("resync done: ")), "{lines:?}");
}

#[test]
fn a_flood_of_clients_is_a_few_lines() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("flood", RAID1, &members);
    let served = scratch.ready(&["--shards", "1"], &members);
    let socket = served.socket();
    let began = std::time::Instant::now();
    for _ in 0..500 {
        drop(crate::common::Client::connect(&socket).expect("it is served"));
    }
    let seconds = began.elapsed().as_secs() as usize + 2;
    let done = served.stop();
    let lines = done.stderr.lines().filter(|line| line.contains("a client of user")).count();
    // Of coming and of going: ten each second, and the 100th.
    assert!((2..=seconds * 2 * 11).contains(&lines), "{lines} lines in {seconds} s:\n{}", done.stderr);
}
