//! Members that the real md driver and mdadm wrote, as files.
//! Owns: reading `crates/format/tests/golden`. Not here: what is expected of them.

use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/golden");
    let text = fs::read_to_string(folder.join(format!("{name}.json"))).expect("a golden array");
    serde_json::from_str(&text).expect("JSON")
}

pub fn golden_names() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../format/tests/golden");
    let files = fs::read_dir(folder).expect("the golden arrays").map(|file| file.expect("a file").path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert!(names.len() > 50, "{names:?}");
    names
}

/// `a92b4e` are bytes, `ff*512` is one byte repeated.
fn words(text: &str) -> Vec<u8> {
    let hex = |text: &str| u8::from_str_radix(text, 16).expect("two hex digits");
    let mut bytes = Vec::new();
    for word in text.split(' ') {
        match word.split_once('*') {
            Some((byte, times)) => bytes.resize(bytes.len() + times.parse::<usize>().expect("a count"), hex(byte)),
            None => bytes.extend((0..word.len()).step_by(2).map(|at| hex(&word[at..at + 2]))),
        }
    }
    bytes
}

/// Makes the file that a golden member describes, and gives its path.
pub fn restored(path: PathBuf, member: &Value) -> PathBuf {
    let file = File::create(&path).expect("a file");
    file.set_len(member["sectors"].as_u64().expect("a size") * 512).expect("there was room");
    for piece in member["content"].as_array().expect("a list") {
        let at = piece[0].as_u64().expect("a sector") * 512;
        file.write_all_at(&words(piece[1].as_str().expect("words")), at).expect("written");
    }
    path
}
