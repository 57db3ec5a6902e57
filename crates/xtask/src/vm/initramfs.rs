//! The guest's first and only file system: an archive that the kernel unpacks into memory.
//! Owns: the `newc` cpio format, the programs and their libraries, the guest's first process. Not here: QEMU (`machine`).
//! Invariant: made anew for every run, from what the host has; it takes a fraction of a second.

use super::kernel::{Kernel, ON_DEMAND};
use super::{Lab, LabError, at, lab_error, output_of};
use crate::programs::packages;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of the host that the guest gets besides busybox.
const PROGRAMS: &[&str] = &["mdadm"];

/// The guest's first process: mounts, modules, the disks by name, the script, power off.
const INIT: &str = include_str!("../../../../tests/vm/init.sh");

/// What one run does in the guest.
pub(crate) struct Run<'a> {
    /// A shell script.
    pub(crate) script: &'a str,
    /// Its arguments.
    pub(crate) arguments: &'a [String],
    /// Programs of the host that the script needs besides those that every guest has.
    pub(crate) programs: &'a [PathBuf],
}

/// The archive for one run.
pub(crate) fn build(kernel: &Kernel, run: &Run<'_>) -> Lab<Vec<u8>> {
    let mut archive = Cpio::default();
    for folder in ["dev", "proc", "sys", "run", "tmp", "root", "etc", "disk", "lab", "lab/modules"] {
        archive.folder(folder);
    }
    // What the first process says before its own mounts: devices of major 5, minor 1.
    archive.entry("dev/console", 0o020_600, (5, 1), &[]);
    archive.file("init", INIT.as_bytes(), 0o755);
    let Some(busybox) = packages::find("busybox") else { return lab_error("busybox is missing") };
    archive.program(&busybox, "bin/busybox")?;
    for name in PROGRAMS {
        match packages::find(name) {
            Some(path) => archive.program(&path, &format!("usr/bin/{name}"))?,
            None => return lab_error(format!("{name} is missing")),
        }
    }
    for path in run.programs {
        let name = path.file_name().and_then(|name| name.to_str()).expect("programs have names");
        archive.program(path, &format!("usr/bin/{name}"))?;
    }
    let mut order = Vec::new();
    for module in &kernel.modules {
        let name = module.file_name().and_then(|name| name.to_str()).expect("the cache names its modules");
        archive.file(&format!("lab/modules/{name}"), &at(module, std::fs::read(module))?, 0o644);
        if !ON_DEMAND.iter().any(|module| name.strip_suffix(".ko") == Some(module)) {
            order.push(name);
        }
    }
    archive.file("lab/order", order.join("\n").as_bytes(), 0o644);
    archive.file("lab/script", run.script.as_bytes(), 0o755);
    let words: Vec<String> = run.arguments.iter().map(|word| quoted(word)).collect();
    archive.file("lab/run", format!("exec /bin/sh /lab/script {}\n", words.join(" ")).as_bytes(), 0o755);
    Ok(archive.finish())
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A cpio archive in the making.
#[derive(Default)]
struct Cpio {
    bytes: Vec<u8>,
    seen: BTreeSet<String>,
    entries: u32,
}

impl Cpio {
    fn folder(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        if self.seen.insert(path.to_string()) {
            self.entry(path, 0o040_755, (0, 0), &[]);
        }
    }

    fn file(&mut self, path: &str, content: &[u8], mode: u32) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.folder(parent);
        }
        if self.seen.insert(path.to_string()) {
            self.entry(path, 0o100_000 | mode, (0, 0), content);
        }
    }

    /// A program of the host with every library it loads, those at the places where the loader looks for them.
    fn program(&mut self, source: &Path, target: &str) -> Lab<()> {
        self.file(target, &at(source, std::fs::read(source))?, 0o755);
        // A static program has no libraries: ldd says so and fails.
        let libraries = output_of(Command::new("ldd").arg(source)).unwrap_or_default();
        if libraries.contains("not found") {
            return lab_error(format!("{} needs a missing library:\n{libraries}", source.display()));
        }
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            let content = std::fs::read(library).map_err(|error| LabError::Trouble(format!("{library}: {error}")))?;
            self.file(library.trim_start_matches('/'), &content, 0o755);
        }
        Ok(())
    }

    /// "070701", thirteen numbers of eight hex digits, the name, the content; name and content padded to 4 bytes.
    fn entry(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("no file of the guest has 4 GiB");
        let name_bytes = u32::try_from(path.len() + 1).expect("names are short");
        self.bytes.extend_from_slice(b"070701");
        for number in [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_bytes, 0] {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_its_header_name_and_content_at_multiples_of_four() {
        let mut archive = Cpio::default();
        archive.file("a/b", b"hello", 0o644);
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // The folder a: header 110, name 2 -> 112. Then a/b: header 110 + name 4 -> 116 (padded), content at 228.
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[112..118], b"070701");
        assert_eq!(&bytes[112 + 110..112 + 113], b"a/b");
        assert_eq!(&bytes[228..233], b"hello");
        assert!(bytes.windows(10).any(|window| window == b"TRAILER!!!"));
    }

    #[test]
    fn a_quote_in_an_argument_is_escaped_for_the_shell() {
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
