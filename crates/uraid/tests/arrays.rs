//! Several arrays in one process, and arrays made of arrays.
//! Owns: what a user sees of them. Not here: one array alone (`life`), what goes wrong with one (`errors`).

mod common;

use common::{MIB, Scratch, Served, pattern, wait};
use std::path::{Path, PathBuf};

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// `serve OPTIONS --array GROUP --array GROUP ...`, started.
fn serve(scratch: &Scratch, options: &[&str], groups: &[&[PathBuf]]) -> Served {
    let groups =
        groups.iter().flat_map(|group| ["--array".to_owned()].into_iter().chain(group.iter().map(|m| text(m))));
    let options = options.iter().map(|&option| option.to_owned());
    Served::start(&mut scratch.command(["serve".to_owned()].into_iter().chain(options).chain(groups)))
}

#[test]
fn several_arrays_are_exports_of_one_process() {
    let scratch = Scratch::new();
    let (left, right) = (scratch.members("l", 3, 4 * MIB), scratch.members("r", 2, 6 * MIB));
    scratch.create("left", "-l 5 -n 3 -c 64K", &left);
    scratch.create("right", "-l 1 -n 2", &right);
    let served = serve(&scratch, &[], &[&left, &right]);
    wait(|| scratch.uraid(["list"]).stdout.matches("nbd+unix").count() == 2).expect("both are listed");
    served.wait_until_ready();
    let mut written = Vec::new();
    for (export, seed) in [("left", 21), ("right", 22)] {
        let mut client = served.client_of(export);
        let data = pattern(seed, client.size as usize);
        assert_eq!(client.write(0, &data).expect("connected"), 0, "{export}");
        written.push((export, data));
    }
    // A failure concerns its array alone.
    scratch.uraid(["fail", "left", &text(&left[1])]).expect_done();
    served.wait_for("left: member");
    let shown = scratch.uraid(["detail", "left"]).expect_done().stdout;
    assert!(shown.contains("[3/2] [U_U]") && shown.contains("1 writes"), "{shown}");
    let shown = scratch.uraid(["detail", &text(&right[0])]).expect_done().stdout;
    assert!(shown.starts_with("right:") && shown.contains("[2/2] [UU]") && shown.contains("1 writes"), "{shown}");
    for (export, data) in &written {
        let mut client = served.client_of(export);
        assert!(client.read(0, data.len()).expect("connected").as_ref() == Ok(data), "{export}");
    }
    // One stop is all's.
    scratch.uraid(["stop", "right"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    for member in [&left[0], &left[2], &right[0], &right[1]] {
        let shown = scratch.uraid(["examine", &text(member)]).expect_done().stdout;
        assert!(shown.contains("State : clean\n"), "{shown}");
    }
    let served = scratch.ready(&[], &right);
    assert!(served.client().read(0, written[1].1.len()).expect("connected").as_ref() == Ok(&written[1].1));
}

#[test]
fn arrays_of_one_name_are_told_apart_and_copies_of_one_array_are_refused() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.members("a", 2, 4 * MIB), scratch.members("b", 2, 4 * MIB));
    scratch.create("same", "-l 1 -n 2 --assume-clean", &one);
    scratch.create("same", "-l 1 -n 2 --assume-clean --uuid 00112233:00000000:00000000:00000001", &two);
    let served = serve(&scratch, &[], &[&one, &two]);
    served.wait_for("two arrays are called same: the second is called 00112233 here");
    served.wait_until_ready();
    assert!(served.client_of("00112233").write(0, &[1; 512]).expect("connected") == 0);
    scratch.uraid(["stop", "00112233"]).expect_done();
    assert_eq!(served.end().code, Some(0));
    serve(&scratch, &["--export-name", "x"], &[&one, &two])
        .end()
        .expect_refused(&["are for one array, and 2 are served"]);
    for (from, to) in two.iter().zip(&one) {
        std::fs::copy(from, to).expect("both are ours");
    }
    // Third of a name: its UUID's digits are taken, too.
    let three = scratch.members("c", 2, 4 * MIB);
    scratch.create("same", "-l 1 -n 2 --assume-clean", &three);
    let groups: [&[PathBuf]; 3] = [&three, &one, &two];
    serve(&scratch, &[], &groups).end().expect_refused(&["are copies of one array"]);
}
