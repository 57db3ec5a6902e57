//! uraid's part of a recovery that it shares with the kernel.
//! Owns: reading, recovering, being stopped in the middle. Not here: which arrays, what the kernel must find (`rebuild`).
//! Invariant: what the array holds afterwards is computed from what it held and what was written, not read back.

use super::host::{self, Served};
use super::{Lab, at, lab_error, output_of};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Of an array larger than two such pieces, only the first and the last are compared. The guest's script does the same.
const PIECE_BYTES: usize = 8 << 20;

/// What a client writes during a recovery: the start of the array, and not whole chunks.
const WRITE_BYTES: u64 = 512 * 999;

/// The first sector, counted from the data offset, of a part that the kernel has recovered. The part holds zeroes.
const SPOILED_AT: u64 = 24576;
const SPOILED: [u8; 4096] = [0xa5; 4096];

/// A recovery that stops at least this far from its start, and four times as far from its end, was stopped in the middle:
/// the kernel must still be at it when it is asked.
const MARGIN_SECTORS: u64 = 8192;

/// Delays are halved and doubled until uraid is stopped in the middle.
const TRIES_MAX: u32 = 12;

/// A copy of 128 MiB that is stopped in the middle.
const COPY_KIB_A_SECOND: u64 = 20_000;
const COPY_TIME: Duration = Duration::from_secs(2);

/// The array as uraid leaves it to the kernel.
pub(super) struct Left {
    /// The sha256 of what uraid read first.
    pub(super) read: String,
    /// The sha256 of what the kernel must read.
    pub(super) wanted: String,
    /// The recovery offset in the new member's superblock; 0 if the recovery was not stopped.
    pub(super) stopped_at: u64,
}

/// The sha256 of the array as `uraid serve` gives it; the members must stay as they are. The array is left in `whole`.
pub(super) fn read(uraid: &Path, folder: &Path, options: &[&str], members: &[PathBuf]) -> Lab<String> {
    let sums = || members.iter().map(|image| host::sha256(image)).collect::<Lab<Vec<String>>>();
    let before = sums()?;
    let served = Served::start(uraid, folder, options, members)?;
    let read = read_served(&served, folder)?;
    served.stop()?;
    if sums()? == before { Ok(read) } else { Ok("a member was changed".to_string()) }
}

/// The sha256 of an array that is being served. It is left in `whole`.
pub(super) fn read_served(served: &Served, folder: &Path) -> Lab<String> {
    host::nbdcopy(&served.uri, &whole(folder).display().to_string())?;
    pieces(folder)
}

/// Recovers a member to the end while a client writes, after a command about one, if there is any.
pub(super) fn recover(
    uraid: &Path,
    folder: &Path,
    members: &[PathBuf],
    read: String,
    command: Option<(&str, &Path)>,
) -> Lab<Left> {
    let served = Served::start(uraid, folder, &[], members)?;
    command.map_or(Ok(()), |(verb, member)| served.change(uraid, verb, member))?;
    write(&served, folder)?;
    served.wait_until_whole(uraid)?;
    served.stop()?;
    Ok(Left { read, wanted: pieces(folder)?, stopped_at: 0 })
}

/// What a part of is done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Recovery,
    /// It begins with the start, and is slowed down as soon as the array is served.
    Resync,
    /// The same of a raid10. It goes through the sectors of the array, and no sector of a member is spoiled for it.
    ResyncOfCopies,
}

