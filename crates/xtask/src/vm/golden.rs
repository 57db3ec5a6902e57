//! Golden files: members written by the real md driver and mdadm, with mdadm's output about them.
//! Owns: the recipes, the boots, the files in crates/format/tests/golden. Not here: their coding (`golden_text`).
//! Invariant: a file is written only if mdadm prints the same about its bytes as it did in the guest.

use super::golden_text::{coded, decoded, quoted, stretches};
use super::host::empty_image;
use super::kernel::Release;
use super::machine::{Disk, Machine, Scratch};
use super::{Lab, LabError, at, lab_error, output_of};
use crate::programs::packages;
use crate::project;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const OPENING: &str = include_str!("../../../../tests/vm/golden.sh");
const RECIPES: &str = include_str!("../../../../tests/vm/golden.recipes");
/// A guest with more than some 130 disks does not find all of them.
const ARRAYS_PER_BOOT: usize = 22;
/// Lines of mdadm that every member must have, and lines that appear only with a certain feature.
const KINDS: &[&str] = &["examine", "brief", "export", "badblocks", "bitmap"];
/// Of a larger member only this many bytes at the start and at the end are read: between them md writes only data.
const WINDOW_BYTES: u64 = 140 << 20;

/// One array: the head `NAME MEMBERS MIB [+MIB] [linux-6.1]` and the commands below it.
struct Recipe {
    name: String,
    members: usize,
    bytes: u64,
    /// By how much each member is larger than the one before.
    step: u64,
    release: Release,
    commands: Vec<String>,
}

type Texts = BTreeMap<(String, usize, String), String>;

/// Makes the named ones, or all of them.
pub(crate) fn run(names: &[&str]) -> Lab<()> {
    let mut recipes = recipes(RECIPES)?;
    if let Some(name) = names.iter().find(|name| recipes.iter().all(|recipe| recipe.name != **name)) {
        return lab_error(format!("no recipe is called {name}"));
    }
    recipes.retain(|recipe| names.is_empty() || names.contains(&recipe.name.as_str()));
    let home = project::root().join("crates/format/tests/golden");
    at(&home, std::fs::create_dir_all(&home))?;
    for release in [Release::Bookworm, Release::Trixie] {
        let some: Vec<&Recipe> = recipes.iter().filter(|recipe| recipe.release == release).collect();
        for some in some.chunks(ARRAYS_PER_BOOT) {
            let scratch = Scratch::new("uraid-golden")?;
            let (texts, kernel) = boot(&scratch.path, release, some)?;
            for recipe in some {
                let file = home.join(format!("{}.json", recipe.name));
                at(&file, std::fs::write(&file, json(&scratch.path, recipe, &texts, &kernel)?))?;
                println!("{}", file.display());
            }
        }
    }
    Ok(())
}

fn recipes(text: &str) -> Lab<Vec<Recipe>> {
    let mut recipes: Vec<Recipe> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        if line.starts_with(' ') {
            let Some(recipe) = recipes.last_mut() else { return lab_error("a command before the first recipe") };
            recipe.commands.push(line.trim().to_string());
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let bad = || LabError::Trouble(format!("a recipe's head is NAME MEMBERS MIB [+MIB] [linux-6.1], not {line:?}"));
        let [name, members, size, options @ ..] = words.as_slice() else { return Err(bad()) };
        let step = options.iter().find_map(|word| word.strip_prefix('+')).unwrap_or("0");
        recipes.push(Recipe {
            name: (*name).to_string(),
            members: members.parse().map_err(|_| bad())?,
            bytes: size.parse::<u64>().map_err(|_| bad())? << 20,
            step: step.parse::<u64>().map_err(|_| bad())? << 20,
            release: if options.contains(&"linux-6.1") { Release::Bookworm } else { Release::Trixie },
            commands: Vec::new(),
        });
    }
    Ok(recipes)
}

impl Recipe {
    fn image(&self, folder: &Path, slot: usize) -> PathBuf {
        folder.join(format!("g-{}-{slot}", self.name))
    }
}

/// Runs the recipes of one kernel; returns mdadm's output afterwards, and the kernel's name.
fn boot(folder: &Path, release: Release, recipes: &[&Recipe]) -> Lab<(Texts, String)> {
    let mut script = OPENING.to_string();
    let mut disks = Vec::new();
    for recipe in recipes {
        for slot in 0..recipe.members {
            let image = recipe.image(folder, slot);
            empty_image(&image, recipe.bytes + recipe.step * slot as u64)?;
            disks.push(Disk { image, is_read_only: false });
        }
        let commands = recipe.commands.join("\n");
        writeln!(script, "begin {} {}\n{commands}", recipe.name, recipe.members).expect("a string takes everything");
    }
    script.push_str("sync\n");
    for recipe in recipes {
        writeln!(script, "tell {} {}", recipe.name, recipe.members).expect("a string takes everything");
    }
    script.push_str("touch /run/power-cut\n");
    let machine = Machine { release, disks, script, arguments: Vec::new(), seconds_max: 420, programs: Vec::new() };
    let (mut texts, mut kernel) = (Texts::new(), String::new());
    let status = machine.run(&mut |line| match line.splitn(5, ' ').collect::<Vec<_>>().as_slice() {
        ["text", name, slot, kind, text] => {
            let key = ((*name).to_string(), slot.parse().unwrap_or(usize::MAX), (*kind).to_string());
            let known = texts.entry(key).or_default();
            known.push_str(text);
            known.push('\n');
        }
        ["fact", "kernel", name] => kernel = (*name).to_string(),
        _ => println!("guest: {line}"),
    })?;
    if status == 0 { Ok((texts, kernel)) } else { lab_error(format!("the guest's script ended with {status}")) }
}

