//! Clients that write an array all over until it is cut off, and what the array must hold then.
//! Owns: who writes what where, qemu-io's part of it, the comparison. Not here: the guest's writers (`tests/vm/ppl.sh`),
//! which follow the same table.
//! Invariant: a chunk has one writer, and a writer has one unit in flight. So every sector holds the last answered write of
//! it, or the one that was in flight.

use super::host::{self, Served};
use super::{Lab, LabError, at, lab_error, output_of};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) const CHUNK_BYTES: usize = 64 << 10;
const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;

/// Chunks of random bytes. Writes begin at one of the first 59 of them, and have at most 3.
const PATTERNS: usize = 61;
const STARTS: usize = 59;
const WIDE: usize = 3;

/// Chunks at the array's end that are written several at once.
const WIDE_UNITS: usize = 4;

/// The pieces in which the guest writes a unit: whole chunks, and parts of them.
const THEIR_PIECES: [usize; 4] = [64 << 10, 16 << 10, 4 << 10, 1 << 10];
/// The same for uraid's clients.
const OUR_PIECES: [usize; 4] = [64 << 10, 24 << 9, 4 << 10, 512];

/// The writers are cut off after each has had so many answers, and this time.
const ANSWERS_MIN: usize = 12;
const WRITE_TIME: Duration = Duration::from_millis(300);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// The random bytes of all writes of one run.
pub(super) struct Patterns {
    bytes: Vec<u8>,
    folder: PathBuf,
}

impl Patterns {
    /// Makes them; `patterns` in the folder is the guest's disk.
    pub(super) fn new(folder: &Path) -> Lab<Patterns> {
        let image = folder.join("patterns");
        host::random_image(&image, (PATTERNS * CHUNK_BYTES) as u64)?;
        let patterns = Patterns { bytes: at(&image, std::fs::read(&image))?, folder: folder.to_owned() };
        for start in 0..STARTS {
            let file = patterns.file(start);
            at(&file, std::fs::write(&file, patterns.from(start, WIDE * CHUNK_BYTES)))?;
        }
        Ok(patterns)
    }

    fn from(&self, start: usize, length: usize) -> &[u8] {
        &self.bytes[start * CHUNK_BYTES..][..length]
    }

    fn file(&self, start: usize) -> PathBuf {
        self.folder.join(format!("pattern-{start}"))
    }

    /// What an array of so many bytes is filled with before the first writer begins.
    pub(super) fn fill(&self, bytes: usize) -> Vec<u8> {
        self.bytes.iter().copied().cycle().take(bytes).collect()
    }
}

/// One writer: unit after unit, and over again.
#[derive(Clone, Copy)]
pub(super) struct Writer {
    number: usize,
    /// The chunk of the array where its first unit begins.
    first: usize,
    /// Chunks from the start of a unit to that of the next.
    step: usize,
    /// Units until it begins again.
    count: usize,
    /// Chunks of a unit.
    wide: usize,
    /// A request of the guest has this many bytes.
    piece: usize,
}

impl Writer {
    /// The writers of an array: four that take turns at its chunks, so that rows have several, and one behind them that
    /// writes several chunks at once.
    pub(super) fn all(array_bytes: usize) -> Vec<Writer> {
        let chunks = array_bytes / CHUNK_BYTES;
        let narrow = chunks - WIDE_UNITS * WIDE;
        let take_turns = THEIR_PIECES.into_iter().enumerate().map(|(number, piece)| Writer {
            number,
            first: number,
            step: THEIR_PIECES.len(),
            count: narrow / THEIR_PIECES.len(),
            wide: 1,
            piece,
        });
        let piece = WIDE * CHUNK_BYTES;
        let last = Writer { number: 4, first: narrow, step: WIDE, count: WIDE_UNITS, wide: WIDE, piece };
        take_turns.chain([last]).collect()
    }

    /// As the guest's script takes it.
    pub(super) fn argument(&self) -> String {
        let Writer { number, first, step, count, wide, piece } = self;
        format!("{number},{first},{step},{count},{wide},{piece}")
    }

    /// By which name the guest tells of it.
    pub(super) fn name(&self) -> String {
        format!("writer{}", self.number)
    }

    /// Where the unit of a turn begins in the array, and in the patterns.
    fn unit(&self, turn: usize) -> (usize, usize) {
        ((self.first + turn % self.count * self.step) * CHUNK_BYTES, (turn * 7 + self.number * 13) % STARTS)
    }

