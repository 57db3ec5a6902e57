//! Lines for mkfs in `detail`: only where no data is, and marked as erasing.
//! Owns: what counts as data, of an array that runs and of one that does not. Not here: the figures in the lines
//! (`detail`, `report::hints`).

use crate::common::{MIB, Scratch, pattern};
use std::path::PathBuf;

const HEAD: &str = "\nTo make a new file system, aligned to its stripes (erases the array):\n    mkfs.xfs ";

fn detail(scratch: &Scratch, named: &[PathBuf]) -> String {
    scratch.uraid(["detail", "--verbose"].map(PathBuf::from).into_iter().chain(named.to_vec())).expect_done().stdout
}

/// Whether lines for mkfs are shown; never without the word that says what they do.
fn suggests(shown: &str) -> bool {
    assert_eq!(shown.contains(HEAD), shown.contains("mkfs"), "{shown}");
    shown.contains(HEAD)
}

/// A file system, a partition table or a volume has bytes in the first or the last part of the array, not only at its
/// very beginning: Btrfs keeps the first 64 KiB free, and of GPT the end has a copy.
#[test]
fn mkfs_is_suggested_until_a_byte_of_data_is_there() {
    let home = [PathBuf::from("home")];
    for options in ["-l 0 -n 3", "-l 5 -n 3", "-l 6 -n 4", "-l 10 -n 4", "-l 10 -n 3 -p f2"] {
        let count = options.split_whitespace().nth(3).and_then(|word| word.parse().ok()).expect("-n N");
        for place in ["start", "64 KiB", "end", "middle"] {
            let case = format!("{options}, {place}");
            let scratch = Scratch::new();
            let members = scratch.members("m", count, 8 * MIB);
            scratch.create("home", &format!("{options} -c 64K --data-offset 1M --assume-clean"), &members);
            assert!(suggests(&detail(&scratch, &members)), "{case}: new");
            let served = scratch.ready(&[], &members);
            assert!(suggests(&detail(&scratch, &home)), "{case}: new, served");
            let mut client = served.client();
            let at = match place {
                "start" => 0,
                "64 KiB" => (64 << 10) + 512,
                "end" => client.size - 512,
                _ => client.size / 2,
            };
            // One byte in a sector of zeroes.
            let mut sector = [0; 512];
            sector[511] = 1;
            assert_eq!(client.write(at, &sector).expect("connected"), 0, "{case}");
            assert!(!suggests(&detail(&scratch, &home)), "{case}: written");
            drop(client);
            served.stop().expect_done();
            // What is only in the middle of an array is not looked for.
            let is_seen = place != "middle";
            assert_eq!(suggests(&detail(&scratch, &members)), !is_seen, "{case}: stopped");
            let served = scratch.ready(&[], &members);
            assert_eq!(suggests(&detail(&scratch, &home)), !is_seen, "{case}: served again");
            served.stop().expect_done();
        }
    }
}

#[test]
fn mkfs_is_not_suggested_where_the_data_cannot_be_seen() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("home", "-l 5 -n 3 -c 64K --assume-clean", &members);
    // What the missing member holds would have to be computed.
    assert!(!suggests(&detail(&scratch, &members[..2])));
    let served = scratch.ready(&["--run"], &members[..2]);
    assert!(!suggests(&detail(&scratch, &[PathBuf::from("home")])));
    served.stop().expect_done();
    // The members of an array of arrays carry it.
    let (left, right) = (scratch.members("l", 3, 20 * MIB), scratch.members("r", 3, 20 * MIB));
    scratch.create("left", "-l 5 -n 3 -c 64K --assume-clean", &left);
    scratch.create("right", "-l 5 -n 3 -c 64K --assume-clean", &right);
    let group = |members: &[PathBuf]| [PathBuf::from("--array")].into_iter().chain(members.to_vec());
    let groups: Vec<PathBuf> = group(&left).chain(group(&right)).collect();
    let create = ["create", "-l", "0", "-n", "2", "-N", "wide", "--homehost", "none"].map(PathBuf::from);
    scratch.uraid(create.into_iter().chain(groups.clone())).expect_done();
    let served = scratch.ready(&[], &groups);
    for name in ["left", "right", "wide"] {
        assert!(!suggests(&detail(&scratch, &[PathBuf::from(name)])), "{name}");
    }
    served.stop().expect_done();
    assert!(!suggests(&detail(&scratch, &left)), "it carries a superblock");
}

#[test]
fn scripts_get_no_command_that_erases_data() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    scratch.create("home", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let json = |named: &[PathBuf]| -> serde_json::Value {
        let words = ["detail", "--json"].map(PathBuf::from).into_iter().chain(named.to_vec());
        serde_json::from_str(&scratch.uraid(words).expect_done().stdout).expect("JSON")
    };
    let shown = json(&members);
    assert_eq!(
        (&shown["is_blank"], &shown["hints"]["mkfs_xfs"]),
        (&true.into(), &"mkfs.xfs -d su=64k,sw=2 DEVICE".into())
    );
    let served = scratch.ready(&[], &members);
    assert_eq!(served.client().write(0, &pattern(1, 4096)).expect("connected"), 0);
    for shown in [json(&[PathBuf::from("home")]), {
        served.stop().expect_done();
        json(&members)
    }] {
        assert_eq!(shown["is_blank"], false, "{shown}");
        assert!(shown["hints"]["mkfs_xfs"].is_null() && shown["hints"]["mkfs_ext4"].is_null(), "{shown}");
        assert!(shown["hints"]["mdadm_conf"].is_string(), "{shown}");
    }
}
