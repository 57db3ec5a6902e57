//! `uraid bench` as its users meet it: what it prints, what it refuses, what it leaves alone. No figure is judged.

mod common;

use common::{MIB, Scratch, Served, wait};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

const SHORT: &str = "--runtime 50ms --rounds 2";

fn words(line: &str) -> Vec<PathBuf> {
    line.split_whitespace().map(PathBuf::from).collect()
}

#[track_caller]
fn bench(scratch: &Scratch, line: &str, members: &[PathBuf]) -> common::Done {
    scratch.uraid(words(&format!("bench {SHORT} {line}")).into_iter().chain(members.iter().cloned()))
}

#[track_caller]
fn rows(scratch: &Scratch, line: &str, members: &[PathBuf]) -> Vec<Value> {
    let done = bench(scratch, &format!("{line} --json"), members).expect_done();
    serde_json::from_str(&done.stdout).expect("a JSON array")
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {row}"))
}

fn count(row: &Value, field: &str) -> u64 {
    row["counted"][field].as_u64().unwrap_or_else(|| panic!("{field} is not counted in {row}"))
}

/// Two rows, of replay and of ideal, whose figures belong together.
#[track_caller]
fn check(rows: &[Value]) {
    let against: Vec<&str> = rows.iter().filter_map(|row| row["against"].as_str()).collect();
    assert_eq!(against, ["replay", "ideal"]);
    for row in rows {
        for field in ["array", "raw", "cpu_ns_per_io", "raw_cpu_ns_per_io"] {
            assert!(number(row, field) > 0.0, "{field}: {row}");
        }
        for of in ["", "cpu_"] {
            let [low, ratio, high] =
                ["ratio_low", "ratio", "ratio_high"].map(|field| number(row, &format!("{of}{field}")));
            assert!(0.0 < low && low <= ratio && ratio <= high, "{row}");
        }
        assert_eq!(number(row, "confidence"), 0.5, "two rounds");
        let latency = &row["latency_ns"];
        let [p50, p99, p99_9, max] = ["p50", "p99", "p99_9", "max"].map(|which| number(latency, which));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= p99_9 && p99_9 <= max, "{row}");
        assert_eq!(count(row, "requests"), row["requests"].as_u64().expect("a count"), "the engine counts the same");
    }
}

#[test]
fn a_trial_on_memory_shows_the_array_beside_its_members() {
    let scratch = Scratch::new();
    let done = bench(&scratch, "-l 6 -n 8 -c 64K --iodepth 4 mem:8M", &[]).expect_done();
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines[0].starts_with("raid6, 8 members, left-symmetric, chunk 64K, "), "{}", done.stdout);
    assert!(lines[1].starts_with("randread 4K, 1 job x depth 4, 1 shard; 2 rounds, ring "), "{}", done.stdout);
    let head: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(head, ["IOPS", "MB/s", "CPU/IO", "p50", "p99", "p99.9", "max"]);
    for (line, side) in lines[4..7].iter().zip(["array", "replay", "ideal"]) {
        assert!(line.starts_with(&format!("  {side} ")) && line.contains(" ns") | line.contains(" us"), "{line}");
    }
    assert!(lines[8].starts_with("  array / replay "), "{}", done.stdout);
    assert!(lines[9].starts_with("  array / ideal "), "{}", done.stdout);
    assert!(lines[8].contains("50.0 %") && lines[8].ends_with("of CPU for each"), "{}", done.stdout);
}

#[test]
fn reads_of_every_level_are_counted_once() {
    let scratch = Scratch::new();
    for level in ["-l 0 -n 2", "-l 1 -n 2", "-l 10 -n 4 -p f2", "-l 5 -n 3", "-l linear -n 2"] {
        check(&rows(&scratch, &format!("{level} --rw read --bs 128K --iodepth 3 --jobs 2 mem:8M"), &[]));
    }
}

#[test]
fn small_writes_of_a_raid5_are_rows_that_are_modified() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, "-l 5 -n 5 -c 64K --rw randwrite --iodepth 4 --shards 2 mem:8M", &[]);
    check(&rows);
    let parts = ["rows_full", "rows_modified", "rows_reconstructed"].map(|kind| count(&rows[0], kind));
    assert_eq!(parts[0], 0);
    assert!(parts[1] > 0);
    // Absorbed writes share a row's I/O with another write.
    let all = parts.iter().sum::<u64>() + count(&rows[0], "writes_absorbed");
    assert!(all >= count(&rows[0], "requests"), "{all} of {}", rows[0]);
}

