//! Metadata contexts and block status, as both ends write and read them.
//! Owns: the data of ListMetaContext and SetMetaContext, their replies, the payloads of block status.
//! Not here: which contexts exist, where extents come from.
//! Invariant: lists are bounded by the bytes that are there, not by the announced count.
//! Spec: proto.md, "Metadata querying", "Block status chunks".

use crate::cursor::{Cursor, cut};
use crate::{NAME_BYTES_MAX, WireError};

/// The context that says which bytes are allocated and which read as zeroes.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// In `base:allocation`: nothing is stored for the bytes.
pub const STATE_HOLE: u64 = 1;
/// In `base:allocation`: the bytes read as zeroes.
pub const STATE_ZERO: u64 = 2;

/// The data of ListMetaContext and SetMetaContext.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MetaContextQuery<'a> {
    /// The export's name.
    pub name: &'a str,
    /// The queries: whole names (`base:allocation`), or all of a namespace (`base:`). Possibly none.
    pub queries: Vec<&'a str>,
}

impl<'a> MetaContextQuery<'a> {
    /// The option's data. Strings are cut at [`NAME_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_string(&mut bytes, self.name);
        let count = u32::try_from(self.queries.len()).expect("queries are few");
        bytes.extend_from_slice(&count.to_be_bytes());
        for query in &self.queries {
            push_string(&mut bytes, query);
        }
        bytes
    }

    /// Reads the option's data.
    pub fn parse(data: &'a [u8]) -> Result<MetaContextQuery<'a>, WireError> {
        let mut cursor = Cursor::new(data);
        let name = read_string(&mut cursor)?;
        let count = cursor.u32()?;
        let mut queries = Vec::new();
        // Each query has at least a length field, so if the count is too large, the loop ends with the bytes.
        for _ in 0..count {
            queries.push(read_string(&mut cursor)?);
        }
        cursor.end()?;
        Ok(MetaContextQuery { name, queries })
    }
}

/// The payload of a MetaContext reply: one context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaContext<'a> {
    /// Its number in block status chunks; without meaning in a list.
    pub id: u32,
    /// Its name.
    pub name: &'a str,
}

impl<'a> MetaContext<'a> {
    /// The payload. The name is cut at [`NAME_BYTES_MAX`].
    pub fn encode(&self) -> Vec<u8> {
        [&self.id.to_be_bytes()[..], cut(self.name, NAME_BYTES_MAX).as_bytes()].concat()
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<MetaContext<'a>, WireError> {
        let mut cursor = Cursor::new(payload);
        let id = cursor.u32()?;
        Ok(MetaContext { id, name: crate::cursor::string(cursor.rest())? })
    }
}

/// A stretch of bytes in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusExtent {
    /// How many bytes, at least one.
    pub length: u64,
    /// The state; for `base:allocation` the sum of [`STATE_HOLE`] and [`STATE_ZERO`] if they apply.
    pub state: u64,
}

/// The payload of a block status chunk: the extents from the request's offset on, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockStatus {
    /// The context's number.
    pub context: u32,
    /// At least one.
    pub extents: Vec<StatusExtent>,
}

impl BlockStatus {
    /// The payload with 32-bit lengths. Panics on an extent that does not fit: extents of a 32-bit request are never
    /// longer than its length.
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.extents.is_empty());
        let mut bytes = self.context.to_be_bytes().to_vec();
        for extent in &self.extents {
            assert!(extent.length > 0);
            for word in [extent.length, extent.state] {
                bytes.extend_from_slice(&u32::try_from(word).expect("32 bits of a 32-bit request").to_be_bytes());
            }
        }
        bytes
    }

    /// Reads the payload with 32-bit lengths. It is an error if there is no extent, or an empty one.
    pub fn parse(payload: &[u8]) -> Result<BlockStatus, WireError> {
        let mut cursor = Cursor::new(payload);
        let context = cursor.u32()?;
        let mut extents = Vec::new();
        loop {
            let (length, state) = (cursor.u32()?.into(), cursor.u32()?.into());
            extents.push(checked(StatusExtent { length, state })?);
            if cursor.end().is_ok() {
                return Ok(BlockStatus { context, extents });
            }
        }
    }

    /// The payload with 64-bit lengths.
    pub fn encode_extended(&self) -> Vec<u8> {
        assert!(!self.extents.is_empty());
        let count = u32::try_from(self.extents.len()).expect("a reply is bounded");
        let mut bytes = [self.context.to_be_bytes(), count.to_be_bytes()].concat();
        for extent in &self.extents {
            assert!(extent.length > 0);
            bytes.extend_from_slice(&extent.length.to_be_bytes());
            bytes.extend_from_slice(&extent.state.to_be_bytes());
        }
        bytes
    }

    /// Reads the payload with 64-bit lengths. It is an error if the announced count is not the number of extents, if
    /// there is no extent, or if one has length 0.
    pub fn parse_extended(payload: &[u8]) -> Result<BlockStatus, WireError> {
        let mut cursor = Cursor::new(payload);
        let (context, count) = (cursor.u32()?, cursor.u32()?);
        if count == 0 {
            return Err(WireError::Field { field: "extent count", found: 0 });
        }
        let mut extents = Vec::new();
        for _ in 0..count {
            extents.push(checked(StatusExtent { length: cursor.u64()?, state: cursor.u64()? })?);
        }
        cursor.end()?;
        Ok(BlockStatus { context, extents })
    }
}