    fn unit_bytes(&self) -> usize {
        self.wide * CHUNK_BYTES
    }

    /// A request of uraid's client; the last one of a unit may be shorter.
    fn our_piece(&self) -> usize {
        OUR_PIECES.get(self.number).copied().unwrap_or(self.unit_bytes())
    }

    /// Qemu-io's data of a request is the start of its file.
    fn our_data(&self, patterns: &Patterns, turn: usize) -> Vec<u8> {
        let piece = patterns.from(self.unit(turn).1, self.our_piece());
        piece.iter().copied().cycle().take(self.unit_bytes()).collect()
    }

    fn their_data(&self, patterns: &Patterns, turn: usize) -> Vec<u8> {
        patterns.from(self.unit(turn).1, self.unit_bytes()).to_vec()
    }

    /// The commands of qemu-io for one turn.
    fn commands(&self, patterns: &Patterns, turn: usize) -> String {
        let (start, pattern) = self.unit(turn);
        let (file, piece) = (patterns.file(pattern), self.our_piece());
        let write = |from: usize| {
            let length = piece.min(self.unit_bytes() - from);
            format!("write -s {} {} {length}\n", file.display(), start + from)
        };
        let flush = if turn % 8 == 7 { "flush\n" } else { "" };
        (0..self.unit_bytes()).step_by(piece).map(write).collect::<String>() + flush
    }
}

/// What a crash may leave of the requests that were in flight.
#[derive(Clone, Copy)]
pub(super) enum Leeway {
    /// Their sectors hold the old or the new data.
    OldOrNew,
    /// Their sectors hold anything: a member is lost, too.
    Sectors,
    /// So do those that share their parity. A row has so many chunks of data.
    Rows(usize),
}

/// What an array holds.
#[derive(Clone)]
pub(super) struct Content {
    bytes: Vec<u8>,
    /// Where a write was in flight, and of what.
    open: Vec<(usize, Vec<u8>)>,
}

