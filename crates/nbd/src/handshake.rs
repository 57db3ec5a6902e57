//! The messages of the fixed newstyle handshake, as both ends write and read them.
//! Owns: greeting, flags, options, their answers. Not here: which answer an option gets (`export-nbd`).
//! Invariant: `parse(encode(x)) == x`. A parser takes exactly the data of its message.
//! Spec: proto.md, "Fixed newstyle negotiation", "Option types", "Option reply types".

use crate::cursor::{Cursor, cut, string};
use crate::words::{MAGIC_NBD, MAGIC_OPTION, MAGIC_OPTION_REPLY};
use crate::{HandshakeFlags, InfoKind, NAME_BYTES_MAX, OptionCode, OptionReply, TransmissionFlags, WireError};

/// Bytes of the server's first message.
pub const GREETING_BYTES: usize = 18;
/// Bytes of the client's flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Bytes in front of an option's data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes in front of an option reply's payload.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Zero bytes after the answer of ExportName, unless NO_ZEROES was agreed.
pub const EXPORT_NAME_ZEROES: usize = 124;
/// Bytes of an [`ExportInfo`]: all of ExportName's answer but the zeroes.
pub const EXPORT_INFO_BYTES: usize = 10;

/// The server's first message.
pub fn greeting(flags: HandshakeFlags) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&MAGIC_NBD.to_be_bytes());
    bytes[8..16].copy_from_slice(&MAGIC_OPTION.to_be_bytes());
    bytes[16..].copy_from_slice(&flags.0.to_be_bytes());
    bytes
}

/// Reads the server's first message. An oldstyle server fails by its magic, one without fixed newstyle by its flags.
pub fn parse_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<HandshakeFlags, WireError> {
    let mut cursor = Cursor::new(bytes);
    expect(cursor.u64()?, MAGIC_NBD)?;
    expect(cursor.u64()?, MAGIC_OPTION)?;
    let flags = HandshakeFlags(cursor.u16()?);
    if !flags.contains(HandshakeFlags::FIXED_NEWSTYLE) {
        return Err(WireError::NotFixedNewstyle { found: flags.0 });
    }
    Ok(flags)
}

/// The client's answer to the greeting.
pub fn client_flags(flags: HandshakeFlags) -> [u8; CLIENT_FLAGS_BYTES] {
    u32::from(flags.0).to_be_bytes()
}

/// Reads the client's answer to the greeting. Flags that were never offered are an error, for which the protocol
/// requires the server to disconnect. A client without fixed newstyle is legal.
pub fn parse_client_flags(bytes: &[u8; CLIENT_FLAGS_BYTES]) -> Result<HandshakeFlags, WireError> {
    let found = u32::from_be_bytes(*bytes);
    match u16::try_from(found) {
        Ok(flags) if HandshakeFlags(flags).without(HandshakeFlags::KNOWN).is_empty() => Ok(HandshakeFlags(flags)),
        Ok(_) | Err(_) => Err(WireError::Field { field: "client flags", found: found.into() }),
    }
}

/// The header of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionHeader {
    /// Which option.
    pub option: OptionCode,
    /// Bytes of data that follow, as the client announces them: up to 2^32 - 1.
    pub length: u32,
}

impl OptionHeader {
    /// The header's bytes.
    pub fn encode(self) -> [u8; OPTION_HEADER_BYTES] {
        let mut bytes = [0; OPTION_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC_OPTION.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.code().to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header.
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<OptionHeader, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u64()?, MAGIC_OPTION)?;
        Ok(OptionHeader { option: OptionCode::from_code(cursor.u32()?), length: cursor.u32()? })
    }
}

/// One whole option: header and data. Panics if the length of the data does not fit into 32 bits: the caller makes the
/// data, not the peer.
pub fn option(option: OptionCode, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("an option's data is below 4 GiB");
    let mut bytes = OptionHeader { option, length }.encode().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

/// The data of ExportName: the name alone.
pub fn parse_export_name(data: &[u8]) -> Result<&str, WireError> {
    string(data)
}

/// The data of Info and Go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportQuery<'a> {
    /// The export's name; empty: the default one.
    pub name: &'a str,
    /// The facts that the client asks for.
    pub infos: Vec<InfoKind>,
}

