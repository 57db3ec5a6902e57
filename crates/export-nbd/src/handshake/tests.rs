//! The handshake against transcripts: honest, hostile, and every order of messages up to length 3.
//! Owns: the CVE pack of the handshake (CVE-2022-26495, CVE-2017-15118, CVE-2017-15119, CVE-2019-14851 and kin).
//! Not here: clients after their handshake (`tests/`). Invariant: the answer does not depend on how the bytes are cut.

use super::*;
use crate::Export;
use uraid_block::{Geometry, Sectors};
use uraid_nbd::handshake::{OPTION_REPLY_HEADER_BYTES, client_flags, option};
use uraid_nbd::{OptionReplyHeader, parse_greeting};

fn offer() -> Offer {
    let geometry = Geometry {
        size: Sectors(2048),
        logical_block: Sectors(1),
        physical_block: Sectors(8),
        chunk: Sectors(128),
        stripe: Sectors(256),
        io_max: Sectors(1 << 20),
        segments_max: 1024,
        discard_granularity: Sectors(1),
        fast_holes: false,
        fast_zeroes: false,
        volatile_cache: true,
    };
    let export = Export { name: "md0".into(), description: "two members".into(), read_only: false };
    Offer::new(&export, &geometry, 128 << 20)
}

/// Runs a client's bytes through a fresh handshake in pieces of `piece` bytes; the answer is without the greeting.
fn run(input: &[u8], piece: usize) -> (Vec<u8>, usize, Outcome) {
    let offer = offer();
    let mut out = Vec::new();
    let mut handshake = Handshake::new(&mut out);
    let mut used = 0;
    let mut end = Outcome::More;
    for part in input.chunks(piece) {
        let (count, outcome) = handshake.receive(std::slice::from_ref(&offer), part, &mut out);
        assert!(handshake.partial.len() <= OPTION_DATA_BYTES_MAX);
        used += count;
        end = outcome;
        if outcome != Outcome::More {
            break;
        }
        assert_eq!(count, part.len());
    }
    parse_greeting(out.first_chunk().expect("a greeting")).expect("a good greeting");
    (out.split_off(18), used, end)
}

/// Runs the messages after the client's flags, cut in all ways, and checks that the answer is always the same.
fn talk(messages: &[Vec<u8>]) -> (Vec<u8>, Outcome) {
    let flags = client_flags(HandshakeFlags::KNOWN).to_vec();
    let input = [vec![flags], messages.to_vec()].concat().concat();
    let (whole, used, end) = run(&input, input.len());
    for piece in [1, 3, 17] {
        assert_eq!(run(&input, piece), (whole.clone(), used, end), "in pieces of {piece}");
    }
    (whole, end)
}

/// The replies in order: option, reply, payload.
fn replies(mut bytes: &[u8]) -> Vec<(OptionCode, OptionReply, Vec<u8>)> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let header = OptionReplyHeader::parse(bytes.first_chunk().expect("a header")).expect("a good header");
        let end = OPTION_REPLY_HEADER_BYTES + header.length as usize;
        list.push((header.option, header.reply, bytes[OPTION_REPLY_HEADER_BYTES..end].to_vec()));
        bytes = &bytes[end..];
    }
    list
}

fn kinds(bytes: &[u8]) -> Vec<OptionReply> {
    replies(bytes).into_iter().map(|(_, reply, _)| reply).collect()
}

/// The first export, without block status.
fn agreed(form: Form) -> Outcome {
    Outcome::Agreed(Agreement { form, allocation: false, export: 0, read_only: false, size: offer().info.size })
}

fn query(name: &str, infos: Vec<InfoKind>) -> Vec<u8> {
    ExportQuery { name, infos }.encode()
}

fn option_of(code: u32, length: u32) -> Vec<u8> {
    OptionHeader { option: OptionCode::from_code(code), length }.encode().to_vec()
}

#[test]
fn go_tells_size_flags_and_block_sizes_byte_by_byte() {
    let (out, end) = talk(&[option(OptionCode::Go, &query("md0", vec![InfoKind::BlockSize]))]);
    let expected = [
        &b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c"[..],
        b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x0d\xed", // 1 MiB, the flags
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0e",
        b"\x00\x03\x00\x00\x02\x00\x00\x02\x00\x00\x02\x00\x00\x00", // 512, 128 KiB, 32 MiB
        b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00",
    ]
    .concat();
    assert_eq!(out, expected);
    assert_eq!(end, agreed(Form::Simple));
}