impl Content {
    pub(super) fn new(bytes: Vec<u8>) -> Content {
        Content { bytes, open: Vec::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The guest's writers were cut off after so many turns.
    pub(super) fn add_theirs(&mut self, patterns: &Patterns, writer: Writer, turns: usize) {
        self.add(writer, turns, 0..writer.unit_bytes(), |turn| writer.their_data(patterns, turn));
    }

    /// `in_flight`: the bytes of the last unit whose write may have been done or not. Those before them were written.
    fn add(&mut self, writer: Writer, turns: usize, in_flight: Range<usize>, data: impl Fn(usize) -> Vec<u8>) {
        for turn in turns.saturating_sub(writer.count)..turns {
            self.bytes[writer.unit(turn).0..][..writer.unit_bytes()].copy_from_slice(&data(turn));
        }
        let (start, last) = (writer.unit(turns).0, data(turns));
        self.bytes[start..][..in_flight.start].copy_from_slice(&last[..in_flight.start]);
        self.open.push((start + in_flight.start, last[in_flight].to_vec()));
    }

    /// The sectors that were in flight, by their row of so many chunks of data and their place in a chunk.
    pub(super) fn open_columns(&self, data_chunks: usize) -> BTreeSet<(usize, usize)> {
        let sectors = self.open.iter().flat_map(|(start, data)| (*start..start + data.len()).step_by(SECTOR_BYTES));
        sectors.map(|at| column(at, data_chunks)).collect()
    }

    /// How many sectors md's `check` finds at most where parity was in flight: it counts pages.
    pub(super) fn mismatches_max(&self, data_chunks: usize) -> usize {
        let columns = self.open_columns(data_chunks).into_iter();
        let pages: BTreeSet<(usize, usize)> = columns.map(|(row, at)| (row, at / PAGE_BYTES)).collect();
        pages.len() * PAGE_BYTES / SECTOR_BYTES
    }

    /// Compares what was read, which it then holds: "right", or what is wrong.
    pub(super) fn compare(&mut self, found: &[u8], leeway: Leeway) -> String {
        let columns = match leeway {
            Leeway::OldOrNew | Leeway::Sectors => BTreeSet::new(),
            Leeway::Rows(data_chunks) => self.open_columns(data_chunks),
        };
        let open = std::mem::take(&mut self.open);
        let wanted = std::mem::replace(&mut self.bytes, found.to_vec());
        if found.len() != wanted.len() {
            return format!("{} bytes, expected {}", found.len(), wanted.len());
        }
        let in_flight = |at: usize| open.iter().find(|(start, data)| (*start..start + data.len()).contains(&at));
        let is_open = |at: usize, sector: &[u8]| match leeway {
            Leeway::OldOrNew => in_flight(at).is_some_and(|(start, data)| data[at - start..].starts_with(sector)),
            Leeway::Sectors => in_flight(at).is_some(),
            Leeway::Rows(data_chunks) => columns.contains(&column(at, data_chunks)),
        };
        let sectors = found.chunks(SECTOR_BYTES).zip(wanted.chunks(SECTOR_BYTES)).enumerate();
        let is_wrong = |(number, (found, wanted)): &(usize, (&[u8], &[u8]))| {
            found != wanted && !is_open(number * SECTOR_BYTES, found)
        };
        let wrong: Vec<usize> = sectors.filter(is_wrong).map(|(number, _)| number).collect();
        match (wrong.first(), wrong.last()) {
            (Some(first), Some(last)) => {
                let all = wanted.len() / SECTOR_BYTES;
                format!("{} sectors of {all} are wrong, from {first} to {last}", wrong.len())
            }
            (None, _) | (_, None) => "right".to_owned(),
        }
    }
}

/// The row of a byte of the array, and its place in its chunk.
fn column(at: usize, data_chunks: usize) -> (usize, usize) {
    (at / (CHUNK_BYTES * data_chunks), at % CHUNK_BYTES)
}

/// The writers of an array that uraid serves.
pub(super) struct Load<'a> {
    patterns: &'a Patterns,
    clients: Vec<Client>,
}

struct Client {
    writer: Writer,
    child: Child,
    feeder: JoinHandle<()>,
    answers: Receiver<bool>,
    answered: usize,
}

impl<'a> Load<'a> {
    /// Starts them, and lets them write for a while.
    pub(super) fn start(patterns: &'a Patterns, served: &Served, array_bytes: usize) -> Lab<Load<'a>> {
        let clients = Writer::all(array_bytes).into_iter().map(|writer| Client::start(patterns, &served.uri, writer));
        let mut load = Load { patterns, clients: clients.collect::<Lab<_>>()? };
        for client in &mut load.clients {
            while client.answered < ANSWERS_MIN {
                if client.answers.recv_timeout(ANSWER_TIME_MAX) != Ok(true) {
                    return lab_error("qemu-io does not write");
                }
                client.answered += 1;
            }
        }
        std::thread::sleep(WRITE_TIME);
        Ok(load)
    }

    /// After the server was killed: adds what was answered until then.
    pub(super) fn end(self, content: &mut Content) {
        for mut client in self.clients {
            while client.answers.recv_timeout(ANSWER_TIME_MAX) == Ok(true) {
                client.answered += 1;
            }
            let _ = client.child.kill();
            let _ = client.child.wait();
            let _ = client.feeder.join();
            let writer = client.writer;
            let pieces = writer.unit_bytes().div_ceil(writer.our_piece());
            let (turns, start) = (client.answered / pieces, client.answered % pieces * writer.our_piece());
            let in_flight = start..writer.unit_bytes().min(start + writer.our_piece());
            content.add(writer, turns, in_flight, |turn| writer.our_data(self.patterns, turn));
        }
    }
}

impl Client {
    fn start(patterns: &Patterns, uri: &str, writer: Writer) -> Lab<Client> {
        let mut child = Command::new("qemu-io")
            .args(["-f", "raw", uri])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| LabError::Trouble(format!("cannot run qemu-io: {error}")))?;
        let input = child.stdin.take().expect("stdin is piped");
        let output = child.stdout.take().expect("stdout is piped");
        let commands: Vec<String> = (0..writer.count * STARTS).map(|turn| writer.commands(patterns, turn)).collect();
        let feeder = std::thread::spawn(move || feed(input, &commands));
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The prompt may stand before it on the line.
                if line.contains("wrote ") || line.contains("write failed") {
                    let _ = answer.send(line.contains("wrote "));
                }
            }
        });
        Ok(Client { writer, child, feeder, answers, answered: 0 })
    }
}

