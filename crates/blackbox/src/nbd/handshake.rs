//! Handshake of the independent NBD client: fixed newstyle.
//! Owns: options and their replies. Not here: requests (`nbd`).
//! Invariant: a server cannot make the client allocate more than `TEXT_BYTES_MAX`. Spec: doc/proto.md, "Handshake phase".

use super::{Address, ClientError, Stream, broken};
use std::io::{Read, Write};

const GREETING: u64 = 0x4e42_444d_4147_4943; // NBDMAGIC
const OPTION: u64 = 0x4948_4156_454f_5054; // IHAVEOPT
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const TEXT_BYTES_MAX: u32 = 64 * 1024;

const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const SET_META_CONTEXT: u32 = 10;

const REPLY_ACK: u32 = 1;
const REPLY_SERVER: u32 = 2;
const REPLY_INFO: u32 = 3;
const REPLY_META_CONTEXT: u32 = 4;

/// How to ask for the export.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Negotiate {
    /// `NBD_OPT_GO`.
    Go,
    /// `NBD_OPT_INFO` first, then `NBD_OPT_GO`.
    InfoThenGo,
    /// `NBD_OPT_EXPORT_NAME`, what the oldest clients do.
    ExportName,
}

/// How to negotiate.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which option ends the negotiation.
    pub negotiate: Negotiate,
    /// Ask for structured replies; an error if the server has none.
    pub structured: bool,
    /// Ask for block status of `base:allocation`; an error if the server has none.
    pub allocation: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { negotiate: Negotiate::Go, structured: true, allocation: false }
    }
}

/// The server's information about an export.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Export {
    /// Size in bytes.
    pub bytes: u64,
    /// Transmission flags of the protocol.
    pub flags: u16,
    /// Smallest, preferred and largest length of a request, if the server sent them.
    pub block_sizes: Option<[u32; 3]>,
    /// Whether replies come in chunks.
    pub is_structured: bool,
    /// The number of `base:allocation` in block status, if it was asked for.
    pub allocation: Option<u32>,
}

impl Export {
    /// Only reads are served.
    pub fn is_read_only(&self) -> bool {
        self.flags & 1 << 1 != 0
    }

    /// Flush, FUA, trim, write-zeroes and several connections are all offered.
    pub fn has_everything(&self) -> bool {
        let wanted = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;
        self.flags & wanted == wanted
    }
}

pub(super) fn negotiate(stream: &mut Stream, name: &str, options: &Options) -> Result<Export, ClientError> {
    let has_no_zeroes = greet(stream)?;
    if options.structured {
        send_option(stream, STRUCTURED_REPLY, &[])?;
        match receive_option(stream, STRUCTURED_REPLY)? {
            (REPLY_ACK, _) => {}
            (other, _) => return broken("an option is acknowledged", other.into()),
        }
    }
    let allocation = if options.allocation { Some(choose_allocation(stream, name)?) } else { None };
    let mut export = match options.negotiate {
        Negotiate::ExportName => by_export_name(stream, name, has_no_zeroes)?,
        Negotiate::Go => by_info(stream, name, GO)?,
        Negotiate::InfoThenGo => {
            let told = by_info(stream, name, INFO)?;
            let export = by_info(stream, name, GO)?;
            if told != export {
                return broken("info and go tell the same", told.bytes);
            }
            export
        }
    };
    (export.is_structured, export.allocation) = (options.structured, allocation);
    Ok(export)
}

/// Chooses `base:allocation`; returns its number.
fn choose_allocation(stream: &mut Stream, name: &str) -> Result<u32, ClientError> {
    const CONTEXT: &[u8] = b"base:allocation";
    let mut data = u32::try_from(name.len()).expect("a name is short").to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(1u32.to_be_bytes());
    data.extend(15u32.to_be_bytes());
    data.extend(CONTEXT);
    send_option(stream, SET_META_CONTEXT, &data)?;
    let (reply, data) = receive_option(stream, SET_META_CONTEXT)?;
    let id = match data.split_first_chunk::<4>() {
        Some((id, CONTEXT)) if reply == REPLY_META_CONTEXT => u32::from_be_bytes(*id),
        _ => return broken("the context that was asked for is chosen", reply.into()),
    };
    match receive_option(stream, SET_META_CONTEXT)? {
        (REPLY_ACK, _) => Ok(id),
        (other, _) => broken("an option is acknowledged", other.into()),
    }
}