#[test]
fn whole_stripes_are_written_without_reading() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, "-l 6 -n 6 -c 16K --rw write --bs 128K --iodepth 2 mem:8M", &[]);
    check(&rows);
    assert_eq!(count(&rows[0], "rows_full"), 2 * count(&rows[0], "requests"), "two rows each");
    assert_eq!(count(&rows[0], "rows_modified") + count(&rows[0], "rows_reconstructed"), 0);
}

#[test]
fn without_the_clock_there_are_no_latencies() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, "-l 10 -n 4 --rw randrw --rwmixread 70 --gtod-reduce --size 1M null:64M", &[]);
    assert!(rows.iter().all(|row| row["latency_ns"].is_null() && number(row, "ratio") > 0.0), "{rows:?}");
}

#[test]
fn an_array_that_exists_is_only_read_without_consent() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 12 * MIB);
    scratch.create("kept", "-l 5 -n 3 --assume-clean", &members);
    let before: Vec<Vec<u8>> = members.iter().map(|path| fs::read(path).expect("a member")).collect();
    check(&rows(&scratch, "--rw randread --iodepth 2", &members));
    let refused = bench(&scratch, "--rw randwrite", &members);
    refused.expect_refused(&["--rw randwrite writes into the array, which loses what it holds"]);
    for (path, before) in members.iter().zip(&before) {
        assert!(fs::read(path).expect("a member") == *before, "{} has changed", path.display());
    }
    check(&rows(&scratch, "--rw randwrite --iodepth 2 --destructive", &members));
    // The run wrote past the engine, so the next start makes the array consistent.
    let examined = scratch.uraid(["examine".into(), members[0].clone()]);
    assert!(examined.stdout.contains("State : active"), "{}", examined.stdout);
    scratch.uraid(["detail".into()].into_iter().chain(members)).expect_done();
}

#[test]
fn a_degraded_array_is_measured_as_it_is() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 12 * MIB);
    scratch.create("three", "-l 6 -n 4 --assume-clean", &members);
    let three = &members[..3];
    bench(&scratch, "", three).expect_refused(&["the superblocks count 4", "--run to start degraded"]);
    let rows = rows(&scratch, "--run --rw read --bs 64K --iodepth 2", three);
    check(&rows);
    assert!(rows[0]["work"].as_str().expect("text").contains(", 1 missing,"), "{}", rows[0]);
}

#[test]
fn a_trial_leaves_the_slots_empty_that_are_missing() {
    let scratch = Scratch::new();
    for (line, expected) in [
        ("-l 5 -n 5 -c 64K null:64M missing", "raid5, 5 members, left-symmetric, chunk 64K, 1 missing, "),
        ("-l 5 -n 3 -c 64K mem:8M missing mem:8M", "raid5, 3 members, left-symmetric, chunk 64K, 1 missing, "),
        ("-l 6 -n 6 -c 64K missing missing null:64M", "raid6, 6 members, left-symmetric, chunk 64K, 2 missing, "),
        ("-l 10 -n 4 -c 64K missing null:64M,completion=deferred", "raid10, 4 members, near=2, chunk 64K, 1 missing, "),
    ] {
        for rw in ["randread", "randwrite"] {
            let rows = rows(&scratch, &format!("{line} --iodepth 3 --rw {rw}"), &[]);
            check(&rows);
            assert!(rows[0]["work"].as_str().is_some_and(|work| work.contains(expected)), "{}", rows[0]);
        }
    }
    bench(&scratch, "-l 0 -n 2 null:1G missing", &[])
        .expect_refused(&["1 of 2 slots have a device, too few for raid0"]);
    bench(&scratch, "-l 5 -n 3 missing missing missing", &[]).expect_refused(&["missing"]);
}

