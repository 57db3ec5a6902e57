//! The CVEs of NBD servers, each as the bytes that a client sent, against the real binary: the flaw, and our answer.
//! Owns: one script per CVE. Not here: variants with delays, and checks of what reached the device (`export-nbd`,
//! tests/hostile.rs: slowloris, floods, nothing before an export is chosen); vhost-user, which has no frontend here;
//! clients' CVEs (CVE-2019-14842, libnbd 2019), because uraid has no client.
//! Invariant: after each script the server serves other clients, and no byte of the array has changed.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};
use uraid_blackbox::members::scratch::{Scratch, Shape, create};
use uraid_blackbox::nbd::{Connection, Options, Stream};
use uraid_blackbox::programs::server::Server;

const ARRAY: Shape = Shape { level: "raid1", layout: "", members: 2, tolerates: 1, chunk: "", member_mib: 6 };
/// Longer than any answer takes.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The most text that the protocol lets a message have.
const TEXT_BYTES_MAX: usize = 4096;

const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ERR_UNSUPPORTED: u32 = 0x8000_0001;
const ERR_POLICY: u32 = 0x8000_0002;
const ERR_INVALID: u32 = 0x8000_0003;
const ERR_UNKNOWN: u32 = 0x8000_0006;
const ERR_TOO_BIG: u32 = 0x8000_0009;

/// `IHAVEOPT`.
const OPT: &str = "49484156454f5054";

enum Step {
    /// Sends these bytes; a server that has disconnected need not receive them.
    Send(Vec<u8>),
    /// This many bytes arrive, whatever they are.
    Skip(usize),
    /// Exactly these bytes come in.
    Get(Vec<u8>),
    /// Option replies of this option come in, up to the acknowledgement.
    Acknowledged(u32),
    /// An option reply with this error comes in, its text within bounds.
    Refused(u32, u32),
    /// A simple reply with this error and cookie comes in.
    Failed(u32, u64),
    /// A structured reply with this error and cookie comes in.
    FailedChunk(u32, u64),
    /// The server disconnects without sending anything more.
    Closed,
}

use Step::{Acknowledged, Closed, Failed, FailedChunk, Get, Refused, Send, Skip};

struct Script {
    cve: &'static str,
    was: &'static str,
    steps: Vec<Step>,
}

/// Bytes from hex digits; spaces are for the reader.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let text = |pair: &[u8]| String::from_utf8(pair.to_vec()).expect("digits");
    digits.chunks(2).map(|pair| u8::from_str_radix(&text(pair), 16).expect("two hex digits")).collect()
}

fn send(digits: &str) -> Step {
    Send(hex(digits))
}

/// Hex digits, then this many bytes `a`.
fn send_filled(digits: &str, count: usize) -> Step {
    Send([hex(digits), vec![b'a'; count]].concat())
}

/// The greeting, and the client's flags: fixed newstyle, no zeroes.
fn begin() -> [Step; 2] {
    [Get(b"NBDMAGICIHAVEOPT\0\x03".to_vec()), send("00000003")]
}

/// Enters transmission by the oldest option, with simple replies.
fn export_name() -> [Step; 2] {
    [send(&format!("{OPT} 00000001 00000001 78")), Skip(10)]
}

fn script<const N: usize>(cve: &'static str, was: &'static str, steps: [Step; N]) -> Script {
    Script { cve, was, steps: begin().into_iter().chain(steps).collect() }
}

fn transmission<const N: usize>(cve: &'static str, was: &'static str, steps: [Step; N]) -> Script {
    Script { cve, was, steps: begin().into_iter().chain(export_name()).chain(steps).collect() }
}

