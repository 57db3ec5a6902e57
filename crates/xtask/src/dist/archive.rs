//! Archives: tar, ar, and what compresses them.
//! Owns: the bytes of tar (ustar) and ar, calls of gzip, xz and sha256sum. Not here: what is in them.
//! Invariant: nothing of this system gets into an archive: owners are root, times are given.
//! Spec: pax(1) on ustar; deb(5) on ar.

use super::tree::{Entry, Tree};
use std::io::Write;
use std::process::{Command, Stdio};

const BLOCK: usize = 512;
/// A path longer than this is split in two, which none of ours needs.
const NAME_MAX: usize = 100;

/// A tar archive of a tree; each path begins with `prefix`, as `./` in a Debian package.
pub(super) fn tar(tree: &Tree, prefix: &str, time: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if !prefix.is_empty() {
        out.extend(header(prefix, 0o755, 0, time, b'5', ""));
    }
    for (path, entry) in tree.entries() {
        let path = format!("{prefix}{path}");
        match entry {
            Entry::Folder => out.extend(header(&format!("{path}/"), 0o755, 0, time, b'5', "")),
            Entry::Link { to } => out.extend(header(&path, 0o777, 0, time, b'2', to)),
            Entry::File { bytes, mode } => {
                out.extend(header(&path, *mode, bytes.len(), time, b'0', ""));
                out.extend(bytes);
                out.resize(out.len().next_multiple_of(BLOCK), 0);
            }
        }
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn header(path: &str, mode: u32, size: usize, time: u64, kind: u8, link: &str) -> [u8; BLOCK] {
    assert!(path.len() <= NAME_MAX && link.len() <= NAME_MAX, "{path}");
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{time:011o}").as_bytes());
    // The sum is that of a header with blanks in its place.
    put(148, b"        ");
    put(156, &[kind]);
    put(157, link.as_bytes());
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// An ar archive of these files.
pub(super) fn ar(files: &[(&str, Vec<u8>)], time: u64) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, bytes) in files {
        assert!(name.len() <= 16, "{name}");
        out.extend(format!("{name:<16}{time:<12}0     0     100644  {:<10}`\n", bytes.len()).bytes());
        out.extend(bytes);
        if bytes.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

/// `gzip -9n`: without name and time.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    through("gzip", &["-9nc"], bytes)
}

/// `xz -6`.
pub(super) fn xz(bytes: &[u8]) -> Result<Vec<u8>, String> {
    through("xz", &["-6c"], bytes)
}

/// The SHA-256 of bytes, in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> Result<String, String> {
    digest("sha256sum", bytes)
}

/// The MD5 of bytes, which Debian's list of files has.
pub(super) fn md5(bytes: &[u8]) -> Result<String, String> {
    digest("md5sum", bytes)
}

fn digest(program: &str, bytes: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(&through(program, &["-"], bytes)?).into_owned();
    text.split(' ').next().map(str::to_owned).ok_or_else(|| format!("{program} prints no sum"))
}

/// What a program makes of bytes.
fn through(program: &str, words: &[&str], bytes: &[u8]) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("piped");
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(bytes));
        let output = child.wait_with_output();
        writer.join().expect("it only writes").and(output)
    });
    let output = output.map_err(failed)?;
    if output.status.success() { Ok(output.stdout) } else { Err(format!("{program}: {}", output.status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(words: &[&str], archive: &[u8]) -> String {
        String::from_utf8(through(words[0], &words[1..], archive).expect("it is installed")).expect("text")
    }

    #[test]
    fn tar_reads_what_is_written() {
        let mut tree = Tree::default();
        tree.file("usr/bin/uraid", vec![7; 1000], 0o755);
        tree.link("usr/lib/uraid/mdadm", "../../bin/uraid");
        let archive = tar(&tree, "./", 86_400);
        assert_eq!(archive.len() % BLOCK, 0);
        let text = listed(&["tar", "--utc", "-tvf", "-"], &archive);
        let expected = [
            "drwxr-xr-x root/root 0 1970-01-02 00:00 ./",
            "drwxr-xr-x root/root 0 1970-01-02 00:00 ./usr/",
            "drwxr-xr-x root/root 0 1970-01-02 00:00 ./usr/bin/",
            "-rwxr-xr-x root/root 1000 1970-01-02 00:00 ./usr/bin/uraid",
            "drwxr-xr-x root/root 0 1970-01-02 00:00 ./usr/lib/",
            "drwxr-xr-x root/root 0 1970-01-02 00:00 ./usr/lib/uraid/",
            "lrwxrwxrwx root/root 0 1970-01-02 00:00 ./usr/lib/uraid/mdadm -> ../../bin/uraid",
        ];
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn an_odd_file_of_an_ar_archive_is_padded() {
        let archive = ar(&[("debian-binary", b"2.0\n".to_vec()), ("odd", b"abc".to_vec())], 5);
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 3 + 1);
        assert!(archive[8..].starts_with(b"debian-binary   5           0     0     100644  4         `\n2.0\n"));
    }
}
