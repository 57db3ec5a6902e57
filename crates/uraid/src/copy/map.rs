//! The map of a copy: which sectors are copied, unreadable or untried.
//! Owns: the map in memory, its text, which copy it belongs to. Not here: when it is saved (`writer`).
//! Invariant: the stretches of a map are adjacent and cover exactly the array. A file that is not such a map is refused
//! as a whole. Spec: GNU ddrescue's manual, "Mapfile structure", so that ddrescue's viewers can show a map.
//!
//! ```text
//!   # Array: 0b1c..., 25165824 bytes, 17 events      which copy it belongs to; a comment for others
//!   0x00000000     ?     1                           where the copy stands, `?` copying or `+` finished, the pass
//!   0x00000000  0x00117000  +                        from byte, length in bytes: `+` copied,
//!   0x00117000  0x00000200  -                        `-` unreadable, `?` not tried
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use uraid_block::{Range, SECTOR_BYTES, Sector, Sectors};

/// A larger file is not one of our maps: this is two million stretches.
const TEXT_BYTES_MAX: u64 = 64 << 20;
const HEAD: &str = "# Mapfile of uraid copy, in the format of GNU ddrescue";
const IDENTITY: &str = "# Array: ";

/// The state of a stretch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Not copied yet.
    Untried,
    /// Could not be read; zeroes in the output.
    Lost,
    /// Copied.
    Copied,
}

/// Why a map is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// It could not be read or written.
    #[error("{}: {action} the map failed", path.display())]
    Io {
        path: PathBuf,
        /// Reading, writing.
        action: &'static str,
        source: io::Error,
    },
    /// It is not a map.
    #[error("{}: line {line} does not belong in a map of uraid copy; --map names another file", path.display())]
    NoMap {
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// It is longer than any map.
    #[error("{}: is not a map of uraid copy: it has {found} bytes", path.display())]
    TooLong { path: PathBuf, found: u64 },
    /// It belongs to another copy.
    #[error("{}: is the map of another copy: of {found}, expected {expected}", path.display())]
    Other {
        path: PathBuf,
        /// The copy that the map belongs to.
        found: String,
        /// The copy that this run makes.
        expected: String,
    },
}

/// Which sectors are copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Map {
    /// Which copy it belongs to.
    identity: String,
    size: Sectors,
    /// Where each stretch starts, and its state; it ends where the next one starts. Neighbours differ.
    starts: BTreeMap<u64, State>,
}

impl Map {
    /// A map of `size` sectors of which none was tried. `identity` is one line of text that tells this copy from
    /// others.
    pub(super) fn new(identity: &str, size: Sectors) -> Map {
        Map { identity: identity.to_owned(), size, starts: BTreeMap::from([(0, State::Untried)]) }
    }

