//! `uraid detail` for scripts and monitors: `--test`, `--export`, `--brief`, `--scan`.
//! Owns: exit codes, and lines beside the installed mdadm's, of running arrays. Not here: the text and JSON (`detail`,
//! `passes`), every key and its form (unit tests of `report`).

use crate::common::stubborn::{Fails, StubbornFile};
use crate::common::{Done, MIB, Scratch, Served, wait};
use std::path::PathBuf;
use std::process::Command;

fn detail(scratch: &Scratch, words: &[&str]) -> Done {
    scratch.uraid(["detail"].iter().chain(words))
}

fn served(scratch: &Scratch, name: &str, options: &str, members: &[PathBuf]) -> Served {
    scratch.create(name, options, members);
    scratch.ready(&[], members)
}

#[test]
fn the_exit_code_tells_the_state() {
    let scratch = Scratch::new();
    let mut members = scratch.members("m", 3, 8 * MIB);
    let full = StubbornFile::in_place_of(&mut members, 0);
    let server = served(&scratch, "home", "-l 5 -n 3 -c 64K --assume-clean", &members);
    let test = |words: &[&str]| detail(&scratch, &[&["--test"], words].concat());
    let whole = test(&["home"]).expect_done();
    assert!(whole.stdout.contains("State : clean \n"), "{whole:?}");
    scratch.uraid(["fail", "home", "2"]).expect_done();
    let degraded = test(&["-Y", "home"]);
    assert!(degraded.code == Some(1) && degraded.stdout.starts_with("MD_LEVEL=raid5\n"), "{degraded:?}");
    assert_eq!(degraded.stderr, "", "it did what it was asked to");
    // The worst of all counts.
    let others = scratch.members("o", 2, 8 * MIB);
    let other = served(&scratch, "other", "-l 1 -n 2 --assume-clean", &others);
    assert_eq!((test(&["other"]).code, test(&["--scan"]).code), (Some(0), Some(1)));
    assert_eq!((test(&["other", "home"]).code, test(&["other", "nothing"]).code), (Some(1), Some(4)));
    let both = detail(&scratch, &["other", "home", &others[0].to_string_lossy()]).expect_done().stdout;
    assert_eq!(both.matches("Raid Level : ").count(), 2, "each once: {both}");
    // A stop is of one array.
    for word in ["home", "nothing"] {
        let expected = format!("{word} is neither the array other nor a member of it: give one array at a time");
        scratch.uraid(["stop", "other", word]).expect_refused(&[&expected]);
    }
    full.fail(Fails::Full);
    let mut client = server.client();
    assert_ne!(client.write(0, &[1; 64 << 10]).expect("connected"), 0, "there is no room");
    wait(|| test(&["home"]).code == Some(2)).expect("it is frozen");
    assert!(test(&["home"]).stdout.contains("State : broken, degraded \n"), "{:?}", test(&["home"]));
    full.fail(Fails::Nothing);
    drop(client);
    assert_eq!(other.stop().code, Some(0));
    server.stop();
    // What does not run has no state to tell.
    let gone = test(&["home"]);
    assert!(gone.code == Some(4) && gone.stderr.contains("no running array is called home"), "{gone:?}");
    let stopped = test(&[&others[0].to_string_lossy(), &others[1].to_string_lossy()]);
    assert!(stopped.code == Some(4) && stopped.stdout.contains("Not Started"), "{stopped:?}");
    assert!(stopped.stderr.contains("other does not run: --test tells the state of running arrays"), "{stopped:?}");
    assert_eq!(test(&["--scan"]).code, Some(0), "no array runs, so none needs attention");
}

