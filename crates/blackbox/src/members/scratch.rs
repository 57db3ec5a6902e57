//! A test's own folder, and the members in it.
//! Owns: making sparse members, creating an array on them. Not here: serving it (`server`).
//! Invariant: the folder goes when the test ends, also by a panic; `URAID_KEEP=1` keeps it.

use crate::programs::binary;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is removed when dropped. Its path is short: a socket's may have 107 bytes.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new, empty folder under the system's folder for temporary files.
    pub fn new() -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("uraid-bb-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Scratch { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A sparse file of this size.
    pub fn sparse(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.file(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).unwrap_or_else(|error| panic!("{name}: {error}"));
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch::new()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("URAID_KEEP").is_none() {
            // A failed removal must not hide the test's own failure.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// The array for a test.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// As `--level` takes it.
    pub level: &'static str,
    /// As `--layout` takes it; empty for the default.
    pub layout: &'static str,
    /// How many members.
    pub members: u16,
    /// How many members it can lose, whichever they are.
    pub tolerates: u16,
    /// As `--chunk` takes it; empty where the level has none.
    pub chunk: &'static str,
    /// Size of each member in MiB.
    pub member_mib: u64,
}

/// Makes the members `m0`, `m1`, ... in the folder and creates the array on them; new sparse files hold nothing but zeroes, so
/// their parity is right and no first resync is needed.
pub fn create(scratch: &Scratch, name: &str, shape: &Shape) -> Vec<PathBuf> {
    create_with(scratch, name, shape, &[])
}

/// As `create`, with more words for the command line.
pub fn create_with(scratch: &Scratch, name: &str, shape: &Shape, extra: &[&str]) -> Vec<PathBuf> {
    let members: Vec<_> =
        (0..shape.members).map(|n| scratch.sparse(&format!("m{n}"), shape.member_mib << 20)).collect();
    let mut words: Vec<String> = ["create", "--level", shape.level, "--name", name, "--homehost", "none"]
        .map(String::from)
        .into_iter()
        .chain(["--raid-devices".into(), shape.members.to_string()])
        .chain(extra.iter().map(|word| word.to_string()))
        .collect();
    if !shape.chunk.is_empty() {
        words.extend(["--chunk".into(), shape.chunk.into()]);
    }
    if !shape.layout.is_empty() {
        words.extend(["--layout".into(), shape.layout.into()]);
    }
    if shape.tolerates > 0 {
        words.push("--assume-clean".into());
    }
    words.extend(members.iter().map(|member| member.display().to_string()));
    binary::uraid(&words).expect_done();
    members
}