    /// Reads the map of an earlier run, `None` where there is none. It must be of the same copy.
    pub(super) fn load(path: &Path, identity: &str, size: Sectors) -> Result<Option<Map>, MapError> {
        let failed = |source| MapError::Io { path: path.to_owned(), action: "reading", source };
        let file = match std::fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?.len();
        if found > TEXT_BYTES_MAX {
            return Err(MapError::TooLong { path: path.to_owned(), found });
        }
        let mut bytes = Vec::new();
        file.take(TEXT_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        let map = parse(&bytes, size).map_err(|line| MapError::NoMap { path: path.to_owned(), line })?;
        if map.identity != identity {
            let (found, expected) = (uraid_control::names::printable(&map.identity), identity.to_owned());
            return Err(MapError::Other { path: path.to_owned(), found, expected });
        }
        Ok(Some(map))
    }

    /// Refuses a path if a file that is not a map is there, or at the path that [`Map::save`] writes beside it.
    pub(super) fn may_be_saved(path: &Path) -> Result<(), MapError> {
        for path in files(path) {
            let failed = |source| MapError::Io { path: path.clone(), action: "reading", source };
            let mut start = Vec::new();
            let read = std::fs::File::open(&path).and_then(|file| file.take(HEAD.len() as u64).read_to_end(&mut start));
            match read {
                // A save that was cut short leaves an empty file or the start of one.
                Ok(_) if HEAD.as_bytes().starts_with(&start) => (),
                Ok(_) => return Err(MapError::NoMap { path, line: 1 }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Writes the map so that a crash leaves the old one or the new one.
    pub(super) fn save(&self, path: &Path) -> Result<(), MapError> {
        self.save_by(path, &mut Disk)
    }

    fn save_by(&self, path: &Path, files: &mut impl Files) -> Result<(), MapError> {
        let failed = |source| MapError::Io { path: path.to_owned(), action: "writing", source };
        let beside = new_beside(path);
        let text = self.text();
        let Err(error) = replace(&beside, path, &text, files) else { return Ok(()) };
        // The failed attempt may have left a file that would block the next one. If there is none, this fails, which is
        // fine.
        let _ = files.remove(&beside);
        if error.kind() != io::ErrorKind::StorageFull {
            return Err(failed(error));
        }
        // Overwrite the old map in place: on a full file system it still has its space.
        files.write(path, &text).and_then(|()| files.sync(path)).map_err(failed)
    }

    /// Sets the state of a stretch. Panics outside of the map.
    pub(super) fn set(&mut self, range: Range, state: State) {
        let (start, end) = (range.start.0, range.end().0);
        assert!(end <= self.size.0);
        if start == end {
            return;
        }
        let after = self.at(end.min(self.size.0 - 1));
        let inside: Vec<u64> = self.starts.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.starts.remove(&at);
        }
        if start == 0 || self.at(start - 1) != state {
            self.starts.insert(start, state);
        }
        if end < self.size.0 {
            if after == state {
                self.starts.remove(&end);
            } else {
                self.starts.insert(end, after);
            }
        }
    }

    fn at(&self, sector: u64) -> State {
        *self.starts.range(..=sector).next_back().expect("the first stretch starts at 0").1
    }

    /// All stretches, in order.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (Range, State)> + '_ {
        let ends = self.starts.keys().skip(1).copied().chain([self.size.0]);
        self.starts.iter().zip(ends).filter(|((start, _), end)| *start < end).map(|((start, state), end)| {
            let range = Range::between(Sector(*start), Sector(end));
            (range, *state)
        })
    }

    /// The stretches of one state.
    pub(super) fn of(&self, state: State) -> Vec<Range> {
        self.stretches().filter(|(_, of)| *of == state).map(|(range, _)| range).collect()
    }

    /// How much it is about: the size of the array.
    pub(super) fn size(&self) -> Sectors {
        self.size
    }

    /// Whether all of a stretch is in the map, and has this state.
    pub(super) fn is_all(&self, range: Range, state: State) -> bool {
        self.stretches().any(|(own, of)| of == state && own.start <= range.start && range.end() <= own.end())
    }

    /// How many sectors have a state.
    pub(super) fn count(&self, state: State) -> Sectors {
        Sectors(self.of(state).iter().map(|range| range.length.0).sum())
    }

    /// The map as a file.
    pub(super) fn text(&self) -> String {
        let untried = self.of(State::Untried);
        let (status, at) = match untried.first() {
            Some(first) => ('?', byte(first.start)),
            None => ('+', self.size.bytes()),
        };
        let mut text = format!(
            "{HEAD}\n{IDENTITY}{}\n# current_pos  current_status  current_pass\n\
             0x{at:08X}     {status}               1\n#      pos        size  status\n",
            self.identity
        );
        for (range, state) in self.stretches() {
            let (start, length) = (byte(range.start), range.length.bytes());
            text.push_str(&format!("0x{start:08X}  0x{length:08X}  {}\n", sign(state)));
        }
        text
    }
}

/// The first byte of a sector.
pub(super) fn byte(at: Sector) -> u64 {
    Sectors(at.0).bytes()
}

/// The path of a new map before it replaces the old one.
fn new_beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Every file that [`Map::save`] writes.
pub(super) fn files(path: &Path) -> [PathBuf; 2] {
    [path.to_owned(), new_beside(path)]
}

/// Writes a file beside another one and renames it over that, each step durable before the next.
fn replace(beside: &Path, path: &Path, text: &str, files: &mut impl Files) -> io::Result<()> {
    files.write(beside, text)?;
    files.sync(beside)?;
    files.rename(beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    files.sync(folder)
}

/// The file operations that saving needs.
trait Files {
    /// Gives a file this text; not durable yet.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()>;
    /// Makes a file, or the names in a folder, durable.
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

/// The file system.
struct Disk;

impl Files for Disk {
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

fn sign(state: State) -> char {
    match state {
        State::Untried => '?',
        State::Lost => '-',
        State::Copied => '+',
    }
}

/// Parses a file's bytes as a map. The error is the number of the line that is wrong.
fn parse(bytes: &[u8], size: Sectors) -> Result<Map, usize> {
    let text = std::str::from_utf8(bytes).map_err(|_| 1_usize)?;
    let identity = text.lines().find_map(|line| line.strip_prefix(IDENTITY)).ok_or(1_usize)?;
    let mut map = Map::new(identity, size);
    let mut has_status = false;
    let mut next = 0;
    for (at, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        if !has_status {
            has_status = words.len() >= 2 && number(words[0]).is_some();
            if !has_status {
                return Err(at + 1);
            }
            continue;
        }
        let (range, state) = stretch(&words).ok_or(at + 1)?;
        let end = range.start.0.checked_add(range.length.0).ok_or(at + 1)?;
        if range.start.0 != next || end > size.0 {
            return Err(at + 1);
        }
        map.set(range, state);
        next = end;
    }
    if has_status && next == size.0 { Ok(map) } else { Err(text.lines().count()) }
}

fn stretch(words: &[&str]) -> Option<(Range, State)> {
    let [start, length, sign] = words else { return None };
    let state = match *sign {
        // ddrescue found these bad in a larger block and did not read them one by one.
        "?" | "*" | "/" => State::Untried,
        "-" => State::Lost,
        "+" => State::Copied,
        _ => return None,
    };
    let start = number(start).filter(|byte| byte % SECTOR_BYTES as u64 == 0)? / SECTOR_BYTES as u64;
    Some((Range::new(Sector(start), Sectors::from_bytes(number(length)?)?), state))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> Range {
        Range::between(Sector(start), Sector(end))
    }

    #[test]
    fn stretches_join_and_split_as_a_slow_list_of_sectors_says() {
        const SIZE: u64 = 40;
        let mut map = Map::new("a", Sectors(SIZE));
        let mut slow = vec![State::Untried; SIZE as usize];
        let mut seed = 7_u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let start = (seed >> 33) % SIZE;
            let end = start + (seed >> 45) % (SIZE - start + 1);
            let state = [State::Untried, State::Lost, State::Copied][(seed >> 55) as usize % 3];
            map.set(range(start, end), state);
            slow[start as usize..end as usize].fill(state);
            let mut joined: Vec<(u64, State)> = Vec::new();
            for (at, state) in slow.iter().enumerate() {
                if joined.last().is_none_or(|(_, last)| last != state) {
                    joined.push((at as u64, *state));
                }
            }
            assert_eq!(map.stretches().map(|(range, state)| (range.start.0, state)).collect::<Vec<_>>(), joined);
        }
    }

    #[test]
    fn a_map_comes_back_from_its_text() {
        let mut map = Map::new("raid5 of another user", Sectors(4096));
        map.set(range(0, 2048), State::Copied);
        map.set(range(100, 101), State::Lost);
        let text = map.text();
        assert!(text.contains("\n0x0000C800  0x00000200  -\n"), "{text}");
        assert!(text.contains("\n0x00100000     ?               1\n"), "{text}");
        assert_eq!(parse(text.as_bytes(), Sectors(4096)), Ok(map.clone()));
        map.set(range(101, 4096), State::Copied);
        assert!(map.text().contains("\n0x00200000     +               1\n"), "{}", map.text());
    }

    /// Our letters, and those of ddrescue: a stretch that ddrescue has not tried, trimmed or scraped was not copied.
    #[test]
    fn every_letter_of_a_map_is_read_as_what_it_stands_for() {
        for (letter, state) in [
            ('?', Some(State::Untried)),
            ('*', Some(State::Untried)),
            ('/', Some(State::Untried)),
            ('-', Some(State::Lost)),
            ('+', Some(State::Copied)),
            ('B', None),
            ('F', None),
            ('x', None),
        ] {
            let text = format!("# Array: a\n0 ? 1\n0 0x400 +\n0x400 0x400 {letter}\n0x800 0x800 -\n0x1000 0x1000 ?\n");
            let map = parse(text.as_bytes(), Sectors(16));
            let Some(state) = state else {
                assert_eq!(map, Err(4), "{letter}");
                continue;
            };
            let map = map.expect("a map");
            let states: Vec<State> = [0, 1, 2, 3, 4, 7, 8, 15].into_iter().map(|at| map.at(at)).collect();
            let (copied, lost, untried) = (State::Copied, State::Lost, State::Untried);
            assert_eq!(states, [copied, copied, state, state, lost, lost, untried, untried], "{letter}");
            assert_eq!(parse(map.text().as_bytes(), Sectors(16)), Ok(map), "{letter}");
        }
        let letters = [State::Untried, State::Lost, State::Copied].map(sign);
        assert_eq!(letters, ['?', '-', '+'], "what ddrescue's viewers show");
    }

    /// Files in memory: what is there, what is durable, and the operation that fails.
    struct Fake {
        there: BTreeMap<PathBuf, String>,
        durable: BTreeMap<PathBuf, String>,
        done: Vec<String>,
        fails: Option<(usize, io::ErrorKind)>,
    }

    impl Fake {
        fn step(&mut self, what: &str, path: &Path) -> io::Result<()> {
            self.done.push(format!("{what} {}", path.display()));
            match self.fails {
                Some((at, kind)) if at + 1 == self.done.len() => Err(kind.into()),
                Some(_) | None => Ok(()),
            }
        }
    }

    impl Files for Fake {
        fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
            let outcome = self.step("write", path);
            // A write that fails may have written a part.
            let written = if outcome.is_ok() { text.len() } else { text.len() / 2 };
            self.there.insert(path.to_owned(), text[..written].to_owned());
            outcome
        }

        fn sync(&mut self, path: &Path) -> io::Result<()> {
            self.step("sync", path)?;
            if let Some(text) = self.there.get(path) {
                self.durable.insert(path.to_owned(), text.clone());
            }
            Ok(())
        }

        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.step("rename", from)?;
            let text = self.there.remove(from).expect("it was written");
            // In the worst case the name is durable at once, with the old bytes.
            let durable = self.durable.remove(from).unwrap_or_default();
            self.durable.insert(to.to_owned(), durable);
            self.there.insert(to.to_owned(), text);
            Ok(())
        }

        fn remove(&mut self, path: &Path) -> io::Result<()> {
            self.step("remove", path)?;
            self.there.remove(path);
            Ok(())
        }
    }

    #[test]
    fn a_power_cut_while_a_map_is_saved_leaves_the_old_one_or_the_new_one() {
        let (old, mut new) = (Map::new("a", Sectors(4096)), Map::new("a", Sectors(4096)));
        new.set(range(0, 2048), State::Copied);
        let path = PathBuf::from("folder/out.map");
        let saved = |fails| {
            let there = BTreeMap::from([(path.clone(), old.text())]);
            let mut files = Fake { durable: there.clone(), there, done: Vec::new(), fails };
            let outcome = new.save_by(&path, &mut files);
            (outcome.is_ok(), files)
        };
        let (is_saved, files) = saved(None);
        let order = ["write folder/out.map.new", "sync folder/out.map.new", "rename folder/out.map.new", "sync folder"];
        assert_eq!((is_saved, &files.done[..]), (true, &order.map(str::to_owned)[..]));
        assert_eq!(files.durable.get(&path), Some(&new.text()));
        for fail_at in 0..order.len() {
            let (is_saved, files) = saved(Some((fail_at, io::ErrorKind::Other)));
            assert!(!is_saved, "{fail_at}");
            let durable = &files.durable[&path];
            assert!(*durable == old.text() || *durable == new.text(), "{fail_at}: {durable}");
            assert_eq!(*durable == new.text(), fail_at == 3, "{fail_at}");
            // A full file system: the new map is written into the old map's space.
            let (is_saved, files) = saved(Some((fail_at, io::ErrorKind::StorageFull)));
            assert!(is_saved && files.durable[&path] == new.text(), "{fail_at}");
            assert_eq!(files.done.last().expect("steps"), "sync folder/out.map");
            assert!(!files.there.contains_key(Path::new("folder/out.map.new")), "{fail_at}");
        }
    }

    #[test]
    fn what_is_no_map_or_a_map_of_another_size_is_refused_with_its_line() {
        let good = Map::new("a", Sectors(16)).text();
        assert_eq!(parse(good.as_bytes(), Sectors(17)), Err(6), "it ends early");
        assert_eq!(parse(good.as_bytes(), Sectors(15)), Err(6), "it goes too far");
        let head = "# Array: a\n0 ? 1\n";
        for (rest, line) in [
            ("0 512 +\n1024 512 +\n", 4),
            ("0 513 +\n", 3),
            ("0 8192 !\n", 3),
            ("0 512\n", 3),
            ("512 512 +\n", 3),
            ("0 0xfffffffffffffe00 +\n", 3),
            ("", 2),
        ] {
            assert_eq!(parse(format!("{head}{rest}").as_bytes(), Sectors(16)), Err(line), "{rest:?}");
        }
        assert_eq!(parse(b"0 ? 1\n0 8192 +\n", Sectors(16)), Err(1), "it does not say which array");
        assert_eq!(parse(&[0xff; 512], Sectors(16)), Err(1));
    }
}