#[test]
fn exported_lines_are_mdadms() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 8 * MIB);
    let server = served(&scratch, "home", "-l 1 -n 2 -x 1 --assume-clean", &members);
    let shown = detail(&scratch, &["--export", "home"]).expect_done().stdout;
    let uuid = shown.lines().find_map(|line| line.strip_prefix("MD_UUID=")).expect("it has one").to_owned();
    let mut expected =
        format!("MD_LEVEL=raid1\nMD_DEVICES=2\nMD_METADATA=1.2\nMD_UUID={uuid}\nMD_DEVNAME=home\nMD_NAME=home\n");
    assert_eq!(detail(&scratch, &["--export", "--no-devices", "home"]).expect_done().stdout, expected);
    for (member, role) in members.iter().zip(["0", "1", "spare"]) {
        let path = member.canonicalize().expect("it is there").display().to_string();
        let key = path[1..].replace(['/', '-', '.'], "_");
        expected = format!("{expected}MD_DEVICE_{key}_ROLE={role}\nMD_DEVICE_{key}_DEV={path}\n");
    }
    assert_eq!(shown, expected);
    assert_eq!(server.stop().code, Some(0));
    // The identity is what mdadm reads in the superblocks.
    let Ok(examined) = Command::new("mdadm").args(["--examine", "--export"]).arg(&members[0]).output() else {
        println!("not compared: mdadm is not installed");
        return;
    };
    let examined = String::from_utf8_lossy(&examined.stdout).into_owned();
    for key in ["MD_LEVEL=", "MD_DEVICES=", "MD_UUID=", "MD_NAME="] {
        let line = |text: &str| text.lines().find(|line| line.starts_with(key)).map(str::to_owned);
        assert_eq!(line(&shown), line(&examined), "{examined}");
    }
}

#[test]
fn an_array_line_is_one_that_mdadm_takes() {
    let scratch = Scratch::new();
    let (members, others) = (scratch.members("m", 4, 8 * MIB), scratch.members("o", 2, 8 * MIB));
    let home = served(&scratch, "home", "-l 5 -n 3 -x 1 -c 64K --assume-clean", &members);
    let work = served(&scratch, "work", "-l 0 -n 2", &others);
    let brief = detail(&scratch, &["--brief", "home"]).expect_done().stdout;
    assert!(brief.starts_with("ARRAY /dev/md/home metadata=1.2 spares=1 name=home UUID="), "{brief}");
    assert_eq!(brief.lines().count(), 1, "{brief}");
    let of_work = detail(&scratch, &["-b", "work"]).expect_done().stdout;
    assert_eq!(of_work.lines().count(), 1, "{of_work}");
    assert_eq!(detail(&scratch, &["--scan"]).expect_done().stdout, format!("{brief}{of_work}"));
    assert_eq!(detail(&scratch, &["-b", "-s"]).expect_done().stdout, format!("{brief}{of_work}"));
    let verbose = detail(&scratch, &["--brief", "--verbose", "work"]).expect_done().stdout;
    assert!(verbose.starts_with("ARRAY /dev/md/work level=raid0 num-devices=2 metadata=1.2 "), "{verbose}");
    let paths: Vec<String> =
        others.iter().map(|path| path.canonicalize().expect("it is there").display().to_string()).collect();
    assert!(verbose.ends_with(&format!("\n   devices={}\n", paths.join(","))), "{verbose}");
    for words in [
        &["--scan", "home"][..],
        &["--verbose", "--json", "home"],
        &["--scan", "--export"],
        &["--brief", "--draw", "home"],
    ] {
        assert_eq!(detail(&scratch, words).code, Some(2), "{words:?}");
    }
    assert_eq!((home.stop().code, work.stop().code), (Some(0), Some(0)));
    // mdadm reads the lines, and finds the array of the first one among these members.
    let conf = scratch.path("mdadm.conf");
    let devices = members.iter().map(|path| format!("DEVICE {}\n", path.display())).collect::<String>();
    std::fs::write(&conf, format!("{devices}{brief}{of_work}")).expect("ours");
    let Ok(read) = Command::new("mdadm").args(["--examine", "--scan", "--config"]).arg(&conf).output() else {
        println!("not compared: mdadm is not installed");
        return;
    };
    let (found, said) = (String::from_utf8_lossy(&read.stdout), String::from_utf8_lossy(&read.stderr));
    assert_eq!(said, "", "mdadm takes every word");
    let uuid = brief.split("UUID=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("it has one");
    assert!(found.contains(uuid) && found.contains("   spares=1"), "{found}");
}
