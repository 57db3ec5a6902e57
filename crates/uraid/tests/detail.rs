//! `uraid detail` on the members of an array that does not run.
//! Owns: what is said about members that were not given, left out, or keep the array from starting.
//! Not here: running arrays (`life`), the decision (`engine::assemble`).

mod common;

use common::{MIB, Scratch};
use std::path::Path;

#[test]
fn members_tell_what_is_missing_and_what_would_refuse_to_start() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 20 * MIB);
    scratch.create("away", "-l 6 -n 4 -c 64K", &members);
    let detail = |words: &[&str], count: usize| {
        let words =
            ["detail"].iter().chain(words).map(Path::new).chain(members[..count].iter().map(|path| path.as_path()));
        scratch.uraid(words).expect_done().stdout
    };
    let whole = detail(&[], 4);
    assert!(!whole.contains("not given") && !whole.contains("Would not start"), "{whole}");
    assert!(whole.contains("    mkfs.xfs -d su=64k,sw=2 DEVICE\n"), "{whole}");
    assert!(whole.contains("    mkfs.ext4 -E stride=16,stripe_width=32 DEVICE\n"), "{whole}");
    assert!(whole.contains("    ARRAY <ignore> UUID="), "{whole}");
    // Assumed clean, so that nothing but the missing member keeps it from starting.
    scratch.create("away", "--run -l 6 -n 4 -c 64K --assume-clean", &members);
    let part = detail(&[], 3);
    assert!(part.contains("       3      not given\n") && !part.contains("removed"), "{part}");
    assert!(part.contains("\nWould not start: found 3 members, the superblocks count 4"), "{part}");
    let json: serde_json::Value = serde_json::from_str(&detail(&["--json"], 3)).expect("JSON");
    assert_eq!(json["members"][3]["state"], "not given", "{json}");
    assert!(json["refusal"].as_str().is_some_and(|text| text.contains("--run")), "{json}");
    scratch.create("away", "--run -l 6 -n 4 -c 64K -e 1.0", &members);
    assert!(detail(&[], 4).contains("           Version : 1.0\n"));
}
