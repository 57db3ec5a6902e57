//! Checks requests against the offer.
//! Owns: [`check`], [`Work`], [`Refusal`], and the protocol error for each failure.
//! Not here: payloads (`reader`), replies (`connection`), trims and write-zeroes that wait (`clear_queue`).
//! Invariant: accepted work lies inside the export; no number from a client overflows.
//! Spec: proto.md, "Request types", "Error values".

pub(crate) mod clear_queue;

use crate::handshake::export::Offer;
use crate::handshake::{Agreement, Form};
use uraid_block::{ErrorKind, Fua, Range, Sector, Sectors};
use uraid_nbd::words::UNFRAGMENTED_BYTES;
use uraid_nbd::{Command, CommandFlags, ErrorCode, Request};

/// The effect of a trim or write-zeroes on its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clear {
    Trim,
    /// Zeroes that keep their space (NO_HOLE).
    Zeroes,
    /// Zeroes that may give it back.
    Holes,
}

impl Clear {
    /// Of a trim or write-zeroes.
    pub(crate) fn of(request: &Request) -> Clear {
        if request.command == Command::Trim {
            Clear::Trim
        } else if request.flags.contains(CommandFlags::NO_HOLE) {
            Clear::Zeroes
        } else {
            Clear::Holes
        }
    }
}

/// The work on the device for a valid request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    Read(Range),
    Write(Range, Fua),
    Flush,
    Clear(Clear, Range, Fua),
    /// Fill a cache. There is nothing to do: members are read past the page cache, so there is no cache.
    Cache(Range),
    Status {
        range: Range,
        /// Only the first extent is wanted.
        one: bool,
    },
    Disconnect,
}

/// Why a request does not reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("command {found} is not known")]
    Command { found: u16 },
    #[error("command flags are {found:#06x}, expected none but {expected:#06x}")]
    Flags { found: u16, expected: u16 },
    #[error("the export is read-only")]
    ReadOnly,
    #[error("the length is 0")]
    Empty,
    #[error("offset {offset} and length {length} are not multiples of {minimum}")]
    Unaligned { offset: u64, length: u64, minimum: u32 },
    #[error("offset {offset} + length {length} lies past the end of the export at {size}")]
    PastEnd { offset: u64, length: u64, size: u64, is_write: bool },
    #[error("the length is {found}, at most {expected} bytes are served at once")]
    TooLong { found: u64, expected: u32 },
    #[error("offset and length are {offset} and {length}, expected 0")]
    NotZero { offset: u64, length: u64 },
    #[error("block status needs the context base:allocation, which was not chosen in the handshake")]
    NoContext,
    #[error("a write with extended headers needs the flag {:#06x}", CommandFlags::PAYLOAD_LEN.0)]
    NoPayload,
    #[error("zeroes cannot be written faster than data")]
    ZeroesAreSlow,
}

impl Refusal {
    /// The protocol's error for it.
    pub(crate) fn code(self) -> ErrorCode {
        match self {
            Refusal::Command { .. }
            | Refusal::Flags { .. }
            | Refusal::Empty
            | Refusal::Unaligned { .. }
            | Refusal::TooLong { .. }
            | Refusal::NoContext
            | Refusal::NoPayload
            | Refusal::NotZero { .. } => ErrorCode::Invalid,
            Refusal::ReadOnly => ErrorCode::NotPermitted,
            Refusal::PastEnd { is_write: true, .. } => ErrorCode::NoSpace,
            Refusal::PastEnd { is_write: false, .. } => ErrorCode::Invalid,
            Refusal::ZeroesAreSlow => ErrorCode::NotSupported,
        }
    }
}

