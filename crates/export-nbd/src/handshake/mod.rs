//! The server's side of the handshake, as a state machine from bytes to bytes.
//! Owns: the answer to each option, what is agreed, the bounds of a handshake.
//! Not here: what an export offers (`export`), sockets, deadlines (`reader`, `watchdog`).
//! Invariant: any bytes, split anywhere, end the handshake or wait for more. At most [`OPTION_DATA_BYTES_MAX`] and a
//! header are stored per client. Spec: proto.md, "Fixed newstyle negotiation".

pub(crate) mod export;

use crate::handshake::export::Offer;
use uraid_nbd::handshake::{
    CLIENT_FLAGS_BYTES, EXPORT_NAME_ZEROES, OPTION_HEADER_BYTES, greeting, parse_client_flags, parse_export_name,
    push_option_error, push_option_reply,
};
use uraid_nbd::metadata::BASE_ALLOCATION;
use uraid_nbd::{
    ExportQuery, HandshakeFlags, Info, InfoKind, ListEntry, MetaContext, MetaContextQuery, OptionCode, OptionHeader,
    OptionReply,
};

/// The most data of an option that is read: enough for the longest name and more info requests than exist.
pub(crate) const OPTION_DATA_BYTES_MAX: usize = 16 << 10;
/// An option that announces more data than this ends the connection; between the two limits the data is skipped.
const OPTION_SKIP_BYTES_MAX: u32 = 64 << 10;
/// A client that sends more options than this is disconnected.
const OPTIONS_MAX: u32 = 256;
/// The number of `base:allocation` in block status.
pub(crate) const ALLOCATION_ID: u32 = 1;

/// The form of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Simple,
    /// Replies in chunks, except for success without data.
    Structured,
    /// All replies in chunks with 64-bit lengths; requests have 64-bit lengths, too.
    Extended,
}

/// The result of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Agreement {
    pub(crate) form: Form,
    /// Whether block status of `base:allocation` may be requested.
    pub(crate) allocation: bool,
    /// The index of the export.
    pub(crate) export: usize,
    /// The client was told that the export is read-only. This stays so, even if the device takes writes again.
    pub(crate) read_only: bool,
    /// The size that the client was told, in bytes. Its requests stay within it, also if the device has grown.
    pub(crate) size: u64,
}

/// The result of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// All bytes are used, the handshake continues.
    More,
    /// The handshake ended with the export; unused bytes are requests.
    Agreed(Agreement),
    /// The client wants no export; the connection ends after the answer was sent.
    Aborted,
    /// The client broke the protocol; the connection ends after the answer was sent.
    Close,
}

enum State {
    ClientFlags,
    Header,
    Data(OptionHeader),
    Skip { left: u32 },
}

/// One client's handshake.
pub(crate) struct Handshake {
    state: State,
    /// The start of a message that is not complete yet.
    partial: Vec<u8>,
    flags: HandshakeFlags,
    form: Form,
    /// The export for which `base:allocation` was chosen; it has no effect on another export.
    allocation: Option<usize>,
    options_left: u32,
}

impl Handshake {
    /// Starts a handshake and writes the greeting.
    pub(crate) fn new(out: &mut Vec<u8>) -> Handshake {
        out.extend_from_slice(&greeting(HandshakeFlags::KNOWN));
        Handshake {
            state: State::ClientFlags,
            partial: Vec::new(),
            flags: HandshakeFlags::NONE,
            form: Form::Simple,
            allocation: None,
            options_left: OPTIONS_MAX,
        }
    }

    /// Takes bytes from the client and appends the answer. Returns how many bytes were used: all, except at the end.
    pub(crate) fn receive(&mut self, offers: &[Offer], input: &[u8], out: &mut Vec<u8>) -> (usize, Outcome) {
        let mut used = 0;
        loop {
            used += self.collect(&input[used..]);
            let is_whole = match self.state {
                State::Skip { left } => left == 0,
                State::ClientFlags | State::Header | State::Data(_) => self.partial.len() == self.wanted(),
            };
            if !is_whole {
                assert_eq!(used, input.len());
                return (used, Outcome::More);
            }
            let message = std::mem::take(&mut self.partial);
            match self.message(offers, &message, out) {
                Outcome::More => {}
                end @ (Outcome::Agreed(_) | Outcome::Aborted | Outcome::Close) => return (used, end),
            }
        }
    }

    /// The length of the message that the state waits for.
    fn wanted(&self) -> usize {
        match &self.state {
            State::ClientFlags => CLIENT_FLAGS_BYTES,
            State::Header => OPTION_HEADER_BYTES,
            State::Data(header) => header.length as usize,
            State::Skip { .. } => 0,
        }
    }