/// H1: lengths of options and names.
fn lengths() -> Vec<Script> {
    vec![
        script(
            "CVE-2022-26495",
            "nbd-server added 1 to a name's length of 2^32 - 1, allocated nothing and read into it",
            [send(&format!("{OPT} 00000007 00000006 ffffffff 0000")), Refused(7, ERR_INVALID)],
        ),
        script(
            "CVE-2022-26495, Info",
            "the same by NBD_OPT_INFO",
            [send(&format!("{OPT} 00000006 00000006 ffffffff 0000")), Refused(6, ERR_INVALID)],
        ),
        script(
            "CVE-2022-26496",
            "nbd-server read a name longer than its buffer on the stack",
            [send_filled(&format!("{OPT} 00000007 00002006 00002000"), 0x2000), send("0000"), Refused(7, ERR_INVALID)],
        ),
        script(
            "CVE-2017-15118",
            "qemu read a name of up to 4096 bytes into 256 on the stack",
            [send_filled(&format!("{OPT} 00000001 00001000"), 0x1000), Closed],
        ),
        script(
            "CVE-2017-15119",
            "qemu read and dropped as much as an option announced: 4 GiB, again and again",
            [send(&format!("{OPT} 0000002a ffffffff")), Refused(42, ERR_UNSUPPORTED), Closed],
        ),
        script(
            "CVE-2017-15119, List",
            "the same for an option that takes no data",
            [send(&format!("{OPT} 00000003 ffffffff")), Refused(3, ERR_TOO_BIG), Closed],
        ),
    ]
}

/// H2: our own words, and states.
fn states() -> Vec<Script> {
    vec![
        script(
            "CVE-2020-10761",
            "qemu put an unknown name of 4096 bytes into its error text and met its own assertion on the length",
            [send_filled(&format!("{OPT} 00000007 00001006 00001000"), 0x1000), send("0000"), Refused(7, ERR_UNKNOWN)],
        ),
        Script {
            cve: "CVE-2013-7441",
            was: "nbd-server's root process ended when a client left in the middle of the negotiation",
            steps: vec![Skip(18), send(&format!("00000003 {OPT} 00000007 0000"))],
        },
        Script {
            cve: "CVE-2017-9524",
            was: "qemu-nbd followed a null pointer when a client left before the negotiation",
            steps: vec![],
        },
        Script {
            cve: "CVE-2017-7539",
            was: "qemu-nbd met an assertion when more came at once than the negotiation expected",
            steps: vec![send_filled("00000003", 1 << 20), Skip(18), Closed],
        },
        script(
            "CVE-2019-14851",
            "nbdkit opened its plugin twice, and met an assertion, when Info came before Go",
            [
                send(&format!("{OPT} 00000006 00000007 00000001 78 0000")),
                Acknowledged(6),
                send(&format!("{OPT} 00000007 00000007 00000001 78 0000")),
                Acknowledged(7),
                send("25609513 0000 0003 0000000000000001 0000000000000000 00000000"),
                Get(hex("67446698 00000000 0000000000000001")),
            ],
        ),
        script(
            "order",
            "a request instead of an option",
            [send("25609513 0000 0000 0000000000000001 0000000000000000 00000200"), Closed],
        ),
    ]
}

/// H3: ranges.
fn ranges() -> Vec<Script> {
    let structured = format!("{OPT} 00000008 00000000");
    let context = format!("{OPT} 0000000a 0000001c 00000001 78 00000001 0000000f {}", "626173653a616c6c6f636174696f6e");
    let go = format!("{OPT} 00000007 00000007 00000001 78 0000");
    vec![
        script(
            "CVE-2025-47711, CVE-2025-47712",
            "nbdkit met assertions for block status of 2^32 - 1 bytes, and of as many rounded up",
            [
                send(&structured),
                Acknowledged(8),
                send(&context),
                Acknowledged(10),
                send(&go),
                Acknowledged(7),
                send("25609513 0000 0007 0000000000000001 0000000000000000 ffffffff"),
                FailedChunk(EINVAL, 1),
                send("25609513 0000 0007 0000000000000002 0000000000000000 fffffe00"),
                FailedChunk(EINVAL, 2),
                send("25609513 0000 0007 0000000000000003 0000000000000200 fffffe00"),
                FailedChunk(EINVAL, 3),
            ],
        ),
        transmission(
            "offsets that wrap",
            "offset plus length beyond 2^64: a check that adds passes it",
            [
                send("25609513 0000 0000 0000000000000001 fffffffffffffe00 00000400"),
                Failed(EINVAL, 1),
                send("25609513 0000 0000 0000000000000002 8000000000000000 00000200"),
                Failed(EINVAL, 2),
                send("25609513 0000 0004 0000000000000003 fffffffffffffe00 fffffe00"),
                Failed(EINVAL, 3),
                send("25609513 0000 0006 0000000000000004 fffffffffffffe00 00000400"),
                Failed(ENOSPC, 4),
                send("25609513 0000 0000 0000000000000005 0000000000000000 00000000"),
                Failed(EINVAL, 5),
            ],
        ),
        transmission(
            "CVE-2005-3534, CVE-2011-0530",
            "nbd-server took a write longer than its buffer into it",
            [send("25609513 0000 0001 0000000000000001 0000000000000000 ffffffff"), Failed(EINVAL, 1), Closed],
        ),
    ]
}

