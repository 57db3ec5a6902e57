//! Every order of messages, up to a length. A table, independent of the server, gives the answer to each message from
//! the messages before it.
//! Owns: the alphabet, the table, the enumeration. Not here: broken messages (`hostile`), what requests do (`session`).
//! Invariant: the table is written from the protocol's text; it shares nothing with the server but the messages' bytes.
//! `ORDERS=6 cargo test --release -p uraid-export-nbd --test suite orders::` goes to length 6.

use crate::common::*;
use uraid_export_nbd::{Limits, Machine};
use uraid_nbd::handshake::option;
use uraid_nbd::{Command, CommandFlags, ExportQuery, MetaContextQuery, OptionCode};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    Go,
    GoElsewhere,
    Info,
    List,
    StartTls,
    Structured,
    Extended,
    Context,
    Unknown,
    Abort,
    Read,
    ReadExtended,
}

use Message::*;

const ALPHABET: [Message; 12] =
    [Go, GoElsewhere, Info, List, StartTls, Structured, Extended, Context, Unknown, Abort, Read, ReadExtended];

impl Message {
    fn bytes(self) -> Vec<u8> {
        let query = |name| ExportQuery { name, infos: vec![] }.encode();
        let context = MetaContextQuery { name: "md0", queries: vec!["base:allocation"] };
        match self {
            Go => option(OptionCode::Go, &query("md0")),
            GoElsewhere => option(OptionCode::Go, &query("md1")),
            Info => option(OptionCode::Info, &query("md0")),
            List => option(OptionCode::List, &[]),
            StartTls => option(OptionCode::StartTls, &[]),
            Structured => option(OptionCode::StructuredReply, &[]),
            Extended => option(OptionCode::ExtendedHeaders, &[]),
            Context => option(OptionCode::SetMetaContext, &context.encode()),
            Unknown => option(OptionCode::from_code(42), &[1, 2, 3]),
            Abort => option(OptionCode::Abort, &[]),
            Read => ask(Command::Read, CommandFlags::NONE, 1, 0, 512),
            ReadExtended => ask_extended(Command::Read, CommandFlags::NONE, 0, 512, &[]),
        }
    }
}

/// What a client can see of an answer: which kind of message, and its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    /// An option reply of this type.
    Option(u32),
    /// A simple reply with this error.
    Simple(u32),
    /// A structured chunk of this type.
    Chunk(u16),
    /// An extended chunk of this type.
    Extended(u16),
}

const ACK: Seen = Seen::Option(1);
const SERVER: Seen = Seen::Option(2);
const INFO: Seen = Seen::Option(3);
const CONTEXT: Seen = Seen::Option(4);
const UNSUPPORTED: Seen = Seen::Option(0x8000_0001);
const POLICY: Seen = Seen::Option(0x8000_0002);
const INVALID: Seen = Seen::Option(0x8000_0003);
const UNKNOWN: Seen = Seen::Option(0x8000_0006);
const EXTENDED_REQUIRED: Seen = Seen::Option(0x8000_000a);
const OFFSET_DATA: u16 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Simple,
    Structured,
    Extended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Options(Form),
    Requests(Form),
    Closed,
}

