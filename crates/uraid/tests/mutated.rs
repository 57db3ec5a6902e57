//! Every command over members whose superblocks, bitmaps, lists and logs were changed at random: nothing that is on a
//! disk ends a command by a panic or a signal, or keeps it for long, and one that refuses has written nothing.
//! Owns: the commands as processes. Not here: the changes (`common::mutation`), the same commands without a process each
//! (`src/mutated_tests.rs`), what each command must say (`crafted`, `errors`), the parsers alone (the fuzzers).
//! URAID_MUTATIONS sets how many changes there are, and URAID_MUTATIONS_OF selects commands by their first word.

use crate::common::Scratch;
use crate::common::mutation::{ARRAYS, MEMBER_BYTES, Random, mutate};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Changes that are made if URAID_MUTATIONS does not say.
const MUTATIONS: u64 = 12;
/// No command takes longer on members of this size.
const TIME_MAX: Duration = Duration::from_secs(20);
fn bytes(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("ours")).collect()
}

/// How a command ended, what it said. It is killed, and that is an error, if it does not end. A server gets SIGTERM as
/// soon as it serves.
fn run(mut command: Command, is_server: bool, case: &str) -> (i32, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
    let (sender, serves) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // The first line of a server is its address.
        if stdout.read_line(&mut line).is_ok_and(|count| count > 0) {
            let _ = sender.send(());
        }
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
    });
    let mut stderr = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let began = Instant::now();
    let mut is_told = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status;
        }
        if !is_told && is_server && serves.try_recv().is_ok() {
            is_told = true;
            let process = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        if began.elapsed() > TIME_MAX {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{case}: does not end:\n{}", reader.join().unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let said = reader.join().expect("it only reads");
    let code = status.code().unwrap_or_else(|| panic!("{case}: {status}:\n{said}"));
    assert!(!said.contains("panicked"), "{case}:\n{said}");
    assert!((0..=4).contains(&code), "{case}: exit code {code}:\n{said}");
    (code, said)
}

#[test]
fn no_change_of_a_member_ends_a_command_badly_and_a_refusal_writes_nothing() {
    let count = std::env::var("URAID_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(MUTATIONS);
    let first = std::env::var("URAID_MUTATIONS_FROM").ok().and_then(|first| first.parse().ok()).unwrap_or(0);
    let only = std::env::var("URAID_MUTATIONS_OF").ok();
    let scratch = Scratch::new();
    let originals: Vec<Vec<Vec<u8>>> = ARRAYS
        .iter()
        .map(|(options, count)| {
            let members = scratch.members("m", *count, MEMBER_BYTES);
            let offset = if options.contains("-e 1.0") { "" } else { "--data-offset 2M" };
            scratch.create("mutated", &format!("{offset} --run {options}"), &members);
            bytes(&members)
        })
        .collect();
    for seed in first..first + count {
        let mut random = Random(seed);
        let (options, count) = ARRAYS[random.below(ARRAYS.len() as u64) as usize];
        let at = ARRAYS.iter().position(|(other, _)| *other == options).expect("it is one of them");
        let members: Vec<PathBuf> = (0..count).map(|n| scratch.path(&format!("m{n}"))).collect();
        for (path, content) in members.iter().zip(&originals[at]) {
            fs::write(path, content).expect("room");
        }
        let mutated = 1 + random.below(count as u64);
        members.iter().take(mutated as usize).for_each(|path| mutate(path, &mut random));
        let before = bytes(&members);
        let out = scratch.path("out");
        for words in [
            "examine",
            "examine --json",
            "examine --export",
            "detail",
            "detail --json",
            "detail --draw --stripes 2",
            "copy",
            "copy --run --force",
            "serve --read-only",
            "serve",
            "update name --name other",
            "update uuid",
            "update bbl",
            "create --run -l 1 -n 2",
        ] {
            if only.as_ref().is_some_and(|only| words.split(' ').next() != Some(only)) {
                continue;
            }
            let case = format!("seed {seed}: {words} of {options}");
            let _ = fs::remove_file(&out);
            let mut command = scratch.command(words.split(' '));
            command.args(&members[..if words.starts_with("create") { 2 } else { count }]);
            if words.starts_with("copy") {
                command.args(["--map", "map.txt"]).arg(&out).current_dir(scratch.path(""));
                let _ = fs::remove_file(scratch.path("map.txt"));
            }
            let is_server = words.starts_with("serve");
            let (code, said) = run(command, is_server, &case);
            let may_write = matches!(words, "serve") || !said.is_empty() && code == 0;
            let is_reading = !words.starts_with("update") && !words.starts_with("create") && words != "serve";
            if is_reading || code != 0 && !may_write {
                assert!(bytes(&members) == before, "{case}: exit code {code}, and a member was written:\n{said}");
            }
            if !is_reading && bytes(&members) != before {
                for (path, content) in members.iter().zip(&before) {
                    fs::write(path, content).expect("room");
                }
            }
        }
    }
}
