//! The protocol's numbers and their names.
//! Owns: magics, flags, codes. Not here: messages. Invariant: every code maps to a value and back to itself.
//! Spec: proto.md, "Values".

use std::fmt;
use std::ops::BitOr;

/// The longest string (export name, description, error text) in bytes.
pub const NAME_BYTES_MAX: usize = 4096;

/// The largest read or write of a client that did not ask for block sizes, in bytes.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The smallest read that must be answered in one piece when the client asks for it (DF), in bytes.
pub const UNFRAGMENTED_BYTES: u32 = 64 << 10;

pub(crate) const MAGIC_NBD: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
pub(crate) const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
pub(crate) const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(crate) const MAGIC_REQUEST: u32 = 0x2560_9513;
pub(crate) const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
pub(crate) const MAGIC_CHUNK: u32 = 0x668e_33ef;
pub(crate) const MAGIC_EXTENDED_REQUEST: u32 = 0x21e4_1c71;
pub(crate) const MAGIC_EXTENDED_CHUNK: u32 = 0x6e8a_278c;

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($(#[$flag_doc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct $name(pub $int);

        impl $name {
            /// No flag.
            pub const NONE: $name = $name(0);
            $($(#[$flag_doc])* pub const $flag: $name = $name(1 << $bit);)*
            /// All flags that have a name here.
            pub const KNOWN: $name = $name(0 $(| 1 << $bit)*);

            /// Whether all flags of `other` are set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// The flags that are not in `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// These flags, and those of `other` if `condition` holds.
            pub const fn with_if(self, condition: bool, other: $name) -> $name {
                if condition { $name(self.0 | other.0) } else { self }
            }

            /// Whether no flag is set.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }
        }

        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

flags! {
    /// Abilities of one end in the handshake. The client's have 32 bits on the wire, the upper half must be zero.
    HandshakeFlags(u16) {
        /// Options are answered, unknown ones too.
        FIXED_NEWSTYLE = 0;
        /// The 124 zero bytes after the answer of ExportName are left out.
        NO_ZEROES = 1;
    }
}

flags! {
    /// Abilities of an export.
    TransmissionFlags(u16) {
        /// Always set.
        HAS_FLAGS = 0;
        /// Writes are refused.
        READ_ONLY = 1;
        /// Flush is understood.
        SEND_FLUSH = 2;
        /// Force unit access is understood.
        SEND_FUA = 3;
        /// Seeks are expensive.
        ROTATIONAL = 4;
        /// Trim is understood.
        SEND_TRIM = 5;
        /// Write-zeroes is understood.
        SEND_WRITE_ZEROES = 6;
        /// A client can request a read in one piece.
        SEND_DF = 7;
        /// A flush on one connection covers writes that were answered on any connection.
        CAN_MULTI_CONN = 8;
        /// The size can change.
        SEND_RESIZE = 9;
        /// Cache is understood.
        SEND_CACHE = 10;
        /// A client can ask that a write-zeroes fails if it would be slow.
        SEND_FAST_ZERO = 11;
        /// Block status takes a payload.
        BLOCK_STATUS_PAYLOAD = 12;
    }
}

flags! {
    /// Options of a request.
    CommandFlags(u16) {
        /// Stable before the answer.
        FUA = 0;
        /// Write-zeroes must not punch holes.
        NO_HOLE = 1;
        /// A read is answered in one piece.
        DF = 2;
        /// Block status of one extent.
        REQ_ONE = 3;
        /// Write-zeroes must be fast or fail.
        FAST_ZERO = 4;
        /// The length counts a payload.
        PAYLOAD_LEN = 5;
    }
}

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($(#[$code_doc:meta])* $code:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name {
            $($(#[$code_doc])* $code,)*
            /// A code that has no name here.
            Unknown($int),
        }

        impl $name {
            /// All codes that have a name.
            pub const ALL: &[$name] = &[$($name::$code),*];

            /// The value for a code.
            pub const fn from_code(code: $int) -> $name {
                match code {
                    $($value => $name::$code,)*
                    code => $name::Unknown(code),
                }
            }

            /// The code on the wire.
            pub const fn code(self) -> $int {
                match self {
                    $($name::$code => $value,)*
                    $name::Unknown(code) => code,
                }
            }
        }
    };
}

codes! {
    /// An option of the handshake.
    OptionCode(u32) {
        /// Ends the handshake with this export; has no error answer.
        ExportName = 1;
        /// Ends the handshake without an export.
        Abort = 2;
        /// Names all exports.
        List = 3;
        /// Withdrawn from the protocol.
        PeekExport = 4;
        /// Continues under TLS.
        StartTls = 5;
        /// Asks for facts about an export.
        Info = 6;
        /// Asks for facts about an export and ends the handshake with it.
        Go = 7;
        /// Agrees on structured replies.
        StructuredReply = 8;
        /// Names the metadata contexts.
        ListMetaContext = 9;
        /// Chooses metadata contexts.
        SetMetaContext = 10;
        /// Agrees on headers with 64-bit lengths.
        ExtendedHeaders = 11;
    }
}

codes! {
    /// How an option is answered.
    OptionReply(u32) {
        /// Done.
        Ack = 1;
        /// One export's name.
        Server = 2;
        /// One fact about an export.
        Info = 3;
        /// One metadata context.
        MetaContext = 4;
        /// The option is not known.
        ErrorUnsupported = 0x8000_0001;
        /// The option is forbidden here.
        ErrorPolicy = 0x8000_0002;
        /// The option's data is invalid.
        ErrorInvalid = 0x8000_0003;
        /// The server's platform cannot do it.
        ErrorPlatform = 0x8000_0004;
        /// TLS is required first.
        ErrorTlsRequired = 0x8000_0005;
        /// No such export.
        ErrorUnknown = 0x8000_0006;
        /// The server is about to stop.
        ErrorShutdown = 0x8000_0007;
        /// The client must ask for block sizes.
        ErrorBlockSizeRequired = 0x8000_0008;
        /// The option's data is too long.
        ErrorTooBig = 0x8000_0009;
        /// Extended headers are required first.
        ErrorExtendedHeadersRequired = 0x8000_000a;
    }
}

impl OptionReply {
    /// Whether the option failed.
    pub const fn is_error(self) -> bool {
        self.code() >> 31 == 1
    }
}

codes! {
    /// A kind of fact about an export.
    InfoKind(u16) {
        /// Size and flags; always sent.
        Export = 0;
        /// The canonical name.
        Name = 1;
        /// A description for users.
        Description = 2;
        /// Smallest, preferred and largest block.
        BlockSize = 3;
    }
}

codes! {
    /// A request's command.
    Command(u16) {
        /// Reads bytes.
        Read = 0;
        /// Writes bytes, which follow the request.
        Write = 1;
        /// Ends the connection; has no reply.
        Disconnect = 2;
        /// Makes all answered writes stable.
        Flush = 3;
        /// Discards bytes.
        Trim = 4;
        /// Reads ahead.
        Cache = 5;
        /// Makes bytes zero.
        WriteZeroes = 6;
        /// Asks for extents.
        BlockStatus = 7;
        /// Changes the size.
        Resize = 8;
    }
}

codes! {
    /// Why a request failed. The protocol's own numbers; Linux's errno happen to be the same.
    ErrorCode(u32) {
        /// EPERM.
        NotPermitted = 1;
        /// EIO.
        Io = 5;
        /// ENOMEM.
        NoMemory = 12;
        /// EINVAL.
        Invalid = 22;
        /// ENOSPC.
        NoSpace = 28;
        /// EOVERFLOW.
        Overflow = 75;
        /// ENOTSUP.
        NotSupported = 95;
        /// ESHUTDOWN.
        Shutdown = 108;
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ErrorCode::NotPermitted => out.write_str("not permitted"),
            ErrorCode::Io => out.write_str("input/output error"),
            ErrorCode::NoMemory => out.write_str("out of memory"),
            ErrorCode::Invalid => out.write_str("invalid request"),
            ErrorCode::NoSpace => out.write_str("no space left"),
            ErrorCode::Overflow => out.write_str("too large"),
            ErrorCode::NotSupported => out.write_str("not supported"),
            ErrorCode::Shutdown => out.write_str("the server is about to stop"),
            ErrorCode::Unknown(code) => write!(out, "error {code}"),
        }
    }
}

codes! {
    /// The kind of a chunk of a structured reply.
    ChunkKind(u16) {
        /// Nothing: the last chunk.
        None = 0;
        /// Bytes of a read.
        OffsetData = 1;
        /// Zero bytes of a read, as a length.
        OffsetHole = 2;
        /// Extents.
        BlockStatus = 5;
        /// Extents with 64-bit lengths.
        BlockStatusExtended = 6;
        /// The request failed.
        Error = 0x8001;
        /// The request failed at an offset.
        ErrorOffset = 0x8002;
    }
}

impl ChunkKind {
    /// Whether the request failed; also for unknown error kinds.
    pub const fn is_error(self) -> bool {
        self.code() >> 15 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_maps_to_a_value_and_back() {
        for code in (0..40u32).chain((1 << 31)..(1 << 31) + 20) {
            assert_eq!(OptionCode::from_code(code).code(), code);
            assert_eq!(OptionReply::from_code(code).code(), code);
            assert_eq!(ErrorCode::from_code(code).code(), code);
        }
        for code in 0..=u16::MAX {
            assert_eq!(Command::from_code(code).code(), code);
            assert_eq!(ChunkKind::from_code(code).code(), code);
            assert_eq!(InfoKind::from_code(code).code(), code);
            assert_eq!(ChunkKind::from_code(code).is_error(), code >= 0x8000);
        }
    }
}
