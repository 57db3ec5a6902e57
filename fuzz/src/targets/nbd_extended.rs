//! Extended headers and metadata contexts of NBD, as both ends read them.
//! Owns: every parser of them. Input: the peer's bytes.

use uraid_nbd::{BlockStatus, ExtendedChunkHeader, MetaContext, MetaContextQuery, Request};

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(query) = MetaContextQuery::parse(bytes) {
        assert_eq!(query.encode(), bytes);
    }
    if let Ok(context) = MetaContext::parse(bytes) {
        assert_eq!(context.encode(), bytes);
    }
    if let Ok(status) = BlockStatus::parse(bytes) {
        assert_eq!(status.encode(), bytes);
    }
    if let Ok(status) = BlockStatus::parse_extended(bytes) {
        assert_eq!(status.encode_extended(), bytes);
    }
    if let Some(Ok(request)) = bytes.first_chunk().map(Request::parse_extended) {
        assert_eq!(request.encode_extended(), bytes[..32]);
        assert!(request.payload_bytes(true) <= request.length);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(ExtendedChunkHeader::parse) {
        assert_eq!(header.encode()[6..], bytes[6..32]);
    }
}
