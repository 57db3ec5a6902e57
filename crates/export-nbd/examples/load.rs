//! A client that keeps many requests in flight with few system calls: fio's and libnbd's stop long before a good server.
//! Owns: one connection per thread, random requests of one size. Not here: checking the data.
//! Invariant: never more than DEPTH requests in flight on a connection.
//!
//! ```text
//!   cargo run --release -p uraid-export-nbd --example load -- /tmp/ram.sock read 4096 64 1 3
//!                                                              socket  command bytes depth connections seconds
//! ```

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use uraid_nbd::handshake::{
    CLIENT_FLAGS_BYTES, GREETING_BYTES, OPTION_REPLY_HEADER_BYTES, client_flags, option, parse_greeting,
};
use uraid_nbd::{
    Command, CommandFlags, Cookie, ExportInfo, ExportQuery, HandshakeFlags, Info, OptionCode, OptionReply,
    OptionReplyHeader, ReplyHeader, Request,
};

fn shake_hands(stream: &mut UnixStream) -> ExportInfo {
    let mut bytes = [0; GREETING_BYTES];
    stream.read_exact(&mut bytes).expect("a greeting");
    parse_greeting(&bytes).expect("a newstyle server");
    let flags: [u8; CLIENT_FLAGS_BYTES] = client_flags(HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES);
    stream.write_all(&flags).expect("sent");
    let query = ExportQuery { name: "", infos: vec![] }.encode();
    stream.write_all(&option(OptionCode::Go, &query)).expect("sent");
    let mut found = None;
    loop {
        let mut header = [0; OPTION_REPLY_HEADER_BYTES];
        stream.read_exact(&mut header).expect("an answer");
        let header = OptionReplyHeader::parse(&header).expect("a good answer");
        let mut payload = vec![0; header.length as usize];
        stream.read_exact(&mut payload).expect("a payload");
        if header.reply == OptionReply::Ack {
            return found.expect("size and flags were told");
        }
        assert_eq!(header.reply, OptionReply::Info);
        if let Ok(Info::Export(info)) = Info::parse(&payload) {
            found = Some(info);
        }
    }
}

/// Keeps `depth` requests in flight until the time is over; gives how many were answered.
fn load(path: &str, command: Command, length: u32, depth: usize, time: Duration, seed: u64) -> u64 {
    let mut stream = UnixStream::connect(path).expect("a server");
    let blocks = shake_hands(&mut stream).size / u64::from(length);
    let (mut random, mut cookie, mut answered) = (seed, 0u64, 0u64);
    let mut free = depth;
    let mut requests = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    let (mut unread, mut skip) = (0, 0);
    let (end, mut in_flight) = (Instant::now() + time, 0);
    loop {
        requests.clear();
        // At the end, wait for the replies: some servers abort when a client disconnects before its replies.
        let wanted = if Instant::now() < end { std::mem::take(&mut free) } else { 0 };
        in_flight += wanted;
        if in_flight == 0 {
            return answered;
        }
        for _ in 0..wanted {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let offset = (random >> 20) % blocks * u64::from(length);
            let request =
                Request { flags: CommandFlags::NONE, command, cookie: Cookie(cookie), offset, length: length.into() };
            cookie += 1;
            requests.extend_from_slice(&request.encode());
            if command == Command::Write {
                requests.resize(requests.len() + length as usize, 7);
            }
        }
        stream.write_all(&requests).expect("sent");
        let received = stream.read(&mut buffer[unread..]).expect("received");
        assert!(received > 0, "the server closed the connection");
        let (mut at, filled) = (0, unread + received);
        loop {
            let data = skip.min(filled - at);
            (at, skip) = (at + data, skip - data);
            let Some((ReplyHeader::Simple(reply), used)) = ReplyHeader::parse(&buffer[at..filled]).expect("a reply")
            else {
                break;
            };
            reply.result.expect("success");
            at += used;
            skip = if command == Command::Read { length as usize } else { 0 };
            (free, in_flight, answered) = (free + 1, in_flight - 1, answered + 1);
        }
        buffer.copy_within(at..filled, 0);
        unread = filled - at;
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, command, length, depth, connections, seconds] = &words[..] else {
        panic!("usage: load SOCKET read|write BYTES DEPTH CONNECTIONS SECONDS");
    };
    let command = if command == "write" { Command::Write } else { Command::Read };
    let number = |word: &str| word.parse::<u32>().expect("a number");
    let (length, depth, seconds) = (number(length), number(depth) as usize, number(seconds));
    let time = Duration::from_secs(seconds.into());
    let answered: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=u64::from(number(connections)))
            .map(|seed| scope.spawn(move || load(path, command, length, depth, time, seed)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    println!("{}", answered / u64::from(seconds));
}
