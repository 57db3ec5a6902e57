//! `uraid metrics`: what a scrape finds, of arrays that serve, fail, or do not answer.
//! Owns: the real arrays behind it, its HTTP, its file. Not here: each sample in each state (`uraid_operate`).

use crate::common::{MIB, Scratch, Served, pattern, wait};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A raid5 that serves, on these members.
fn served(scratch: &Scratch, name: &str) -> Served {
    let members = scratch.members(name, 3, 4 * MIB);
    scratch.create(name, "-l 5 -n 3 --assume-clean", &members);
    scratch.ready(&[], &members)
}

/// The value of the first sample that begins so; `None`: there is none.
fn value(text: &str, begin: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(begin))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Sends a request, and receives the whole answer: the status, and what follows the empty line.
fn asked(socket: &Path, request: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers, and closes");
    let (head, body) = answer.split_once("\r\n\r\n").expect("an empty line");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    (status.expect("a status line"), body.to_owned())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The server of metrics, when it listens.
fn listening(scratch: &Scratch) -> (Served, std::path::PathBuf) {
    let socket = scratch.path("metrics.sock");
    let address = format!("unix:{}", socket.display());
    let metrics = Served::start(&mut scratch.command(["metrics", "--listen", &address]));
    metrics.wait_until_ready();
    (metrics, socket)
}

#[test]
fn a_scrape_shows_what_clients_did_and_which_member_failed() {
    let scratch = Scratch::new();
    let home = served(&scratch, "home");
    let once = || scratch.uraid(["metrics", "--once"]).expect_done().stdout;
    let healthy = once();
    assert_eq!(value(&healthy, "uraid_redundancy_left{"), Some(1.0), "{healthy}");
    assert_eq!(value(&healthy, "uraid_exposed_bytes{"), Some(0.0), "{healthy}");
    home.write_all(0, &pattern(1, 1 << 20));
    scratch.uraid(["fail", "home", "1"]).expect_done();
    let text = once();
    let size = value(&text, "uraid_array_size_bytes{").expect("it is there");
    // Which one it is, depends on what else runs on the machine.
    let (_, rest) = text.split_once("uraid_array_info{device=\"").expect("its labels");
    let device = rest.split('"').next().unwrap_or_default();
    for (begin, expected) in [
        ("node_md_degraded{", 1.0),
        ("node_md_disks_required{", 3.0),
        ("node_md_disks{device=\"DEVICE\",state=\"active\"}", 2.0),
        ("node_md_disks{device=\"DEVICE\",state=\"failed\"}", 1.0),
        ("uraid_array_up{array=\"home\"}", 1.0),
        ("uraid_redundancy_left{", 0.0),
        ("uraid_exposed_bytes{", size),
        ("uraid_frontend_bytes_total{server=\"DEVICE\",frontend=\"nbd\",op=\"write\"}", 1_048_576.0),
        ("uraid_member_state{device=\"DEVICE\",array=\"home\",member=\"1\",state=\"faulty\"}", 1.0),
        ("uraid_member_slot{device=\"DEVICE\",array=\"home\",member=\"2\"}", 2.0),
    ] {
        let begin = &begin.replace("DEVICE", device);
        assert_eq!(value(&text, begin), Some(expected), "{begin}:\n{text}");
    }
    let took = |end: &str, le: &str| {
        let labels = format!("device=\"{device}\",array=\"home\",op=\"write\"{le}");
        value(&text, &format!("uraid_request_duration_seconds_{end}{{{labels}}} ")).expect("it is there")
    };
    let (count, all) = (took("count", ""), took("bucket", ",le=\"+Inf\""));
    assert!(count > 0.0 && count == all && took("bucket", ",le=\"8.192e-06\"") <= all, "{text}");
    assert!(took("sum", "") >= 0.0, "{text}");
    let open = scratch.uraid(["metrics", "--once", "--openmetrics"]).expect_done().stdout;
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[test]
fn what_listens_answers_every_request_by_its_status_and_a_slow_client_delays_nobody() {
    let scratch = Scratch::new();
    let _home = served(&scratch, "home");
    let (metrics, socket) = listening(&scratch);
    // It has sent half a request.
    let mut slow = UnixStream::connect(&socket).expect("it listens");
    slow.write_all(b"GET /metr").expect("it reads");
    let (status, body) = asked(&socket, GET);
    assert!(status == 200 && value(&body, "uraid_array_up{array=\"home\"}") == Some(1.0), "{status} {body}");
    let open = GET.replace("Host", "Accept: application/openmetrics-text; version=1.0.0\r\nHost");
    assert!(asked(&socket, &open).1.ends_with("# EOF\n"));
    for (request, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", 404),
        ("PUT /metrics HTTP/1.1\r\n\r\n", 405),
        ("metrics\r\n\r\n", 400),
        ("\0\0\r\n\r\n", 400),
        (&format!("GET /metrics HTTP/1.1\r\nA: {}\r\n\r\n", "a".repeat(9000))[..], 431),
    ] {
        assert_eq!(asked(&socket, request).0, expected, "{request:?}");
    }
    slow.write_all(b"ics HTTP/1.1\r\n\r\n").expect("it still reads");
    let mut answer = String::new();
    slow.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(metrics.stderr(), "");
}

#[test]
fn an_array_that_hangs_is_down_and_the_others_are_shown() {
    let scratch = Scratch::new();
    let (_home, away) = (served(&scratch, "home"), served(&scratch, "away"));
    let (_metrics, socket) = listening(&scratch);
    away.signal(Signal::STOP);
    let (status, body) = asked(&socket, GET);
    assert_eq!(status, 200);
    assert_eq!(value(&body, "uraid_array_up{array=\"home\"}"), Some(1.0), "{body}");
    assert_eq!(value(&body, "uraid_array_up{array=\"away\"}"), Some(0.0), "{body}");
    away.signal(Signal::CONT);
    wait(|| value(&asked(&socket, GET).1, "uraid_array_up{array=\"away\"}") == Some(1.0)).expect("it answers again");
}

#[test]
fn a_socket_that_is_left_is_taken_over_and_one_in_use_is_not() {
    let scratch = Scratch::new();
    let (metrics, socket) = listening(&scratch);
    let address = format!("unix:{}", socket.display());
    let refused = scratch.uraid(["metrics", "--listen", &address]);
    refused.expect_refused(&["another process listens there"]);
    metrics.kill_unawaited();
    assert_eq!(metrics.end().code, None);
    let (_metrics, socket) = listening(&scratch);
    assert_eq!(asked(&socket, GET).0, 200);
    // A member in its place stays.
    let member = scratch.member("m", MIB);
    let address = format!("unix:{}", member.display());
    scratch.uraid(["metrics", "--listen", &address]).expect_refused(&["it is no socket"]);
    assert_eq!(std::fs::metadata(&member).expect("it is there").len(), MIB);
}

#[test]
fn the_file_is_replaced_as_a_whole_and_what_is_no_file_of_metrics_stays() {
    let scratch = Scratch::new();
    let _home = served(&scratch, "home");
    let path = scratch.path("uraid.prom");
    for _ in 0..2 {
        scratch.uraid(["metrics", "--textfile", &path.display().to_string()]).expect_done();
        let text = std::fs::read_to_string(&path).expect("it is written");
        assert!(text.starts_with("# HELP ") && text.contains("node_md_state"), "{text}");
    }
    let member = scratch.member("m.prom", MIB).display().to_string();
    let refused = scratch.uraid(["metrics", "--textfile", &member]);
    refused.expect_refused(&["exists and is not a file of metrics"]);
    std::fs::remove_file(&path).expect("our file");
    let again =
        Served::start(&mut scratch.command(["metrics", "--textfile", &path.display().to_string(), "--interval", "1"]));
    wait(|| path.exists()).expect("it is written");
    let first = std::fs::metadata(&path).and_then(|status| status.modified()).expect("it is there");
    wait(|| std::fs::metadata(&path).and_then(|status| status.modified()).is_ok_and(|time| time > first))
        .expect("it is written again");
    drop(again);
}

#[test]
fn wrong_options_are_refused_in_one_sentence() {
    let scratch = Scratch::new();
    let refused = scratch.uraid(["metrics", "--listen", "tcp:0.0.0.0:0"]);
    refused.expect_refused(&["other machines could read it there", "--insecure"]);
    for (words, said) in [
        (&["metrics"][..], "required"),
        (&["metrics", "--once", "--textfile", "a.prom"], "cannot be used with"),
        (&["metrics", "--listen", "9634"], "expected unix:PATH or tcp:ADDRESS:PORT"),
        (&["metrics", "--once", "--interval", "5"], "cannot be used with"),
    ] {
        let done = scratch.uraid(words.iter().copied());
        assert!(done.code == Some(2) && done.stderr.contains(said), "{words:?}: {done:?}");
    }
    let nothing = scratch.uraid(["metrics", "--once"]).expect_done().stdout;
    assert!(!nothing.contains("node_md_") && nothing.contains("uraid_build_info"), "{nothing}");
}