/// The names of all exports of a server.
pub fn list(address: &Address) -> Result<Vec<String>, ClientError> {
    let mut stream = address.connect()?;
    greet(&mut stream)?;
    send_option(&mut stream, LIST, &[])?;
    let mut names = Vec::new();
    loop {
        match receive_option(&mut stream, LIST)? {
            (REPLY_ACK, _) => break,
            (REPLY_SERVER, data) => {
                let Some((length, rest)) = data.split_first_chunk::<4>() else {
                    return broken("a listed export has a name", data.len() as u64);
                };
                let length = u32::from_be_bytes(*length) as usize;
                let Some(name) = rest.get(..length) else { return broken("a name fits its reply", length as u64) };
                names.push(String::from_utf8_lossy(name).into_owned());
            }
            (other, _) => return broken("a list holds servers", other.into()),
        }
    }
    send_option(&mut stream, ABORT, &[])?;
    Ok(names)
}

/// Exchanges greetings; whether the 124 zeroes may be left out.
fn greet(stream: &mut Stream) -> Result<bool, ClientError> {
    let magic = read_u64(stream)?;
    if magic != GREETING {
        return broken("the server greets with NBDMAGIC", magic);
    }
    let style = read_u64(stream)?;
    if style != OPTION {
        return broken("the server is newstyle", style);
    }
    let flags = read_u16(stream)?;
    if flags & FIXED_NEWSTYLE == 0 {
        return broken("the server is fixed newstyle", flags.into());
    }
    let answer = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES));
    stream.write_all(&answer.to_be_bytes())?;
    Ok(flags & NO_ZEROES != 0)
}

fn by_export_name(stream: &mut Stream, name: &str, has_no_zeroes: bool) -> Result<Export, ClientError> {
    send_option(stream, EXPORT_NAME, name.as_bytes())?;
    let (bytes, flags) = (read_u64(stream)?, read_u16(stream)?);
    if !has_no_zeroes {
        let mut zeroes = [0; 124];
        stream.read_exact(&mut zeroes)?;
    }
    Ok(Export { bytes, flags, ..Export::default() })
}

fn by_info(stream: &mut Stream, name: &str, option: u32) -> Result<Export, ClientError> {
    let length = u32::try_from(name.len()).expect("a name is short");
    let mut data = length.to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    // One request for information: the block sizes.
    data.extend(1u16.to_be_bytes());
    data.extend(3u16.to_be_bytes());
    send_option(stream, option, &data)?;
    let mut export = None;
    let mut block_sizes = None;
    loop {
        let (reply, data) = receive_option(stream, option)?;
        match (reply, data.split_first_chunk::<2>()) {
            (REPLY_ACK, _) => break,
            (REPLY_INFO, Some(([0, 0], rest))) => {
                let Some((bytes, flags)) = rest.split_first_chunk::<8>() else {
                    return broken("export information is 12 bytes", data.len() as u64);
                };
                let Ok(flags) = <[u8; 2]>::try_from(flags) else {
                    return broken("export information is 12 bytes", data.len() as u64);
                };
                export = Some((u64::from_be_bytes(*bytes), u16::from_be_bytes(flags)));
            }
            (REPLY_INFO, Some(([0, 3], rest))) => {
                if rest.len() != 12 {
                    return broken("block size information is 14 bytes", data.len() as u64);
                }
                let size = |n: usize| u32::from_be_bytes(rest[4 * n..][..4].try_into().expect("four bytes"));
                block_sizes = Some([size(0), size(1), size(2)]);
            }
            // The server may send other information unasked.
            (REPLY_INFO, Some(_)) => {}
            (other, _) => return broken("an export is told by information replies", other.into()),
        }
    }
    match export {
        Some((bytes, flags)) => Ok(Export { bytes, flags, block_sizes, ..Export::default() }),
        None => broken("the size is told before the acknowledgement", option.into()),
    }
}

fn send_option(stream: &mut Stream, option: u32, data: &[u8]) -> Result<(), ClientError> {
    let mut bytes = OPTION.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).expect("an option is short").to_be_bytes());
    bytes.extend(data);
    Ok(stream.write_all(&bytes)?)
}

fn receive_option(stream: &mut Stream, option: u32) -> Result<(u32, Vec<u8>), ClientError> {
    let magic = read_u64(stream)?;
    if magic != OPTION_REPLY {
        return broken("an option's reply has its magic", magic);
    }
    let echoed = read_u32(stream)?;
    if echoed != option {
        return broken("a reply names its option", echoed.into());
    }
    let (reply, length) = (read_u32(stream)?, read_u32(stream)?);
    if length > TEXT_BYTES_MAX {
        return broken("a reply is short", length.into());
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    if reply & 1 << 31 != 0 {
        return Err(ClientError::Option { option, reply, text: String::from_utf8_lossy(&data).into_owned() });
    }
    Ok((reply, data))
}

pub(super) fn read_u16(stream: &mut Stream) -> Result<u16, ClientError> {
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

pub(super) fn read_u32(stream: &mut Stream) -> Result<u32, ClientError> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

pub(super) fn read_u64(stream: &mut Stream) -> Result<u64, ClientError> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}
