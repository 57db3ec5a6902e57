//! `uraid bench --directory`: scenarios on a mounted file system.
//! Owns: what is counted beside what the file's place predicts, what is left, refusals. Not here: the scenarios on memory
//! (`bench`), mounting (`mounting`).

use crate::common::Scratch;
use crate::mounting::rig;
use serde_json::Value;
use std::fs;

fn rows(text: &str) -> Vec<Value> {
    let value: Value = serde_json::from_str(text).expect("JSON");
    value.as_array().expect("a list").clone()
}

#[test]
fn writes_and_trims_of_a_mounted_file_system_are_counted_beside_what_they_should_be() {
    let Some(rig) = rig("5 -c 64K", 3) else { return };
    rig.mount(&[], &rig.members).expect_done();
    let folder = rig.folder.to_str().expect("ASCII").to_owned();
    let bench = |scenario: &str, option: &str| {
        let words = ["bench", "--scenario", scenario, "--directory", &folder, option];
        rig.scratch.uraid(words.into_iter().filter(|word| !word.is_empty()))
    };
    let found = rows(&bench("alignment", "--json").expect_done().stdout);
    assert_eq!(found.len(), 4);
    for row in found.iter().filter(|row| row["unit"] == "%") {
        let (counted, predicted) = (row["array"].as_f64().expect("a share"), row["raw"].as_f64().expect("a share"));
        // The journal of ext4 writes as well.
        assert!((counted - predicted).abs() < 15.0, "{row}");
        assert!(row["work"].as_str().is_some_and(|work| work.contains("on home, raid5 of 3")), "{row}");
    }
    assert!(found.iter().filter(|row| row["unit"] == "MB/s").all(|row| row["array"].as_f64() > Some(0.0)));
    let found = rows(&bench("raid10-discard", "--json").expect_done().stdout);
    let requests = &found[1];
    assert!(requests["array"].as_f64() > Some(0.0) && requests["raw"].as_f64() > Some(0.0), "{requests}");
    let text = bench("alignment", "").expect_done().stdout;
    assert!(
        text.contains("preallocated, parts of rows written whole: ") && text.contains("as the file lies"),
        "{text}"
    );
    bench("raid6-read", "")
        .expect_refused(&["--directory is of --scenario alignment and raid10-discard, found raid6-read"]);
    let left: Vec<_> = fs::read_dir(&rig.folder).expect("mounted").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["lost+found"]);
    rig.umount().expect_done();
}

#[test]
fn a_folder_that_is_on_no_array_or_on_one_without_parity_is_refused() {
    let scratch = Scratch::new();
    let folder = scratch.path("");
    let words = ["bench", "--scenario", "alignment", "--directory", folder.to_str().expect("ASCII")];
    scratch.uraid(words).expect_refused(&["expected a folder of a file system that `uraid mount` has mounted"]);
    let missing = scratch.path("missing");
    let words = ["bench", "--scenario", "alignment", "--directory", missing.to_str().expect("ASCII")];
    scratch.uraid(words).expect_refused(&["missing/uraid-bench-", "not found"]);
    let Some(rig) = rig("1", 2) else { return };
    rig.mount(&[], &rig.members).expect_done();
    let words = ["bench", "--scenario", "alignment", "--directory", rig.folder.to_str().expect("ASCII")];
    rig.scratch.uraid(words).expect_refused(&["home: has no stripes with parity", "expected raid4, raid5 or raid6"]);
    rig.umount().expect_done();
}
