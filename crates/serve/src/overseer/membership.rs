//! `add`, `re-add`, `remove`, `write-mostly` and `failfast` of a running array.
//! Owns: which devices may join, their first bytes, the order over all shards, the words of refusals. Not here: what the
//! array does with a member that joins or leaves (`engine::membership`), superblocks (`uraid_format`).
//! Invariant: every device of a command is claimed and checked before any is changed. What is written to one is durable
//! before a superblock lists it.

use super::Overseer;
use crate::opening::metadata::{self, ClaimError, MetadataError};
use crate::session::message::Message;
use crate::stack::MadeOf;
use crate::stack::roster::MemberPath;
use crate::stack::roster::Seat;
use serde_json::{Value, json};
use std::time::Duration;
use uraid_block::local::{Either, race};
use uraid_block::{IoError, SECTOR_BYTES, Sectors};
use uraid_control::asking;
use uraid_control::client;
use uraid_control::log::{warn, with_causes};
use uraid_control::names;
use uraid_control::protocol::{NewDevice, RpcError};
use uraid_control::words::member_words::{DETACHED, FAILED, MISSING};
use uraid_engine::verdict::Operation;
use uraid_engine::{AddError, FlagError, FormerMember, MemberState, ReAddError, RemoveError, Vacancy};
use uraid_format::bitmap::{BitmapImage, BitmapUnusable};
use uraid_format::signature::Signature;
use uraid_format::{
    FlagChange, Joining, MemberFlag, Superblock, TooSmall, added_superblock, returned_superblock, uuid, writes_before,
};
use uraid_host::{Access, Claimed, Medium, OpenError};

/// How long a device that goes to another array may take to answer its last requests, and how often that is checked.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_PERIOD: Duration = Duration::from_millis(5);

/// The code of an error that [`Overseer::look_at_all`] replaces: the device is claimed already, as the member that the
/// error's text names.
const TWICE: i64 = 0;

/// A device that may join: it is claimed, and nothing of it is changed yet.
struct Candidate {
    name: String,
    claim: Claimed,
    /// Its superblock and bitmap, if it has a superblock.
    former: Option<FormerMember>,
    /// What else it carries.
    marks: Vec<Signature>,
    /// The flags that it gets.
    flags: FlagChange,
}

/// A device that was a spare of an array, and is in none now.
pub(crate) struct ReleasedSpare {
    name: String,
    claim: Claimed,
    flags: Vec<MemberFlag>,
}

fn unreadable(name: &str, source: IoError) -> RpcError {
    refused(name, format!("cannot be read: {source}"))
}

fn refused(name: &str, why: impl std::fmt::Display) -> RpcError {
    RpcError::refused(format!("{name}: {why}"))
}

/// Why a former member does not return, and what helps.
fn not_returned(name: &str, error: ReAddError) -> RpcError {
    let help = match error {
        ReAddError::NoBitmap
        | ReAddError::TooOld { .. }
        | ReAddError::Incomplete { .. }
        | ReAddError::Apart
        | ReAddError::OwnBitmap
        | ReAddError::BadBlocks
        | ReAddError::Shape => ": `uraid add` recovers all of it",
        ReAddError::Shrank { .. } => ": find out why it became smaller",
        ReAddError::NoSlot | ReAddError::Taken { .. } => ": `uraid add` adds it as a spare",
        ReAddError::Ahead { .. } => ": `uraid add --force` overwrites it",
        ReAddError::NotNow(_) | ReAddError::Unrecorded | ReAddError::Bitmap(_) | ReAddError::Superblock(_) => "",
    };
    refused(name, format!("{}{help}", with_causes(&error)))
}

/// The error of a command that has done a part of its work.
fn after(error: RpcError, verb: &str, done: &[String]) -> RpcError {
    match done {
        [] => error,
        done => RpcError { message: format!("{} ({verb} before: {})", error.message, done.join(", ")), ..error },
    }
}

/// A mark that lies outside a member's data and is no md superblock: another program has used the device since it was a
/// member.
fn foreign_mark<'a>(superblock: &Superblock, marks: &'a [Signature]) -> Option<&'a Signature> {
    let data = superblock.data_offset.0 * SECTOR_BYTES as u64
        ..(superblock.data_offset + superblock.data_size).0 * SECTOR_BYTES as u64;
    marks.iter().find(|mark| !mark.kind.is_md() && !data.contains(&mark.at))
}

