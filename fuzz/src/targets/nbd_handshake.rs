//! The handshake of NBD, as the server and as the client read it.
//! Owns: every parser of it. Input: the peer's bytes.
//! What a parser accepts must encode to the same bytes, where only one encoding exists.

use uraid_nbd::handshake::{
    ExportQuery, Info, ListEntry, OptionHeader, OptionReplyHeader, client_flags, greeting, parse_client_flags,
    parse_export_name, parse_greeting,
};
use uraid_nbd::{ExportInfo, OptionCode};

pub(crate) fn run(bytes: &[u8]) {
    fixed(bytes);
    if let Ok(query) = ExportQuery::parse(bytes) {
        assert_eq!(query.encode(), bytes);
    }
    if let Ok(name) = parse_export_name(bytes) {
        assert_eq!(name.as_bytes(), bytes);
    }
    if let Ok(entry) = ListEntry::parse(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    match Info::parse(bytes) {
        Ok(Info::Unknown(code)) => assert_eq!(bytes[..2], code.to_be_bytes()),
        Ok(info) => assert_eq!(info.encode(), bytes),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    session(bytes);
}

/// Messages of fixed length.
fn fixed(bytes: &[u8]) {
    if let Some(Ok(flags)) = bytes.first_chunk().map(parse_greeting) {
        assert_eq!(greeting(flags), bytes[..18]);
    }
    if let Some(Ok(flags)) = bytes.first_chunk().map(parse_client_flags) {
        assert_eq!(client_flags(flags), bytes[..4]);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(OptionHeader::parse) {
        assert_eq!(header.encode(), bytes[..16]);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(OptionReplyHeader::parse) {
        assert_eq!(header.encode(), bytes[..20]);
    }
    if let Some(Ok(info)) = bytes.first_chunk().map(ExportInfo::parse) {
        assert_eq!(info.encode(), bytes[..10]);
    }
}

/// Everything that a client sends: flags, then options with their data, split as a server does.
fn session(bytes: &[u8]) {
    let Some((flags, mut left)) = bytes.split_first_chunk() else { return };
    if parse_client_flags(flags).is_err() {
        return;
    }
    while let Some((header, behind)) = left.split_first_chunk() {
        let Ok(header) = OptionHeader::parse(header) else { return };
        let Some((data, behind)) = behind.split_at_checked(header.length as usize) else { return };
        left = behind;
        if header.option == OptionCode::ExportName {
            let _ = parse_export_name(data);
        } else if let Ok(query) = ExportQuery::parse(data) {
            assert_eq!(query.encode(), data);
        }
    }
}