#[test]
fn scenarios_of_random_requests_have_a_row_for_each_array_and_number_of_shards() {
    let scratch = Scratch::new();
    // Two kinds of members; replay and ideal of each work; two shards beside one in four figures.
    for (scenario, expected) in [("random-read", 2 * 2 * 2), ("random-write", 2 * (2 + 2 * (2 * 2 + 4)))] {
        let line = format!("bench --scenario {scenario} --runtime 5ms --rounds 2 --json");
        let done = scratch.uraid(words(&line)).expect_done();
        let rows: Vec<Value> = serde_json::from_str(&done.stdout).expect("a JSON array");
        assert_eq!(rows.len(), expected, "{scenario}");
        assert!(rows.iter().all(|row| row["latency_ns"].is_null() && number(row, "array") > 0.0), "{rows:?}");
    }
}

#[test]
fn files_become_members_of_a_trial_only_with_consent_and_carry_no_array_afterwards() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 12 * MIB);
    scratch.create("old", "-l 1 -n 3 --assume-clean", &members);
    let before = fs::read(&members[1]).expect("a member");
    let refused = bench(&scratch, "-l 5 -n 3", &members);
    refused.expect_refused(&["m0: a member of a trial array loses what it holds; give --destructive if that is meant"]);
    assert!(fs::read(&members[1]).expect("a member") == before, "nothing was changed");
    let line = "-l 5 -n 3 --rw randwrite --iodepth 2 --destructive";
    let done = bench(&scratch, line, &members).expect_done();
    assert!(done.stderr.contains("m0: carries ") && done.stderr.contains(", which is given up"), "{}", done.stderr);
    assert_eq!(scratch.uraid(["examine".into(), members[0].clone()]).code, Some(1), "no superblock is left");
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_was_found_and_expected() {
    let scratch = Scratch::new();
    for (line, expected) in [
        ("-l 5 -n 3 mem:8M --bs 1000", "--bs is 1000 bytes, expected a multiple of 512"),
        ("-l 5 -n 3 mem:8M --bs 64M", "--bs is 67108864 bytes, expected at most 33554432"),
        ("-l 5 -n 3 mem:8M --iodepth 0", "--iodepth is 0, expected at least 1"),
        ("-l 5 -n 3 mem:8M --jobs 0", "--jobs is 0, expected at least 1"),
        ("-l 5 -n 3 mem:8M --size 1G", "--offset 0 and --size 1073741824 end at byte 1073741824, the array has "),
        ("-l 5 -n 3 mem:8M --offset 1G", "the array has "),
        ("-l 5 -n 3 mem:8M --bs 8M --jobs 9", "9 jobs, expected at least one request of 8388608 bytes for each"),
        ("-l 6 -n 3 mem:8M", "needs at least 4"),
        ("-l 5 -n 3 mem:8M mem:8M", "2 members are listed, expected 3"),
        ("mem:8M", "none of the members can be used"),
        ("-l 5 -n 3 mem:99999T", "mem:99999T: so much memory cannot be had: cannot allocate memory (errno 12)"),
        ("-l 5 -n 3 mem:99999T", "; expected less, or null:SIZE, which holds nothing"),
    ] {
        bench(&scratch, line, &[]).expect_refused(&[expected]);
    }
    for line in [
        "",
        "--scenario raid6-read mem:8M",
        "--scenario raid7",
        "-l 5 mem:8M",
        "mem:8M --runtime 0",
        "mem:8M --cycles 9",
    ] {
        assert_eq!(bench(&scratch, &format!("{line} --bs 4K"), &[]).code, Some(2), "{line}");
    }
}

#[test]
fn a_discard_of_a_whole_array_is_one_request_of_each_member() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, "--scenario raid10-discard", &[]);
    let requests: Vec<&Value> = rows.iter().filter(|row| row["unit"] == "requests").collect();
    assert_eq!(requests.len(), 4, "near, far, offset and raid0");
    for row in requests {
        assert_eq!((number(row, "array"), &row["raw"]), (4.0, &Value::Null), "{row}");
    }
    let times: Vec<f64> =
        rows.iter().filter(|row| row["unit"] == "ns").map(|row| number(row, "cpu_ns_per_io")).collect();
    assert!(times.len() == 4 && times.iter().all(|&time| time > 0.0), "{times:?}");
}

