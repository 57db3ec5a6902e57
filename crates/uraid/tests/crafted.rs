//! Members whose metadata was made to harm: areas that have no end.
//! Owns: bitmaps. Not here: damage by accident (`errors`), the bytes by themselves (`uraid-format`).
//! Invariant: a look at a member reads a bounded part of it.

mod common;

use common::superblock::{FEATURES, Raw};
use common::{Scratch, Served};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A folder that goes with the test, and the longest sparse files that it takes, in bytes.
struct Sparse(PathBuf, u64);

impl Sparse {
    /// The memory file system takes 4 EiB; ext4 takes less than 16 TiB.
    fn new() -> Sparse {
        let name = format!("uraid-crafted-{}", std::process::id());
        let places = [(PathBuf::from("/dev/shm"), 4 << 60), (std::env::temp_dir(), 15 << 40)];
        let found = places.into_iter().find_map(|(base, bytes)| {
            fs::create_dir(base.join(&name)).ok()?;
            let folder = Sparse(base.join(&name), bytes);
            File::create(folder.0.join("probe")).and_then(|file| file.set_len(bytes)).ok()?;
            Some(folder)
        });
        found.expect("a file system that takes a sparse file of 15 TiB")
    }
}

impl Drop for Sparse {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lets the superblock of a member say that a bitmap follows it, which has a bit for each of `chunks` sectors.
fn claim_bitmap(member: &Path, version: u32, chunks: u64) {
    const BITMAP_OFFSET: usize = 96;
    let mut raw = Raw::read(member);
    raw.set(FEATURES, &1u32.to_le_bytes());
    raw.set(BITMAP_OFFSET, &8i32.to_le_bytes());
    raw.write();
    let mut header = Vec::new();
    header.extend_from_slice(b"bitm");
    header.extend_from_slice(&version.to_le_bytes());
    header.extend_from_slice(&[0; 16 + 8 + 8]);
    header.extend_from_slice(&chunks.to_le_bytes());
    header.extend_from_slice(&0u32.to_le_bytes());
    header.extend_from_slice(&512u32.to_le_bytes());
    header.extend_from_slice(&5u32.to_le_bytes());
    header.resize(256, 0);
    OpenOptions::new().write(true).open(member).expect("a member").write_all_at(&header, 8192).expect("room");
}

#[test]
fn a_bitmap_without_an_end_does_not_keep_examine_busy() {
    let scratch = Scratch::new();
    let sparse = Sparse::new();
    let members: Vec<PathBuf> = (0..2).map(|n| sparse.0.join(format!("m{n}"))).collect();
    for member in &members {
        File::create(member).and_then(|file| file.set_len(sparse.1)).expect("it takes such files");
    }
    scratch.create("endless", "-l 1 -n 2 --assume-clean", &members);
    // Versions with a bit and with a byte for each chunk: 64 MiB of either are looked at.
    let chunks: u64 = if sparse.1 > 1 << 60 { (1 << 54) - 1 } else { 1 << 46 };
    for (version, chunks, counted) in [(4, chunks, 1u64 << 29), (6, chunks >> 4, 1 << 26)] {
        claim_bitmap(&members[0], version, chunks);
        let text = Served::start(&mut scratch.command([Path::new("examine"), &members[0]])).end();
        let said = format!("the bitmap claims {chunks} bits, and only the first {counted} were read");
        assert!(text.code == Some(0) && text.stdout.contains(&said), "{text:?}");
        let json = Served::start(&mut scratch.command([Path::new("examine"), Path::new("--json"), &members[0]])).end();
        let facts = format!("\"counted\":{counted}");
        assert!(json.code == Some(0) && json.stdout.replace(' ', "").contains(&facts), "{json:?}");
    }
    // Where all were read, nothing is said.
    claim_bitmap(&members[0], 4, 1 << 20);
    let text = Served::start(&mut scratch.command([Path::new("examine"), &members[0]])).end();
    assert!(text.stdout.contains("1048576 bits (chunks), ") && !text.stdout.contains("claims"), "{text:?}");
}