/// Claims a device and reads what it carries. Blocks the thread.
fn look(name: &str) -> Result<Candidate, RpcError> {
    let claim = metadata::claim_now(name, Access::ReadWrite).map_err(|error| error.with_holder(name));
    let claim = claim.map_err(|error| match &error {
        ClaimError::Twice { first, .. } => RpcError::new(TWICE, first.clone()),
        ClaimError::Open(OpenError::Permission { .. }) => RpcError::refused(format!(
            "{}; the server gave up its privileges when it started, and opens what its user may open",
            with_causes(&error)
        )),
        ClaimError::Open(_) | ClaimError::Held(_) | ClaimError::Name(_) | ClaimError::Silent(_) => {
            RpcError::refused(with_causes(&error))
        }
    })?;
    if matches!(claim.medium(), Medium::Memory | Medium::Null) {
        return Err(refused(name, "is gone when the server ends: a member is a file or a block device"));
    }
    let marks = metadata::signatures(&claim).map_err(|source| unreadable(name, source))?;
    let superblock = match metadata::read(&claim) {
        Ok(superblock) => Some(superblock),
        Err(MetadataError::Io { source, .. }) => return Err(unreadable(name, source)),
        Err(
            MetadataError::Superblock { .. }
            | MetadataError::Partitioned { .. }
            | MetadataError::BadBlocks { .. }
            | MetadataError::Short { .. },
        ) => None,
    };
    let former = superblock.map(|superblock| {
        let bitmap = metadata::bitmap(&claim, &superblock).unwrap_or(Err(BitmapUnusable::NoRoom));
        FormerMember { superblock, device_size: claim.size(), bitmap }
    });
    Ok(Candidate { name: name.to_owned(), claim, former, marks, flags: FlagChange::default() })
}

/// What a device of this size joins with.
fn joining(vacancy: &Vacancy, size: Sectors, uuid: [u8; 16], flags: FlagChange) -> Joining {
    let bytes = vacancy.bitmap.as_ref().map_or(0, |bitmap| bitmap.header().area_bytes());
    let bitmap = Sectors(bytes.div_ceil(SECTOR_BYTES as u64));
    Joining { size, uuid, number: vacancy.number, flags, bitmap }
}

/// Makes a device ready for its superblock: wipes what it carries, writes the empty list of bad blocks, and what the array
/// has beside the superblock: its bitmap, and an empty partial parity log. Blocks the thread.
fn prepare(
    claim: &Claimed,
    marks: &[Signature],
    superblock: &Superblock,
    bitmap: Option<&BitmapImage>,
) -> Result<(), RpcError> {
    let failed = |source: IoError| refused(claim.name(), format!("cannot be written: {source}"));
    metadata::wipe(claim, marks).map_err(|error| RpcError::refused(with_causes(&error)))?;
    let writes = writes_before(superblock, bitmap);
    for (at, bytes) in &writes {
        claim.write_at(at.0 * SECTOR_BYTES as u64, bytes).map_err(failed)?;
    }
    if writes.is_empty() { Ok(()) } else { claim.sync().map_err(failed) }
}

impl Overseer {
    /// Adds devices as spares. A former member that lacks only what the bitmap names gets its slot back instead, as with
    /// mdadm. Returns when every superblock lists them.
    pub(super) async fn add_members(&self, members: &[NewDevice], force: bool) -> Result<Value, RpcError> {
        self.check_can_join()?;
        let level = self.array.layout().level();
        let checked = members.iter().try_for_each(|member| member.flags.check_level(level));
        checked.map_err(|error| refused(self.name(), error))?;
        let (devices, members) = (members, members.iter().map(|member| member.path.clone()).collect::<Vec<String>>());
        // A device that hangs holds up nobody else.
        let mut candidates = self.look_at_all(&members).await?;
        let _one = self.session.seating().await;
        self.check_can_join()?;
        for (candidate, device) in candidates.iter_mut().zip(devices) {
            candidate.flags = device.flags;
            self.check_content(candidate, force)?;
        }
        let vacancy = self.vacancy()?;
        for Candidate { name, claim, flags, .. } in candidates.iter().filter(|candidate| !self.can_return(candidate)) {
            let joining = joining(&vacancy, claim.size(), [0; 16], *flags);
            added_superblock(&vacancy.template, &joining).map_err(|error| refused(name, error))?;
        }
        for (done, candidate) in candidates.into_iter().enumerate() {
            let outcome = match self.can_return(&candidate) {
                true => self.give_back(candidate).await,
                false => self.join(candidate).await,
            };
            outcome.map_err(|error| after(error, "added", &members[..done]))?;
        }
        Ok(self.answer(&members))
    }