/// Writes until qemu-io has ended. Unit and pattern repeat after these commands.
fn feed(mut input: ChildStdin, commands: &[String]) {
    while commands.iter().all(|command| input.write_all(command.as_bytes()).is_ok()) {}
}

/// How many bytes an array has that is served.
pub(super) fn size_of(served: &Served) -> Lab<usize> {
    let text = output_of(Command::new("nbdinfo").args(["--size", &served.uri]))?;
    text.trim().parse().or_else(|_| lab_error(format!("nbdinfo --size says {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_has_one_writer_at_most_and_two_turns_differ() {
        for chunks in [60, 64, 90, 96] {
            let mut taken = vec![false; chunks];
            for writer in Writer::all(chunks * CHUNK_BYTES) {
                for turn in 0..writer.count {
                    let (start, pattern) = writer.unit(turn);
                    assert_eq!(start % CHUNK_BYTES, 0);
                    for chunk in &mut taken[start / CHUNK_BYTES..][..writer.wide] {
                        assert!(!std::mem::replace(chunk, true), "turn {turn}, {chunks} chunks");
                    }
                    let (again, other) = writer.unit(turn + writer.count);
                    assert!(start == again && pattern != other);
                }
            }
        }
    }

    #[test]
    fn a_sector_in_flight_is_old_or_new_and_with_a_member_lost_anything() {
        let open = || Content { bytes: vec![1; 4 * SECTOR_BYTES], open: vec![(SECTOR_BYTES, vec![2; SECTOR_BYTES])] };
        let found = |byte| [vec![1; SECTOR_BYTES], vec![byte; SECTOR_BYTES], vec![1; 2 * SECTOR_BYTES]].concat();
        assert_eq!(open().compare(&found(1), Leeway::OldOrNew), "right");
        assert_eq!(open().compare(&found(2), Leeway::OldOrNew), "right");
        assert_eq!(open().compare(&found(3), Leeway::OldOrNew), "1 sectors of 4 are wrong, from 1 to 1");
        assert_eq!(open().compare(&found(3), Leeway::Sectors), "right");
        let all = vec![2; 4 * SECTOR_BYTES];
        assert_eq!(open().compare(&all, Leeway::OldOrNew), "3 sectors of 4 are wrong, from 0 to 3");
    }

    #[test]
    fn a_row_in_flight_is_wrong_in_the_same_place_of_each_chunk_only() {
        let size = 4 * CHUNK_BYTES;
        let open = || Content { bytes: vec![1; size], open: vec![(CHUNK_BYTES + 1024, vec![2; 5 * SECTOR_BYTES])] };
        let found =
            |at: usize| (0..size).map(|byte| if byte / SECTOR_BYTES == at { 3 } else { 1 }).collect::<Vec<u8>>();
        for (sector, is_right) in [(2, true), (6, true), (1, false), (7, false), (130, true), (258, false)] {
            let said = open().compare(&found(sector), Leeway::Rows(2));
            assert_eq!(said == "right", is_right, "sector {sector}: {said}");
        }
        // Sectors 2 to 6 of a chunk are in one page, 2 to 8 in two.
        assert_eq!(open().mismatches_max(2), 8);
        let longer = Content { bytes: Vec::new(), open: vec![(1024, vec![2; 7 * SECTOR_BYTES])] };
        assert_eq!(longer.mismatches_max(2), 16);
    }

    #[test]
    fn what_was_answered_of_a_unit_is_there_and_only_the_next_request_is_open() {
        let writer = Writer::all(64 * CHUNK_BYTES)[3];
        assert_eq!(writer.unit(0).0, 3 * CHUNK_BYTES);
        let mut content = Content::new(vec![1; 64 * CHUNK_BYTES]);
        content.add(writer, 0, 512..1024, |_| vec![2; CHUNK_BYTES]);
        let with = |sectors: usize| {
            let mut bytes = vec![1; 64 * CHUNK_BYTES];
            bytes[3 * CHUNK_BYTES..][..sectors * 512].fill(2);
            bytes
        };
        let said = |sectors| content.clone().compare(&with(sectors), Leeway::OldOrNew);
        assert_eq!((said(1), said(2)), ("right".to_owned(), "right".to_owned()));
        assert!(said(0) != "right" && said(3) != "right");
    }
}
