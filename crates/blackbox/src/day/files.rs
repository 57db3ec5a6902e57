//! Files that are written all the time, each known to be durable or not.
//! Owns: their contents, the writer, the comparison. Not here: the file system under them (`super`).
//! Invariant: a file counts as durable from the answer of its fsync, and of its folder's, until it is to be deleted.

use crate::random::{Random, mix};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const FILE_BYTES_MAX: u64 = 96 << 10;
/// At most this many files are kept: about 30 MiB.
const KEPT: usize = 600;

/// The files of a folder.
#[derive(Debug, Default)]
pub(super) struct Files {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    durable: BTreeSet<u64>,
}

fn content(file: u64) -> Vec<u8> {
    let mut random = Random(mix(file));
    let mut bytes = vec![0; 1 + random.below(FILE_BYTES_MAX) as usize];
    random.fill(&mut bytes);
    bytes
}

impl Files {
    /// Writes one file after the other, and deletes old ones, until `is_over` or an error.
    pub(super) fn write(&self, folder: &Path, is_over: &AtomicBool) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        while !is_over.load(Ordering::Relaxed) {
            let (file, old) = self.with(|state| {
                state.next += 1;
                let old = if state.durable.len() < KEPT { None } else { state.durable.pop_first() };
                (state.next, old)
            });
            let mut to = File::create(folder.join(file.to_string()))?;
            to.write_all(&content(file))?;
            to.sync_all()?;
            File::open(folder)?.sync_all()?;
            self.with(|state| state.durable.insert(file));
            if let Some(old) = old {
                fs::remove_file(folder.join(old.to_string()))?;
            }
        }
        Ok(())
    }

    /// Compares every durable file. Returns how many there are.
    pub(super) fn check(&self, folder: &Path) -> Result<usize, String> {
        let durable = self.with(|state| state.durable.clone());
        for &file in &durable {
            let path = folder.join(file.to_string());
            let found = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            if found != content(file) {
                return Err(format!("{} differs from what was written and synced", path.display()));
            }
        }
        Ok(durable.len())
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().expect("the writer does not panic"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::scratch::Scratch;

    #[test]
    fn a_file_that_is_lost_or_changed_after_its_sync_is_found() {
        let (scratch, files, is_over) = (Scratch::new(), Files::default(), AtomicBool::new(false));
        let folder = scratch.file("files");
        std::thread::scope(|scope| {
            scope.spawn(|| files.write(&folder, &is_over).expect("the folder is ours"));
            while files.with(|state| state.durable.len()) < 3 {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(files.check(&folder).expect("all are there") >= 3);
        let mut bytes = content(2);
        bytes[0] ^= 1;
        fs::write(folder.join("2"), bytes).expect("the folder is ours");
        assert!(files.check(&folder).expect_err("it differs").ends_with("2 differs from what was written and synced"));
        fs::remove_file(folder.join("2")).expect("the folder is ours");
        assert!(files.check(&folder).is_err());
    }
}
