//! One episode: an array is written to, killed, damaged, started again and read.
//! Owns: the order of all that, and what a start must do in each state. Not here: file operations (`damage`), bytes
//! (`model`).
//! Invariant: only damage for which every answer is defined; a start that must be refused is tried, and changes nothing.
//!
//! ```text
//!   start ──► read all ──► clients write ──► kill -9 ──► damage, refusals, read-only starts ──► start ...
//!               ▲                └─ sometimes a member fails, sometimes SIGTERM instead ─┘
//! ```

use super::damage::{self, AWAY, Loss, Untouched};
use super::figures::Figures;
use super::shapes::{Kind, member_sectors};
use super::trouble::Trouble;
use crate::members::scratch::{Scratch, Shape, create, create_with};
use crate::members::superblock;
use crate::nbd::{ClientError, Connection, Options};
use crate::programs::binary::uraid;
use crate::programs::server::Server;
use crate::random::Random;
use crate::sectors::model::{Model, Survey};
use crate::sectors::writers::{SharedModel, Workload, WriterError, Writers, inspect, lock, survey};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const FOREIGN: Shape = Shape { level: "raid1", layout: "", members: 2, tolerates: 1, chunk: "", member_mib: 6 };

/// The place of a member, and whether the array still expects it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Member {
    /// Given at every start.
    Present(PathBuf),
    /// The array continues without it; its remains are sometimes given again.
    Lost(PathBuf),
    /// Not given again, because uraid could rightly refuse the whole array.
    Banned,
}

pub(super) struct Episode {
    kind: Kind,
    scratch: Scratch,
    members: Vec<Member>,
    foreign: PathBuf,
    model: SharedModel,
    random: Random,
    figures: Figures,
    /// A member was lost that the superblocks still list.
    has_unrecorded_loss: bool,
    was_stopped: bool,
    log: Vec<String>,
}

fn conduct<T>(text: String) -> Result<T, Trouble> {
    Err(Trouble::Conduct(text))
}

fn lost(error: WriterError) -> Trouble {
    match error {
        WriterError::Wrong(first) => Trouble::Lost { sectors: 1, first },
        WriterError::Client(error) => Trouble::Conduct(format!("a client met an error: {error}")),
    }
}

impl Episode {
    /// Makes the array of this number.
    pub(super) fn new(index: u64, seed: u64) -> Episode {
        let mut random = Random(seed);
        let kind = Kind::choose(index, &mut random);
        let scratch = Scratch::new();
        let other = Scratch::new();
        let made = create(&other, "foreign", &FOREIGN);
        let foreign = scratch.file("foreign");
        std::fs::copy(&made[0], &foreign).expect("both folders are ours");
        let members = create_with(&scratch, "storm", &kind.shape, &["--metadata", kind.place.metadata()]);
        let server = Server::start(scratch.path(), &members, &[]);
        let connection = Connection::open(server.address(), &Options::default()).expect("a server");
        let model = Arc::new(Mutex::new(Model::new(connection.export().bytes / 512)));
        drop(connection);
        server.stop();
        let log = vec![kind.name()];
        let members = members.into_iter().map(Member::Present).collect();
        let figures = Figures { arrays: 1, ..Figures::default() };
        let (has_unrecorded_loss, was_stopped) = (false, true);
        Episode { kind, scratch, members, foreign, model, random, figures, has_unrecorded_loss, was_stopped, log }
    }

    /// Runs through this many kills, or until `is_over`.
    pub(super) fn run(&mut self, kills: u64, is_over: &dyn Fn() -> bool) -> Result<(), Trouble> {
        while self.figures.kill_cycles < kills && !is_over() {
            let server = self.start()?;
            self.read_all(&server)?;
            self.write_and_end(server)?;
            self.between_runs()?;
        }
        let server = self.start()?;
        self.read_all(&server)?;
        self.write_and_end_gently(server)?;
        self.look_without_each()
    }

    pub(super) fn figures(&self) -> &Figures {
        &self.figures
    }

    /// The steps so far, for a failure.
    pub(super) fn log(&self) -> String {
        self.log.join("; ")
    }

    /// The paths of the members that the array needs.
    pub(super) fn present(&self) -> Vec<PathBuf> {
        self.members.iter().filter_map(Episode::path_if_present).collect()
    }

    /// Where a member keeps its superblock.
    pub(super) fn superblock_bytes(&self) -> Range<usize> {
        let at = self.kind.place.byte(member_sectors(&self.kind.shape) * 512) as usize;
        at..at + superblock::BYTES
    }

    /// One whole run.
    pub(super) fn write_and_stop(&mut self) -> Result<(), Trouble> {
        let server = self.start()?;
        self.write_and_end_gently(server)
    }

    fn path_if_present(member: &Member) -> Option<PathBuf> {
        match member {
            Member::Present(path) => Some(path.clone()),
            Member::Lost(_) | Member::Banned => None,
        }
    }

