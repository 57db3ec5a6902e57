//! The mounted folder: names, numbers and attributes of its files.
//! Owns: [`Export`], [`Folder`]. Not here: what is in the files (`transfer`), open files (`common`).
//! Invariant: node 1 is the folder, node 2 + n the file of export n; both never change.

use std::time::Duration;
use uraid_block::Geometry;
use uraid_fuse::{Attributes, Errno, FileKind, FileSystem, NodeId, directory_entry};

/// The node of the folder itself; the protocol's number.
const ROOT: NodeId = NodeId(1);
/// How long the kernel may use names and attributes: it asks each time. The size changes with that of the array, the
/// rights with `readonly` and `readwrite`. Files are opened for direct I/O, which asks for no attributes.
pub(crate) const VALID: Duration = Duration::ZERO;
/// The unit of file systems without chunks, and the granularity of discards of a loop device on a file: a page.
const PAGE_BYTES: u32 = 4096;
/// The largest unit for I/O that programs are told.
const BLOCK_BYTES_MAX: u64 = 1 << 30;

/// One file of the mount.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its name in the folder: unique, not empty, without a slash.
    pub name: String,
    /// Whether it cannot be opened for writing.
    pub read_only: bool,
}

/// What a node number stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Node {
    Folder,
    /// The file of this export.
    File(usize),
}

/// A file as the kernel sees it.
#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) export: Export,
    /// The unit of the device's reads and writes, in bytes.
    pub(crate) block: u64,
}

/// The folder and its files.
#[derive(Debug)]
pub(crate) struct Folder {
    files: Vec<File>,
    owner: (u32, u32),
    /// Seconds since 1970, of all times.
    time: u64,
}

impl File {
    pub(crate) fn new(export: Export, geometry: &Geometry) -> File {
        let block = geometry.logical_block.bytes().max(512);
        assert!(block.is_power_of_two());
        File { export, block }
    }

    /// Its size in bytes while its device has this geometry: whole blocks.
    pub(crate) fn size(&self, geometry: &Geometry) -> u64 {
        geometry.size.bytes() / self.block * self.block
    }
}

/// What programs are told to read and write at once, in bytes: the chunk.
fn unit(geometry: &Geometry) -> u32 {
    match geometry.chunk.bytes() {
        0 => PAGE_BYTES,
        chunk => chunk.min(BLOCK_BYTES_MAX) as u32,
    }
}

impl Folder {
    /// Panics if two files have one name, or a name is none.
    pub(crate) fn new(files: Vec<File>, owner: (u32, u32), time: u64) -> Folder {
        for (at, file) in files.iter().enumerate() {
            let name = &file.export.name;
            assert!(!name.is_empty() && !name.contains('/') && name != "." && name != "..");
            assert!(files[..at].iter().all(|other| other.export.name != *name), "two files have one name");
        }
        Folder { files, owner, time }
    }

    pub(crate) fn file(&self, export: usize) -> &File {
        &self.files[export]
    }

    /// What a number from the kernel stands for.
    pub(crate) fn node(&self, node: NodeId) -> Result<Node, Errno> {
        if node == ROOT {
            return Ok(Node::Folder);
        }
        let file = node.0.checked_sub(ROOT.0 + 1).and_then(|file| usize::try_from(file).ok());
        file.filter(|&file| file < self.files.len()).map(Node::File).ok_or(Errno::NoEnt)
    }

    fn id(node: Node) -> NodeId {
        match node {
            Node::Folder => ROOT,
            Node::File(export) => NodeId(ROOT.0 + 1 + export as u64),
        }
    }