fn checked(extent: StatusExtent) -> Result<StatusExtent, WireError> {
    match extent.length {
        0 => Err(WireError::Field { field: "extent length", found: 0 }),
        _ => Ok(extent),
    }
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    let text = cut(text, NAME_BYTES_MAX);
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn read_string<'a>(cursor: &mut Cursor<'a>) -> Result<&'a str, WireError> {
    let count = cursor.u32()? as usize;
    if count > NAME_BYTES_MAX {
        return Err(WireError::StringTooLong { found: count });
    }
    cursor.string(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_for_contexts_reads_as_it_was_written() {
        let query = MetaContextQuery { name: "md0", queries: vec!["base:", BASE_ALLOCATION] };
        let data = query.encode();
        assert_eq!(data, b"\0\0\0\x03md0\0\0\0\x02\0\0\0\x05base:\0\0\0\x0fbase:allocation");
        assert_eq!(MetaContextQuery::parse(&data), Ok(query));
        for end in 0..data.len() {
            assert!(MetaContextQuery::parse(&data[..end]).is_err(), "cut at {end}");
        }
        assert_eq!(MetaContextQuery::parse(&[&data[..], b"x"].concat()), Err(WireError::Excess { found: 1 }));
        let hostile = b"\0\0\0\0\xff\xff\xff\xff";
        assert_eq!(MetaContextQuery::parse(hostile), Err(WireError::Truncated { found: 0, expected: 4 }));
        assert!(MetaContextQuery::parse(b"\xff\xff\xff\xff").is_err());
    }

    #[test]
    fn a_context_reads_as_it_was_written() {
        let context = MetaContext { id: 1, name: BASE_ALLOCATION };
        assert_eq!(context.encode(), b"\0\0\0\x01base:allocation");
        assert_eq!(MetaContext::parse(&context.encode()), Ok(context));
        assert!(MetaContext::parse(b"\0\0\0").is_err());
    }

    #[test]
    fn block_status_reads_as_it_was_written_in_both_widths() {
        let hole = StatusExtent { length: 4096, state: STATE_HOLE | STATE_ZERO };
        let status = BlockStatus { context: 1, extents: vec![hole, StatusExtent { length: 512, state: 0 }] };
        let narrow = status.encode();
        assert_eq!(narrow, b"\0\0\0\x01\0\0\x10\0\0\0\0\x03\0\0\x02\0\0\0\0\0");
        assert_eq!(BlockStatus::parse(&narrow).as_ref(), Ok(&status));
        let wide = BlockStatus { context: 1, extents: vec![StatusExtent { length: 5 << 40, ..hole }] };
        let bytes = wide.encode_extended();
        assert_eq!(bytes, b"\0\0\0\x01\0\0\0\x01\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\x03");
        assert_eq!(BlockStatus::parse_extended(&bytes), Ok(wide));
        for end in (0..narrow.len()).filter(|&end| end != 12) {
            assert!(BlockStatus::parse(&narrow[..end]).is_err(), "cut at {end}");
        }
        for end in 0..bytes.len() {
            assert!(BlockStatus::parse_extended(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn empty_extents_and_wrong_counts_are_refused() {
        assert!(BlockStatus::parse(b"\0\0\0\x01\0\0\0\0\0\0\0\x03").is_err(), "an empty extent");
        assert!(BlockStatus::parse_extended(&[0, 0, 0, 1, 0, 0, 0, 0]).is_err(), "no extent");
        let huge = [&b"\0\0\0\x01\xff\xff\xff\xff"[..], &1u64.to_be_bytes(), &[0; 8]].concat();
        assert_eq!(BlockStatus::parse_extended(&huge), Err(WireError::Truncated { found: 0, expected: 8 }));
    }
}