impl<'a> ExportQuery<'a> {
    /// The option's data. Panics on a name above [`NAME_BYTES_MAX`] or more than 65535 infos: they are the caller's.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.name.len() <= NAME_BYTES_MAX);
        let count = u16::try_from(self.infos.len()).expect("a client asks for few infos");
        let mut bytes = (self.name.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.extend_from_slice(&count.to_be_bytes());
        for info in &self.infos {
            bytes.extend_from_slice(&info.code().to_be_bytes());
        }
        bytes
    }

    /// Reads the option's data.
    pub fn parse(data: &'a [u8]) -> Result<ExportQuery<'a>, WireError> {
        let mut cursor = Cursor::new(data);
        let name_bytes = cursor.u32()? as usize;
        if name_bytes > NAME_BYTES_MAX {
            return Err(WireError::StringTooLong { found: name_bytes });
        }
        let name = cursor.string(name_bytes)?;
        let count = cursor.u16()?;
        // Take the kinds as bytes first, so that nothing is allocated for a count that was only announced.
        let kinds = cursor.bytes(usize::from(count) * 2)?;
        cursor.end()?;
        let (kinds, _) = kinds.as_chunks::<2>();
        Ok(ExportQuery {
            name,
            infos: kinds.iter().map(|&kind| InfoKind::from_code(u16::from_be_bytes(kind))).collect(),
        })
    }
}

/// The header of an option reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub option: OptionCode,
    /// The result.
    pub reply: OptionReply,
    /// Bytes of payload that follow.
    pub length: u32,
}

impl OptionReplyHeader {
    /// The header's bytes.
    pub fn encode(self) -> [u8; OPTION_REPLY_HEADER_BYTES] {
        let mut bytes = [0; OPTION_REPLY_HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC_OPTION_REPLY.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.code().to_be_bytes());
        bytes[12..16].copy_from_slice(&self.reply.code().to_be_bytes());
        bytes[16..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header.
    pub fn parse(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> Result<OptionReplyHeader, WireError> {
        let mut cursor = Cursor::new(bytes);
        expect(cursor.u64()?, MAGIC_OPTION_REPLY)?;
        Ok(OptionReplyHeader {
            option: OptionCode::from_code(cursor.u32()?),
            reply: OptionReply::from_code(cursor.u32()?),
            length: cursor.u32()?,
        })
    }
}

/// Appends one whole option reply: header and payload. Panics if the payload's length exceeds 32 bits.
pub fn push_option_reply(out: &mut Vec<u8>, option: OptionCode, reply: OptionReply, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("an option reply's payload is below 4 GiB");
    out.extend_from_slice(&OptionReplyHeader { option, reply, length }.encode());
    out.extend_from_slice(payload);
}

/// Appends an error reply with a text, which is cut at [`NAME_BYTES_MAX`].
pub fn push_option_error(out: &mut Vec<u8>, option: OptionCode, reply: OptionReply, text: &str) {
    assert!(reply.is_error());
    push_option_reply(out, option, reply, cut(text, NAME_BYTES_MAX).as_bytes());
}

/// The payload of a Server reply: one name of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListEntry<'a> {
    /// The export's name.
    pub name: &'a str,
    /// A longer description, for users.
    pub details: &'a str,
}

impl<'a> ListEntry<'a> {
    /// The payload. Both are cut at [`NAME_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let name = cut(self.name, NAME_BYTES_MAX);
        let mut bytes = (name.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(name.as_bytes());
        bytes.extend_from_slice(cut(self.details, NAME_BYTES_MAX).as_bytes());
        bytes
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<ListEntry<'a>, WireError> {
        let mut cursor = Cursor::new(payload);
        let name_bytes = cursor.u32()? as usize;
        Ok(ListEntry { name: cursor.string(name_bytes)?, details: string(cursor.rest())? })
    }
}

/// Size and abilities of an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Its size in bytes.
    pub size: u64,
    /// Its abilities.
    pub flags: TransmissionFlags,
}

impl ExportInfo {
    /// The answer of ExportName, without its zeroes.
    pub fn encode(self) -> [u8; EXPORT_INFO_BYTES] {
        let mut bytes = [0; EXPORT_INFO_BYTES];
        bytes[..8].copy_from_slice(&self.size.to_be_bytes());
        bytes[8..].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes
    }