    /// The file with this name.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Node, Errno> {
        let found = self.files.iter().position(|file| file.export.name.as_bytes() == name);
        found.map(Node::File).ok_or(Errno::NoEnt)
    }

    /// `device`: what the device of an export has now, and whether it is read-only.
    pub(crate) fn attributes(&self, node: Node, device: impl Fn(usize) -> (Geometry, bool)) -> Attributes {
        let (owner, time) = (self.owner, self.time);
        let id = Folder::id(node);
        match node {
            Node::Folder => {
                let (kind, rights, block_bytes) = (FileKind::Folder, 0o500, PAGE_BYTES);
                Attributes { node: id, kind, rights, size: 0, block_bytes, links: 2, owner, time }
            }
            Node::File(export) => {
                let (file, (geometry, is_read_only)) = (&self.files[export], device(export));
                let rights = if file.export.read_only || is_read_only { 0o400 } else { 0o600 };
                let (kind, size, block_bytes) = (FileKind::File, file.size(&geometry), unit(&geometry));
                Attributes { node: id, kind, rights, size, block_bytes, links: 1, owner, time }
            }
        }
    }

    /// The numbers of a file, or of all files. `device`: what the device of an export has now.
    pub(crate) fn file_system(&self, node: Node, device: impl Fn(usize) -> Geometry) -> FileSystem {
        let exports = match node {
            Node::Folder => 0..self.files.len(),
            Node::File(export) => export..export + 1,
        };
        let files = || exports.clone().map(|export| (export, &self.files[export]));
        let block = files().map(|(_, file)| file.block as u32).max().unwrap_or(PAGE_BYTES).max(PAGE_BYTES);
        let bytes = files().map(|(export, file)| file.size(&device(export))).fold(0, u64::saturating_add);
        FileSystem { bytes, block_bytes: block, files: exports.len() as u64 }
    }

    /// The entries from the one with number `offset`, as many as fit into `bytes_max`.
    pub(crate) fn list(&self, offset: u64, bytes_max: usize) -> Vec<u8> {
        let dots = [(Node::Folder, "."), (Node::Folder, "..")].into_iter();
        let files = (0..).map(Node::File).zip(self.files.iter().map(|file| file.export.name.as_str()));
        let mut entries = Vec::new();
        for (number, (node, name)) in (0..).zip(dots.chain(files)) {
            let kind = if node == Node::Folder { FileKind::Folder } else { FileKind::File };
            if number < offset {
                continue;
            }
            if !directory_entry(&mut entries, bytes_max, Folder::id(node), kind, name.as_bytes(), number + 1) {
                break;
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uraid_block::Sectors;

    fn geometry(export: usize) -> Geometry {
        let (size, chunk, block) = [(2048, 1024, 1), (1001, 0, 8)][export];
        let (chunk, logical_block) = (Sectors(chunk), Sectors(block));
        Geometry { chunk, logical_block, ..Geometry::of_disk(Sectors(size)) }
    }

    fn folder() -> Folder {
        let file =
            |name: &str, read_only, export| File::new(Export { name: name.to_owned(), read_only }, &geometry(export));
        Folder::new(vec![file("home", false, 0), file("old", true, 1)], (7, 8), 9)
    }

    #[test]
    fn numbers_and_names_of_files_and_of_nothing_else_are_found() {
        let folder = folder();
        assert_eq!(folder.node(NodeId(1)), Ok(Node::Folder));
        assert_eq!((folder.find(b"old"), folder.node(NodeId(3))), (Ok(Node::File(1)), Ok(Node::File(1))));
        for node in [0, 4, u64::MAX] {
            assert_eq!(folder.node(NodeId(node)), Err(Errno::NoEnt));
        }
        for name in [&b""[..], b"hom", b"home2", b"..", b"."] {
            assert_eq!(folder.find(name), Err(Errno::NoEnt));
        }
    }

    #[test]
    fn a_file_has_the_size_of_whole_blocks_and_the_chunk_as_its_unit() {
        let folder = folder();
        let of = |node, is_read_only| folder.attributes(node, |export| (geometry(export), is_read_only));
        let (home, old) = (of(Node::File(0), false), of(Node::File(1), false));
        assert_eq!((home.size, home.block_bytes, home.rights), (1 << 20, 512 << 10, 0o600));
        assert_eq!(of(Node::File(0), true).rights, 0o400);
        assert_eq!((old.size, old.block_bytes, old.rights), (1000 * 512, 4096, 0o400));
        let both = folder.file_system(Node::Folder, geometry);
        assert_eq!((both.bytes, both.block_bytes, both.files), (home.size + old.size, 4096, 2));
    }

    #[test]
    fn a_device_of_another_size_is_a_file_of_that_size_at_once() {
        let folder = folder();
        let grown = |export| Geometry { size: Sectors(4099), ..geometry(export) };
        let of = |export| folder.attributes(Node::File(export), |export| (grown(export), false)).size;
        assert_eq!((of(0), of(1)), (4099 * 512, 4096 * 512));
        assert_eq!(folder.file_system(Node::File(1), grown).bytes, 4096 * 512);
        assert!(VALID.is_zero(), "the kernel asks for it each time");
    }

    #[test]
    fn a_listing_goes_on_where_it_was_cut() {
        let folder = folder();
        let all = folder.list(0, 4096);
        // `.`, `..`, `old` have 32 bytes each, `home`, too.
        assert_eq!(all.len(), 4 * 32);
        let first = folder.list(0, 3 * 32 + 31);
        assert_eq!(first, all[..96]);
        assert_eq!(folder.list(3, 4096), all[96..]);
        assert!(folder.list(4, 4096).is_empty() && folder.list(u64::MAX, 4096).is_empty());
    }
}