#[test]
fn streams_of_a_raid0_reach_its_members_merged_and_in_order() {
    let scratch = Scratch::new();
    let picture = scratch.path("order.svg");
    // The file exists already and is longer than the new one.
    fs::write(&picture, format!("<svg xmlns={}", "old ".repeat(1 << 20))).expect("written");
    let line = "bench --scenario raid0-order --runtime 10ms --rounds 2 --json --plot";
    let done = scratch.uraid(words(line).into_iter().chain([picture.clone()])).expect_done();
    let rows: Vec<Value> = serde_json::from_str(&done.stdout).expect("a JSON array");
    let traced: Vec<&Value> = rows.iter().filter(|row| row["member_ios"].is_array()).collect();
    assert_eq!(traced.len(), 8, "four sizes, merged and not");
    for (row, size) in traced.iter().zip([64, 64, 192, 192, 256, 256, 1024, 1024]) {
        assert_eq!(row["against"], "ideal, not merged");
        let streams = row["member_ios"].as_array().expect("a list");
        assert_eq!(streams.len(), 8, "four streams on two members");
        let sum = |field: &str| streams.iter().map(|stream| number(stream, field)).sum::<f64>();
        assert_eq!(sum("descending"), 0.0, "{row}");
        let asked = (256 << 10) / size * size * 4;
        assert_eq!(sum("bytes") / 1024.0, f64::from(asked), "{row}");
        let is_merged = row["work"].as_str().expect("text").contains("merging on");
        let mean = sum("bytes") / sum("ios") / 1024.0;
        assert!(if is_merged { mean >= f64::from(size) } else { mean <= f64::from(size) }, "{mean}: {row}");
    }
    let drawn = fs::read_to_string(&picture).expect("a picture");
    assert!(drawn.starts_with("<svg ") && drawn.ends_with("</svg>\n"), "what the file held is gone");
    assert!(drawn.contains("read 192K, 4 jobs x depth 8, 1 shard, from 64K on, merging off"), "{drawn}");
}

#[test]
fn a_picture_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new();
    let nowhere = scratch.path("no/such/folder.svg");
    let done = scratch.uraid(words("bench --scenario all --plot").into_iter().chain([nowhere]));
    done.expect_refused(&["no/such/folder.svg", "not found"]);
}

#[test]
fn a_picture_takes_the_place_of_a_picture_and_of_nothing_else() {
    let scratch = Scratch::new();
    let picture = scratch.path("p.svg");
    let plot = |path: &PathBuf| {
        let words = words("bench -l 1 -n 2 mem:4M --runtime 1ms --rounds 1 --plot");
        scratch.uraid(words.into_iter().chain([path.clone()]))
    };
    for _ in 0..2 {
        plot(&picture).expect_done();
        assert!(std::fs::read_to_string(&picture).expect("a picture").ends_with("</svg>\n"));
    }
    // A mistake on the command line: a member in the picture's place.
    let member = scratch.member("m", 4 << 20);
    std::fs::write(&member, [7; 4096]).expect("a member");
    plot(&member).expect_refused(&["m: exists and is not a picture"]);
    assert_eq!(std::fs::read(&member).expect("a member"), [7; 4096]);
    plot(&PathBuf::from("/dev/null")).expect_refused(&["/dev/null: exists and is not a picture"]);
}

#[test]
fn every_drain_among_clients_of_two_shards_returns() {
    let scratch = Scratch::new();
    let done = scratch.uraid(words("bench --scenario drain-cycles --cycles 2000 --json")).expect_done();
    let rows: Vec<Value> = serde_json::from_str(&done.stdout).expect("a JSON array");
    let figures: Vec<f64> = rows.iter().map(|row| number(row, "array")).collect();
    assert_eq!(figures[0], 2000.0);
    assert!(figures[1] > 0.0, "some had something to wait for");
    assert!(figures[2] > 0.0, "requests went on meanwhile");
    assert!(0.0 < figures[3] && figures[3] <= figures[4], "p50 and max: {figures:?}");
}

