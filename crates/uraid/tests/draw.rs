//! `uraid detail --draw`: which chunk, parity or copy lies where.
//! Owns: drawings against tables written by hand, every level and layout against what holds of all of them, the form.
//! Not here: the map itself (`uraid_layout`'s own tests).

use crate::common::{MIB, Scratch};
use serde_json::Value;
use std::collections::BTreeMap;

/// `uraid detail --draw OPTIONS`, without members.
fn draw(scratch: &Scratch, options: &str) -> String {
    scratch.uraid(["detail", "--draw"].into_iter().chain(options.split_whitespace())).expect_done().stdout
}

/// The cells of a drawing: the lines that begin with a row's number and its sector; parts are held apart by `/`.
fn cells(text: &str) -> String {
    let mut rows: Vec<String> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Row", ..] if !rows.is_empty() => rows.push("/".to_owned()),
            [row, sector, ..] if row.parse::<u64>().is_ok() && sector.parse::<u64>().is_ok() => {
                rows.push(words[2..].join(" "));
            }
            _ => {}
        }
    }
    rows.join("\n")
}

#[track_caller]
fn expect(scratch: &Scratch, options: &str, rows: &[&str]) {
    let text = draw(scratch, options);
    assert_eq!(cells(&text), rows.join("\n"), "{options}\n{text}");
}

#[test]
fn parity_goes_round_as_the_layout_s_name_says() {
    let scratch = Scratch::new();
    let raid5 = |layout: &str, rows: &[&str]| expect(&scratch, &format!("-l 5 -n 4 -p {layout} --stripes 4"), rows);
    raid5("ls", &["D0 D1 D2 P", "D4 D5 P D3", "D8 P D6 D7", "P D9 D10 D11"]);
    raid5("la", &["D0 D1 D2 P", "D3 D4 P D5", "D6 P D7 D8", "P D9 D10 D11"]);
    raid5("rs", &["P D0 D1 D2", "D5 P D3 D4", "D7 D8 P D6", "D9 D10 D11 P"]);
    raid5("ra", &["P D0 D1 D2", "D3 P D4 D5", "D6 D7 P D8", "D9 D10 D11 P"]);
    raid5("parity-first", &["P D0 D1 D2", "P D3 D4 D5", "P D6 D7 D8", "P D9 D10 D11"]);
    expect(&scratch, "-l 4 -n 3 --stripes 2", &["D0 D1 P", "D2 D3 P"]);
    let raid6 = |layout: &str, rows: &[&str]| expect(&scratch, &format!("-l 6 -n 5 -p {layout} --stripes 5"), rows);
    raid6("ls", &["Q D0 D1 D2 P", "D3 D4 D5 P Q", "D7 D8 P Q D6", "D11 P Q D9 D10", "P Q D12 D13 D14"]);
    raid6("ddf-zero-restart", &["P Q D0 D1 D2", "D3 P Q D4 D5", "D6 D7 P Q D8", "D9 D10 D11 P Q", "Q D12 D13 D14 P"]);
    raid6("ddf-N-restart", &["D0 D1 D2 P Q", "D3 D4 P Q D5", "D6 P Q D7 D8", "P Q D9 D10 D11", "Q D12 D13 D14 P"]);
    raid6("ddf-N-continue", &["D0 D1 D2 Q P", "D4 D5 Q P D3", "D8 Q P D6 D7", "Q P D9 D10 D11", "P D12 D13 D14 Q"]);
    raid6("left-symmetric-6", &["D0 D1 D2 P Q", "D4 D5 P D3 Q", "D8 P D6 D7 Q", "P D9 D10 D11 Q", "D12 D13 D14 P Q"]);
}