    /// Takes back devices that left the array, if they lack only what the bitmap names.
    pub(super) async fn re_add_members(&self, members: &[String]) -> Result<Value, RpcError> {
        self.check_can_join()?;
        let mut candidates = Vec::new();
        for member in members {
            match member.as_str() {
                MISSING => candidates.extend(self.missing_that_can_return().await),
                member => candidates.extend(self.look_at_all(&[member.to_owned()]).await?),
            }
        }
        let _one = self.session.seating().await;
        self.check_can_join()?;
        for candidate in &candidates {
            self.check_re_add(candidate)?;
        }
        let mut returned = Vec::new();
        for candidate in candidates {
            let name = candidate.name.clone();
            self.give_back(candidate).await.map_err(|error| after(error, "re-added", &returned))?;
            returned.push(name);
        }
        Ok(self.answer(&returned))
    }

    /// Former members that are there, and have missed no more than the bitmap records.
    async fn missing_that_can_return(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        for path in self.missing() {
            // One that is gone, or is used elsewhere, is none of those that are meant.
            let looked = self.look_at_all(&[path]).await.unwrap_or_default();
            found.extend(looked.into_iter().filter(|candidate| self.check_re_add(candidate).is_ok()));
        }
        found
    }

    /// Removes spares and failed members, and closes their devices.
    pub(super) async fn remove_members(&self, words: &[String]) -> Result<Value, RpcError> {
        if self.array.status().pass.is_none() {
            self.paths.look(crate::overseer::paths::WAITS_MAX).await;
        }
        let _one = self.session.seating().await;
        let mut indexes = Vec::new();
        for word in words {
            match word.as_str() {
                FAILED => indexes.extend(self.failed()),
                DETACHED => indexes.extend(self.detached().await),
                member => indexes.push(self.to_remove(member)?),
            }
        }
        indexes.sort_unstable();
        indexes.dedup();
        for &index in &indexes {
            if self.array.status().members[index].written_slot().is_some() {
                return Err(self.in_use(index));
            }
        }
        let mut removed = Vec::new();
        for index in indexes {
            self.remove_one(index).await.map_err(|error| after(error, "removed", &removed))?;
            removed.push(self.member_paths(index).path.clone());
        }
        self.say_changes();
        Ok(self.answer(&removed))
    }

    /// Removes a spare or failed member, and closes its device.
    async fn remove_one(&self, index: usize) -> Result<(), RpcError> {
        let outcome = self.array.remove(index).await;
        if self.array.status().members[index] == MemberState::Removed {
            self.let_go(index).await;
        }
        outcome.map_err(|error| match error {
            RemoveError::ReadOnly => RpcError::refused(self.is_read_only_text()),
            RemoveError::InUse | RemoveError::Gone | RemoveError::NotOpen | RemoveError::Frozen(_) => {
                refused(self.member_name(index), with_causes(&error))
            }
        })
    }

    /// The claim of a member's device, if it is one and was not let go.
    pub(crate) fn claim_of(&self, index: usize) -> Option<Claimed> {
        self.running().roster.seat(index).claim()
    }

    /// Whether a device of this size has room for this array's data. `Err(None)`: the array takes no member now.
    pub(crate) fn check_room(&self, size: Sectors) -> Result<(), Option<TooSmall>> {
        let vacancy = self.check_can_join().and_then(|()| self.vacancy()).map_err(|_| None)?;
        let joining = joining(&vacancy, size, [0; 16], FlagChange::default());
        added_superblock(&vacancy.template, &joining).map(|_| ()).map_err(Some)
    }

    /// Removes a spare, and keeps the claim of its device: no other process can get it before another array has it.
    /// Returns when no superblock of this array lists it, and no request of this array to it is left. The caller has the
    /// permit of [`Session::seating`].
    ///
    /// [`Session::seating`]: crate::session::Session::seating
    pub(crate) async fn release_spare(&self, index: usize) -> Result<ReleasedSpare, RpcError> {
        let name = self.member_name(index).to_owned();
        let claim = self.claim_of(index).ok_or_else(|| refused(&name, "has no device of its own"))?;
        let flags = self.array.status().flags[index].clone();
        let removed = self.remove_one(index).await;
        self.say_changes();
        removed?;
        Ok(ReleasedSpare { name, claim, flags })
    }

