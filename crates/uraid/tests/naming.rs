//! Which running array a word means, and words that mean several or none.
//! Owns: names with and without hosts, numbers against names. Not here: which words one array has (`uraid_serve`), names
//! that tell the arrays of one process apart (`arrays`).

use crate::common::{MIB, Scratch, Served};
use std::fs;
use std::path::PathBuf;

/// Two arrays of one process, and their UUIDs.
fn served(scratch: &Scratch, names: [(&str, &str); 2]) -> (Served, [String; 2]) {
    let uuids = ["1", "2"].map(|digit| [digit; 4].map(|digit| digit.repeat(8)).join(":"));
    let mut words = vec!["serve".to_owned()];
    for (nth, (host, name)) in names.into_iter().enumerate() {
        let members = scratch.members(&format!("disk{nth}-"), 2, 8 * MIB);
        let options = "create --level 1 --raid-devices 2 --assume-clean".split(' ');
        let named = ["--homehost", host, "--name", name, "--uuid", &uuids[nth]];
        let members = members.iter().map(|member| member.to_str().expect("text"));
        scratch.uraid(options.chain(named).chain(members.clone())).expect_done();
        words.extend(["--array".to_owned()].into_iter().chain(members.map(str::to_owned)));
    }
    let served = Served::start(&mut scratch.command(words));
    served.wait_until_ready();
    (served, uuids)
}

fn slots(scratch: &Scratch, word: &str) -> String {
    let shown = scratch.uraid(["detail", word]).expect_done().stdout;
    shown.lines().find_map(|line| line.trim().strip_prefix("Slots : ")).expect("a picture").to_owned()
}

#[test]
fn a_host_before_a_name_is_that_of_the_array_and_a_name_of_two_arrays_is_refused() {
    let scratch = Scratch::new();
    let (server, uuids) = served(&scratch, [("h1", "ka"), ("h2", "ka")]);
    for word in ["bogus:ka", ":ka", "/dev/md/bogus:ka", "/dev/md/:ka"] {
        let none = format!("no running array is called {word}");
        scratch.uraid(["fail", word, "0"]).expect_refused(&[&none]);
        scratch.uraid(["stop", "--all", word]).expect_refused(&[&none]);
    }
    let both = uuids.each_ref().map(|uuid| format!("UUID {uuid}"));
    for word in ["ka", "/dev/md/ka"] {
        let said = [
            &*format!("{word}: may be any of 2 running arrays: h1:ka by its name (/dev/md"),
            "h2:ka",
            &both[0],
            &both[1],
        ];
        scratch.uraid(["fail", word, "0"]).expect_refused(&said);
        scratch.uraid(["detail", word]).expect_refused(&said);
        scratch.uraid(["stop", "--all", word]).expect_refused(&said);
    }
    assert_eq!([slots(&scratch, "h1:ka"), slots(&scratch, "h2:ka")], ["[2/2] [UU]", "[2/2] [UU]"]);
    scratch.uraid(["fail", "h2:ka", "0"]).expect_done();
    assert_eq!([slots(&scratch, &uuids[0]), slots(&scratch, &uuids[1])], ["[2/2] [UU]", "[2/1] [_U]"]);
    scratch.uraid(["stop", "--all", "h1:ka"]).expect_done();
    assert_eq!(server.end().code, Some(0));
}

#[test]
fn a_word_that_is_the_number_of_one_array_and_the_name_of_another_is_refused() {
    let scratch = Scratch::new();
    let number = "md7391";
    // The number that `first` had before, as the map says.
    let uuid = ["1"; 4].map(|digit| digit.repeat(8)).join(":");
    fs::write(scratch.path(".map"), format!("{number} 1.2 {uuid} /dev/md/first\n")).expect("room");
    let (server, uuids) = served(&scratch, [("h", "first"), ("h", number)]);
    let said = [
        "md7391: may be any of 2 running arrays: ",
        &format!("h:first by its number (/dev/md7391, UUID {}", uuids[0]),
        "h:md7391 by its name (/dev/md",
        &format!("UUID {}", uuids[1]),
        "/dev/md7391 is always the number, /dev/md/md7391 always the name",
    ];
    scratch.uraid(["stop", "--all", number]).expect_refused(&said);
    scratch.uraid(["fail", number, "0"]).expect_refused(&said);
    for (word, own) in [("/dev/md7391", &uuids[0]), ("/dev/md/md7391", &uuids[1]), ("h:md7391", &uuids[1])] {
        let shown = scratch.uraid(["detail", word]).expect_done().stdout;
        assert!(shown.contains(own.as_str()), "{word}: {shown}");
    }
    // All are stopped, whatever they are called.
    scratch.uraid(["stop", "--all", "/dev/md7391"]).expect_done();
    assert_eq!(server.end().code, Some(0));
}