/// The protocol as a table: what is answered, and what comes then.
fn expected(state: State, message: Message) -> (Vec<Seen>, State) {
    let form = match state {
        State::Options(form) => form,
        State::Requests(form) => {
            let answer = match (form, message) {
                (Form::Simple, Read) => Seen::Simple(0),
                (Form::Structured, Read) => Seen::Chunk(OFFSET_DATA),
                (Form::Extended, ReadExtended) => Seen::Extended(OFFSET_DATA),
                // Another magic: the connection cannot be followed any more.
                (Form::Simple | Form::Structured | Form::Extended, _) => return (vec![], State::Closed),
            };
            return (vec![answer], state);
        }
        State::Closed => return (vec![], State::Closed),
    };
    match message {
        Go => (vec![INFO, INFO, ACK], State::Requests(form)),
        Info => (vec![INFO, INFO, ACK], state),
        GoElsewhere => (vec![UNKNOWN], state),
        List => (vec![SERVER, ACK], state),
        StartTls => (vec![POLICY], state),
        Structured if form == Form::Extended => (vec![EXTENDED_REQUIRED], state),
        Structured => (vec![ACK], State::Options(Form::Structured)),
        Extended if form == Form::Extended => (vec![INVALID], state),
        Extended => (vec![ACK], State::Options(Form::Extended)),
        Context if form == Form::Simple => (vec![INVALID], state),
        Context => (vec![CONTEXT, ACK], state),
        Unknown => (vec![UNSUPPORTED], state),
        Abort => (vec![ACK], State::Closed),
        Read | ReadExtended => (vec![], State::Closed),
    }
}

/// Takes the server's bytes apart by their magics.
fn seen(mut bytes: &[u8]) -> Vec<Seen> {
    let mut list = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a whole header"));
        let kind = |at: usize| u16::from_be_bytes(bytes[at..at + 2].try_into().expect("a whole header"));
        let (one, length) = match word(0) {
            0x0003_e889 => (Seen::Option(word(12)), 20 + word(16)),
            0x6744_6698 => (Seen::Simple(word(4)), 16 + if word(4) == 0 { 512 } else { 0 }),
            0x668e_33ef => (Seen::Chunk(kind(6)), 20 + word(16)),
            0x6e8a_278c => (Seen::Extended(kind(6)), 32 + word(28)),
            other => panic!("no reply starts with {other:#x}"),
        };
        list.push(one);
        bytes = &bytes[length as usize..];
    }
    list
}

struct Enumeration {
    bench: Bench,
    server: std::rc::Rc<TestServer>,
    orders: u64,
}

impl Enumeration {
    /// Plays the messages to a new connection, looks at the last answer, and goes on from there.
    fn extend(&mut self, messages: &mut Vec<Message>, state: State, left: usize) {
        if left == 0 || state == State::Closed {
            return;
        }
        for message in ALPHABET {
            messages.push(message);
            let (answer, next) = expected(state, message);
            self.play(messages, &answer, next == State::Closed);
            self.extend(messages, next, left - 1);
            messages.pop();
        }
    }

    fn play(&mut self, messages: &[Message], answer: &[Seen], is_closed: bool) {
        let pipe = connect(&self.bench, &self.server);
        // The client's flags: fixed newstyle, no zeroes.
        pipe.write(&[0, 0, 0, 3]);
        let (last, before) = messages.split_last().expect("one at least");
        before.iter().for_each(|message| pipe.write(&message.bytes()));
        self.bench.settle();
        drop(pipe.take());
        pipe.write(&last.bytes());
        if is_closed {
            // An option is shorter than a request: the server waits for the rest of what it takes for one.
            pipe.write(&[0; 32]);
        }
        self.bench.settle();
        assert_eq!((&seen(&pipe.take())[..], pipe.is_shut_down()), (answer, is_closed), "{messages:?}");
        pipe.close();
        self.bench.settle();
        self.orders += 1;
    }
}

#[test]
fn every_order_of_messages_is_answered_as_the_protocol_says() {
    let length = std::env::var("ORDERS").ok().and_then(|length| length.parse().ok()).unwrap_or(4);
    let (bench, ram) = (Bench::new(64, 32), Ram::new(64 << 10));
    let server = server(&bench, &ram, Limits::default());
    let mut enumeration = Enumeration { bench, server, orders: 0 };
    enumeration.extend(&mut Vec::new(), State::Options(Form::Simple), length);
    println!("{} orders of up to {length} messages", enumeration.orders);
    assert!(enumeration.orders > 500);
    assert_eq!((enumeration.server.connections(), enumeration.server.requests_running()), (0, 0));
    assert_eq!(enumeration.bench.arena().blocks_in_use(), 0);
}