    /// Reads the answer of ExportName, without its zeroes. A size above 2^63 - 1 is refused: clients count signed.
    pub fn parse(bytes: &[u8; EXPORT_INFO_BYTES]) -> Result<ExportInfo, WireError> {
        ExportInfo::read(&mut Cursor::new(bytes))
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<ExportInfo, WireError> {
        let info = ExportInfo { size: cursor.u64()?, flags: TransmissionFlags(cursor.u16()?) };
        if i64::try_from(info.size).is_err() {
            return Err(WireError::Field { field: "export size", found: info.size });
        }
        Ok(info)
    }
}

/// The block size constraints of an export, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSizes {
    /// Every offset and length is a multiple of this: a power of two up to 64 KiB.
    pub minimum: u32,
    /// The preferred size: a power of two, at least 512 and the minimum, at most 32 MiB.
    pub preferred: u32,
    /// The largest read or write: a multiple of the minimum.
    pub maximum: u32,
}

impl BlockSizes {
    /// Whether the three fit the protocol's rules; clients hang up if they do not.
    pub fn is_legal(self) -> bool {
        self.minimum.is_power_of_two()
            && self.minimum <= 64 << 10
            && self.preferred.is_power_of_two()
            && (512.max(self.minimum)..=32 << 20).contains(&self.preferred)
            && self.maximum >= self.minimum
            && (self.maximum == u32::MAX || self.maximum.is_multiple_of(self.minimum))
    }
}

/// The payload of an Info reply: one fact about an export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Info<'a> {
    /// Size and flags.
    Export(ExportInfo),
    /// The canonical name.
    Name(&'a str),
    /// A description for users.
    Description(&'a str),
    /// Block sizes.
    BlockSize(BlockSizes),
    /// A kind that is unknown here and ignored.
    Unknown(u16),
}

impl<'a> Info<'a> {
    /// The kind of fact.
    pub fn kind(&self) -> InfoKind {
        match self {
            Info::Export(_) => InfoKind::Export,
            Info::Name(_) => InfoKind::Name,
            Info::Description(_) => InfoKind::Description,
            Info::BlockSize(_) => InfoKind::BlockSize,
            Info::Unknown(code) => InfoKind::from_code(*code),
        }
    }

    /// The payload. Texts are cut at [`NAME_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.kind().code().to_be_bytes().to_vec();
        match self {
            Info::Export(info) => bytes.extend_from_slice(&info.encode()),
            Info::Name(text) | Info::Description(text) => {
                bytes.extend_from_slice(cut(text, NAME_BYTES_MAX).as_bytes());
            }
            Info::BlockSize(sizes) => {
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    bytes.extend_from_slice(&size.to_be_bytes());
                }
            }
            Info::Unknown(_) => {}
        }
        bytes
    }