#[test]
fn info_tells_all_that_was_asked_once_and_goes_on() {
    let infos = vec![InfoKind::Name, InfoKind::Description, InfoKind::Name, InfoKind::Unknown(9)];
    let (out, end) = talk(&[option(OptionCode::Info, &query("", infos)), option(OptionCode::StructuredReply, &[])]);
    let infos: Vec<InfoKind> = replies(&out)
        .iter()
        .filter(|(_, reply, _)| *reply == OptionReply::Info)
        .map(|(_, _, payload)| Info::parse(payload).expect("a good info").kind())
        .collect();
    assert_eq!(infos, [InfoKind::Export, InfoKind::Name, InfoKind::Description, InfoKind::BlockSize]);
    assert_eq!(kinds(&out)[4..], [OptionReply::Ack, OptionReply::Ack]);
    assert_eq!(end, Outcome::More);
}

#[test]
fn structured_replies_are_agreed_before_go() {
    let messages = [option(OptionCode::StructuredReply, &[]), option(OptionCode::Go, &query("", vec![]))];
    assert_eq!(talk(&messages).1, agreed(Form::Structured));
    let (out, end) = talk(&[option(OptionCode::StructuredReply, b"x"), option(OptionCode::Go, &query("", vec![]))]);
    assert_eq!(kinds(&out)[0], OptionReply::ErrorInvalid);
    assert_eq!(end, agreed(Form::Simple));
}

#[test]
fn list_names_the_export_and_abort_ends() {
    let (out, end) = talk(&[option(OptionCode::List, &[]), option(OptionCode::Abort, &[])]);
    assert_eq!(kinds(&out), [OptionReply::Server, OptionReply::Ack, OptionReply::Ack]);
    let entry = ListEntry { name: "md0", details: "two members" };
    assert_eq!(ListEntry::parse(&replies(&out)[0].2), Ok(entry));
    assert_eq!(end, Outcome::Aborted);
    assert_eq!(kinds(&talk(&[option(OptionCode::List, b"x")]).0), [OptionReply::ErrorInvalid]);
}

#[test]
fn export_name_ends_the_handshake_with_and_without_zeroes() {
    let name = option(OptionCode::ExportName, b"md0");
    let answer = b"\x00\x00\x00\x00\x00\x10\x00\x00\x0d\xed";
    assert_eq!(talk(std::slice::from_ref(&name)), (answer.to_vec(), agreed(Form::Simple)));
    for flags in [HandshakeFlags::FIXED_NEWSTYLE, HandshakeFlags::NONE] {
        let input = [&client_flags(flags)[..], &name, b"request"].concat();
        let (out, used, end) = run(&input, 1000);
        assert_eq!(out, [&answer[..], &[0; 124]].concat());
        assert_eq!((used, end), (input.len() - 7, agreed(Form::Simple)), "the request is left");
    }
    assert_eq!(talk(&[option(OptionCode::ExportName, b"md1")]), (vec![], Outcome::Close));
}

#[test]
fn unknown_names_options_and_tls_are_answered_and_the_handshake_goes_on() {
    let messages = [
        option(OptionCode::Go, &query("md1", vec![])),
        option(OptionCode::StartTls, &[]),
        option(OptionCode::PeekExport, &[]),
        option(OptionCode::Unknown(0xdead_beef), &[7; 300]),
        option(OptionCode::Go, &query("md0", vec![])),
    ];
    let (out, end) = talk(&messages);
    let expected = [
        OptionReply::ErrorUnknown,
        OptionReply::ErrorPolicy,
        OptionReply::ErrorUnsupported,
        OptionReply::ErrorUnsupported,
    ];
    assert_eq!(kinds(&out)[..4], expected);
    assert_eq!(end, agreed(Form::Simple));
}

#[test]
fn a_client_without_fixed_newstyle_gets_export_name_only() {
    for code in [2, 3, 6, 7, 8, 99] {
        let input = [&client_flags(HandshakeFlags::NONE)[..], &option_of(code, 0)].concat();
        assert_eq!(run(&input, 1000), (vec![], input.len(), Outcome::Close));
    }
}

#[test]
fn announced_lengths_are_bounded() {
    for code in [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 77] {
        for length in [u32::MAX, 1 << 31, (64 << 10) + 1] {
            let (out, end) = talk(&[option_of(code, length)]);
            assert_eq!(end, Outcome::Close, "option {code} with {length} bytes");
            assert!(out.len() < 100);
        }
    }
    let long = vec![0; OPTION_DATA_BYTES_MAX + 1];
    let (out, end) = talk(&[option(OptionCode::Go, &long), option(OptionCode::List, &[])]);
    assert_eq!(kinds(&out), [OptionReply::ErrorTooBig, OptionReply::Server, OptionReply::Ack]);
    assert_eq!(end, Outcome::More);
}

