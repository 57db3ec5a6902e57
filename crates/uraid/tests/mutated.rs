//! Every command over members whose superblocks, bitmaps, lists and logs were changed at random: nothing that is on a
//! disk ends a command by a panic or a signal, or keeps it for long, and one that refuses has written nothing.
//! Owns: the arrays, the changes, the commands. Not here: what each command must say (`crafted`, `errors`), the parsers
//! alone (the fuzzers). URAID_MUTATIONS sets how many changes there are: `cargo xtask deep` has 20,000.

use crate::common::superblock::Raw;
use crate::common::{MIB, Scratch};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Changes that are made if URAID_MUTATIONS does not say.
const MUTATIONS: u64 = 12;
/// No command takes longer on members of this size.
const TIME_MAX: Duration = Duration::from_secs(20);
const MEMBER_BYTES: u64 = 5 * MIB / 2;

/// The words of `create`, the number of members.
const ARRAYS: [(&str, usize); 9] = [
    ("-l 1 -n 2 --bitmap internal", 2),
    ("-l 5 -n 3 -c 64K --assume-clean", 3),
    ("-l 5 -n 3 -c 64K --consistency-policy ppl", 3),
    ("-l 6 -n 4 -c 64K -e 1.1 --assume-clean", 4),
    ("-l 10 -n 4 -p f2 -c 64K --assume-clean", 4),
    ("-l 0 -n 3 -c 64K", 3),
    ("-l linear -n 2 -e 1.0", 2),
    ("-l 1 -n 3 -e 1.0 --assume-clean", 3),
    ("-l 4 -n 3 -x 1 -c 64K --assume-clean", 4),
];

/// The same sequence for each seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A number as a field might hold it: small, huge, at the border of what is allowed, or any.
    fn field(&mut self) -> u64 {
        const BORDERS: [u64; 15] =
            [0, 1, 2, 7, 255, 256, 0xfeff, 0xff00, 0xfffd, 0xfffe, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 54, u64::MAX];
        match self.below(4) {
            0 => self.next(),
            1 => self.below(1 << 16),
            _ => BORDERS[self.below(BORDERS.len() as u64) as usize],
        }
    }
}

/// Changes some fields of a member, and makes the checksum right most of the time.
fn mutate(path: &Path, random: &mut Random) {
    let mut raw = Raw::read(path);
    for _ in 0..=random.below(4) {
        // The first 256 bytes are the fields, the rest is the table of roles.
        let area = if random.below(3) > 0 { 256 } else { 512 };
        let width = [1, 2, 4, 8][random.below(4) as usize];
        let at = random.below(area - width) & !(width - 1);
        // Without its magic number it is no superblock, which others test.
        if at >= 4 {
            raw.set(at as usize, &random.field().to_le_bytes()[..width as usize]);
        }
    }
    if random.below(8) > 0 {
        raw.write();
    } else {
        raw.write_unsealed();
    }
    // Lists, bitmaps and logs lie around the superblock.
    let file = File::options().write(true).open(path).expect("ours");
    for _ in 0..random.below(8) {
        let at = (raw.at() + 4096 + random.below(128 << 10)).min(MEMBER_BYTES - 8) & !7;
        file.write_all_at(&random.field().to_le_bytes(), at).expect("room");
    }
}

fn bytes(members: &[PathBuf]) -> Vec<Vec<u8>> {
    members.iter().map(|path| fs::read(path).expect("ours")).collect()
}

/// How a command ended, what it said. It is killed, and that is an error, if it does not end; `stop_after`: a server
/// gets SIGTERM then.
fn run(mut command: Command, stop_after: Option<Duration>, case: &str) -> (i32, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary runs");
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
        if !is_told && stop_after.is_some_and(|after| began.elapsed() > after) {
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
            let case = format!("seed {seed}: {words} of {options}");
            let _ = fs::remove_file(&out);
            let mut command = scratch.command(words.split(' '));
            command.args(&members[..if words.starts_with("create") { 2 } else { count }]);
            if words.starts_with("copy") {
                command.args(["--map", "map.txt"]).arg(&out).current_dir(scratch.path(""));
                let _ = fs::remove_file(scratch.path("map.txt"));
            }
            let is_server = words.starts_with("serve");
            let (code, said) = run(command, is_server.then_some(Duration::from_millis(150)), &case);
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