    /// Slots that are lost.
    fn lost(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|slot| Episode::path_if_present(&self.members[*slot]).is_none()).collect()
    }

    fn note(&mut self, what: impl Into<String>) {
        self.log.push(what.into());
    }

    // ---- starting

    /// Whether the freshest superblock says that the array needs a resync.
    fn is_dirty(&self) -> bool {
        let says =
            self.present().into_iter().filter_map(|path| superblock::read(&path, self.kind.place).ok().flatten());
        let says: Vec<_> = says.collect();
        let events = says.iter().map(|one| one.events).max();
        self.kind.has_redundancy() && says.iter().any(|one| Some(one.events) == events && one.is_dirty)
    }

    /// Starts the array with the options that its state requires, after trying the starts that must be refused.
    fn start(&mut self) -> Result<Server, Trouble> {
        let (tries_without, gives_back) = (self.random.one_in(2), self.random.one_in(2));
        let mut given = self.present();
        self.shuffle(&mut given);
        damage::wait_until_free(given.iter().map(PathBuf::as_path));
        let mut extra: Vec<&str> = vec!["--shards", self.kind.shards];
        if self.has_unrecorded_loss {
            if tries_without {
                self.refuse(&given, &extra, "--run to start degraded")?;
            }
            extra.push("--run");
        }
        let remains = self.remains();
        if gives_back && !remains.is_empty() {
            self.figures.stale_given += remains.len() as u64;
            self.note("what is left of lost members is given");
            given.extend(remains.iter().cloned());
            self.shuffle(&mut given);
        }
        let is_forced = self.is_dirty() && self.kind.guesses_without(&self.lost());
        if is_forced {
            self.refuse(&given, &extra, "dirty and degraded")?;
            extra.push("--force");
            let doubtful = lock(&self.model).doubt_stripes(self.kind.stripe_sectors());
            self.figures.forced += 1;
            self.note(format!("forced, {doubtful} sectors in doubt"));
        }
        match Server::try_start(self.scratch.path(), &given, &extra) {
            Ok(server) => {
                // The model takes what was read once as decided, which holds when all copies agree. A kill in the middle
                // of a resync is for the simulator.
                server.wait_until_consistent();
                self.has_unrecorded_loss = false;
                let said = server.log();
                let is_told = |path: &PathBuf| said.contains(&file_name(path));
                match remains.iter().filter(|path| given.contains(path)).find(|path| !is_told(path)) {
                    Some(path) => conduct(format!("{} was given, and nothing is said of it: {said}", path.display())),
                    None => Ok(server),
                }
            }
            Err(not_ready) => conduct(format!("not started with {extra:?}: {not_ready}")),
        }
    }

    /// The remains of lost members that may be given at a start: no intact ones, which would count as present.
    fn remains(&self) -> Vec<PathBuf> {
        let is_whole = |path: &Path| self.has_unrecorded_loss && path.extension().is_some_and(|word| word == AWAY);
        let left = self.members.iter().filter_map(|member| match member {
            Member::Lost(path) if !is_whole(path) => Some(path.clone()),
            Member::Lost(_) | Member::Present(_) | Member::Banned => None,
        });
        left.collect()
    }

    fn shuffle(&mut self, paths: &mut [PathBuf]) {
        for last in (1..paths.len()).rev() {
            paths.swap(last, self.random.below(last as u64 + 1) as usize);
        }
    }

    /// A start that must end with exit code 1 and these words, and change nothing.
    fn refuse(&mut self, given: &[PathBuf], extra: &[&str], words: &str) -> Result<(), Trouble> {
        let before = Untouched::of(given);
        match Server::try_start(self.scratch.path(), given, extra) {
            Ok(_) => return conduct(format!("started with {extra:?}, expected a refusal: {words}")),
            Err(not_ready) if not_ready.code == Some(1) && not_ready.said.contains(words) => {}
            Err(not_ready) => return conduct(format!("expected a refusal with {words:?}, found {not_ready}")),
        }
        if let Some(change) = before.changes() {
            return conduct(format!("a start refused with {words:?} changed {change}"));
        }
        self.figures.refused += 1;
        Ok(())
    }

    // ---- running

    /// Reads everything; later reads must return the same.
    fn read_all(&mut self, server: &Server) -> Result<(), Trouble> {
        self.judge(survey(server.address(), &self.model))
    }

    fn judge(&mut self, survey: Result<Survey, ClientError>) -> Result<(), Trouble> {
        let survey = survey.map_err(|error| Trouble::Conduct(format!("reading everything: {error}")))?;
        self.figures.verified_sectors += survey.sectors;
        self.figures.open_sectors += survey.open;
        match survey.first_wrong {
            Some(first) => Err(Trouble::Lost { sectors: survey.wrong, first }),
            None => Ok(()),
        }
    }

    fn writers(&mut self, server: &Server) -> Writers {
        let (writers, depth) = (1 + self.random.below(4), 1 + self.random.below(8) as usize);
        let workload = Workload { writers, depth, seed: self.random.number() };
        Writers::start(server.address(), &self.model, workload)
    }

    /// Adds what a run did to the figures.
    fn count_run(&mut self, ended: Result<u64, WriterError>) -> Result<(), Trouble> {
        self.figures.requests += ended.map_err(lost)?;
        let mut model = lock(&self.model);
        if model.remember_in_flight() > 0 {
            self.figures.kills_with_open_writes += 1;
        }
        (self.figures.acknowledged_bytes, self.figures.flushed_bytes) =
            (model.acknowledged_bytes(), model.flushed_bytes());
        Ok(())
    }

    /// Clients write; a member may fail; then kill -9, or SIGTERM now and then.
    fn write_and_end(&mut self, server: Server) -> Result<(), Trouble> {
        let (requests, pause) = (20 + self.random.below(200), self.random.below(10_000));
        let (fails, slot, is_killed) = (self.random.one_in(8), self.random.below(64) as usize, !self.random.one_in(4));
        let writers = self.writers(&server);
        writers.wait_for(requests);
        let slot = slot % self.members.len();
        if fails
            && let Member::Present(path) = self.members[slot].clone()
            && self.can_lose(slot)
        {
            server.fail(&path);
            self.members[slot] = Member::Lost(path);
            self.figures.failed_under_load += 1;
            self.note(format!("slot {slot} fails under load"));
            writers.wait_for(20);
        }
        std::thread::sleep(Duration::from_micros(pause));
        if is_killed {
            server.kill();
            self.figures.kill_cycles += 1;
            self.was_stopped = false;
            self.note("killed");
            self.count_run(writers.end(true))
        } else {
            self.end_gently(server, writers)
        }
    }

    fn write_and_end_gently(&mut self, server: Server) -> Result<(), Trouble> {
        let writers = self.writers(&server);
        writers.wait_for(150);
        self.end_gently(server, writers)
    }

    fn end_gently(&mut self, server: Server, writers: Writers) -> Result<(), Trouble> {
        self.count_run(writers.end(false))?;
        server.stop();
        self.figures.clean_stops += 1;
        self.was_stopped = true;
        self.note("stopped");
        // A clean stop flushes.
        let mut model = lock(&self.model);
        let mark = model.begin_flush();
        model.answer_flush(mark);
        self.figures.flushed_bytes = model.flushed_bytes();
        drop(model);
        if self.is_dirty() { conduct("dirty after a clean stop".into()) } else { Ok(()) }
    }

    // ---- between runs

    fn can_lose(&self, slot: usize) -> bool {
        let mut lost = self.lost();
        lost.push(slot);
        !self.has_unrecorded_loss && self.kind.can_do_without(&lost)
    }

    /// All choices are drawn in every state, so that the seed alone decides them.
    fn between_runs(&mut self) -> Result<(), Trouble> {
        let (trick, one, other) = (self.random.below(8), self.random.number() as usize, self.random.number() as usize);
        let (loses, slot, how) = (self.random.one_in(3), self.random.number() as usize, self.random.below(5) as usize);
        damage::wait_until_free(self.present().iter().map(PathBuf::as_path));
        match trick {
            0 | 1 => self.swap_names(one, other),
            2 => self.give_a_duplicate(one)?,
            3 => self.give_too_few()?,
            4 => self.give_a_foreign_one()?,
            5 => self.split_brain(one)?,
            6 => self.look(&[])?,
            _ => {
                let hidden = one % self.members.len();
                if self.was_stopped && self.can_lose(hidden) { self.look(&[hidden])? } else { self.look(&[])? }
            }
        }
        let slot = slot % self.members.len();
        if loses
            && let Member::Present(path) = self.members[slot].clone()
            && self.can_lose(slot)
        {
            self.lose(slot, &path, Loss::ALL[how]);
        }
        Ok(())
    }

    fn lose(&mut self, slot: usize, path: &Path, how: Loss) {
        let left = damage::lose(path, how, self.kind.place, &mut self.random);
        self.members[slot] = Member::Lost(left);
        self.has_unrecorded_loss = true;
        match how {
            Loss::Away => self.figures.taken_away += 1,
            Loss::Zeroed | Loss::Noise | Loss::Bit | Loss::Cut => self.figures.corrupted += 1,
        }
        self.note(format!("slot {slot} is lost: {how:?}"));
    }

    fn swap_names(&mut self, one: usize, other: usize) {
        let (one, other) = (one % self.members.len(), other % self.members.len());
        let paths = (self.members[one].clone(), self.members[other].clone());
        if let (Member::Present(first), Member::Present(second)) = paths
            && one != other
        {
            damage::swap(&first, &second);
            self.members.swap(one, other);
            self.figures.swapped += 2;
            self.note(format!("{one} and {other} swap names"));
        }
    }

    /// Gives a copy of a member in addition: which of the two is right cannot be known.
    fn give_a_duplicate(&mut self, one: usize) -> Result<(), Trouble> {
        let mut given = self.present();
        let copy = damage::copy(&given[one % given.len()], "copy");
        given.push(copy.clone());
        self.note("a duplicate is given");
        self.refuse(&given, &["--run", "--force"], "are both for the same place")?;
        std::fs::remove_file(copy).expect("it is our file");
        Ok(())
    }

    /// One member fewer than needed to serve.
    fn give_too_few(&mut self) -> Result<(), Trouble> {
        let mut given = self.present();
        let lost = self.members.len() - given.len();
        let hidden = usize::from(self.kind.shape.tolerates) + 1 - lost;
        if hidden >= given.len() || self.kind.shape.level == "raid10" {
            return Ok(());
        }
        given.truncate(given.len() - hidden);
        self.note("too few are given");
        self.refuse(&given, &["--run", "--force"], "cannot start the array")
    }

    /// Another array's member among ours.
    fn give_a_foreign_one(&mut self) -> Result<(), Trouble> {
        let mut given = self.present();
        if given.len() < 2 || !self.was_stopped || self.has_unrecorded_loss {
            return Ok(());
        }
        given.push(self.foreign.clone());
        self.note("a foreign member is given");
        self.look_at(&given, &[])
    }

    /// Each half of a mirror runs without the other: both together are refused.
    fn split_brain(&mut self, one: usize) -> Result<(), Trouble> {
        let apart = one % self.members.len();
        let is_whole = self.kind.shape.level == "raid1" && self.lost().is_empty() && self.was_stopped;
        let Member::Present(path) = self.members[apart].clone() else { return Ok(()) };
        if !is_whole {
            return Ok(());
        }
        self.look(&[])?;
        self.note(format!("slot {apart} runs apart"));
        let theirs = Arc::new(Mutex::new(lock(&self.model).clone()));
        let ours = std::mem::replace(&mut self.model, theirs);
        let others = std::mem::replace(&mut self.members, vec![Member::Present(path.clone())]);
        self.has_unrecorded_loss = true;
        let ran = self.write_and_stop();
        (self.model, self.members) = (ours, others);
        ran?;
        self.members[apart] = Member::Banned;
        self.has_unrecorded_loss = true;
        self.write_and_stop()?;
        let mut given = self.present();
        given.push(path);
        self.refuse(&given, &["--run"], "split brain")
    }

    // ---- read-only starts

    /// Reads everything with these slots hidden.
    pub(super) fn look(&mut self, hidden: &[usize]) -> Result<(), Trouble> {
        let shown = (0..self.members.len()).filter(|slot| !hidden.contains(slot));
        let given: Vec<PathBuf> = shown.filter_map(|slot| Episode::path_if_present(&self.members[slot])).collect();
        let is_refused = self.is_dirty() && self.kind.guesses_without(&[hidden, &self.lost()].concat());
        if self.has_unrecorded_loss || is_refused {
            return Ok(());
        }
        self.look_at(&given, hidden)
    }

    fn look_at(&mut self, given: &[PathBuf], hidden: &[usize]) -> Result<(), Trouble> {
        let before = Untouched::of(given);
        let extra: &[&str] = if hidden.is_empty() { &["--read-only"] } else { &["--read-only", "--run"] };
        let server = match Server::try_start(self.scratch.path(), given, extra) {
            Ok(server) => server,
            Err(not_ready) => return conduct(format!("not started read-only without {hidden:?}: {not_ready}")),
        };
        self.note(format!("a look without {hidden:?}"));
        // The copies may still differ, and the one that was read may be lost next: md guarantees no more.
        let is_open = self.is_dirty();
        if is_open { self.judge(inspect(server.address(), &self.model)) } else { self.read_all(&server) }?;
        server.stop();
        self.figures.looks += 1;
        match before.traces() {
            None => Ok(()),
            Some(change) => conduct(format!("a read-only start changed {change}")),
        }
    }

    /// Checks redundancy: everything can be read without any one of the members.
    fn look_without_each(&mut self) -> Result<(), Trouble> {
        for slot in 0..self.members.len() {
            if Episode::path_if_present(&self.members[slot]).is_some() && self.can_lose(slot) {
                self.look(&[slot])?;
            }
        }
        // Every member's superblock says that the array is clean.
        for path in self.present() {
            let said = uraid(["examine".as_ref(), path.as_os_str()]);
            if said.code != Some(0) {
                return conduct(format!("{}: {}", said.line, said.err));
            }
        }
        Ok(())
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