/// Recovers a part of `new`, or resyncs a part of the array, while a client writes. What the kernel has recovered must not be recovered again: a part of
/// it is spoiled, must still be so at the end, and is then put right.
pub(super) fn recover_a_part(
    uraid: &Path,
    folder: &Path,
    members: &[PathBuf],
    new: &Path,
    (work, read): (Work, String),
) -> Lab<Left> {
    let begun = Recorded::of(uraid, new)?;
    let Some(from) = begun.recovered.filter(|from| *from > SPOILED_AT + 8) else {
        return lab_error(format!("the kernel recorded {:?} sectors as recovered", begun.recovered));
    };
    let copies: Vec<PathBuf> = members.iter().map(|member| member.with_extension("copy")).collect();
    members.iter().zip(&copies).try_for_each(|(member, copy)| copy_sparse(member, copy))?;
    let place = 512 * (begun.data_offset + SPOILED_AT);
    let mut delay = Duration::from_millis(40);
    let mut seen = Vec::new();
    for _ in 0..TRIES_MAX {
        members.iter().zip(&copies).try_for_each(|(member, copy)| copy_sparse(copy, member))?;
        let file = at(new, std::fs::OpenOptions::new().read(true).write(true).open(new))?;
        let mut right = [0; SPOILED.len()];
        at(new, file.read_exact_at(&mut right, place))?;
        if work != Work::ResyncOfCopies {
            at(new, file.write_all_at(&SPOILED, place))?;
        }
        let served = Served::start_at_once(uraid, folder, &[], members)?;
        if work != Work::Recovery {
            std::thread::sleep(delay);
            served.speed(uraid, 1)?;
        }
        write(&served, folder)?;
        if work == Work::Recovery {
            std::thread::sleep(delay);
        }
        served.stop()?;
        let now = Recorded::of(uraid, new)?;
        seen.push((delay, now.recovered));
        match now.recovered {
            Some(at) if at < from + MARGIN_SECTORS => delay = delay * 2 + Duration::from_millis(1),
            Some(stopped_at) if stopped_at + 4 * MARGIN_SECTORS < begun.size => {
                if work != Work::ResyncOfCopies {
                    let mut found = [0; SPOILED.len()];
                    at(new, file.read_exact_at(&mut found, place))?;
                    if found != SPOILED {
                        return lab_error("uraid has recovered what the kernel had recovered");
                    }
                    at(new, file.write_all_at(&right, place))?;
                }
                return Ok(Left { read, wanted: pieces(folder)?, stopped_at });
            }
            Some(_) | None => delay /= 2,
        }
    }
    lab_error(format!("uraid was never stopped in the middle; from {from} it came to {seen:?}"))
}

/// Copies a part of the second member to `new` while a client writes.
pub(super) fn copy_a_part(uraid: &Path, folder: &Path, members: &[PathBuf], new: &Path, read: String) -> Lab<Left> {
    let served = Served::start(uraid, folder, &[], members)?;
    served.speed(uraid, COPY_KIB_A_SECOND)?;
    served.change(uraid, "replace", &members[1])?;
    write(&served, folder)?;
    std::thread::sleep(COPY_TIME);
    served.stop()?;
    let now = Recorded::of(uraid, new)?;
    match now.recovered {
        Some(stopped_at) if stopped_at >= MARGIN_SECTORS && stopped_at + 4 * MARGIN_SECTORS < now.size => {
            Ok(Left { read, wanted: pieces(folder)?, stopped_at })
        }
        other => lab_error(format!("uraid was not stopped in the middle: it came to {other:?} of {}", now.size)),
    }
}

/// What the superblock of a member says, in sectors. `recovered`: how far it was recovered, or the array resynced.
struct Recorded {
    data_offset: u64,
    size: u64,
    recovered: Option<u64>,
}

impl Recorded {
    fn of(uraid: &Path, member: &Path) -> Lab<Recorded> {
        let text = output_of(Command::new(uraid).args(["examine", "--json"]).arg(member))?;
        let Ok(told) = serde_json::from_str::<serde_json::Value>(&text) else {
            return lab_error(format!("uraid examine --json prints no JSON: {text}"));
        };
        let number = |name: &str| told[0][name].as_u64();
        let (Some(size), Some(data_offset)) = (number("avail_dev_size"), number("data_offset")) else {
            return lab_error(format!("uraid examine tells no size: {text}"));
        };
        Ok(Recorded { data_offset, size, recovered: number("recovery_offset").or_else(|| number("resync_offset")) })
    }
}

fn whole(folder: &Path) -> PathBuf {
    folder.join("whole")
}

/// Writes random bytes to the start of the array, and to `whole`.
pub(super) fn write(served: &Served, folder: &Path) -> Lab<()> {
    let data = folder.join("data");
    host::random_image(&data, WRITE_BYTES)?;
    host::nbdcopy(&data.display().to_string(), &served.uri)?;
    let whole = whole(folder);
    let file = at(&whole, std::fs::OpenOptions::new().write(true).open(&whole))?;
    at(&whole, file.write_all_at(&at(&data, std::fs::read(&data))?, 0))
}

/// The sha256 of what is compared of `whole`.
pub(super) fn pieces(folder: &Path) -> Lab<String> {
    let (whole, pieces) = (whole(folder), folder.join("pieces"));
    let mut bytes = at(&whole, std::fs::read(&whole))?;
    if bytes.len() > 2 * PIECE_BYTES {
        bytes.drain(PIECE_BYTES..bytes.len() - PIECE_BYTES);
    }
    at(&pieces, std::fs::write(&pieces, bytes))?;
    host::sha256(&pieces)
}

fn copy_sparse(from: &Path, to: &Path) -> Lab<()> {
    output_of(Command::new("cp").arg("--sparse=always").args([from, to])).map(|_| ())
}
