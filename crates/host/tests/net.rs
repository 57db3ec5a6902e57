//! Sockets: all bytes arrive, whatever the sizes; broken connections and occupied sockets are errors.

#![allow(unsafe_code, reason = "system calls")]

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uraid_block::local::{Either, join_all, race};
use uraid_block::{ReadPieces, ShardIndex};
use uraid_host::{ArenaBlocks, CLIENT_ARENA, Listener, Local, NetError, Options, Peer, RingChoice, Shard, Stream, run};

const RINGS: [RingChoice; 2] = [RingChoice::IoUring, RingChoice::Threads];

fn options(ring: RingChoice) -> Options {
    Options { ring, arenas: [ArenaBlocks { small: 5000, large: 256 }; 5], ..Options::default() }
}

struct SocketPath(PathBuf);

impl SocketPath {
    fn new(name: &str) -> SocketPath {
        let path = std::env::temp_dir().join(format!("uraid-net-{}-{name}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        SocketPath(path)
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn buffers(shard: &Local, bytes: usize) -> ReadPieces {
    shard.arena(CLIENT_ARENA).take(bytes).expect("room")
}

async fn echo(shard: Local, stream: Stream) {
    loop {
        let lease = buffers(&shard, 65_536).into_iter().next().expect("one large block");
        let Ok((mut lease, count)) = stream.recv(lease).await else { return };
        if count == 0 {
            return;
        }
        let mut pieces = ReadPieces::new();
        use uraid_block::buffer::Piece;
        pieces.push(lease.split_to(count));
        if stream.send(pieces.freeze()).await.is_err() {
            return;
        }
    }
}

async fn converse(shard: &Local, stream: Stream, seed: usize) {
    let stream = Rc::new(stream);
    for bytes in [1usize, 17, 4096, 100_000, 1_500_000] {
        let content: Vec<u8> = (0..bytes).map(|n| (n * 7 + n / 251 + seed) as u8).collect();
        let mut out = buffers(shard, bytes);
        out.copy_from(&content);
        let both = join_all([0, 1].map(|which| {
            let (stream, shard) = (stream.clone(), shard.clone());
            let out = if which == 0 { std::mem::take(&mut out) } else { ReadPieces::new() };
            async move {
                if which == 0 {
                    stream.send(out.freeze()).await.expect("sent");
                    return None;
                }
                Some(stream.recv_all(buffers(&shard, bytes)).await.expect("received"))
            }
        }))
        .await;
        let back = both.into_iter().flatten().next().expect("the second one received");
        assert!(back.to_vec() == content);
    }
    // More pieces than one call takes.
    let mut many = ReadPieces::new();
    for n in 0..1200 {
        let mut piece = buffers(shard, 10);
        piece.fill(n as u8);
        many.append(piece);
    }
    assert!(many.count() > 1024);
    let content = many.to_vec();
    stream.send(many.freeze()).await.expect("sent");
    let back = stream.recv_all(buffers(shard, content.len())).await.expect("received");
    assert!(back.to_vec() == content);
}

/// Both shards serve. A client may be served by the other shard, which must not end before it.
async fn serve_and_talk(shard: Shard<()>, listener: Listener, done: &AtomicU32, connect: impl Fn(&Local) -> Stream) {
    shard.spawn({
        let (shard, listener) = (shard.clone(), listener.clone());
        async move {
            loop {
                let stream = listener.accept(&shard).await.expect("accepted");
                let is_tcp = listener.tcp_address().is_some();
                assert!(matches!(stream.peer(), Peer::Host(host) if is_tcp && host.is_loopback()) || !is_tcp);
                assert!(matches!(stream.peer(), Peer::User(_)) || is_tcp);
                shard.spawn(echo((*shard).clone(), stream));
            }
        }
    });
    join_all((0..3).map(|seed| converse(&shard, connect(&shard), seed))).await;
    done.fetch_add(1, Ordering::Relaxed);
    while done.load(Ordering::Relaxed) < u32::from(shard.count()) {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn an_echo_returns_the_bytes_sent() {
    let path = SocketPath::new("echo");
    for ring in RINGS {
        let unix = Listener::unix(&path.0, 0o600).expect("listening");
        let tcp = Listener::tcp("127.0.0.1:0".parse().expect("an address")).expect("listening");
        let port = tcp.tcp_address().expect("tcp");
        let done = [AtomicU32::new(0), AtomicU32::new(0)];
        run(2, &options(ring), |shard: Shard<()>| {
            let (unix, tcp, path, done) = (unix.clone(), tcp.clone(), &path.0, &done);
            async move {
                let by_unix = |shard: &Local| Stream::connect_unix(shard, path).expect("connected");
                serve_and_talk(shard.clone(), unix, &done[0], by_unix).await;
                let by_tcp = |shard: &Local| Stream::connect_tcp(shard, port).expect("connected");
                serve_and_talk(shard, tcp, &done[1], by_tcp).await;
            }
        });
    }
}

#[test]
fn a_connection_moves_to_another_shard() {
    for ring in RINGS {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let here = std::sync::Mutex::new(Some(here));
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            there.read_to_string(&mut text).expect("read");
            text
        });
        run(2, &options(ring), |shard: Shard<std::os::fd::OwnedFd>| {
            let here = &here;
            async move {
                if shard.index() == ShardIndex(0) {
                    let socket = here.lock().expect("no panics").take().expect("there");
                    let stream = Stream::from_raw(&shard, socket.into());
                    let mut text = buffers(&shard, 6);
                    text.copy_from(b"first ");
                    stream.send(text.freeze()).await.expect("sent");
                    shard.post(ShardIndex(1), stream.into_raw().expect("free"));
                    return;
                }
                let (sender, receiver) = uraid_block::local::oneshot();
                let sender = std::cell::Cell::new(Some(sender));
                shard.on_mail(move |socket| sender.take().expect("one message").send(socket));
                let stream = Stream::from_raw(&shard, receiver.await.expect("sent"));
                let mut text = buffers(&shard, 6);
                text.copy_from(b"second");
                stream.send(text.freeze()).await.expect("sent");
            }
        });
        assert_eq!(reader.join().expect("no panics"), "first second");
    }
}

#[test]
fn a_broken_connection_is_an_error_and_a_receive_can_be_dropped() {
    for ring in RINGS {
        run(1, &options(ring), |shard: Shard<()>| async move {
            let (here, there) = UnixStream::pair().expect("a pair");
            let stream = Stream::from_raw(&shard, here.into());
            // Dropped: the buffer comes back, and the stream still works.
            let lease = buffers(&shard, 100).into_iter().next().expect("one");
            let first = race(stream.recv(lease), shard.sleep(Duration::from_millis(5))).await;
            assert!(matches!(first, Either::Right(())));
            shard.sleep(Duration::from_millis(5)).await;
            assert_eq!(shard.arena(CLIENT_ARENA).blocks_in_use(), 0);
            (&there).write_all(b"late").expect("written");
            let (lease, count) =
                stream.recv(buffers(&shard, 100).into_iter().next().expect("one")).await.expect("there");
            assert_eq!(&lease[..count], b"late");
            assert!(!stream.is_hung_up());
            (&there).write_all(b"last").expect("written");
            there.shutdown(Shutdown::Write).expect("connected");
            assert!(stream.is_hung_up() && !stream.is_abandoned(), "it may wait for an answer");
            drop(there);
            assert!(stream.is_hung_up() && stream.is_abandoned(), "though there is something to receive");
            let (lease, count) = stream.recv(lease).await.expect("it was sent before");
            assert_eq!(&lease[..count], b"last");
            let (_, count) = stream.recv(lease).await.expect("an end is no error");
            assert_eq!(count, 0);
            assert_eq!(stream.recv_all(buffers(&shard, 5)).await.err(), Some(NetError::Closed));
            assert_eq!(stream.send(buffers(&shard, 100).freeze()).await, Err(NetError::Closed));
        });
    }
}

#[test]
fn shutting_down_ends_a_waiting_receive() {
    for ring in RINGS {
        run(1, &options(ring), |shard: Shard<()>| async move {
            let (here, _there) = UnixStream::pair().expect("a pair");
            let stream = Rc::new(Stream::from_raw(&shard, here.into()));
            shard.spawn({
                let (shard, stream) = (shard.clone(), stream.clone());
                async move {
                    shard.sleep(Duration::from_millis(5)).await;
                    stream.shutdown();
                }
            });
            let (_, count) = stream.recv(buffers(&shard, 10).into_iter().next().expect("one")).await.expect("ended");
            assert_eq!(count, 0);
        });
    }
}

#[test]
fn a_slow_reader_gets_everything() {
    for ring in RINGS {
        let (here, mut there) = UnixStream::pair().expect("a pair");
        let here = std::sync::Mutex::new(Some(here));
        let reader = std::thread::spawn(move || {
            let (mut all, mut part) = (Vec::new(), [0; 30_000]);
            loop {
                std::thread::sleep(Duration::from_micros(300));
                match there.read(&mut part).expect("read") {
                    0 => return all,
                    count => all.extend_from_slice(&part[..count]),
                }
            }
        });
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n / 3) as u8).collect();
        run(1, &options(ring), |shard: Shard<()>| {
            let (here, content) = (&here, &content);
            async move {
                let socket = here.lock().expect("no panics").take().expect("there");
                let stream = Stream::from_raw(&shard, socket.into());
                let mut out = buffers(&shard, content.len());
                out.copy_from(content);
                stream.send(out.freeze()).await.expect("sent");
            }
        });
        assert!(reader.join().expect("no panics") == content);
    }
}

#[test]
fn nonblocking_calls_return_the_bytes_transferred() {
    for ring in RINGS {
        run(1, &options(ring), async |shard: Shard<()>| {
            let (ours, mut client) = UnixStream::pair().expect("a pair of sockets");
            let stream = Stream::from_raw(&shard, ours.into());
            let mut front = [0u8; 3];
            let mut back = [0u8; 5];
            assert_eq!(stream.try_recv(&mut [IoSliceMut::new(&mut front)]), Ok(None), "nothing was sent yet");
            client.write_all(b"seven b").expect("there is room");
            let mut both = [IoSliceMut::new(&mut front), IoSliceMut::new(&mut back)];
            assert_eq!(stream.try_recv(&mut both), Ok(Some(7)));
            assert_eq!((&front, &back[..4]), (b"sev", &b"en b"[..]));

            let content: Vec<u8> = (0..50_000u32).map(|n| (n % 251) as u8).collect();
            let mut sent = 0;
            loop {
                let part = stream.try_send(&[IoSlice::new(&content[..7]), IoSlice::new(&content[7..])]);
                match part.expect("the client is there") {
                    0 => break,
                    part => sent += part,
                }
                assert!(sent < 1 << 30, "the socket's buffer never fills");
            }
            assert!(sent > 0);
            let mut got = vec![0; sent];
            client.read_exact(&mut got).expect("it was sent");
            drop(client);
            assert_eq!(stream.try_recv(&mut [IoSliceMut::new(&mut back)]), Ok(Some(0)));
            assert_eq!(stream.try_send(&[IoSlice::new(&content)]), Err(NetError::Closed));
        });
    }
}

#[test]
fn the_longest_path_of_a_socket_works_and_a_longer_one_is_refused_with_both_figures() {
    let folder = std::env::temp_dir().join(format!("uraid-net-{}", std::process::id()));
    // A name of one character: shorter than the temporary name of the socket.
    let fill = 107 - folder.as_os_str().len() - "//s".len();
    let deep = folder.join("d".repeat(fill));
    std::fs::create_dir_all(&deep).expect("a folder");
    let (longest, longer) = (deep.join("s"), deep.join("st"));
    assert_eq!(longest.as_os_str().len(), 107);
    let listener = Listener::unix(&longest, 0o600).expect("the longest path");
    UnixStream::connect(&longest).expect("it listens");
    drop(listener);
    assert!(!longest.exists());
    let error = Listener::unix(&longer, 0o600).err();
    assert_eq!(error, Some(NetError::PathTooLong { path: longer, found: 108, max: 107 }));
    assert_eq!(std::fs::read_dir(&deep).expect("a folder").count(), 0, "nothing is left behind");
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_unix_socket_is_private_taken_once_and_removed() {
    let path = SocketPath::new("taken");
    let listener = Listener::unix(&path.0, 0o600).expect("listening");
    let mode = std::fs::metadata(&path.0).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(Listener::unix(&path.0, 0o600).err(), Some(NetError::InUse { path: path.0.clone() }));
    let handle = listener.clone();
    drop(listener);
    assert!(path.0.exists());
    drop(handle);
    assert!(!path.0.exists());
    // Stale: its server died without removing it.
    drop(std::os::unix::net::UnixListener::bind(&path.0).expect("bound"));
    assert!(path.0.exists());
    let listener = Listener::unix(&path.0, 0o600).expect("a stale socket is no obstacle");
    // The path belongs to another socket now: do not remove it.
    std::fs::remove_file(&path.0).expect("removed");
    std::fs::write(&path.0, b"a file").expect("written");
    drop(listener);
    assert!(path.0.exists());
    assert_eq!(Listener::unix(&path.0, 0o600).err(), Some(NetError::NotASocket { path: path.0.clone() }));
    let left = std::fs::read_dir(path.0.parent().expect("a directory")).expect("listed");
    let own = format!(".uraid-{}-", std::process::id());
    assert!(left.flatten().all(|entry| !entry.file_name().to_string_lossy().starts_with(&own)), "nothing is left");
    assert!(matches!(Listener::unix(Path::new("/nowhere/socket"), 0o600), Err(NetError::NotMade { .. })));
}

#[test]
fn a_socket_with_a_full_queue_is_in_use_and_does_not_block() {
    let path = SocketPath::new("full");
    let busy = std::os::unix::net::UnixListener::bind(&path.0).expect("bound");
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&busy), 0) }, 0);
    // With a backlog of 0 there is still room for one.
    let _waiting = std::os::unix::net::UnixStream::connect(&path.0).expect("connected");
    assert_eq!(Listener::unix(&path.0, 0o600).err(), Some(NetError::InUse { path: path.0.clone() }));
    assert!(path.0.exists());
}