#[test]
fn copies_lie_near_far_and_offset() {
    let scratch = Scratch::new();
    let raid10 = |members: u8, layout: &str, stripes: u8, rows: &[&str]| {
        expect(&scratch, &format!("-l 10 -n {members} -p {layout} --stripes {stripes}"), rows);
    };
    raid10(4, "n2", 2, &["0 0 1 1", "2 2 3 3"]);
    raid10(5, "n2", 3, &["0 0 1 1 2", "2 3 3 4 4", "5 5 6 6 7"]);
    raid10(4, "n3", 3, &["0 0 0 1", "1 1 2 2", "2 3 3 3"]);
    raid10(5, "n3", 3, &["0 0 0 1 1", "1 2 2 2 3", "3 3 4 4 4"]);
    raid10(4, "f2", 2, &["0 1 2 3", "4 5 6 7", "/", "3 0 1 2", "7 4 5 6"]);
    raid10(5, "f2", 2, &["0 1 2 3 4", "5 6 7 8 9", "/", "4 0 1 2 3", "9 5 6 7 8"]);
    raid10(4, "o2", 4, &["0 1 2 3", "3 0 1 2", "4 5 6 7", "7 4 5 6"]);
    raid10(5, "o2", 4, &["0 1 2 3 4", "4 0 1 2 3", "5 6 7 8 9", "9 5 6 7 8"]);
    // 64 chunks of 64K are 8192 sectors: the far half begins at 4096.
    let far = draw(&scratch, "-l 10 -n 4 -p f2 -c 64K --size 4M --stripes 1");
    assert!(far.contains("Far copies 1, from sector 4096 of each member (2.00 MiB):\n"), "{far}");
    assert!(far.contains("\n   32    4096   3   0   1   2\n  ...  and 31 more rows\n"), "{far}");
}

#[test]
fn zones_stretches_and_mirrors_say_where_they_begin_and_end() {
    let scratch = Scratch::new();
    let unequal = "-l 0 -n 3 -c 64K --size 128K,256K,192K";
    expect(&scratch, unequal, &["0 1 2", "3 4 5", "/", "- 6 7", "/", "- 8 -"]);
    let text = draw(&scratch, unequal);
    assert!(text.contains("Zone 1, from sector 768 of the array on (384.00 KiB):\n"), "{text}");
    // The zone begins with an odd chunk: the original layout goes on with the second of its two members.
    expect(&scratch, "-l 0 -n 3 -c 64K --size 64K,192K,192K", &["0 1 2", "/", "- 4 3", "- 6 5"]);
    expect(&scratch, "-l 0 -n 3 -c 64K -p alternate --size 64K,192K,192K", &["0 1 2", "/", "- 3 4", "- 5 6"]);
    let linear = draw(&scratch, "-l linear -n 3 --size 1M,3M,2M");
    for line in
        ["     0              0 to 2047       0 to 2047  1.00 MiB\n", "2048 to 8191       0 to 6143  3.00 MiB\n"]
    {
        assert!(linear.contains(line), "{linear}");
    }
    let mirror = draw(&scratch, "-l 1 -n 2 --size 1M");
    assert_eq!(mirror.matches("0 to 2047       0 to 2047  1.00 MiB").count(), 2, "{mirror}");
    assert!(mirror.contains("One column of copies"), "{mirror}");
}

#[test]
fn members_stand_above_their_columns_and_a_missing_one_is_marked() {
    let scratch = Scratch::new();
    let members = scratch.members("disk", 4, 20 * MIB);
    scratch.create("drawn", "-l 5 -n 4 -c 64K --assume-clean", &members);
    let done = scratch.uraid(
        ["detail", "--draw", "--stripes", "2"]
            .map(Into::into)
            .into_iter()
            .chain([&members[2], &members[0], &members[3]].map(|path| path.clone().into_os_string())),
    );
    let text = done.expect_done().stdout;
    let expected = "drawn: raid5, left-symmetric, 4 members, chunk 64K, stripe 192K, array 57.00 MiB\n\n  \
                      Row  Sector      0    [1]      2      3\n               disk0      -  disk2  disk3\n    \
                        0       0     D0   [D1]     D2      P\n    \
                        1     128     D4   [D5]      P     D3\n  \
                      ...  and 302 more rows\n\n  \
                      D0, D1, ...: the array's chunks of 64K; P: their parity\n  \
                      Sector: where the row begins on each member, in sectors of 512 bytes from its data offset\n  \
                      [ ]: on a slot without a member\n  \
                      Data offset: sector 2048 of each member\n";
    assert_eq!(text, expected, "\n{text}");
    // The drawing of a running array is the same, with all members.
    let served = scratch.ready(&["--read-only"], &members);
    let running = scratch.uraid(["detail", "--draw", "--stripes", "2", "drawn"]).expect_done().stdout;
    assert!(running.contains("\n               disk0  disk1  disk2  disk3\n"), "{running}");
    assert!(running.contains("\n    1     128     D4     D5      P     D3\n"), "{running}");
    assert!(!running.contains('['), "{running}");
    assert_eq!(served.stop().code, Some(0));
}