/// H4 to H6: TLS, requests before an export is chosen, disconnecting.
fn manners() -> Vec<Script> {
    vec![
        script(
            "CVE-2021-3716",
            "nbdkit kept what a man in the middle had sent before STARTTLS; uraid has no TLS and says so",
            [
                send(&format!("{OPT} 00000008 00000000")),
                Acknowledged(8),
                send(&format!("{OPT} 00000005 00000000")),
                Refused(5, ERR_POLICY),
                send(&format!("{OPT} 00000005 00000004 16030100")),
                Refused(5, ERR_INVALID),
            ],
        ),
        script(
            "CVE-2019-14850",
            "nbdkit opened the disk for a client that had only connected, which cost much for little",
            [send(&format!("{OPT} 00000003 00000000")), Acknowledged(3)],
        ),
        transmission(
            "a payload cut short",
            "what came of a write before the client left was written",
            [send_filled("25609513 0001 0001 0000000000000001 0000000000000000 00001000", 4095)],
        ),
    ]
}

/// Reads exactly this many bytes; none if the server hung up before the first.
fn read(stream: &mut Stream, count: usize, what: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut done = 0;
    while done < count {
        match stream.read(&mut bytes[done..]) {
            Ok(0) if done == 0 => return None,
            Ok(0) => panic!("{what}: hung up within an answer, {:02x?}", &bytes[..done]),
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::ConnectionReset && done == 0 => return None,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    Some(bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// One option reply: which option, which reply, its payload.
fn option_reply(stream: &mut Stream, what: &str) -> (u32, u32, Vec<u8>) {
    let header = read(stream, 20, what).unwrap_or_else(|| panic!("{what}: hung up, expected an option reply"));
    assert_eq!(header[..8], hex("0003e889045565a9"), "{what}");
    let length = word(&header, 16) as usize;
    assert!(length <= TEXT_BYTES_MAX + 2, "{what}: {length} bytes");
    let payload = if length == 0 { Vec::new() } else { read(stream, length, what).expect("a payload") };
    (word(&header, 8), word(&header, 12), payload)
}

fn play(stream: &mut Stream, step: &Step, what: &str) {
    let get = |stream: &mut Stream, count| {
        read(stream, count, what).unwrap_or_else(|| panic!("{what}: hung up, expected {count} bytes"))
    };
    match step {
        // A server that has hung up does not take it; the next step checks whether that is right.
        Send(bytes) => drop(stream.write_all(bytes)),
        Skip(count) => drop(get(stream, *count)),
        Get(bytes) => assert_eq!(&get(stream, bytes.len()), bytes, "{what}"),
        Acknowledged(option) => loop {
            let (found, reply, _) = option_reply(stream, what);
            assert!(found == *option && reply < 0x8000_0000, "{what}: {found}, {reply:#x}");
            if reply == 1 {
                break;
            }
        },
        Refused(option, error) => {
            let (found, reply, text) = option_reply(stream, what);
            assert_eq!((found, reply), (*option, *error), "{what}");
            assert!(std::str::from_utf8(&text).is_ok_and(|text| text.len() <= TEXT_BYTES_MAX), "{what}");
        }
        Failed(error, cookie) => {
            let expected = [hex("67446698"), error.to_be_bytes().to_vec(), cookie.to_be_bytes().to_vec()].concat();
            assert_eq!(get(stream, 16), expected, "{what}");
        }
        FailedChunk(error, cookie) => {
            let header = get(stream, 20);
            // The last chunk of its reply, of the kind that is an error.
            assert_eq!(header[..8], hex("668e33ef 0001 8001"), "{what}");
            assert_eq!(header[8..16], cookie.to_be_bytes(), "{what}");
            let payload = get(stream, word(&header, 16) as usize);
            assert_eq!(word(&payload, 0), *error, "{what}");
        }
        Closed => {
            let mut rest = Vec::new();
            match stream.read_to_end(&mut rest) {
                Ok(_) => assert!(rest.is_empty(), "{what}: sent {rest:02x?} before it hung up"),
                Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}: {error}"),
            }
        }
    }
}

fn set_timeouts(stream: &Stream) {
    match stream {
        Stream::Unix(stream) => stream.set_read_timeout(Some(TIMEOUT)),
        Stream::Tcp(stream) => stream.set_read_timeout(Some(TIMEOUT)),
    }
    .expect("a socket has a timeout");
}

#[test]
fn every_cve_is_answered_and_harms_no_other_client() {
    let scratch = Scratch::new();
    let members = create(&scratch, "x", &ARRAY);
    let mut server = Server::start(scratch.path(), &members, &[]);
    assert_eq!(server.address().export, "x", "the scripts name it");
    let mut polite = Connection::open(server.address(), &Options::default()).expect("a server");
    let bytes: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_be_bytes).collect();
    polite.write(0, &bytes).expect("a write");
    polite.flush().expect("a flush");
    for Script { cve, was, steps } in [lengths(), states(), ranges(), manners()].into_iter().flatten() {
        let what = format!("{cve} ({was})");
        for _ in 0..3 {
            let mut stream = server.address().connect().expect("a server");
            set_timeouts(&stream);
            steps.iter().enumerate().for_each(|(at, step)| play(&mut stream, step, &format!("{what}, step {at}")));
            stream.shutdown();
        }
        assert!(server.is_running(), "{what}: the server ended: {}", server.log());
        assert_eq!(polite.read(0, 1 << 20).expect("an answer"), bytes, "{what}");
    }
    drop(polite);
    server.stop();
}

/// H5, CVE-2019-14850: nothing of the array is touched for clients that chose no export.
#[test]
fn clients_that_choose_no_export_touch_no_member() {
    let scratch = Scratch::new();
    let members = create(&scratch, "x", &ARRAY);
    let server = Server::start(scratch.path(), &members, &[]);
    let modified = || members.iter().map(|path| path.metadata().expect("it is there").modified().expect("a time"));
    let before: Vec<_> = modified().collect();
    let half_open: Vec<Stream> = (0..40)
        .map(|n| {
            let mut stream = server.address().connect().expect("a server");
            if n % 2 == 0 {
                stream.write_all(&hex(&format!("00000003 {OPT} 00000003 00000000"))).expect("a server");
            }
            // Some go on as if an export had been chosen: a write of a sector.
            if n % 4 == 1 {
                let write = hex("00000003 25609513 0001 0001 0000000000000001 0000000000000000 00000200");
                stream.write_all(&[write, vec![0xee; 512]].concat()).expect("a server");
            }
            stream
        })
        .collect();
    let mut polite = Connection::open(server.address(), &Options::default()).expect("a server");
    assert_eq!(polite.read(0, 4096).expect("an answer"), vec![0; 4096]);
    assert_eq!(modified().collect::<Vec<_>>(), before, "a member was written to");
    drop((half_open, polite));
    server.stop();
}

/// H6, CVE-2024-7409: qemu used freed memory when its server stopped while clients were negotiating or disconnecting.
#[test]
fn a_stop_among_clients_that_negotiate_write_and_leave_ends_in_time_with_exit_code_0() {
    let scratch = Scratch::new();
    let members = create(&scratch, "x", &ARRAY);
    for round in 0..3u64 {
        let server = Server::start(scratch.path(), &members, &[]);
        let address = server.address().clone();
        let whole = hex(&format!("00000003 {OPT} 00000001 00000001 78"));
        let mut streams: Vec<Stream> = (0..60)
            .map(|n| {
                let mut stream = address.connect().expect("a server");
                stream.write_all(&whole[..n % (whole.len() + 1)]).expect("a server");
                if n % 8 == 0 {
                    let write = hex("00000003 00000000");
                    stream.write_all(&write[..n % 7]).expect("a server");
                }
                stream
            })
            .collect();
        let leaving = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2 * round));
            // Half of them leave while the server stops; the others stay to the end.
            streams.drain(..30).for_each(|stream| stream.shutdown());
            streams
        });
        let began = Instant::now();
        server.stop();
        let stayed = leaving.join().expect("no panic");
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        drop(stayed);
    }
}
