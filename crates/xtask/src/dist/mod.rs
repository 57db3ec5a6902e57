//! `cargo xtask dist`: what a release hands out: a static binary, a Debian package, an image for containers; and the man
//! pages and completions in them.
//! Owns: which of these are made, where they are put, their names. Not here: their bytes (`deb`, `oci`, `archive`).
//! Invariant: the same commit and toolchain make the same bytes: times are the commit's, owners are root.

mod archive;
mod binary;
mod checked;
mod deb;
mod oci;
mod tree;

use crate::project;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What one run works with.
struct Release {
    /// Where everything is put: `target/dist`.
    folder: PathBuf,
    /// As in Cargo.toml.
    version: String,
    /// Seconds since 1970: the commit's.
    time: u64,
    /// As Debian calls it, such as `amd64`.
    architecture: &'static str,
}

/// Man pages and completions only.
pub(crate) fn pages() -> bool {
    report(Release::new().and_then(|release| release.pages(&newest_program()?)).map(|folder| vec![folder]))
}

/// `dist [binary | deb | oci]... [--program FILE]`: all of them, or those that are named, around a program that is built
/// for it, or this one.
pub(crate) fn run(words: &[&str]) -> bool {
    let (mut parts, mut program, mut rest) = (Vec::new(), None, words.iter());
    while let Some(word) = rest.next() {
        match (*word, rest.clone().next()) {
            ("--program", Some(file)) => {
                program = Some(PathBuf::from(file));
                rest.next();
            }
            ("binary" | "deb" | "oci", _) => parts.push(*word),
            _ => {
                eprintln!("dist: {word}: expected binary, deb, oci, or --program FILE");
                return false;
            }
        }
    }
    let is_wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    report(make(is_wanted, program))
}

fn make(is_wanted: impl Fn(&str) -> bool, program: Option<PathBuf>) -> Result<Vec<PathBuf>, String> {
    let release = Release::new()?;
    let program = match program {
        Some(program) => program,
        None => binary::build(&release)?,
    };
    let mut made = Vec::new();
    if is_wanted("binary") {
        made.push(program.clone());
    }
    if is_wanted("deb") {
        let package = deb::write(&release, &program, &release.pages(&program)?)?;
        checked::deb(&release, &package)?;
        made.push(package);
    }
    if is_wanted("oci") {
        let image = oci::write(&release, &program)?;
        checked::oci(&image)?;
        made.push(image);
    }
    Ok(made)
}

fn report(outcome: Result<Vec<PathBuf>, String>) -> bool {
    match outcome {
        Ok(made) => {
            for path in made {
                let size = std::fs::metadata(&path).map_or(0, |status| status.len());
                println!("{} ({} KiB)", path.display(), size / 1024);
            }
            true
        }
        Err(text) => {
            eprintln!("dist: {text}");
            false
        }
    }
}

impl Release {
    fn new() -> Result<Release, String> {
        let manifest = read(&project::root().join("Cargo.toml"))?;
        let version = manifest.lines().find_map(|line| line.strip_prefix("version = \""));
        let version = version.and_then(|rest| rest.strip_suffix('"')).ok_or("Cargo.toml has no version")?;
        let time = std::env::var("SOURCE_DATE_EPOCH").ok().or_else(|| project::git(&["log", "-1", "--format=%ct"]));
        let folder = project::target().join("dist");
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Release {
            folder,
            version: version.to_owned(),
            time: time.and_then(|time| time.parse().ok()).unwrap_or(0),
            architecture: architecture()?,
        })
    }

    /// The folder with man pages and completions, as `program` writes them.
    fn pages(&self, program: &Path) -> Result<PathBuf, String> {
        let folder = self.folder.join("pages");
        let _ = std::fs::remove_dir_all(&folder);
        done(Command::new(program).arg("write-pages").arg(&folder))?;
        Ok(folder)
    }
}

/// As Debian and OCI call this machine's.
fn architecture() -> Result<&'static str, String> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("packages are made on x86_64 and aarch64, not on {other}")),
    }
}

/// The program that was built last; built now, if there is none.
fn newest_program() -> Result<PathBuf, String> {
    let program = project::target().join("debug/uraid");
    done(&mut project::cargo(&["build", "--quiet", "-p", "uraid"]))?;
    Ok(program)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs a program to its end, and returns what it prints.
fn done(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name}: {}", output.status))
    }
}