#[test]
fn ten_members_fit_a_terminal_and_more_are_folded() {
    let scratch = Scratch::new();
    for options in ["-l 6 -n 10", "-l 10 -n 10 -p f2", "-l 5 -n 30", "-l 0 -n 100 --stripes 64"] {
        let text = draw(&scratch, options);
        let table = text.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()));
        assert!(table.clone().all(|line| line.len() <= 80), "{options}\n{text}");
        assert!(table.count() > 0, "{options}\n{text}");
    }
    assert_eq!(draw(&scratch, "-l 6 -n 10").matches("Row").count(), 1);
    assert_eq!(draw(&scratch, "-l 5 -n 30").matches("Row").count(), 3);
}

#[test]
fn a_geometry_that_cannot_be_is_refused() {
    let scratch = Scratch::new();
    let refuse = |options: &str, text: &str| {
        let words = ["detail", "--draw"].into_iter().chain(options.split_whitespace());
        scratch.uraid(words).expect_refused(&[text]);
    };
    refuse("-l 6 -n 3", "there is no such array to draw: raid6 with 3 members, needs at least 4");
    refuse("-l 10 -n 3 -p n4", "raid10 with 4 copies on 3 members");
    refuse("-l 5 -n 3 --size 4T -c 8T", "used per member, needs at least");
    let usage = |options: &str, text: &str| {
        let done = scratch.uraid(["detail"].into_iter().chain(options.split_whitespace()));
        assert!(done.code == Some(2) && done.stderr.contains(text), "{options}: {done:?}");
    };
    usage("--draw -l 5 -n 3 -p n2", "raid5 has no layout \"n2\"");
    usage("--draw -l 5 -n 3 --size 1G,2G,3G", "--size has 3 sizes, raid5 takes one");
    usage("--draw -l 0 -n 3 --size 1G,2G", "--size has 2 sizes, expected one or 3");
    usage("--draw -l 5", "--raid-devices");
    usage("-l 5 -n 3", "--draw");
    usage("--draw -l 5 -n 3 --stripes 65", "--stripes");
}

/// Checks a whole drawing: every chunk is there, with all its copies.
fn check_whole(options: &str, drawing: &Value, chunks: u64, copies: usize, has_p: bool, has_q: bool) {
    let rows = drawing["rows"].as_array().expect("rows");
    let members = drawing["members"].as_array().expect("members").len();
    let mut seen: BTreeMap<u64, Vec<(u64, usize)>> = BTreeMap::new();
    for row in rows {
        let cells = row["cells"].as_array().expect("cells");
        assert_eq!(cells.len(), members, "{options}");
        let count = |what: &str| cells.iter().filter(|cell| cell["holds"] == what).count();
        assert_eq!((count("P"), count("Q")), (has_p.into(), has_q.into()), "{options}: {row}");
        for (slot, cell) in cells.iter().enumerate().filter(|(_, cell)| cell["holds"] == "data") {
            let chunk = cell["chunk"].as_u64().expect("a number");
            assert_eq!(cell["array_sector"], chunk * 8, "{options}: {row}");
            seen.entry(chunk).or_default().push((row["sector"].as_u64().expect("a number"), slot));
        }
    }
    assert!(seen.keys().copied().eq(0..chunks), "{options}: {:?}", seen.keys());
    for (chunk, places) in seen {
        let mut slots: Vec<usize> = places.iter().map(|(_, slot)| *slot).collect();
        slots.sort_unstable();
        slots.dedup();
        assert!(places.len() == copies && slots.len() == copies, "{options}: chunk {chunk} is at {places:?}");
    }
}

