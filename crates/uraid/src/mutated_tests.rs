//! Whole commands over members that were changed at random, without a process for each.
//! Owns: the commands in process, and the process that watches over them. Not here: the changes
//! (`tests/common/mutation.rs`), the same with the real binary, servers too (`tests/mutated.rs`).
//! Invariant: no command panics, or takes long, and one that only reads, or refuses, has written nothing.
//! URAID_MUTATIONS sets how many changes there are, and URAID_MUTATIONS_FROM the first of them.

#[expect(unreachable_pub, reason = "the tests of the binary use it, too")]
#[path = "../tests/common/mutation.rs"]
mod mutation;
#[expect(dead_code, unreachable_pub, reason = "the tests of the binary use more of it")]
#[path = "../tests/common/superblock.rs"]
mod superblock;

use crate::cli::Cli;
use clap::Parser;
use mutation::{ARRAYS, MEMBER_BYTES, Random, mutate};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Changes that are made if URAID_MUTATIONS does not say.
const MUTATIONS: u64 = 10;
/// No command takes longer on members of this size.
const TIME_MAX: Duration = Duration::from_secs(20);
/// The folder of the members: set for the process that runs the commands.
const FOLDER: &str = "URAID_MUTATED_FOLDER";
const TEST: &str = "mutated_tests::no_change_of_a_member_ends_a_command_badly_in_process";

const COMMANDS: [&str; 13] = [
    "examine",
    "examine --json",
    "examine --export",
    "examine --brief",
    "detail",
    "detail --json",
    "detail --draw --stripes 2",
    "copy",
    "copy --run --force",
    "update name --name other",
    "update uuid",
    "update bbl",
    "create --run -l 1 -n 2",
];

/// Runs a command line as `main` does. Whether it went well.
fn run(words: &[String]) -> bool {
    let Ok(cli) = Cli::try_parse_from(std::iter::once("uraid").chain(words.iter().map(String::as_str))) else {
        panic!("{words:?} is no command line");
    };
    match crate::run(&cli.command) {
        Ok(_) => true,
        Err(error) => {
            // Its words are made, as they are for people.
            assert!(!uraid_control::log::with_causes(&*error).is_empty());
            false
        }
    }
}

fn bytes(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("ours")).collect()
}

fn restore(members: &[PathBuf], contents: &[Vec<u8>]) {
    for (path, content) in members.iter().zip(contents) {
        fs::write(path, content).expect("room");
    }
}

/// The arrays as `create` makes them.
fn originals(folder: &Path) -> Vec<Vec<Vec<u8>>> {
    let make = |(options, count): &(&str, usize)| {
        let members: Vec<PathBuf> = (0..*count).map(|n| folder.join(format!("m{n}"))).collect();
        for path in &members {
            File::create(path).and_then(|file| file.set_len(MEMBER_BYTES)).expect("room");
        }
        let offset = if options.contains("-e 1.0") { "" } else { "--data-offset 2M" };
        let words = format!("create --run --name mutated {offset} {options}");
        let words = words.split_whitespace().map(str::to_owned);
        assert!(run(&words.chain(members.iter().map(|path| path.display().to_string())).collect::<Vec<String>>()));
        bytes(&members)
    };
    ARRAYS.iter().map(make).collect()
}

/// The seeds of the changes.
fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|number| number.parse::<u64>().ok());
    let first = number("URAID_MUTATIONS_FROM").unwrap_or(0);
    first..first + number("URAID_MUTATIONS").unwrap_or(MUTATIONS).max(1)
}

/// All changes, one command after the other.
fn run_all(folder: &Path) {
    let originals = originals(folder);
    for seed in seeds() {
        let mut random = Random(seed);
        let at = random.below(ARRAYS.len() as u64) as usize;
        let members: Vec<PathBuf> = (0..ARRAYS[at].1).map(|n| folder.join(format!("m{n}"))).collect();
        restore(&members, &originals[at]);
        let mutated = 1 + random.below(members.len() as u64) as usize;
        members.iter().take(mutated).for_each(|path| mutate(path, &mut random));
        let before = bytes(&members);
        for command in COMMANDS {
            let case = format!("seed {seed}: {command} of {}", ARRAYS[at].0);
            // The watching process reads it.
            fs::write(folder.join("case"), &case).expect("room");
            let is_create = command.starts_with("create");
            let given = &members[..if is_create { 2 } else { members.len() }];
            let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
            words.extend(given.iter().map(|path| path.display().to_string()));
            if command.starts_with("copy") {
                let (out, map) = (folder.join("out"), folder.join("map"));
                let _ = fs::remove_file(&out);
                let _ = fs::remove_file(&map);
                words.extend([out.display().to_string(), "--map".to_owned(), map.display().to_string()]);
            }
            let is_done = run(&words);
            let may_write = is_done && (is_create || command.starts_with("update"));
            let is_same = bytes(&members) == before;
            assert!(is_same || may_write, "{case}: a member was written");
            if !is_same {
                restore(&members, &before);
            }
        }
    }
}

#[test]
fn no_change_of_a_member_ends_a_command_badly_in_process() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return run_all(Path::new(&folder));
    }
    let folder = PathBuf::from(format!("/dev/shm/uraid-test-{}-mutated", std::process::id()));
    fs::create_dir_all(folder.join("run")).expect("room");
    let said = File::create(folder.join("said")).expect("room");
    // A panic of a shard ends its process: this one tells of it.
    let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
    command.args(["--exact", TEST, "--nocapture"]).env(FOLDER, &folder).env("URAID_RUNTIME_DIR", folder.join("run"));
    let mut child = command.stdout(Stdio::null()).stderr(said).spawn().expect("it runs");
    let (mut case, mut since) = (String::new(), Instant::now());
    let status = loop {
        if let Some(status) = child.try_wait().expect("our child") {
            break status.code();
        }
        let now = fs::read_to_string(folder.join("case")).unwrap_or_default();
        if now != case {
            (case, since) = (now, Instant::now());
        }
        if since.elapsed() > TIME_MAX {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let case = fs::read_to_string(folder.join("case")).unwrap_or_default();
    let said = fs::read(folder.join("said")).unwrap_or_default();
    let last = String::from_utf8_lossy(&said[said.len().saturating_sub(3000)..]).into_owned();
    let _ = fs::remove_dir_all(&folder);
    assert_eq!(status, Some(0), "{case}:\n{last}");
    assert!(
        case.starts_with(&format!("seed {}: {}", seeds().end - 1, COMMANDS[COMMANDS.len() - 1])),
        "the last one was {case}"
    );
}