/// The protocol's error for a device's error.
pub(crate) fn error_code(kind: ErrorKind) -> ErrorCode {
    match kind {
        ErrorKind::Media | ErrorKind::Gone | ErrorKind::TooManyLost | ErrorKind::Frozen | ErrorKind::Late => {
            ErrorCode::Io
        }
        ErrorKind::NoSpace => ErrorCode::NoSpace,
        ErrorKind::ReadOnly => ErrorCode::NotPermitted,
        ErrorKind::OutOfRange => ErrorCode::Invalid,
        ErrorKind::Unsupported => ErrorCode::NotSupported,
        ErrorKind::NoMemory => ErrorCode::NoMemory,
        ErrorKind::Stopping => ErrorCode::Shutdown,
    }
}

/// The work of a request, or why it is refused.
pub(crate) fn check(offer: &Offer, agreement: Agreement, request: &Request) -> Result<Work, Refusal> {
    // FUA is legal everywhere: some clients set it on reads, too.
    let flags = CommandFlags::FUA;
    let fua = if request.flags.contains(CommandFlags::FUA) { Fua::Yes } else { Fua::No };
    match request.command {
        Command::Read => {
            check_flags(request, flags.with_if(agreement.form != Form::Simple, CommandFlags::DF))?;
            let range = check_range(offer, request, false)?;
            check_length(offer, request)?;
            Ok(Work::Read(range))
        }
        Command::Write => {
            let is_extended = agreement.form == Form::Extended;
            check_flags(request, flags.with_if(is_extended, CommandFlags::PAYLOAD_LEN))?;
            if is_extended && !request.flags.contains(CommandFlags::PAYLOAD_LEN) {
                return Err(Refusal::NoPayload);
            }
            check_writable(offer, agreement)?;
            let range = check_range(offer, request, true)?;
            check_length(offer, request)?;
            Ok(Work::Write(range, fua))
        }
        Command::Flush => {
            check_flags(request, flags)?;
            if (request.offset, request.length) != (0, 0) {
                return Err(Refusal::NotZero { offset: request.offset, length: request.length });
            }
            Ok(Work::Flush)
        }
        Command::Trim => {
            check_flags(request, flags)?;
            check_writable(offer, agreement)?;
            Ok(Work::Clear(Clear::of(request), check_range(offer, request, false)?, fua))
        }
        Command::WriteZeroes => {
            check_flags(request, flags | CommandFlags::NO_HOLE | CommandFlags::FAST_ZERO)?;
            check_writable(offer, agreement)?;
            let range = check_range(offer, request, true)?;
            let what = Clear::of(request);
            let is_fast = if what == Clear::Holes { offer.fast_holes } else { offer.fast_zeroes };
            if request.flags.contains(CommandFlags::FAST_ZERO) && !is_fast {
                return Err(Refusal::ZeroesAreSlow);
            }
            Ok(Work::Clear(what, range, fua))
        }
        Command::Cache => {
            check_flags(request, flags)?;
            Ok(Work::Cache(check_range(offer, request, false)?))
        }
        Command::BlockStatus => {
            check_flags(request, flags | CommandFlags::REQ_ONE)?;
            if !agreement.allocation {
                return Err(Refusal::NoContext);
            }
            let one = request.flags.contains(CommandFlags::REQ_ONE);
            Ok(Work::Status { range: check_range(offer, request, false)?, one })
        }
        Command::Disconnect => Ok(Work::Disconnect),
        Command::Resize | Command::Unknown(_) => Err(Refusal::Command { found: request.command.code() }),
    }
}

fn check_flags(request: &Request, allowed: CommandFlags) -> Result<(), Refusal> {
    if request.flags.without(allowed).is_empty() {
        Ok(())
    } else {
        Err(Refusal::Flags { found: request.flags.0, expected: allowed.0 })
    }
}

/// An array that is read-only by command refuses writes itself, those of clients from before that.
fn check_writable(offer: &Offer, agreement: Agreement) -> Result<(), Refusal> {
    if offer.is_read_only() || agreement.read_only { Err(Refusal::ReadOnly) } else { Ok(()) }
}

fn check_length(offer: &Offer, request: &Request) -> Result<(), Refusal> {
    if request.length > offer.payload_max.into() {
        return Err(Refusal::TooLong { found: request.length, expected: offer.payload_max });
    }
    Ok(())
}

