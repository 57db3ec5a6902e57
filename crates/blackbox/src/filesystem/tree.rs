//! A tree of real files, to fill a file system with.
//! Owns: choosing and making it, comparing two of them. Not here: file systems.
//! Invariant: bounded in bytes and in files, whatever the machine has installed.

use crate::programs::foreign;
use crate::random::Random;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

const FILES_MAX: usize = 3000;
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Where real files are found, the first that is there first.
const SOURCES: [&str; 4] = ["/usr/share/doc", "/usr/include", "/usr/lib/python3", "/etc"];

/// Fills `into` (which must not exist) with copies of real files up to `bytes_max`, and with special ones that are rare
/// in real trees: empty, sparse, long-named, linked, random, many in one folder.
pub fn make(into: &Path, bytes_max: u64) -> io::Result<()> {
    fs::create_dir(into)?;
    let mut left = Left { bytes: bytes_max, files: FILES_MAX };
    for source in SOURCES.iter().map(Path::new).filter(|source| source.is_dir()) {
        let name = source.file_name().expect("a source has a name");
        copy_folder(source, &into.join(name), &mut left)?;
        if left.is_used_up() {
            break;
        }
    }
    make_odd(&into.join("odd"))
}

/// A tree in the form that `mkfs.xfs -p` reads: name, mode, owner, group, source; `$` ends a folder. The form cannot
/// express links and names with a space.
pub fn prototype(folder: &Path) -> String {
    let mut text = String::from("/\n0 0\nd--755 0 0\n");
    folder_of_prototype(folder, &mut text);
    text + "$\n"
}

fn folder_of_prototype(folder: &Path, text: &mut String) {
    let mut entries: Vec<_> = fs::read_dir(folder).expect("it is our tree").flatten().collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let kind = entry.file_type().expect("it is our tree");
        // The tool's buffer for a line is small: the long name is left to the mounted test.
        if name.contains(char::is_whitespace) || name.len() > 100 {
            continue;
        }
        if kind.is_dir() {
            text.push_str(&format!("{name} d--755 0 0\n"));
            folder_of_prototype(&path, text);
            text.push_str("$\n");
        } else if kind.is_file() {
            text.push_str(&format!("{name} ---644 0 0 {}\n", path.display()));
        }
    }
}

struct Left {
    bytes: u64,
    files: usize,
}

impl Left {
    fn is_used_up(&self) -> bool {
        self.bytes == 0 || self.files == 0
    }
}

fn copy_folder(from: &Path, to: &Path, left: &mut Left) -> io::Result<()> {
    fs::create_dir(to)?;
    let mut entries: Vec<PathBuf> = fs::read_dir(from)?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        if left.is_used_up() {
            break;
        }
        let target = to.join(entry.file_name().expect("an entry has a name"));
        let Ok(kind) = entry.symlink_metadata() else { continue };
        if kind.is_symlink() {
            symlink(fs::read_link(&entry)?, &target)?;
        } else if kind.is_dir() {
            copy_folder(&entry, &target, left)?;
        } else if kind.is_file() && kind.len() <= FILE_BYTES_MAX.min(left.bytes) {
            // Files that only root may read are skipped.
            if let Ok(bytes) = fs::read(&entry) {
                left.bytes -= bytes.len() as u64;
                fs::write(&target, bytes)?;
            }
        }
        left.files = left.files.saturating_sub(1);
    }
    Ok(())
}

fn make_odd(into: &Path) -> io::Result<()> {
    fs::create_dir(into)?;
    fs::write(into.join("empty"), b"")?;
    fs::write(into.join("n".repeat(255)), b"a name of 255 bytes")?;
    fs::File::create(into.join("sparse"))?.set_len(3 << 20)?;
    symlink("empty", into.join("link"))?;
    symlink("nowhere", into.join("dangling"))?;
    let mut bytes = vec![0; 2_345_678];
    Random(0xf00d).fill(&mut bytes);
    fs::write(into.join("random"), bytes)?;
    let mut deep = into.to_path_buf();
    for level in 0..24 {
        deep.push(format!("level{level}"));
        fs::create_dir(&deep)?;
    }
    fs::write(deep.join("bottom"), b"here")?;
    let many = into.join("many");
    fs::create_dir(&many)?;
    for file in 0..400u64 {
        fs::write(many.join(format!("file{file}")), vec![file as u8; (file * 37) as usize])?;
    }
    Ok(())
}

/// Panics with the difference unless both trees have the same names, links and bytes. `ignored` is a name to leave out.
#[track_caller]
pub fn assert_same(one: &Path, other: &Path, ignored: &str) {
    let exclude = format!("--exclude={ignored}");
    let words = ["--recursive", "--no-dereference", "--brief", &exclude];
    let mut diff = foreign::command("diff", words);
    let said = crate::programs::binary::run(diff.arg(one).arg(other));
    assert_eq!(said.code, Some(0), "{}\n{}{}", said.line, said.out, said.err);
}