#[test]
fn every_level_and_layout_shows_each_chunk_as_often_as_it_has_copies() {
    const ROWS: u64 = 32;
    let scratch = Scratch::new();
    let whole = |level: &str, layout: Option<&str>, members: u64, size: &str| -> (String, Value) {
        let layout = layout.map_or(String::new(), |layout| format!(" -p {layout}"));
        let options = format!("--json --stripes 64 -l {level} -n {members} -c 4K{layout} --size {size}");
        let drawing = serde_json::from_str(&draw(&scratch, &options)).expect("JSON");
        (options, drawing)
    };
    let raid5 = ["ls", "la", "rs", "ra", "parity-first", "parity-last"];
    let ddf = ["ddf-zero-restart", "ddf-N-restart", "ddf-N-continue"];
    let six = ["left-symmetric-6", "left-asymmetric-6", "right-symmetric-6", "right-asymmetric-6", "parity-first-6"];
    let mut drawn = 0;
    let mut check = |(options, drawing): (String, Value), chunks, copies, has_p, has_q| {
        check_whole(&options, &drawing, chunks, copies, has_p, has_q);
        drawn += 1;
    };
    for n in 2..=8 {
        for layout in raid5.into_iter().chain(ddf) {
            check(whole("5", Some(layout), n, "128K"), ROWS * (n - 1), 1, true, false);
        }
        check(whole("4", None, n, "128K"), ROWS * (n - 1), 1, true, false);
        for layout in raid5.into_iter().chain(ddf).chain(six).filter(|_| n >= 4) {
            check(whole("6", Some(layout), n, "128K"), ROWS * (n - 2), 1, true, true);
        }
        for layout in ["original", "alternate"] {
            check(whole("0", Some(layout), n, "128K"), ROWS * n, 1, false, false);
            // Each member has one chunk more than the one before: as many zones as members.
            let sizes: Vec<String> = (1..=n).map(|chunks| format!("{}K", 4 * chunks)).collect();
            check(whole("0", Some(layout), n, &sizes.join(",")), n * (n + 1) / 2, 1, false, false);
        }
        for copies in 2..=n {
            // Rows are drawn whole, also where the drawing ends among them.
            for kind in ["n", "f", "o"] {
                let options = format!("--json --stripes 5 -l 10 -n {n} -c 4K -p {kind}{copies} --size 1M");
                let drawing: Value = serde_json::from_str(&draw(&scratch, &options)).expect("JSON");
                let rows = drawing["rows"].as_array().expect("rows");
                let cells = || rows.iter().flat_map(|row| row["cells"].as_array().expect("cells"));
                assert!(rows.len() >= 5 && cells().all(|cell| cell["holds"] == "data"), "{options}: {drawing}");
            }
            let near = whole("10", Some(&format!("n{copies}")), n, "128K");
            check(near, ROWS * n / copies, copies as usize, false, false);
            for kind in ["f", "o"] {
                let far = whole("10", Some(&format!("{kind}{copies}")), n, "128K");
                check(far, ROWS / copies * n, copies as usize, false, false);
            }
        }
        // Without chunks: what each member holds, and no sector twice or never.
        for (level, expected) in [("1", n), ("linear", n)] {
            let (options, drawing) = whole(level, None, n, "128K");
            let rows = drawing["rows"].as_array().expect("rows");
            let held = rows.iter().flat_map(|row| row["cells"].as_array().expect("cells"));
            let held: Vec<u64> = held.filter_map(|cell| cell["array_sector"].as_u64()).collect();
            assert_eq!(held.len() as u64, expected, "{options}");
            let expected: Vec<u64> = (0..n).map(|slot| if level == "1" { 0 } else { slot * 256 }).collect();
            assert_eq!(held, expected, "{options}");
        }
    }
    println!("{drawn} drawings");
    assert_eq!(drawn, 7 * 9 + 7 + 5 * 14 + 7 * 4 + 28 * 3);
}