    /// Reads the payload. Block sizes that break the protocol's rules are refused.
    pub fn parse(payload: &'a [u8]) -> Result<Info<'a>, WireError> {
        let mut cursor = Cursor::new(payload);
        let info = match InfoKind::from_code(cursor.u16()?) {
            InfoKind::Export => Info::Export(ExportInfo::read(&mut cursor)?),
            InfoKind::Name => Info::Name(string(cursor.rest())?),
            InfoKind::Description => Info::Description(string(cursor.rest())?),
            InfoKind::BlockSize => {
                let sizes = BlockSizes { minimum: cursor.u32()?, preferred: cursor.u32()?, maximum: cursor.u32()? };
                if !sizes.is_legal() {
                    return Err(WireError::Field { field: "block sizes", found: sizes.minimum.into() });
                }
                Info::BlockSize(sizes)
            }
            InfoKind::Unknown(code) => {
                cursor.rest();
                Info::Unknown(code)
            }
        };
        cursor.end()?;
        Ok(info)
    }
}

fn expect(found: u64, expected: u64) -> Result<(), WireError> {
    if found == expected { Ok(()) } else { Err(WireError::Magic { found, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greeting_is_the_one_of_the_protocol() {
        let flags = HandshakeFlags::FIXED_NEWSTYLE | HandshakeFlags::NO_ZEROES;
        let bytes = greeting(flags);
        assert_eq!(&bytes, b"NBDMAGICIHAVEOPT\x00\x03");
        assert_eq!(parse_greeting(&bytes), Ok(flags));
        assert_eq!(parse_greeting(b"NBDMAGICIHAVEOPT\x00\x02"), Err(WireError::NotFixedNewstyle { found: 2 }));
        let oldstyle = parse_greeting(b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53\x00\x00");
        assert!(matches!(oldstyle, Err(WireError::Magic { found: 0x0000_4202_8186_1253, .. })));
    }

    #[test]
    fn client_flags_that_were_not_offered_are_refused() {
        assert_eq!(parse_client_flags(&client_flags(HandshakeFlags::KNOWN)), Ok(HandshakeFlags::KNOWN));
        assert_eq!(parse_client_flags(&[0, 0, 0, 0]), Ok(HandshakeFlags::NONE));
        assert!(parse_client_flags(&[0, 0, 0, 4]).is_err());
        assert!(parse_client_flags(&[0, 1, 0, 1]).is_err());
    }

    #[test]
    fn a_go_option_reads_as_it_was_written() {
        let query = ExportQuery { name: "a/b", infos: vec![InfoKind::BlockSize, InfoKind::Unknown(77)] };
        let data = query.encode();
        assert_eq!(data, b"\x00\x00\x00\x03a/b\x00\x02\x00\x03\x00\x4d");
        assert_eq!(ExportQuery::parse(&data), Ok(query));
        for end in 0..data.len() {
            assert!(ExportQuery::parse(&data[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(ExportQuery::parse(&[&data[..], b"x"].concat()), Err(WireError::Excess { found: 1 }));
        let bytes = option(OptionCode::Go, &data);
        let header = OptionHeader::parse(bytes.first_chunk().expect("a header")).expect("a good header");
        assert_eq!(header, OptionHeader { option: OptionCode::Go, length: data.len() as u32 });
    }

    #[test]
    fn names_that_are_long_or_hold_zero_bytes_are_refused() {
        assert_eq!(ExportQuery::parse(b"\xff\xff\xff\xff"), Err(WireError::StringTooLong { found: 0xffff_ffff }));
        assert_eq!(parse_export_name(&[b'a'; 4097]), Err(WireError::StringTooLong { found: 4097 }));
        assert!(parse_export_name(&[b'a'; 4096]).is_ok());
        assert_eq!(parse_export_name(b"ab\0"), Err(WireError::StringInvalid { at: 2 }));
        assert_eq!(parse_export_name(b"a\xff"), Err(WireError::StringInvalid { at: 1 }));
    }

    #[test]
    fn infos_read_as_they_were_written() {
        let sizes = BlockSizes { minimum: 512, preferred: 65_536, maximum: 6 * 5_592_064 / 6 };
        let flags = TransmissionFlags::HAS_FLAGS | TransmissionFlags::SEND_FLUSH;
        for info in [
            Info::Export(ExportInfo { size: 1 << 40, flags }),
            Info::Name("md0"),
            Info::Description("a RAID6"),
            Info::BlockSize(sizes),
            Info::Unknown(9),
        ] {
            assert_eq!(Info::parse(&info.encode()), Ok(info));
        }
        assert!(Info::parse(&Info::BlockSize(BlockSizes { preferred: 3 << 16, ..sizes }).encode()).is_err());
        assert!(Info::parse(&Info::Export(ExportInfo { size: 1 << 63, flags }).encode()).is_err());
    }

    #[test]
    fn a_list_entry_reads_as_it_was_written() {
        let entry = ListEntry { name: "md0", details: "first" };
        assert_eq!(ListEntry::parse(&entry.encode()), Ok(entry));
        assert!(ListEntry::parse(b"\x00\x00\x00\x04abc").is_err());
        let mut bytes = Vec::new();
        push_option_reply(&mut bytes, OptionCode::List, OptionReply::Server, &entry.encode());
        let header = OptionReplyHeader::parse(bytes.first_chunk().expect("a header")).expect("a good header");
        assert_eq!((header.option, header.reply, header.length), (OptionCode::List, OptionReply::Server, 12));
    }

    #[test]
    fn a_long_error_text_is_cut_at_a_whole_character() {
        let mut bytes = Vec::new();
        push_option_error(&mut bytes, OptionCode::Go, OptionReply::ErrorUnknown, &"\u{e9}".repeat(4000));
        assert_eq!(bytes.len(), OPTION_REPLY_HEADER_BYTES + NAME_BYTES_MAX);
        let text = format!("x{}", "\u{e9}".repeat(4000));
        bytes.clear();
        push_option_error(&mut bytes, OptionCode::Go, OptionReply::ErrorUnknown, &text);
        assert_eq!(bytes.len(), OPTION_REPLY_HEADER_BYTES + NAME_BYTES_MAX - 1);
    }
}
