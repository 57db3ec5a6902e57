//! `cargo xtask fuzz`: libFuzzer over the fuzz targets, with coverage, on the stable compiler.
//! Owns: the flags, the command line, one run after the other, the smallest corpora. Not here: the targets (package
//! uraid-fuzz).
//! Invariant: a normal build contains none of it: it has its own feature and target directory. An input whose file name
//! is not a hash is never removed.

use crate::project;
use std::path::Path;
use std::process::Command;

/// The compiler flags that let libFuzzer see edges and comparisons. Overflow checks and debug assertions are on.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions=on";

const SECONDS: u64 = 600;

struct Options<'a> {
    target: Option<&'a str>,
    seconds: u64,
    keeps: bool,
    minimises: bool,
}

const USAGE: &str = "cargo xtask fuzz [TARGET] [--time 10m] [--keep | --minimise]";

/// `[TARGET] [--time 10m] [--keep | --minimise]`. Whether nothing was found.
pub(crate) fn run(words: &[&str]) -> bool {
    let Some(options) = parse(words) else {
        eprintln!("{USAGE}");
        return false;
    };
    let root = project::root();
    let targets = targets(&root);
    let chosen: Vec<&(String, usize)> =
        targets.iter().filter(|(name, _)| options.target.is_none_or(|wanted| wanted == name)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = targets.iter().map(|(name, _)| name.as_str()).collect();
        eprintln!("no such target; there are {}", names.join(", "));
        return false;
    }
    let Some(program) = build(&root) else { return false };
    if options.minimises {
        return chosen.iter().all(|target| minimise(&root, &program, target));
    }
    let outcomes = chosen.iter().map(|target| fuzz(&root, &program, target, &options));
    let failed = outcomes.filter(|is_good| !is_good).count();
    println!("fuzz: {} targets, {failed} with findings", chosen.len());
    failed == 0
}

fn parse<'a>(words: &[&'a str]) -> Option<Options<'a>> {
    let mut options = Options { target: None, seconds: SECONDS, keeps: false, minimises: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--time" => options.seconds = seconds(words.next()?)?,
            "--keep" => options.keeps = true,
            "--minimise" => options.minimises = true,
            name if !name.starts_with('-') && options.target.is_none() => options.target = Some(name),
            _ => return None,
        }
    }
    (!(options.keeps && options.minimises)).then_some(options)
}

/// `90`, `90s`, `10m`, `2h`.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b's'),
    };
    let unit = match unit {
        b'h' => 3600,
        b'm' => 60,
        _ => 1,
    };
    number.parse::<u64>().ok().filter(|&number| number > 0)?.checked_mul(unit)
}

/// Each target's name and `bytes_max`, from the list in `fuzz/src/lib.rs`.
fn targets(root: &Path) -> Vec<(String, usize)> {
    let text = std::fs::read_to_string(root.join("fuzz/src/lib.rs")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("Target { name: \""));
    lines
        .filter_map(|line| {
            let (name, rest) = line.split_once('"')?;
            let bytes_max = rest.split("bytes_max: ").nth(1)?.split(',').next()?.parse().ok()?;
            Some((name.to_string(), bytes_max))
        })
        .collect()
}

/// The driver's path. `--target` keeps the flags away from build scripts and procedural macros.
fn build(root: &Path) -> Option<std::path::PathBuf> {
    let version = Command::new("rustc").arg("-vV").output().ok()?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: "))?;
    let folder = project::target().join("fuzz");
    let done = project::cargo(&["build", "--release", "-p", "uraid-fuzz", "--features", "libfuzzer", "--target", host])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &folder)
        .current_dir(root)
        .status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("the driver does not build; it needs a C++ compiler");
        return None;
    }
    Some(folder.join(host).join("release/uraid-fuzz"))
}

/// Runs one target, starting from the project's corpus and from what earlier runs found, which stays in the target
/// folder.
fn fuzz(root: &Path, program: &Path, (name, bytes_max): &(String, usize), options: &Options<'_>) -> bool {
    let work = program.ancestors().nth(3).expect("the driver lies three folders deep");
    let (found, broken) = (work.join("corpus").join(name), work.join("findings").join(name));
    let kept = root.join("fuzz/corpus").join(name);
    for folder in [&found, &broken, &kept] {
        if let Err(error) = std::fs::create_dir_all(folder) {
            eprintln!("{}: {error}", folder.display());
            return false;
        }
    }
    println!("fuzz {name}, {} s", options.seconds);
    let is_good = driver(program, name, *bytes_max)
        .args([&found, &kept])
        .arg(format!("-max_total_time={}", options.seconds))
        .args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=1024", "-use_value_profile=1"])
        .arg(format!("-artifact_prefix={}/", broken.display()))
        .status()
        .is_ok_and(|status| status.success());
    if !is_good {
        println!("fuzz {name}: FOUND something, the input is in {}", broken.display());
    }
    if options.keeps && is_good {
        let mut merge = driver(program, name, *bytes_max);
        merge.args(["-merge=1", BY_EDGES]).args([&kept, &found]);
        return merge.status().is_ok_and(|status| status.success());
    }
    is_good
}