#[test]
fn names_above_the_bound_are_invalid() {
    let mut data = 4097u32.to_be_bytes().to_vec();
    data.extend_from_slice(&[b'a'; 4097]);
    data.extend_from_slice(&[0, 0]);
    assert_eq!(kinds(&talk(&[option(OptionCode::Go, &data)]).0), [OptionReply::ErrorInvalid]);
    assert_eq!(talk(&[option(OptionCode::ExportName, &[b'a'; 4097])]).1, Outcome::Close);
    for data in [&b"\xff\xff\xff\xff"[..], b"", b"\x00\x00\x00\x04md0", b"\x00\x00\x00\x00\xff\xff\x00\x00"] {
        assert_eq!(kinds(&talk(&[option(OptionCode::Info, data)]).0), [OptionReply::ErrorInvalid]);
    }
}

#[test]
fn a_flood_of_options_ends() {
    let flood = vec![option(OptionCode::Unknown(99), &[]); 1000];
    let (out, end) = talk(&flood);
    assert_eq!(end, Outcome::Close);
    assert_eq!(kinds(&out).len(), OPTIONS_MAX as usize);
}

#[test]
fn garbage_ends_the_handshake() {
    assert_eq!(run(b"GET / HTTP/1.1\r\n\r\n", 100).2, Outcome::Close);
    assert_eq!(talk(&[vec![0; 16]]).1, Outcome::Close);
    assert_eq!(run(&[0, 0, 0, 8], 4).2, Outcome::Close, "a flag that was not offered");
}

#[test]
fn every_order_of_messages_up_to_length_3_ends_or_waits() {
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for code in (0..13).chain([u32::MAX]) {
        let contexts = contexts("", &["base:allocation"]);
        for data in [&b""[..], b"x", &query("md0", vec![InfoKind::BlockSize]), &query("md1", vec![]), &contexts] {
            messages.push(option(OptionCode::from_code(code), data));
        }
        messages.push(option_of(code, 3));
        messages.push(option_of(code, u32::MAX));
    }
    messages.push(vec![0; 28]);
    messages.push(client_flags(HandshakeFlags::KNOWN).to_vec());
    let mut agreed = 0;
    for first in &messages {
        for second in &messages {
            for third in &messages {
                let input = [&client_flags(HandshakeFlags::KNOWN)[..], first, second, third].concat();
                let (out, used, end) = run(&input, input.len());
                assert!(used <= input.len() && out.len() < 4096);
                agreed += usize::from(matches!(end, Outcome::Agreed(_)));
            }
        }
    }
    assert!(agreed > 1000);
}

#[test]
fn each_export_is_listed_and_chosen_by_its_name_and_the_first_is_the_default() {
    let offers = [offer(), Offer { name: "md1".into(), ..offer() }];
    let ask = |message: Vec<u8>| {
        let mut out = Vec::new();
        let mut handshake = Handshake::new(&mut out);
        let input = [client_flags(HandshakeFlags::KNOWN).to_vec(), message].concat();
        let (_, end) = handshake.receive(&offers, &input, &mut out);
        (out.split_off(18), end)
    };
    let (out, end) = ask(option(OptionCode::List, &[]));
    assert_eq!(kinds(&out), [OptionReply::Server, OptionReply::Server, OptionReply::Ack]);
    let names: Vec<_> = replies(&out)[..2].iter().map(|(_, _, payload)| payload[4..7].to_vec()).collect();
    assert_eq!((names, end), (vec![b"md0".to_vec(), b"md1".to_vec()], Outcome::More));
    for (name, export) in [("", 0), ("md0", 0), ("md1", 1)] {
        let agreed = Outcome::Agreed(Agreement {
            form: Form::Simple,
            allocation: false,
            export,
            read_only: false,
            size: offer().info.size,
        });
        assert_eq!(ask(option(OptionCode::Go, &query(name, vec![]))).1, agreed);
        assert_eq!(ask(option(OptionCode::ExportName, name.as_bytes())).1, agreed);
    }
    assert_eq!(kinds(&ask(option(OptionCode::Go, &query("md2", vec![]))).0), [OptionReply::ErrorUnknown]);
}

fn contexts(name: &str, queries: &[&str]) -> Vec<u8> {
    MetaContextQuery { name, queries: queries.to_vec() }.encode()
}