    /// Stores or skips bytes of the current message; returns how many.
    fn collect(&mut self, input: &[u8]) -> usize {
        if let State::Skip { left } = &mut self.state {
            let count = input.len().min(*left as usize);
            *left -= count as u32;
            return count;
        }
        let wanted = self.wanted();
        assert!(wanted <= OPTION_DATA_BYTES_MAX);
        let count = input.len().min(wanted - self.partial.len());
        self.partial.extend_from_slice(&input[..count]);
        assert!(self.partial.len() <= wanted);
        count
    }

    fn message(&mut self, offers: &[Offer], message: &[u8], out: &mut Vec<u8>) -> Outcome {
        match std::mem::replace(&mut self.state, State::Header) {
            State::ClientFlags => match message.first_chunk().map(parse_client_flags) {
                Some(Ok(flags)) => {
                    self.flags = flags;
                    Outcome::More
                }
                Some(Err(_)) | None => Outcome::Close,
            },
            State::Header => match message.first_chunk().map(OptionHeader::parse) {
                Some(Ok(header)) => self.header(header, out),
                Some(Err(_)) | None => Outcome::Close,
            },
            State::Data(header) => self.option(offers, header.option, message, out),
            State::Skip { .. } => Outcome::More,
        }
    }

    /// Decides from an option's header whether its data is read, skipped, or too long.
    fn header(&mut self, header: OptionHeader, out: &mut Vec<u8>) -> Outcome {
        let OptionHeader { option, length } = header;
        let is_fixed = self.flags.contains(HandshakeFlags::FIXED_NEWSTYLE);
        // A client without fixed newstyle understands only the answer to ExportName.
        if self.options_left == 0 || (!is_fixed && option != OptionCode::ExportName) {
            return Outcome::Close;
        }
        self.options_left -= 1;
        let is_too_long = length as usize > OPTION_DATA_BYTES_MAX;
        // ExportName has no error answer: hang up.
        if option == OptionCode::ExportName && is_too_long {
            return Outcome::Close;
        }
        match option {
            OptionCode::ExportName
            | OptionCode::Abort
            | OptionCode::List
            | OptionCode::StartTls
            | OptionCode::Info
            | OptionCode::Go
            | OptionCode::StructuredReply
            | OptionCode::ListMetaContext
            | OptionCode::SetMetaContext
            | OptionCode::ExtendedHeaders
                if !is_too_long =>
            {
                self.state = State::Data(header);
                return Outcome::More;
            }
            OptionCode::ExportName
            | OptionCode::Abort
            | OptionCode::List
            | OptionCode::StartTls
            | OptionCode::Info
            | OptionCode::Go
            | OptionCode::StructuredReply
            | OptionCode::ListMetaContext
            | OptionCode::SetMetaContext
            | OptionCode::ExtendedHeaders => {
                push_option_error(out, option, OptionReply::ErrorTooBig, "the option's data is too long");
            }
            OptionCode::PeekExport | OptionCode::Unknown(_) => {
                push_option_error(out, option, OptionReply::ErrorUnsupported, "the option is not known here");
            }
        }
        if length > OPTION_SKIP_BYTES_MAX {
            return Outcome::Close;
        }
        self.state = State::Skip { left: length };
        Outcome::More
    }

    /// Answers an option whose data is complete.
    fn option(&mut self, offers: &[Offer], option: OptionCode, data: &[u8], out: &mut Vec<u8>) -> Outcome {
        match option {
            OptionCode::ExportName => return self.export_name(offers, data, out),
            OptionCode::Info | OptionCode::Go => return self.query(offers, option, data, out),
            OptionCode::Abort => {
                push_option_reply(out, option, OptionReply::Ack, &[]);
                return Outcome::Aborted;
            }
            OptionCode::List | OptionCode::StartTls | OptionCode::StructuredReply | OptionCode::ExtendedHeaders
                if !data.is_empty() =>
            {
                push_option_error(out, option, OptionReply::ErrorInvalid, "the option takes no data");
            }
            OptionCode::List => {
                for offer in offers {
                    let entry = ListEntry { name: &offer.name, details: &offer.description };
                    push_option_reply(out, option, OptionReply::Server, &entry.encode());
                }
                push_option_reply(out, option, OptionReply::Ack, &[]);
            }
            OptionCode::StartTls => {
                push_option_error(out, option, OptionReply::ErrorPolicy, "TLS is not configured");
            }
            // Extended headers imply structured replies and cannot be revoked.
            OptionCode::StructuredReply if self.form == Form::Extended => {
                let text = "extended headers are agreed already";
                push_option_error(out, option, OptionReply::ErrorExtendedHeadersRequired, text);
            }
            OptionCode::ExtendedHeaders if self.form == Form::Extended => {
                push_option_error(out, option, OptionReply::ErrorInvalid, "extended headers are agreed already");
            }
            OptionCode::StructuredReply | OptionCode::ExtendedHeaders => {
                self.form = if option == OptionCode::ExtendedHeaders { Form::Extended } else { Form::Structured };
                push_option_reply(out, option, OptionReply::Ack, &[]);
            }
            OptionCode::ListMetaContext | OptionCode::SetMetaContext => self.contexts(offers, option, data, out),
            OptionCode::PeekExport | OptionCode::Unknown(_) => unreachable!("these are skipped by their header"),
        }
        Outcome::More
    }

