//! The black box itself, tested against a foreign server: nbdkit.
//! Owns: the proof that the client and the model can be trusted. Not here: uraid.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uraid_blackbox::members::scratch::Scratch;
use uraid_blackbox::nbd::{Address, ClientError, Connection, Negotiate, Options, Request, Socket, list};
use uraid_blackbox::programs::foreign;
use uraid_blackbox::sectors::model::{Model, Span, content};
use uraid_blackbox::sectors::writers::{SharedModel, Workload, Writers, lock, settle, verify};

const BYTES: u64 = 8 << 20;

struct Nbdkit {
    child: Child,
    address: Address,
}

impl Nbdkit {
    fn start(scratch: &Scratch) -> Nbdkit {
        let socket = scratch.file("kit");
        let child = Command::new(foreign::find("nbdkit").expect("asked before"))
            .args(["--foreground", "--exit-with-parent", "--export", "x", "--unix"])
            .arg(&socket)
            .args(["memory".to_string(), format!("size={BYTES}")])
            .stdin(Stdio::null())
            // It reports every error that the tests cause on purpose.
            .stderr(Stdio::null())
            .spawn()
            .expect("nbdkit starts");
        let address = Address { export: "x".into(), socket: Socket::Unix(PathBuf::from(&socket)) };
        while address.connect().is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        Nbdkit { child, address }
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn model() -> SharedModel {
    Arc::new(Mutex::new(Model::new(BYTES / 512)))
}

#[test]
fn every_negotiation_leads_to_the_same_export() {
    if !foreign::has(&["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new();
    let server = Nbdkit::start(&scratch);
    for negotiate in [Negotiate::Go, Negotiate::InfoThenGo, Negotiate::ExportName] {
        for structured in [false, true] {
            let mut connection =
                Connection::open(&server.address, &Options { negotiate, structured, ..Options::default() })
                    .expect("a server");
            assert_eq!(connection.export().bytes, BYTES);
            assert!(connection.export().has_everything() && !connection.export().is_read_only());
            connection.write(512, &[7; 1024]).expect("a write");
            assert_eq!(connection.read(0, 2048).expect("a read"), [vec![0; 512], vec![7; 1024], vec![0; 512]].concat());
            connection.call(&Request::Trim { at: 512, length: 1024 }).expect("a trim");
            connection.flush().expect("a flush");
            let refused = connection.read(BYTES, 512).expect_err("behind the end");
            assert!(matches!(refused, ClientError::Refused(22)), "{refused}");
            connection.call(&Request::WriteZeroes { at: 0, length: 4096, no_hole: true }).expect("zeroes");
            connection.disconnect().expect("a goodbye");
        }
    }
    assert!(!list(&server.address).expect("a list").is_empty());
}

#[test]
fn writers_and_model_agree_on_a_correct_server() {
    if !foreign::has(&["nbdkit"]) {
        return;
    }
    let scratch = Scratch::new();
    let server = Nbdkit::start(&scratch);
    let model = model();
    let writers = Writers::start(&server.address, &model, Workload { writers: 4, depth: 8, seed: 1 });
    writers.wait_for(2000);
    assert!(writers.finish() >= 2000);
    verify(&server.address, &model, "after the writers");
    // All writes were answered, but of two that overlapped in time either may be the last.
    settle(&server.address, &model, "after the writers");
    verify(&server.address, &model, "again");
}

#[test]
#[should_panic(expected = "sector 77 holds")]
fn a_write_unknown_to_the_model_is_detected() {
    if !foreign::has(&["nbdkit"]) {
        panic!("sector 77 holds nothing: not tested");
    }
    let scratch = Scratch::new();
    let server = Nbdkit::start(&scratch);
    let model = model();
    let span = Span { first: 70, count: 20 };
    let mut connection = Connection::open(&server.address, &Options::default()).expect("a server");
    for _ in 0..2 {
        let operation = lock(&model).begin(span, false);
        connection.write(span.byte(), &content(span, operation)).expect("a write");
        lock(&model).answer(span, operation);
    }
    verify(&server.address, &model, "before");
    let stale = content(Span { first: 77, count: 1 }, 1);
    connection.write(77 * 512, &stale).expect("a write");
    verify(&server.address, &model, "after");
}
