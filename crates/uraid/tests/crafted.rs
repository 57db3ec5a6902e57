//! Members with malicious metadata: numbers that no array reaches, areas without an end.
//! Owns: event counts, bitmaps. Not here: damage by accident (`errors`), the bytes by themselves (`uraid-format`).
//! Invariant: what is refused is refused with what was found; what uraid has written, it reads again.

use crate::common::superblock::{EVENTS, FEATURES, Raw};
use crate::common::{MIB, Scratch, Served, pattern};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Superblocks with this event count or a higher one are refused.
const EVENTS_END: u64 = 1 << 62;
/// Arrays with this event count or a higher one are read-only.
const EVENTS_WRITE_END: u64 = (1 << 62) - (1 << 56);

fn set_events(members: &[PathBuf], events: u64) {
    for member in members {
        let mut raw = Raw::read(member);
        raw.set(EVENTS, &events.to_le_bytes());
        raw.write();
    }
}

#[test]
fn an_event_count_that_no_array_reaches_is_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("huge", "-l 1 -n 2 --assume-clean", &members);
    for events in [EVENTS_END, (1 << 63) - 2, (1 << 63) - 1, u64::MAX] {
        set_events(&members, events);
        let said = format!("superblock counts {events} events, expected below 2^62");
        scratch.serve(&[], &members).end().expect_refused(&[&said]);
        let shown = scratch.uraid(["examine", members[0].to_str().expect("a name")]);
        assert!(shown.code == Some(1) && shown.stderr.contains(&said), "{shown:?}");
    }
}

#[test]
fn an_array_that_counts_high_is_read_and_never_counts_on_to_where_it_would_be_refused() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("high", "-l 1 -n 2 --assume-clean", &members);
    // The last count that is written on.
    set_events(&members, EVENTS_WRITE_END - 1);
    let served = scratch.ready(&[], &members);
    let data = pattern(1, MIB as usize);
    assert_eq!(served.client().write(0, &data).expect("connected"), 0);
    assert_eq!(served.stop().code, Some(0));
    assert!(Raw::read(&members[0]).u64(EVENTS) >= EVENTS_WRITE_END);
    for events in [Raw::read(&members[0]).u64(EVENTS), EVENTS_END - 1] {
        set_events(&members, events);
        for options in [&[][..], &["--force"]] {
            let served = scratch.ready(options, &members);
            served.wait_for("opened read-only: its superblocks count");
            assert!(served.client().read(0, data.len()).expect("connected").as_ref() == Ok(&data));
            assert_ne!(served.client().write(0, &data).expect("connected"), 0);
            assert_eq!(served.stop().code, Some(0));
            assert_eq!(Raw::read(&members[0]).u64(EVENTS), events, "nothing was written");
        }
    }
}

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
    // If all bits were read, there is no note.
    claim_bitmap(&members[0], 4, 1 << 20);
    let text = Served::start(&mut scratch.command([Path::new("examine"), &members[0]])).end();
    assert!(text.stdout.contains("1048576 bits (chunks), ") && !text.stdout.contains("claims"), "{text:?}");
}