    /// Lists the contexts, or chooses among them. Unknown ones are ignored, as the protocol demands.
    fn contexts(&mut self, offers: &[Offer], option: OptionCode, data: &[u8], out: &mut Vec<u8>) {
        let is_choice = option == OptionCode::SetMetaContext;
        if is_choice {
            // A choice that fails also revokes the previous one.
            self.allocation = None;
        }
        let mut refuse = |reply, text: &str| push_option_error(out, option, reply, text);
        if self.form == Form::Simple {
            return refuse(OptionReply::ErrorInvalid, "structured replies or extended headers come first");
        }
        let query = match MetaContextQuery::parse(data) {
            Ok(query) => query,
            Err(error) => return refuse(OptionReply::ErrorInvalid, &error.to_string()),
        };
        let Some(export) = find(offers, query.name) else {
            return refuse(OptionReply::ErrorUnknown, "there is no export of this name");
        };
        let is_named = query.queries.contains(&BASE_ALLOCATION);
        let is_listed = !is_choice && (query.queries.is_empty() || query.queries.contains(&"base:"));
        if is_named || is_listed {
            // In a list the number has no meaning and is zero.
            let id = if is_choice { ALLOCATION_ID } else { 0 };
            let context = MetaContext { id, name: BASE_ALLOCATION };
            push_option_reply(out, option, OptionReply::MetaContext, &context.encode());
        }
        if is_choice && is_named {
            self.allocation = Some(export);
        }
        push_option_reply(out, option, OptionReply::Ack, &[]);
    }

    fn agreed(&self, offers: &[Offer], export: usize) -> Outcome {
        let (allocation, offer) = (self.allocation == Some(export), &offers[export]);
        let (read_only, size) = (offer.is_read_only(), offer.info.size);
        Outcome::Agreed(Agreement { form: self.form, allocation, export, read_only, size })
    }

    fn export_name(&mut self, offers: &[Offer], data: &[u8], out: &mut Vec<u8>) -> Outcome {
        let Some(export) = parse_export_name(data).ok().and_then(|name| find(offers, name)) else {
            return Outcome::Close;
        };
        out.extend_from_slice(&offers[export].info.encode());
        if !self.flags.contains(HandshakeFlags::NO_ZEROES) {
            out.extend_from_slice(&[0; EXPORT_NAME_ZEROES]);
        }
        self.agreed(offers, export)
    }

    fn query(&mut self, offers: &[Offer], option: OptionCode, data: &[u8], out: &mut Vec<u8>) -> Outcome {
        let query = match ExportQuery::parse(data) {
            Ok(query) => query,
            Err(error) => {
                push_option_error(out, option, OptionReply::ErrorInvalid, &error.to_string());
                return Outcome::More;
            }
        };
        let Some(export) = find(offers, query.name) else {
            push_option_error(out, option, OptionReply::ErrorUnknown, "there is no export of this name");
            return Outcome::More;
        };
        let offer = &offers[export];
        // Send each fact once, however often it was requested. Send block sizes even if the client did not ask.
        let mut send = |info: Info<'_>| push_option_reply(out, option, OptionReply::Info, &info.encode());
        send(Info::Export(offer.info));
        if query.infos.contains(&InfoKind::Name) {
            send(Info::Name(&offer.name));
        }
        if query.infos.contains(&InfoKind::Description) && !offer.description.is_empty() {
            send(Info::Description(&offer.description));
        }
        send(Info::BlockSize(offer.sizes));
        push_option_reply(out, option, OptionReply::Ack, &[]);
        if option == OptionCode::Go { self.agreed(offers, export) } else { Outcome::More }
    }
}

/// The export with this name. The empty name means the default export, the first one, unless an export has that name.
fn find(offers: &[Offer], name: &str) -> Option<usize> {
    let exact = offers.iter().position(|offer| offer.name == name);
    exact.or_else(|| (name.is_empty() && !offers.is_empty()).then_some(0))
}

#[cfg(test)]
mod tests;
