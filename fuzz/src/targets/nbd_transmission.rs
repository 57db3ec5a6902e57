//! Requests and replies of NBD, as the server and as the client read them.
//! Owns: every parser of them with 32-bit lengths. Input: the peer's bytes.

use uraid_nbd::{Chunk, ChunkHeader, ChunkKind, ReplyHeader, Request, SimpleReply};

pub(crate) fn run(bytes: &[u8]) {
    if let Some(Ok(request)) = bytes.first_chunk().map(Request::parse) {
        assert_eq!(request.encode(), bytes[..28]);
        place(&request, bytes);
    }
    if let Some(Ok(reply)) = bytes.first_chunk().map(SimpleReply::parse) {
        assert_eq!(reply.encode(), bytes[..16]);
    }
    if let Some(Ok(header)) = bytes.first_chunk().map(ChunkHeader::parse) {
        // Flags without a name are dropped.
        assert_eq!(header.encode()[6..], bytes[6..20]);
    }
    for code in (0..8).chain(0x8000..0x8004) {
        let _ = Chunk::parse(ChunkKind::from_code(code), bytes);
    }
    replies(bytes);
}

/// Content of a reply lies in the request's buffer or is refused.
fn place(request: &Request, bytes: &[u8]) {
    let mut input = crate::input::Input::new(&bytes[28..]);
    let (offset, length) = (input.u64(), input.u32());
    if let Ok(start) = request.place(offset, length) {
        assert!(start as u64 + u64::from(length) <= request.length);
    }
}

/// Everything that a server sends, split as a client does.
fn replies(mut left: &[u8]) {
    while let Ok(Some((header, used))) = ReplyHeader::parse(left) {
        assert!(used > 0 && used <= left.len());
        left = &left[used..];
        match header {
            ReplyHeader::Simple(_) => {}
            ReplyHeader::Chunk(chunk) => {
                let Some((payload, behind)) = left.split_at_checked(chunk.length as usize) else { return };
                if Chunk::parse(chunk.kind, payload).is_err() {
                    return;
                }
                left = behind;
            }
        }
    }
}