#[test]
fn every_kernel_of_this_processor_is_measured() {
    let scratch = Scratch::new();
    let done = scratch.uraid(words("bench kernels --rounds 1 --json")).expect_done();
    let rows: Vec<Value> = serde_json::from_str(&done.stdout).expect("a JSON array");
    for work in
        ["xor of 2, hot; ", "xor of 16, cold; ", "P and Q of 8, cold, past the cache; ", "recover 2 of 8, hot; "]
    {
        let of: Vec<&Value> =
            rows.iter().filter(|row| row["work"].as_str().is_some_and(|text| text.starts_with(work))).collect();
        assert!(of[0]["work"].as_str().is_some_and(|text| text.ends_with("; portable")), "{of:?}");
        assert_eq!(of.iter().filter(|row| row["is_chosen"] == true).count(), 1, "{of:?}");
        for row in of {
            assert!(number(row, "array") > 0.0 && number(row, "ratio") > 0.0 && row["unit"] == "GB/s", "{row}");
        }
    }
}

#[test]
fn drains_wait_for_those_in_flight() {
    let scratch = Scratch::new();
    let line = "-l 6 -n 4 -c 64K --iodepth 64 --drain-every 2ms null:64M,request=20us";
    let rows = rows(&scratch, line, &[]);
    check(&rows[..2]);
    // The number of requests in flight when a drain begins depends on the machine: on a busy one it can be 0.
    for row in &rows[2..] {
        assert!((0.0..=64.0).contains(&number(row, "in_flight")) && number(row, "array") > 0.0, "{row}");
    }
    assert!(number(&rows[2], "array") <= number(&rows[3], "array"), "p50 and max");
}

#[test]
fn drains_are_timed_and_end() {
    let scratch = Scratch::new();
    let rows = rows(&scratch, "-l 6 -n 4 -c 64K --iodepth 64 --drain-every 2ms --shards 2 mem:8M", &[]);
    check(&rows[..2]);
    let times: Vec<f64> = rows[2..].iter().map(|row| number(row, "array")).collect();
    assert!(times.len() == 2 && 0.0 < times[0] && times[0] <= times[1], "p50 and max: {times:?}");
}

#[test]
fn resyncs_are_measured_beside_bare_reads() {
    let scratch = Scratch::new();
    let done = scratch.uraid(words("bench --scenario resync --rounds 1 --json")).expect_done();
    let rows: Vec<Value> = serde_json::from_str(&done.stdout).expect("a JSON array");
    assert_eq!(rows.len(), 8);
    for row in rows {
        assert!(row["work"].as_str().is_some_and(|work| work.starts_with("resync; raid")), "{row}");
        assert!(number(&row, "array") > 0.0 && number(&row, "raw") > 0.0 && number(&row, "ratio") > 0.0, "{row}");
    }
}

#[test]
fn where_no_socket_can_be_made_no_member_is_touched() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 12 * MIB);
    scratch.create("kept", "-l 5 -n 3 --assume-clean", &members);
    let before = fs::read(&members[0]).expect("a member");
    let nowhere = scratch.path("no/such.nbd");
    let done = bench(&scratch, "-l 5 -n 3 --destructive --serve", &[&[nowhere], &members[..]].concat());
    done.expect_refused(&[
        "the trial array is not served: cannot listen on ",
        "no/such.nbd: no socket can be made there: not found",
        "expected a path in a folder that exists and can be written",
    ]);
    assert!(fs::read(&members[0]).expect("a member") == before, "nothing was changed");
}

#[test]
fn what_an_error_advises_can_be_given() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 3, 12 * MIB);
    // New and never consistent yet.
    scratch.create("dirty", "-l 5 -n 3", &members);
    let two = &members[..2];
    bench(&scratch, "--run", two).expect_refused(&["dirty and degraded", "or --force to accept that"]);
    let before = fs::read(&two[0]).expect("a member");
    check(&rows(&scratch, "--force --run --iodepth 2", two));
    assert!(fs::read(&two[0]).expect("a member") == before, "it was only read");
}