/// An input is worth keeping for an edge that it alone reaches, not for how often it takes one.
const BY_EDGES: &str = "-use_counters=0";

fn driver(program: &Path, name: &str, bytes_max: usize) -> Command {
    let mut driver = Command::new(program);
    driver.env("URAID_FUZZ_TARGET", name).arg(format!("-max_len={bytes_max}")).arg("-verbosity=0");
    driver
}

/// Removes the inputs that reach no edge beyond the others', except those with a name of their own.
fn minimise(root: &Path, program: &Path, (name, bytes_max): &(String, usize)) -> bool {
    let kept = root.join("fuzz/corpus").join(name);
    let work = program.ancestors().nth(3).expect("the driver lies three folders deep").join("minimised").join(name);
    // Left by an earlier run; there may be none.
    let _ = std::fs::remove_dir_all(&work);
    let is_done = std::fs::create_dir_all(&work).is_ok()
        && driver(program, name, *bytes_max)
            .args(["-set_cover_merge=1", BY_EDGES])
            .args([&work, &kept])
            .status()
            .is_ok_and(|status| status.success());
    let Some((before, removed)) = is_done.then(|| remove_others(&kept, &work)).and_then(Result::ok) else {
        eprintln!("fuzz {name}: cannot be minimised");
        return false;
    };
    println!("fuzz {name}: {before} inputs, {removed} removed");
    true
}

/// Removes the files of `kept` that are not in `chosen`. How many there were, and how many were removed.
fn remove_others(kept: &Path, chosen: &Path) -> std::io::Result<(usize, usize)> {
    let (mut before, mut removed) = (0, 0);
    for entry in std::fs::read_dir(kept)? {
        let entry = entry?;
        before += 1;
        if is_hash(&entry.file_name().to_string_lossy()) && !chosen.join(entry.file_name()).exists() {
            std::fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    Ok((before, removed))
}

/// libFuzzer's name of an input: the SHA-1 of its bytes.
fn is_hash(name: &str) -> bool {
    name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_or_are_in_seconds() {
        assert_eq!((seconds("90"), seconds("10m"), seconds("2h")), (Some(90), Some(600), Some(7200)));
        assert_eq!((seconds("0s"), seconds("m"), seconds("1d"), seconds("-1")), (None, None, None, None));
    }

    #[test]
    fn the_list_of_targets_comes_from_the_package() {
        let targets = targets(&project::root());
        assert!(targets.len() >= 9 && targets.iter().any(|(name, _)| name == "superblock"), "{targets:?}");
    }

    #[test]
    fn a_command_line_has_one_target_and_known_options() {
        assert!(parse(&["planner", "--time", "5m", "--keep"]).is_some_and(|options| options.seconds == 300));
        assert!(parse(&["planner", "find"]).is_none() && parse(&["--keep", "--minimise"]).is_none());
        assert!(parse(&["--time"]).is_none() && parse(&["--tim", "5"]).is_none());
    }

    #[test]
    fn an_input_with_a_name_of_its_own_is_kept() {
        let folder = std::env::temp_dir().join(format!("uraid-minimise-{}", std::process::id()));
        let (kept, chosen) = (folder.join("kept"), folder.join("chosen"));
        let (one, other) = ("0".repeat(40), "a".repeat(40));
        for place in [&kept, &chosen] {
            std::fs::create_dir_all(place).expect("the temporary folder is writable");
            std::fs::write(place.join(&one), []).expect("as above");
        }
        for name in [other.as_str(), "seed-0", "event-count-without-room"] {
            std::fs::write(kept.join(name), []).expect("as above");
        }
        assert_eq!(remove_others(&kept, &chosen).expect("readable"), (4, 1));
        assert!(kept.join(&one).exists() && !kept.join(&other).exists());
        std::fs::remove_dir_all(folder).expect("ours");
    }
}