fn check_range(offer: &Offer, request: &Request, is_write: bool) -> Result<Range, Refusal> {
    let (offset, length, size) = (request.offset, request.length, offer.info.size);
    if length == 0 {
        return Err(Refusal::Empty);
    }
    let minimum = offer.sizes.minimum;
    if !offset.is_multiple_of(minimum.into()) || !length.is_multiple_of(minimum.into()) {
        return Err(Refusal::Unaligned { offset, length, minimum });
    }
    match offset.checked_add(length) {
        Some(end) if end <= size => {}
        Some(_) | None => return Err(Refusal::PastEnd { offset, length, size, is_write }),
    }
    let start = Sectors::from_bytes(offset).expect("the smallest block is whole sectors");
    let length = Sectors::from_bytes(length).expect("the smallest block is whole sectors");
    let range = Range::new(Sector(start.0), length);
    assert!(!range.length.is_zero());
    assert_eq!(range.end().0.checked_mul(512), offset.checked_add(request.length));
    Ok(range)
}

const _: () = assert!(UNFRAGMENTED_BYTES <= uraid_nbd::words::PAYLOAD_BYTES_MAX, "reads are never fragmented");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Export;
    use uraid_block::Geometry;
    use uraid_nbd::Cookie;

    const SIZE: u64 = 64 << 20;

    fn offer(read_only: bool) -> Offer {
        offer_of(Sectors(SIZE / 512), Sectors(1), read_only)
    }

    fn offer_of(size: Sectors, logical_block: Sectors, read_only: bool) -> Offer {
        let geometry = Geometry {
            size,
            logical_block,
            physical_block: Sectors(8),
            chunk: Sectors(128),
            stripe: Sectors(384),
            io_max: Sectors(1 << 20),
            segments_max: 1024,
            discard_granularity: Sectors(1),
            fast_holes: false,
            fast_zeroes: false,
            volatile_cache: true,
        };
        Offer::new(&Export { name: "x".into(), description: String::new(), read_only }, &geometry, 256 << 20)
    }

    fn ask(command: Command, flags: CommandFlags, offset: u64, length: u64) -> Request {
        Request { flags, command, cookie: Cookie(1), offset, length }
    }

    fn code(offer: &Offer, request: Request) -> Result<(), u32> {
        check(offer, STRUCTURED, &request).map(|_| ()).map_err(|refusal| refusal.code().code())
    }

    const STRUCTURED: Agreement =
        Agreement { form: Form::Structured, allocation: true, export: 0, read_only: false, size: SIZE };
    const PLAIN: CommandFlags = CommandFlags::NONE;
    const EPERM: u32 = 1;
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    const ENOTSUP: u32 = 95;

    #[test]
    fn ranges_outside_of_the_export_are_refused_without_overflow() {
        let offer = offer(false);
        for (command, past_end) in [
            (Command::Read, EINVAL),
            (Command::Write, ENOSPC),
            (Command::Trim, EINVAL),
            (Command::WriteZeroes, ENOSPC),
            (Command::Cache, EINVAL),
            (Command::BlockStatus, EINVAL),
        ] {
            assert_eq!(code(&offer, ask(command, PLAIN, SIZE - 512, 512)), Ok(()));
            for (offset, length) in
                [(SIZE, 512), (SIZE - 512, 1024), (u64::MAX - 511, 512), (0u64.wrapping_sub(512), 1024), (1 << 63, 512)]
            {
                assert_eq!(code(&offer, ask(command, PLAIN, offset, length)), Err(past_end), "{offset:#x} + {length}");
            }
            assert_eq!(code(&offer, ask(command, PLAIN, 0, 0)), Err(EINVAL));
            assert_eq!(code(&offer, ask(command, PLAIN, 1, 512)), Err(EINVAL));
            assert_eq!(code(&offer, ask(command, PLAIN, 0, 513)), Err(EINVAL));
            assert_eq!(code(&offer, ask(command, PLAIN, u64::MAX, u32::MAX.into())), Err(EINVAL));
        }
    }

    #[test]
    fn no_request_reaches_past_any_end_by_a_single_sector() {
        const COMMANDS: [Command; 6] =
            [Command::Read, Command::Write, Command::Trim, Command::WriteZeroes, Command::Cache, Command::BlockStatus];
        // Exports that end at every sector of a page and of the next page, with blocks of a sector and of a page.
        for (size, block) in (64..=80).flat_map(|size| [1, 8].map(|block| (size, block))) {
            let offer = offer_of(Sectors(size), Sectors(block), false);
            let end = size / block * block;
            assert_eq!(offer.info.size, end * 512, "a last block that is not whole is not offered");
            for (at, length) in (size - 20..size + 10).flat_map(|at| (1..=24).map(move |length| (at, length))) {
                for command in COMMANDS {
                    let request = ask(command, PLAIN, at * 512, length * 512);
                    let is_aligned = at.is_multiple_of(block) && length.is_multiple_of(block);
                    let is_good = at + length <= end && is_aligned;
                    let found = check(&offer, STRUCTURED, &request);
                    assert_eq!(found.is_ok(), is_good, "{command:?} of {length} at {at}, of {size} in {block}");
                    if let Ok(
                        Work::Read(range)
                        | Work::Write(range, _)
                        | Work::Clear(_, range, _)
                        | Work::Cache(range)
                        | Work::Status { range, .. },
                    ) = found
                    {
                        assert_eq!(range, Range::new(Sector(at), Sectors(length)));
                    }
                }
            }
        }
    }

    #[test]
    fn fua_reaches_the_work_of_each_command_that_changes_something() {
        let (offer, range) = (offer(false), Range::new(Sector(1), Sectors(1)));
        for (flags, fua) in [(PLAIN, Fua::No), (CommandFlags::FUA, Fua::Yes)] {
            for (command, work) in [
                (Command::Write, Work::Write(range, fua)),
                (Command::Trim, Work::Clear(Clear::Trim, range, fua)),
                (Command::WriteZeroes, Work::Clear(Clear::Holes, range, fua)),
            ] {
                assert_eq!(check(&offer, STRUCTURED, &ask(command, flags, 512, 512)), Ok(work));
            }
        }
    }

    #[test]
    fn each_failure_of_a_device_is_the_error_that_clients_know_for_it() {
        for (kind, code) in [
            (ErrorKind::Media, 5),
            (ErrorKind::Gone, 5),
            (ErrorKind::TooManyLost, 5),
            (ErrorKind::Frozen, 5),
            (ErrorKind::NoSpace, ENOSPC),
            (ErrorKind::ReadOnly, EPERM),
            (ErrorKind::OutOfRange, EINVAL),
            (ErrorKind::Unsupported, ENOTSUP),
            (ErrorKind::NoMemory, 12),
            (ErrorKind::Stopping, 108),
            (ErrorKind::Late, 5),
        ] {
            assert_eq!(error_code(kind).code(), code, "{kind:?}");
        }
    }

    #[test]
    fn payloads_are_bounded_but_trims_and_zeroes_are_not() {
        let offer = offer(false);
        for command in [Command::Read, Command::Write] {
            assert_eq!(code(&offer, ask(command, PLAIN, 0, 32 << 20)), Ok(()));
            assert_eq!(code(&offer, ask(command, PLAIN, 0, (32 << 20) + 512)), Err(EINVAL));
        }
        for command in [Command::Trim, Command::WriteZeroes] {
            assert_eq!(code(&offer, ask(command, PLAIN, 0, SIZE)), Ok(()));
        }
    }

    #[test]
    fn a_read_only_export_permits_reads_and_flushes() {
        let offer = offer(true);
        for command in [Command::Write, Command::Trim, Command::WriteZeroes] {
            assert_eq!(code(&offer, ask(command, PLAIN, 0, 512)), Err(EPERM));
        }
        assert_eq!(code(&offer, ask(Command::Read, CommandFlags::FUA, 0, 512)), Ok(()));
        assert_eq!(code(&offer, ask(Command::Flush, PLAIN, 0, 0)), Ok(()));
        assert_eq!(code(&offer, ask(Command::Flush, PLAIN, 0, 1)), Err(EINVAL));
    }

    #[test]
    fn flags_are_refused_where_they_have_no_meaning() {
        let offer = offer(false);
        for bit in 0..16 {
            let flag = CommandFlags(1 << bit);
            let refused = |allowed: CommandFlags| if allowed.contains(flag) { Ok(()) } else { Err(EINVAL) };
            let zeroes = CommandFlags::FUA | CommandFlags::NO_HOLE;
            let read = CommandFlags::FUA | CommandFlags::DF;
            assert_eq!(code(&offer, ask(Command::Read, flag, 0, 512)), refused(read));
            assert_eq!(code(&offer, ask(Command::Write, flag, 0, 512)), refused(CommandFlags::FUA));
            assert_eq!(code(&offer, ask(Command::Trim, flag, 0, 512)), refused(CommandFlags::FUA));
            let expected = if flag == CommandFlags::FAST_ZERO { Err(ENOTSUP) } else { refused(zeroes) };
            assert_eq!(code(&offer, ask(Command::WriteZeroes, flag, 0, 512)), expected);
        }
        let without_structured = check(
            &offer,
            Agreement { form: Form::Simple, ..STRUCTURED },
            &ask(Command::Read, CommandFlags::DF, 0, 512),
        );
        assert!(matches!(without_structured, Err(Refusal::Flags { .. })));
    }

    #[test]
    fn fast_zeroes_are_refused_where_they_are_no_faster_than_data() {
        let ways = [CommandFlags::FAST_ZERO, CommandFlags::FAST_ZERO | CommandFlags::NO_HOLE];
        for (fast_holes, fast_zeroes) in [(false, false), (true, false), (true, true)] {
            let offer = Offer { fast_holes, fast_zeroes, ..offer(false) };
            let found = ways.map(|flags| code(&offer, ask(Command::WriteZeroes, flags, 0, 512)));
            assert_eq!(found, [fast_holes, fast_zeroes].map(|is_fast| if is_fast { Ok(()) } else { Err(ENOTSUP) }));
        }
    }

    #[test]
    fn unknown_commands_are_invalid() {
        let offer = offer(false);
        for command in [Command::Resize, Command::Unknown(0xffff)] {
            assert_eq!(code(&offer, ask(command, PLAIN, 0, 512)), Err(EINVAL));
        }
    }

    #[test]
    fn block_status_needs_its_context() {
        let offer = offer(true);
        let request = ask(Command::BlockStatus, CommandFlags::REQ_ONE, 0, SIZE);
        let range = Range::new(Sector(0), Sectors(SIZE / 512));
        assert_eq!(check(&offer, STRUCTURED, &request), Ok(Work::Status { range, one: true }));
        let refused = check(&offer, Agreement { allocation: false, ..STRUCTURED }, &request);
        assert_eq!(refused, Err(Refusal::NoContext));
    }

    #[test]
    fn extended_writes_say_that_a_payload_follows_and_no_other_command_does() {
        let (offer, extended) = (offer(false), Agreement { form: Form::Extended, ..STRUCTURED });
        for command in [Command::Write, Command::Read, Command::BlockStatus, Command::Trim, Command::Flush] {
            let request = ask(command, CommandFlags::PAYLOAD_LEN, 0, 512);
            assert_eq!(check(&offer, extended, &request).is_ok(), command == Command::Write, "{command:?}");
            assert!(check(&offer, STRUCTURED, &request).is_err());
        }
        let without = check(&offer, extended, &ask(Command::Write, PLAIN, 0, 512));
        assert_eq!(without, Err(Refusal::NoPayload));
        for length in [u64::MAX, u64::MAX - 511, 1 << 63, SIZE + 512] {
            assert!(check(&offer, extended, &ask(Command::Trim, PLAIN, 512, length)).is_err());
        }
    }
}