#[test]
fn extended_headers_include_structured_replies_and_are_agreed_once() {
    let extended = || option(OptionCode::ExtendedHeaders, &[]);
    let go = || option(OptionCode::Go, &query("md0", vec![]));
    let (out, end) = talk(&[extended(), option(OptionCode::StructuredReply, &[]), extended(), go()]);
    let expected = [OptionReply::Ack, OptionReply::ErrorExtendedHeadersRequired, OptionReply::ErrorInvalid];
    assert_eq!(kinds(&out)[..3], expected);
    assert_eq!(end, agreed(Form::Extended));
    // After structured replies, a client may still ask for extended headers.
    let (out, end) = talk(&[option(OptionCode::StructuredReply, &[]), extended(), go()]);
    assert_eq!((kinds(&out)[..2].to_vec(), end), (vec![OptionReply::Ack; 2], agreed(Form::Extended)));
    let (out, end) = talk(&[option(OptionCode::ExtendedHeaders, b"x"), go()]);
    assert_eq!((kinds(&out)[0], end), (OptionReply::ErrorInvalid, agreed(Form::Simple)));
}

#[test]
fn base_allocation_is_listed_and_chosen_for_the_export_of_go_only() {
    let structured = || option(OptionCode::StructuredReply, &[]);
    for (queries, is_listed) in
        [(vec![], true), (vec!["base:"], true), (vec!["qemu:", "base:allocation"], true), (vec!["x:y"], false)]
    {
        let (out, _) = talk(&[structured(), option(OptionCode::ListMetaContext, &contexts("", &queries))]);
        let list = replies(&out);
        let mut sent = list[1..].iter().filter(|(_, reply, _)| *reply == OptionReply::MetaContext);
        assert_eq!(sent.next().map(|(_, _, data)| &data[..]), is_listed.then_some(&b"\0\0\0\0base:allocation"[..]));
        assert!(sent.next().is_none() && list.last().expect("an end").1 == OptionReply::Ack);
    }
    let offers = [offer(), Offer { name: "md1".into(), ..offer() }];
    let ask = |set: &[Vec<u8>], go: &str| {
        let mut out = Vec::new();
        let mut handshake = Handshake::new(&mut out);
        let mut input = [client_flags(HandshakeFlags::KNOWN).to_vec(), structured()].concat();
        input.extend(set.iter().flat_map(|data| option(OptionCode::SetMetaContext, data)));
        input.extend(option(OptionCode::Go, &query(go, vec![])));
        match handshake.receive(&offers, &input, &mut out) {
            (_, Outcome::Agreed(agreement)) => agreement.allocation,
            (_, other) => panic!("{other:?}"),
        }
    };
    let chosen = |name: &str| contexts(name, &["base:allocation"]);
    assert!(ask(&[chosen("md0")], "md0") && ask(&[chosen("")], "md0") && ask(&[chosen("md1")], "md1"));
    assert!(!ask(&[chosen("md0")], "md1") && !ask(&[chosen("md1")], ""), "chosen for another export");
    assert!(!ask(&[], "md0") && !ask(&[contexts("md0", &["base:"])], "md0"), "a namespace is no choice");
    for later in [contexts("md0", &[]), chosen("none"), b"x".to_vec(), contexts("md0", &["base:allocatio"])] {
        assert!(!ask(&[chosen("md0"), later], "md0"), "the last choice holds, also if it fails");
    }
}

#[test]
fn hostile_questions_for_contexts_are_refused_and_the_handshake_goes_on() {
    let structured = option(OptionCode::StructuredReply, &[]);
    let long = [&4097u32.to_be_bytes()[..], &[b'a'; 4097], &[0; 4]].concat();
    for code in [OptionCode::ListMetaContext, OptionCode::SetMetaContext] {
        let refused = |data: &[u8]| kinds(&talk(&[structured.clone(), option(code, data)]).0)[1];
        for data in [&b""[..], b"\xff\xff\xff\xff", b"\0\0\0\0\xff\xff\xff\xff", &long, b"\0\0\0\x01\0\0\0\0\0"] {
            assert_eq!(refused(data), OptionReply::ErrorInvalid, "{code:?} {data:x?}");
        }
        assert_eq!(refused(&contexts("md7", &["base:allocation"])), OptionReply::ErrorUnknown);
        assert_eq!(refused(&vec![0; OPTION_DATA_BYTES_MAX + 1]), OptionReply::ErrorTooBig);
        let simple = talk(&[option(code, &contexts("", &["base:allocation"]))]);
        assert_eq!((kinds(&simple.0), simple.1), (vec![OptionReply::ErrorInvalid], Outcome::More));
        // Thousands of queries, one of them known, get one answer.
        let many = contexts("", &[&[""; 3000][..], &["base:allocation"; 50]].concat());
        assert_eq!(kinds(&talk(&[structured.clone(), option(code, &many)]).0).len(), 3);
    }
}
