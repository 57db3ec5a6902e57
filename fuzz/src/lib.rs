//! Fuzz targets: the parsers of disk and wire data, and the planner, against arbitrary bytes.
//! Owns: the list of targets, reading of inputs. Not here: the driver (`main`), the replay of the corpora (tests).
//! Invariant: a target panics only when the code under it is wrong; what it allocates is bounded.
//! Spec: STYLE.md, "Bytes from disk, wire or user never panic us"; README.md of this folder.

pub mod allocation;
pub mod input;
mod targets;

/// A target: a function over arbitrary bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the folder's name under `corpus/`.
    pub name: &'static str,
    /// Longer inputs are useless: the rest is ignored.
    pub bytes_max: usize,
    /// Panics when it finds something.
    pub run: fn(&[u8]),
}

/// All targets, by name.
pub const TARGETS: &[Target] = &[
    Target { name: "assemble", bytes_max: 512, run: targets::assemble::run },
    Target { name: "bad_blocks", bytes_max: 4097, run: targets::bad_blocks::run },
    Target { name: "bitmap", bytes_max: 1024, run: targets::bitmap::run },
    Target { name: "find", bytes_max: 4096, run: targets::find::run },
    Target { name: "journal", bytes_max: 4097, run: targets::journal::run },
    Target { name: "nbd_extended", bytes_max: 512, run: targets::nbd_extended::run },
    Target { name: "nbd_handshake", bytes_max: 512, run: targets::nbd_handshake::run },
    Target { name: "nbd_session", bytes_max: 600, run: targets::nbd_session::run },
    Target { name: "nbd_transmission", bytes_max: 512, run: targets::nbd_transmission::run },
    Target { name: "partition", bytes_max: 4096, run: targets::partition::run },
    Target { name: "planner", bytes_max: 256, run: targets::planner::run },
    Target { name: "ppl", bytes_max: 4097, run: targets::ppl::run },
    Target { name: "signature", bytes_max: 8192, run: targets::signature::run },
    Target { name: "superblock", bytes_max: 4106, run: targets::superblock::run },
];

/// The target of that name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