/// As two servers have it, each with a socket of its own.
#[test]
fn arrays_of_one_name_in_two_servers_are_told_apart_too() {
    let scratch = Scratch::new();
    let serve = |host: &str, control: &str| {
        let members: Vec<PathBuf> = scratch.members(host, 2, 8 * MIB);
        let options =
            "create --level 1 --raid-devices 2 --assume-clean --name ka --homehost".split(' ').map(PathBuf::from);
        scratch.uraid(options.chain([host.into()]).chain(members.iter().cloned())).expect_done();
        let (control, nbd) = (scratch.path(control), format!("unix:{}", scratch.path(host).display()));
        let words = ["serve".into(), "--control".into(), control, "--nbd".into(), nbd.into()];
        let served = Served::start(&mut scratch.command(words.into_iter().chain(members)));
        served.wait_until_ready();
        served
    };
    let (one, two) = (serve("h1", "ka.ctl"), serve("h2", "other.ctl"));
    scratch.uraid(["fail", "ka", "0"]).expect_refused(&[
        "may be any of 2 running arrays",
        "h1:ka",
        "h2:ka",
        "other.ctl",
    ]);
    scratch.uraid(["fail", "h2:ka", "0"]).expect_done();
    assert_eq!([slots(&scratch, "h1:ka"), slots(&scratch, "h2:ka")], ["[2/2] [UU]", "[2/1] [_U]"]);
    scratch.uraid(["stop", "h2:ka"]).expect_done();
    assert_eq!(two.end().code, Some(0));
    // The name is that of one array again; a wrong host is none.
    scratch.uraid(["fail", "h2:ka", "0"]).expect_refused(&["no running array is called h2:ka"]);
    scratch.uraid(["stop", "--scan"]).expect_done();
    assert_eq!(one.end().code, Some(0));
}

#[test]
fn a_member_with_an_at_sign_and_nothing_behind_it_is_none() {
    let scratch = Scratch::new();
    let (server, _) = served(&scratch, [("h", "five"), ("h", "six")]);
    let member = scratch.path("disk0-0");
    let member = member.to_str().expect("text");
    for word in [format!("{member}@"), format!("bad:1:{member}@"), format!("{member}@@")] {
        for command in ["fail", "remove"] {
            scratch.uraid([command, "five", &word]).expect_refused(&[&word]);
        }
        scratch.uraid(["detail", &word]).expect_refused(&[]);
        assert_eq!(slots(&scratch, "five"), "[2/2] [UU]", "{word}");
    }
    scratch.uraid(["stop", "--all", "five"]).expect_done();
    assert_eq!(server.end().code, Some(0));
}

/// The commands that take members, or files, and no arrays.
#[test]
fn the_name_of_a_running_array_in_the_place_of_a_member_is_explained() {
    let scratch = Scratch::new();
    let (server, _) = served(&scratch, [("h", "five"), ("h", "six")]);
    let first = scratch.path("disk0-0");
    let out = scratch.path("out");
    let explained = format!(
        "five: is no file or device, but a running array is called that: `uraid detail five` shows it; \
                             this command takes its members, {} ",
        first.display()
    );
    let out = out.to_str().expect("text");
    for words in [
        &["copy", "five", out][..],
        &["zero-superblock", "five"],
        &["serve", "five"],
        &["serve", "--background", "five"],
        &["update", "name", "--name", "x", "five"],
    ] {
        let done = scratch.uraid(words).expect_refused(&[&explained, ", once it is stopped: `uraid stop five`"]);
        assert_eq!(done.stderr.matches("is no file or device").count(), 1, "{words:?}: {done:?}");
    }
    let done = scratch.uraid(["examine", "five"]).expect_refused(&[&explained]);
    assert!(!done.stderr.contains("once it is stopped"), "{done:?}");
    // Of what is a file, or no array, nothing is said.
    for word in [first.to_str().expect("text"), "seven"] {
        let done = scratch.uraid(["serve", word]);
        assert!(done.code == Some(1) && !done.stderr.contains("is no file or device"), "{done:?}");
    }
    scratch.uraid(["stop", "--all", "five"]).expect_done();
    assert_eq!(server.end().code, Some(0));
}
