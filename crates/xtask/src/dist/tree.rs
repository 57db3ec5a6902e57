//! The files of a package, before they are packed.
//! Owns: paths, modes and bytes of files; the folders on the way to them. Not here: archives (`archive`).
//! Invariant: entries come in the order of their paths, a folder before what is in it. All belong to root.

use std::collections::BTreeMap;
use std::path::Path;

/// What is at a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Folder,
    File { bytes: Vec<u8>, mode: u32 },
    Link { to: String },
}

/// Entries by their paths, without a slash at the beginning.
#[derive(Default)]
pub(super) struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// A file, and the folders on the way to it.
    pub(super) fn file(&mut self, path: &str, bytes: impl Into<Vec<u8>>, mode: u32) {
        self.put(path, Entry::File { bytes: bytes.into(), mode });
    }

    /// The same with the bytes of a file of this system.
    pub(super) fn copy(&mut self, path: &str, from: &Path, mode: u32) -> Result<(), String> {
        let bytes = std::fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
        self.file(path, bytes, mode);
        Ok(())
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.put(path, Entry::Link { to: to.to_owned() });
    }

    fn put(&mut self, path: &str, entry: Entry) {
        assert!(!path.starts_with('/') && !path.ends_with('/'), "{path}");
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry::Folder);
        }
        let before = self.0.insert(path.to_owned(), entry);
        assert!(before.is_none(), "{path} is there twice");
    }

    /// All of them.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// What the files take, in KiB, as Debian counts it.
    pub(super) fn kib(&self) -> u64 {
        let sizes = self.0.values().map(|entry| match entry {
            Entry::File { bytes, .. } => (bytes.len() as u64).div_ceil(1024),
            Entry::Folder | Entry::Link { .. } => 1,
        });
        sizes.sum()
    }
}