/// The file of one array.
fn json(folder: &Path, recipe: &Recipe, texts: &Texts, kernel: &str) -> Lab<String> {
    let mdadm = output_of(Command::new("sh").args(["-c", "mdadm --version 2>&1"]))?;
    let commands: Vec<String> = recipe.commands.iter().map(|command| quoted(command)).collect();
    let mut out = format!(
        "{{\n\"name\": {},\n\"kernel\": {},\n\"mdadm\": {},\n\"commands\": [\n{}\n],\n\"members\": [",
        quoted(&recipe.name),
        quoted(kernel),
        quoted(mdadm.trim()),
        commands.join(",\n"),
    );
    for slot in 0..recipe.members {
        let image = recipe.image(folder, slot);
        let said = |kind: &str| texts.get(&(recipe.name.clone(), slot, kind.to_string())).map_or("", String::as_str);
        let content = content(&image)?;
        if content.is_empty() {
            return lab_error(format!("{} member {slot}: its recipe left nothing on it", recipe.name));
        }
        let bytes = recipe.bytes + recipe.step * slot as u64;
        compare(folder, bytes, &content, &image, said("examine"))
            .map_err(|error| LabError::Trouble(format!("{} member {slot}: {error}", recipe.name)))?;
        let comma = if slot == 0 { "" } else { "," };
        write!(out, "{comma}\n{{\n\"sectors\": {},\n\"content\": [", bytes / 512).expect("a string takes everything");
        for (index, (sector, code)) in content.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}\n[{sector}, {}]", quoted(code)).expect("a string takes everything");
        }
        out.push_str("\n]");
        for kind in KINDS {
            // The path is the guest's; every text is about the member that it stands with.
            let text = said(kind).replace(&guest_path(said("examine")), "MEMBER");
            if !text.is_empty() {
                write!(out, ",\n\"{kind}\": {}", quoted(&text)).expect("a string takes everything");
            }
        }
        out.push_str("\n}");
    }
    out.push_str("\n]\n}\n");
    Ok(out)
}

/// The path that `mdadm --examine` opens with: `/dev/vda:`.
fn guest_path(examine: &str) -> String {
    let line = examine.lines().next().unwrap_or("");
    line.trim_end_matches(':').to_string()
}

/// Everything in an image that is not zero: first sector and words.
fn content(image: &Path) -> Lab<Vec<(u64, String)>> {
    let file = at(image, std::fs::File::open(image))?;
    let size = at(image, file.metadata())?.len();
    let windows = if size <= 2 * WINDOW_BYTES {
        vec![(0, size)]
    } else {
        vec![(0, WINDOW_BYTES), (size - WINDOW_BYTES, WINDOW_BYTES)]
    };
    let mut found = Vec::new();
    for (start, length) in windows {
        let mut bytes = vec![0; usize::try_from(length).expect("a window is small")];
        at(image, file.read_exact_at(&mut bytes, start))?;
        found.extend(stretches(start / 512, &bytes).into_iter().map(|(sector, bytes)| (sector, coded(&bytes))));
    }
    Ok(found)
}

/// Makes a member from the words and runs mdadm on it: the output must equal that in the guest.
fn compare(folder: &Path, bytes: u64, content: &[(u64, String)], original: &Path, wanted: &str) -> Lab<()> {
    let again = folder.join("again");
    empty_image(&again, bytes)?;
    let file = at(&again, std::fs::OpenOptions::new().write(true).open(&again))?;
    for (sector, code) in content {
        let Some(bytes) = decoded(code) else { return lab_error("what was coded cannot be decoded") };
        at(&again, file.write_all_at(&bytes, sector * 512))?;
    }
    let Some(mdadm) = packages::find("mdadm") else { return lab_error("mdadm is missing") };
    let done = at(&again, Command::new(mdadm).arg("--examine").arg(&again).env("TZ", "UTC0").output())?;
    let found = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    if without_place(&found) == without_place(wanted) && !wanted.is_empty() {
        return Ok(());
    }
    lab_error(format!("{}: mdadm says\n{found}\nand said in the guest\n{wanted}", original.display()))
}

/// A text without what depends on where mdadm runs: paths, and whether this is the array's home.
fn without_place(text: &str) -> Vec<String> {
    let is_path = |word: &str| word.starts_with('/');
    text.lines()
        .map(|line| line.split(" (local to host").next().unwrap_or(line))
        .map(|line| line.split(' ').filter(|word| !is_path(word)).collect::<Vec<_>>().join(" ").trim_end().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_understood_and_has_names_that_fit_a_disks_serial() {
        let recipes = recipes(RECIPES).expect("the recipes of the tree");
        for recipe in &recipes {
            assert!(recipe.name.len() <= 16 && !recipe.commands.is_empty(), "{}", recipe.name);
        }
        assert!(recipes.iter().all(|recipe| (1..=4).contains(&recipe.members)));
    }
}