#[test]
fn options_that_mean_nothing_to_a_word_are_wrong_usage() {
    let scratch = Scratch::new();
    let uri = "nbd+unix:///?socket=/nowhere";
    for (line, expected) in [
        (
            "kernels --bs 4K --iodepth 3",
            "`bench kernels` does not take --bs, --iodepth, only --rounds, --json, --plot; ",
        ),
        ("-l 5 -n 3 --beside idle mem:8M", "--beside is of `bench nbd` only"),
        ("-l 5 -n 3 --destructive kernels b c", "a member that is called kernels is given as ./kernels"),
        (&format!("nbd {uri} -l 5"), "`bench nbd` does not take --level, only --rw, --bs, "),
        (&format!("nbd {uri} -n 5"), "`bench nbd` does not take --raid-devices, only "),
        (&format!("nbd {uri} --serve x --spin 0us"), "`bench nbd` does not take --spin, --serve, only "),
    ] {
        let done = scratch.uraid(words(&format!("bench {line}")));
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.starts_with("error: ") && done.stderr.contains(expected), "{}", done.stderr);
    }
    let taken = "--rw read --bs 8K --iodepth 2 --jobs 2 --shards 2 --offset 4K --size 1M --gtod-reduce";
    bench(&scratch, &format!("nbd {uri} {taken}"), &[]).expect_refused(&["connecting: not found"]);
}

#[test]
fn filling_that_takes_long_says_how_far_it_is_also_without_a_terminal() {
    let scratch = Scratch::new();
    let filling = Served::start(&mut scratch.command(words("bench -l 0 -n 2 mem:768M --runtime 1ms --rounds 1")));
    let status = || fs::read_to_string(format!("/proc/{}/status", filling.pid())).unwrap_or_default();
    let filled_kib = || {
        let line =
            status().lines().find_map(|line| line.strip_prefix("RssShmem:")?.split_whitespace().next()?.parse().ok());
        line.unwrap_or(0)
    };
    wait(|| filled_kib() > 16 << 10).expect("members are filled");
    filling.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(2100));
    filling.signal(Signal::CONT);
    let done = filling.end().expect_done();
    assert!(done.stderr.starts_with("uraid: filling the members: "), "{}", done.stderr);
}

#[test]
fn a_client_stays_on_its_processors_and_a_server_is_measured() {
    let scratch = Scratch::new();
    let socket = scratch.path("trial.nbd");
    let words = |line: &str| words(line).into_iter();
    let server = scratch.command(words("bench -l 0 -n 2 mem:8M --serve").chain([socket.clone()]));
    let server = Served::start(&mut { server });
    server.wait_until_ready();
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it is there").trim();
    let processor = allowed.rsplit([',', '-']).next().expect("one at least");
    let line = format!("bench nbd --json --runtime 1s --rounds 1 --cpus {processor}");
    let uri = PathBuf::from(format!("nbd+unix:///?socket={}", socket.display()));
    let client = Served::start(&mut scratch.command(words(&line).chain([uri])));
    let tasks = format!("/proc/{}/task", client.pid());
    let pinned = format!("Cpus_allowed_list:\t{processor}\n");
    let is_pinned = || {
        let statuses = fs::read_dir(&tasks).ok()?.flatten().map(|task| fs::read_to_string(task.path().join("status")));
        statuses.flatten().any(|status| status.contains(&pinned)).then_some(())
    };
    wait(|| is_pinned().is_some()).expect("one thread is kept there");
    let rows: Vec<Value> = serde_json::from_str(&client.end().expect_done().stdout).expect("a JSON array");
    assert!(rows.len() == 1 && number(&rows[0], "array") > 0.0, "{rows:?}");
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_client_is_measured_alone_and_beside_others() {
    let scratch = Scratch::new();
    let socket = scratch.path("trial.nbd");
    let server = scratch.command(words("bench -l 0 -n 2 mem:8M --serve").into_iter().chain([socket.clone()]));
    let server = Served::start(&mut { server });
    server.wait_until_ready();
    let uri = [PathBuf::from(format!("nbd+unix:///?socket={}", socket.display()))];
    let line = "nbd --bs 64K --iodepth 4 --beside";
    bench(&scratch, &format!("{line} zeroers"), &uri).expect_refused(&["--destructive says that it may be lost"]);
    let rows = rows(&scratch, &format!("{line} non-readers,half-open,zeroers --destructive"), &uri);
    let works: Vec<&str> = rows.iter().filter_map(|row| row["work"].as_str()).collect();
    for (work, others) in works.iter().zip(["beside 8 non-readers", "beside 1,000 half-open", "beside 4 zeroers"]) {
        assert!(work.contains(others), "{work}");
    }
    assert!(rows.len() == 3 && rows.iter().all(|row| row["against"] == "alone"), "{rows:?}");
    assert_eq!(server.stop().code, Some(0));
}