    /// Adds a device that was a spare of another array. It keeps its flags if this level has them. Returns when every
    /// superblock lists it. The caller has the permit of [`Session::seating`].
    ///
    /// [`Session::seating`]: crate::session::Session::seating
    pub(crate) async fn take_in(&self, spare: ReleasedSpare) -> Result<(), RpcError> {
        let ReleasedSpare { name, claim, flags } = spare;
        // A late request of the other array must not reach the device when this one has it.
        let local = self.session.local();
        let has_answered = async {
            while !claim.is_last_handle() {
                local.sleep(ANSWER_PERIOD).await;
            }
        };
        if let Either::Right(()) = race(has_answered, local.sleep(ANSWER_TIME_MAX)).await {
            return Err(refused(&name, "has not answered all requests of its former array"));
        }
        let (own, own_name) = (claim.clone(), name.clone());
        let marks =
            self.beside(&name, move || metadata::signatures(&own).map_err(|error| unreadable(&own_name, error)));
        let marks = marks.await?;
        let level = self.array.layout().level();
        let kept = flags.into_iter().filter(|flag| flag.check_level(level).is_ok());
        let flags = kept.fold(FlagChange::default(), |flags, flag| flags.with(flag, true));
        self.join(Candidate { name, claim, former: None, marks, flags }).await
    }

    /// Gives members a flag, or takes it away.
    pub(super) async fn set_flag(&self, members: &[String], flag: MemberFlag, is_set: bool) -> Result<Value, RpcError> {
        let indexes = members.iter().map(|member| self.index_of(member)).collect::<Result<Vec<usize>, RpcError>>()?;
        let outcome = self.array.set_flag(&indexes, flag, is_set).await;
        outcome.map_err(|error| match error {
            FlagError::NoMember { member } => refused(self.member_name(member), error),
            FlagError::ReadOnly => RpcError::refused(self.is_read_only_text()),
            FlagError::NoCopies { .. } | FlagError::NotOpen | FlagError::NotInSync | FlagError::Frozen(_) => {
                refused(self.name(), with_causes(&error))
            }
        })?;
        Ok(self.answer(members))
    }

    /// The member that a caller names by its path, or by its slot.
    fn index_of(&self, member: &str) -> Result<usize, RpcError> {
        let unknown = || RpcError::new(RpcError::NO_MEMBER, format!("{member}: no such member or slot"));
        match member.parse::<u16>() {
            Ok(number) => {
                let has_it = |state: &MemberState| state.slot().is_some_and(|slot| slot.0 == number);
                self.array.status().members.iter().position(has_it).ok_or_else(unknown)
            }
            Err(_) => self.member_called(self.index, member).ok_or_else(unknown),
        }
    }

    fn answer(&self, members: &[String]) -> Value {
        json!({ "array": self.name(), "members": members, "slots": self.status().picture() })
    }

    /// Whether the array takes members now.
    fn check_can_join(&self) -> Result<(), RpcError> {
        match &self.running().made_of {
            MadeOf::Devices => self.vacancy().map(|_| ()),
            MadeOf::Arrays(_) => Err(refused(
                self.name(),
                "its members are arrays, and one cannot be added while it runs: stop it and use `uraid serve` with all of \
                 them",
            )),
        }
    }

    fn vacancy(&self) -> Result<Vacancy, RpcError> {
        self.array.vacancy().map_err(|error| match error {
            AddError::ReadOnly => RpcError::refused(self.is_read_only_text()),
            AddError::NoRedundancy { .. }
            | AddError::NotOpen
            | AddError::Frozen(_)
            | AddError::Full { .. }
            | AddError::Superblock(_) => refused(self.name(), with_causes(&error)),
        })
    }

    async fn look_at_all(&self, members: &[String]) -> Result<Vec<Candidate>, RpcError> {
        let mut candidates = Vec::new();
        for name in members {
            let own = name.clone();
            let looked = self.beside(name, move || look(&own)).await;
            candidates.push(looked.map_err(|error| match error.code {
                TWICE => self.claimed_already(name, &error.message),
                _ => error,
            })?);
        }
        Ok(candidates)
    }

