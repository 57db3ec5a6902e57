//! The dumps in docs/format are bytes that parse, and mean what the text beside them says.
//! Owns: reading `XXXX  16 bytes  words` and `*` out of the documents. Not here: the codecs.

#![expect(clippy::disallowed_methods, reason = "a test reads the documents")]

use uraid_block::{ArraySector, MemberSector, Sector, Sectors, Slot};
use uraid_format::bad_blocks::BadBlockLog;
use uraid_format::bitmap::{BitmapHeader, BitmapStatistics, ChunkState};
use uraid_format::journal::{JournalBlock, JournalEntry};
use uraid_format::ppl::PplHeader;
use uraid_format::{Role, Superblock, Superblock090, Version, uuid};

/// The document, and the 4096 bytes of its worked example.
fn example(document: &str) -> (String, [u8; 4096]) {
    let path = format!("{}/../../docs/format/{document}.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let (_, worked) = text.split_once("## A worked example").expect("a worked example");
    let dump = worked.split("```").nth(1).expect("a dump").lines().skip(1);
    let mut bytes: Vec<u8> = Vec::new();
    let mut first = None;
    let mut is_repeating = false;
    for line in dump {
        if line == "*" {
            is_repeating = true;
            continue;
        }
        let mut words = line.split_whitespace();
        let at = usize::from_str_radix(words.next().expect("an address"), 16).unwrap();
        let first = *first.get_or_insert(at);
        while is_repeating && bytes.len() < at - first {
            bytes.extend_from_within(bytes.len() - 16..);
        }
        is_repeating = false;
        assert_eq!(bytes.len(), at - first, "{document}: {line}");
        let row: Vec<u8> = words.take(16).map(|word| u8::from_str_radix(word, 16).unwrap()).collect();
        assert!(row.len() == 16 || row.is_empty(), "{document}: {line}");
        bytes.extend(row);
    }
    let length = bytes.len();
    (text, bytes.try_into().unwrap_or_else(|_| panic!("{document}: {length} bytes, expected 4096")))
}

/// The array's id, which the text gives where the bytes do not.
fn set_uuid(text: &str) -> [u8; 16] {
    // Prose is wrapped anywhere.
    let words: Vec<&str> = text.split_whitespace().collect();
    let sentence = ["The", "array's", "id", "is"];
    let at = words.windows(4).rposition(|window| window == sentence).expect("the id in words");
    uuid::parse(words[at + 4].trim_end_matches(['.', ',', ';', ':'])).expect("an id")
}

#[test]
fn the_superblocks_in_the_documents_parse() {
    let (_, bytes) = example("superblock-1");
    let superblock = Superblock::parse(&bytes, Sector(8), Sectors(40_960)).unwrap();
    assert!(superblock.encode()[..] == bytes[..]);
    assert_eq!((superblock.events, superblock.own_role()), (42, Role::Slot(Slot(1))));

    let (_, bytes) = example("superblock-0.90");
    let own = Superblock090::parse(&bytes).unwrap();
    assert!(own.encode()[..] == bytes[..]);
    assert_eq!((own.md_minor, own.size_kib, own.spare_disks), (7, 8128, 1));
    let superblock = Superblock::parse(&bytes, Sector(16_256), Sectors(16_384)).unwrap();
    assert_eq!((superblock.version, superblock.resync_offset, superblock.events), (Version::V0_90, 0, 2));
    assert_eq!((superblock.own_role(), superblock.roles[3]), (Role::Slot(Slot(0)), Role::Spare));
}

#[test]
fn the_reshape_in_the_document_matches_its_text() {
    let (_, bytes) = example("reshape");
    let superblock = Superblock::parse(&bytes, Sector(8), Sectors(16_384)).unwrap();
    let plan = superblock.reshape_plan().unwrap().expect("a reshape");
    assert_eq!((plan.from.raid_disks, plan.to.raid_disks, plan.position), (3, 4, ArraySector(9216)));
    assert_eq!((plan.is_backwards, plan.to.chunk, plan.to.level), (false, Sectors(128), 5));
}

#[test]
fn the_logs_in_the_documents_parse() {
    let (_, bytes) = example("bad-blocks");
    let log = BadBlockLog::parse(&bytes, 0).unwrap();
    assert!(log.encode().unwrap()[..] == bytes[..]);
    assert_eq!((log.ranges.len(), log.ranges[0].start, log.ranges[0].length), (1, Sector(3048), Sectors(8)));

    let (_, bytes) = example("bitmap");
    let header = BitmapHeader::parse(bytes.first_chunk().unwrap()).unwrap();
    assert!(header.encode()[..] == bytes[..256]);
    assert_eq!((header.sync_size, header.chunk_bytes), (Sectors(14_336), 64 << 20));
    let mut statistics = BitmapStatistics::new(&header);
    statistics.add(&bytes[256..]);
    assert_eq!((statistics.count(ChunkState::Clean), statistics.count(ChunkState::Dirty)), (1, 0));

    let (text, bytes) = example("ppl");
    let header = PplHeader::parse(&bytes, &set_uuid(&text)).unwrap();
    assert!(header.encode()[..] == bytes[..]);
    assert_eq!((header.generation, header.entries[0].data_sector), (2, ArraySector(640)));
    assert!(header.entries[0].matches(&[0; 4096]));

    let (text, bytes) = example("journal");
    let block = JournalBlock::parse(&bytes, &set_uuid(&text)).unwrap();
    assert!(block.encode(&set_uuid(&text))[..] == bytes[..]);
    assert_eq!((block.position, block.log_length()), (Sector(40), Sectors(24)));
    let [JournalEntry::Data(data), JournalEntry::Parity(parity)] = &block.entries[..] else { panic!("{block:?}") };
    assert_eq!((data.location, parity.location), (ArraySector(640), MemberSector(256)));
}
