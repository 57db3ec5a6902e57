//! Write-behind on the real binary: how it is asked for, what is refused, what the bitmap and reports say, what members hold
//! after a stop.
//! Owns: `--write-behind` of `create` and `bitmap`. Not here: which write is answered when (the simulator).

use crate::common::{MIB, Scratch, pattern};
use std::fs;
use std::path::Path;

fn write_mode(scratch: &Scratch, member: &Path) -> String {
    let shown = scratch.uraid([std::ffi::OsStr::new("examine"), member.as_os_str()]).expect_done().stdout;
    let line = shown.lines().find(|line| line.contains("Write Mode")).unwrap_or_else(|| panic!("{shown}"));
    line.trim().to_owned()
}

#[test]
fn an_array_with_write_behind_says_so_and_every_member_has_everything_after_a_stop() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    let options = "create --homehost none -N home -l 1 -n 2 --assume-clean --bitmap=internal --write-behind"
        .split(' ')
        .map(Into::into);
    let words: Vec<std::ffi::OsString> =
        options.chain([members[0].clone().into(), "--write-mostly".into(), members[1].clone().into()]).collect();
    let done = scratch.uraid(words).expect_done().stdout;
    assert!(done.contains("write-behind: at most 256 writes, on write-mostly members\n"), "{done}");
    for member in &members {
        assert_eq!(write_mode(&scratch, member), "Write Mode : Allow write behind, max 256");
    }
    let served = scratch.ready(&[], &members);
    let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
    assert!(shown.contains("Write Mode : Allow write behind, max 256"), "{shown}");
    let data = pattern(7, served.client().size as usize);
    served.write_all(0, &data);
    assert_eq!(served.stop().code, Some(0));
    for member in &members {
        let bytes = fs::read(member).expect("it can be read");
        assert!(bytes.windows(4096).step_by(4096).any(|block| block == &data[..4096]), "the data is on {member:?}");
    }
    let of_data = |member: &Path| fs::read(member).expect("it can be read")[2 * MIB as usize..].to_vec();
    assert!(of_data(&members[0]) == of_data(&members[1]), "both hold the same");
}

#[test]
fn a_running_array_gets_write_behind_with_its_bitmap_and_loses_it_with_it() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 16 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean --bitmap=none", &members);
    let served = scratch.ready(&[], &members);
    let none = "no member is write-mostly, and write-behind is for these: `uraid write-mostly home MEMBER` first";
    scratch.uraid(["bitmap", "home", "internal", "--write-behind"]).expect_refused(&[none]);
    scratch.uraid(["write-mostly", "home", "1"]).expect_done();
    let done = scratch.uraid(["bitmap", "home", "internal", "--write-behind=64"]).expect_done();
    assert!(done.stdout.ends_with(", write-behind of at most 64\n"), "{done:?}");
    served.write_all(0, &pattern(3, MIB as usize));
    assert_eq!(write_mode(&scratch, &members[0]), "Write Mode : Allow write behind, max 64");
    scratch.uraid(["bitmap", "home", "none"]).expect_done();
    let shown = scratch.uraid(["detail", "home"]).expect_done().stdout;
    assert!(!shown.contains("Write Mode"), "{shown}");
    scratch.uraid(["bitmap", "home", "internal"]).expect_done();
    assert_eq!(write_mode(&scratch, &members[0]), "Write Mode : Normal");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn write_behind_is_refused_where_it_means_nothing() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 16 * MIB);
    let create = |options: &str, expected: &str| {
        let words = format!("create --name home {options}");
        let words =
            words.split(' ').map(Into::into).chain(members.iter().map(|member| member.clone().into_os_string()));
        let done = scratch.uraid(words);
        assert!(done.code != Some(0) && done.stderr.contains(expected), "{options}: {done:?}");
    };
    create("-l 1 -n 3 --write-behind", "--write-behind needs a bitmap");
    create("-l 1 -n 3 --bitmap=none --write-behind=5", "--write-behind needs a bitmap");
    create("-l 5 -n 3 --bitmap=internal --write-behind", "--write-behind is for raid1");
    create("-l 1 -n 3 --bitmap=internal --write-behind=16384", "expected 1 to 16383");
    create("-l 1 -n 3 --bitmap=internal --write-behind=0", "expected 1 to 16383");
}