    /// Why a device cannot be claimed a second time. A member that was removed keeps its claim until all of its
    /// requests are answered: a late write must not reach the device after it has become a member again.
    fn claimed_already(&self, name: &str, claimed_as: &str) -> RpcError {
        let seats = self.running().roster.seats().zip(self.array.status().members);
        let named = seats.enumerate().filter(|(_, (seat, _))| seat.name == claimed_as);
        match named.map(|(index, (_, state))| (index, state)).last() {
            Some((index, MemberState::Faulty { operation, .. })) => {
                let what = if operation == Operation::Replaced { "was replaced" } else { "has failed" };
                let MemberPath { written, .. } = self.member_paths(index);
                let array = names::printable(self.name());
                refused(name, format!("{what} and is still a member: `uraid remove {array} {written}` first"))
            }
            Some((_, MemberState::Removed)) => refused(
                name,
                "was removed, and has not answered all of its requests yet: try again when it has, or stop the array and \
                 start it again",
            ),
            Some(_) | None if claimed_as == name => refused(name, "is a member already"),
            Some(_) | None => refused(name, format!("is a member already, called {claimed_as}")),
        }
    }

    /// Runs blocking work on a separate thread.
    async fn beside<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T, RpcError> + Send + 'static,
    ) -> Result<T, RpcError> {
        // Without a limit for members, the default counts: the caller waits.
        let time_max = self.session.setup().options.member_timeout.unwrap_or(asking::TIME_MAX);
        let outcome = asking::ask_beside(&self.session.local(), name, time_max, work).await;
        outcome.map_err(RpcError::refused)?
    }

    /// Checks that the device's content may be overwritten. That of a former member of this array may: it belongs to
    /// the array.
    fn check_content(&self, candidate: &Candidate, force: bool) -> Result<(), RpcError> {
        let Candidate { name, former, marks, .. } = candidate;
        let own = &self.running().plan.template.set_uuid;
        let events = self.status().events;
        match former.as_ref().map(|former| &former.superblock) {
            _ if force => Ok(()),
            Some(superblock) if superblock.set_uuid == *own && superblock.events > events => Err(refused(
                name,
                format!(
                    "was a member, and its superblock counts {} events, the array {events}: both have run without the \
                     other; --force goes on and overwrites it",
                    superblock.events
                ),
            )),
            Some(superblock) if superblock.set_uuid == *own => match foreign_mark(superblock, marks) {
                Some(mark) => Err(refused(
                    name,
                    format!("was a member, and carries {mark} now; --force goes on and overwrites it"),
                )),
                None => Ok(()),
            },
            Some(_) | None => match marks.first() {
                Some(first) => Err(refused(name, format!("carries {first}; --force goes on and overwrites it"))),
                None => Ok(()),
            },
        }
    }

    fn check_re_add(&self, candidate: &Candidate) -> Result<(), RpcError> {
        let Candidate { name, former, .. } = candidate;
        let own = &self.running().plan.template.set_uuid;
        let Some(former) = former else {
            return Err(refused(name, "has no superblock, so it never was a member: `uraid add` adds it"));
        };
        let superblock = &former.superblock;
        if superblock.set_uuid != *own {
            let (found, expected) = (uuid::text(&superblock.set_uuid), uuid::text(own));
            let text = format!("belongs to array {found}, expected {expected}: `uraid add --force` overwrites it");
            return Err(refused(name, text));
        }
        if let Some(mark) = foreign_mark(superblock, &candidate.marks) {
            let text =
                format!("carries {mark} now, so its data may be overwritten: `uraid add --force` recovers all of it");
            return Err(refused(name, text));
        }
        self.array.former_slot(former).map(|_| ()).map_err(|error| not_returned(name, error))
    }

    fn can_return(&self, candidate: &Candidate) -> bool {
        candidate.former.as_ref().is_some_and(|former| {
            foreign_mark(&former.superblock, &candidate.marks).is_none() && self.array.former_slot(former).is_ok()
        })
    }

    /// Gives a former member, which was checked, its slot back.
    async fn give_back(&self, candidate: Candidate) -> Result<(), RpcError> {
        let Candidate { name, claim, former, flags, .. } = candidate;
        let former = former.expect("a former member has a superblock");
        let vacancy = self.vacancy()?;
        let superblock = returned_superblock(&former.superblock, &vacancy.template, vacancy.number, flags);
        let index = self.seat(&name, &claim, superblock).await?;
        self.returned.borrow_mut().insert(index);
        let outcome = self.array.re_add(index, &former).await;
        if self.array.status().members[index] == MemberState::Removed {
            self.let_go(index).await;
        }
        self.say_changes();
        outcome.map_err(|error| not_returned(&name, error))
    }

    /// Reserves an index for a device, and gives it to every shard.
    async fn seat(&self, name: &str, claim: &Claimed, superblock: Superblock) -> Result<usize, RpcError> {
        let path = self.beside(name, {
            let name = name.to_owned();
            move || Ok(MemberPath { path: client::member_path(&name), written: name })
        });
        let seat = Seat::new(name, path.await?, &superblock, Some(claim.clone()));
        let (own, shards) = (claim.clone(), self.session.setup().shards);
        self.beside(name, move || {
            own.open_for(shards);
            Ok(())
        })
        .await?;
        let index = self.array.reserve(superblock).map_err(|error| refused(name, with_causes(&error)))?;
        self.running().roster.add(index, seat);
        self.session.seat(|| Message::Install(self.index, index, claim.clone())).await;
        Ok(index)
    }

    /// Adds one device, which was checked.
    async fn join(&self, candidate: Candidate) -> Result<(), RpcError> {
        let Candidate { name, claim, marks, flags, .. } = candidate;
        let vacancy = self.vacancy()?;
        let uuid = *::uuid::Uuid::new_v4().as_bytes();
        let joining = joining(&vacancy, claim.size(), uuid, flags);
        let superblock = added_superblock(&vacancy.template, &joining).map_err(|error| refused(&name, error))?;
        let (own, of_device) = (claim.clone(), superblock.clone());
        self.beside(&name, move || prepare(&own, &marks, &of_device, vacancy.bitmap.as_deref())).await?;
        let index = self.seat(&name, &claim, superblock).await?;
        let added = self.array.add(index).await;
        if added.is_err() {
            self.let_go(index).await;
        }
        self.say_changes();
        let (own, of_array) = (claim.geometry().logical_block, self.array.status().geometry.logical_block);
        if added.is_ok() && own > of_array {
            warn(&format!(
                "{}: {name} has blocks of {} bytes, the array of {}: a smaller write is read-modify-write on it",
                names::printable(self.name()),
                own.bytes(),
                of_array.bytes()
            ));
        }
        added.map_err(|error| refused(&name, with_causes(&error)))
    }

    /// Closes the device of a member that was removed.
    async fn let_go(&self, index: usize) {
        assert_eq!(self.array.status().members[index], MemberState::Removed, "no request reaches it");
        self.session.seat(|| Message::LetGo(self.index, index)).await;
        self.running().roster.seat(index).let_go();
    }

    /// The member that a caller names by path, or by the slot that it had when it failed.
    fn to_remove(&self, member: &str) -> Result<usize, RpcError> {
        let states = self.array.status().members;
        let unknown = || RpcError::new(RpcError::NO_MEMBER, format!("{member}: no such member or slot"));
        if let Ok(number) = member.parse::<u16>() {
            let had_it =
                |state: &MemberState| matches!(state, MemberState::Faulty { slot: Some(slot), .. } if slot.0 == number);
            let works = |state: &MemberState| state.slot().is_some_and(|slot| slot.0 == number);
            return match (states.iter().rposition(had_it), states.iter().position(works)) {
                (Some(index), _) => Ok(index),
                (None, Some(index)) => Err(self.in_use(index)),
                (None, None) => Err(unknown()),
            };
        }
        let index = self.member_called(self.index, member).ok_or_else(unknown)?;
        match states[index] {
            MemberState::Active(_) | MemberState::Recovering { .. } | MemberState::Replacing { .. } => {
                Err(self.in_use(index))
            }
            MemberState::Removed => Err(refused(member, "was removed already")),
            MemberState::Spare | MemberState::Faulty { .. } => Ok(index),
        }
    }

    fn in_use(&self, index: usize) -> RpcError {
        let MemberPath { written, .. } = self.member_paths(index);
        let (name, array) = (self.member_name(index), names::printable(self.name()));
        refused(name, format!("works in the array: `uraid fail {array} {written}` comes first"))
    }
}
