//! The Debian package.
//! Owns: which file of the project lies where in it, its control files. Not here: archives (`archive`), what its scripts do
//! (`contrib/debian`).
//! Invariant: it puts no `mdadm` into PATH, and no script of it stops an array. Spec: deb(5), Debian's policy.

use super::archive::{ar, gzip, md5, tar, xz};
use super::tree::{Entry, Tree};
use super::{Release, done, read};
use crate::project;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the units lie; `sandbox.conf` is an example.
const UNITS: &str = "usr/lib/systemd/system";
const DOCUMENTS: &str = "usr/share/doc/uraid";

/// Writes `uraid_VERSION_ARCHITECTURE.deb`.
pub(super) fn write(release: &Release, program: &Path, pages: &Path) -> Result<PathBuf, String> {
    let tree = tree(release, program, pages)?;
    let control = control(release, program, &tree)?;
    let files = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.xz", xz(&tar(&control, "./", release.time))?),
        ("data.tar.xz", xz(&tar(&tree, "./", release.time))?),
    ];
    let path = release.folder.join(format!("uraid_{}_{}.deb", release.version, release.architecture));
    std::fs::write(&path, ar(&files, release.time)).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

/// What it installs.
fn tree(release: &Release, program: &Path, pages: &Path) -> Result<Tree, String> {
    let (root, mut tree) = (project::root(), Tree::default());
    let contrib = root.join("contrib");
    tree.copy("usr/bin/uraid", program, 0o755)?;
    // Not in PATH: who wants the name makes an alternative of it.
    tree.link("usr/lib/uraid/mdadm", "../../bin/uraid");
    tree.copy("etc/default/uraid", &contrib.join("debian/uraid.default"), 0o644)?;
    tree.copy("usr/lib/udev/rules.d/63-uraid-assembly.rules", &contrib.join("udev/63-uraid-assembly.rules"), 0o644)?;
    tree.copy("usr/share/initramfs-tools/hooks/uraid", &contrib.join("initramfs-tools/uraid"), 0o755)?;
    for name in names(&contrib.join("systemd"))? {
        let folder = if name == "sandbox.conf" { format!("{DOCUMENTS}/examples") } else { UNITS.to_owned() };
        tree.copy(&format!("{folder}/{name}"), &contrib.join("systemd").join(&name), 0o644)?;
    }
    for name in names(&contrib.join("examples"))? {
        tree.copy(&format!("{DOCUMENTS}/examples/{name}"), &contrib.join("examples").join(&name), 0o644)?;
    }
    for name in names(pages)? {
        let from = pages.join(&name);
        match name.as_str() {
            "uraid.bash" => tree.copy("usr/share/bash-completion/completions/uraid", &from, 0o644)?,
            "_uraid" => tree.copy("usr/share/zsh/vendor-completions/_uraid", &from, 0o644)?,
            "uraid.fish" => tree.copy("usr/share/fish/vendor_completions.d/uraid.fish", &from, 0o644)?,
            page => tree.file(&format!("usr/share/man/man1/{page}.gz"), gzip(read(&from)?.as_bytes())?, 0o644),
        }
    }
    let licence = read(&root.join("LICENSE-MIT"))?;
    let dotted = |line: &str| if line.is_empty() { " .".to_owned() } else { format!(" {line}") };
    let licence: Vec<String> = licence.lines().map(dotted).collect();
    let copyright = read(&contrib.join("debian/copyright"))?.replace("@MIT@", &licence.join("\n"));
    tree.file(&format!("{DOCUMENTS}/copyright"), copyright, 0o644);
    tree.file(&format!("{DOCUMENTS}/CHANGELOG.md.gz"), gzip(read(&root.join("CHANGELOG.md"))?.as_bytes())?, 0o644);
    tree.file(&format!("{DOCUMENTS}/changelog.gz"), gzip(changelog(release)?.as_bytes())?, 0o644);
    tree.copy("usr/share/lintian/overrides/uraid", &contrib.join("debian/lintian-overrides"), 0o644)?;
    for name in book(&root)? {
        let from = root.join("docs/operating").join(&name);
        tree.file(&format!("{DOCUMENTS}/operating/{name}"), read(&from)?, 0o644);
    }
    Ok(tree)
}

/// Debian's changelog, in its format. What has changed is in the project's own.
fn changelog(release: &Release) -> Result<String, String> {
    let date = done(Command::new("date").args(["-u", "-R", "-d", &format!("@{}", release.time)]).env("LC_ALL", "C"))?;
    let (version, maintainer) = (&release.version, maintainer());
    let entry = "  * What has changed is in CHANGELOG.md.gz, beside this file.";
    Ok(format!("uraid ({version}) unstable; urgency=medium\n\n{entry}\n\n -- {maintainer}  {date}"))
}

/// The pages of the book.
fn book(root: &Path) -> Result<Vec<String>, String> {
    Ok(names(&root.join("docs/operating"))?.into_iter().filter(|name| name.ends_with(".md")).collect())
}

/// `control`, `md5sums`, `conffiles`, `triggers` and the scripts.
fn control(release: &Release, program: &Path, tree: &Tree) -> Result<Tree, String> {
    let folder = project::root().join("contrib/debian");
    let mut control = Tree::default();
    let text = read(&folder.join("control"))?
        .replace("@VERSION@", &release.version)
        .replace("@ARCHITECTURE@", release.architecture)
        .replace("@MAINTAINER@", &maintainer())
        .replace("@SIZE@", &tree.kib().to_string())
        .replace("Depends: @DEPENDS@\n", &depends(program)?);
    control.file("control", text, 0o644);
    let mut sums = String::new();
    for (path, entry) in tree.entries() {
        if let Entry::File { bytes, .. } = entry {
            sums.push_str(&format!("{}  {path}\n", md5(bytes)?));
        }
    }
    control.file("md5sums", sums, 0o644);
    for file in ["conffiles", "triggers"] {
        control.copy(file, &folder.join(file), 0o644)?;
    }
    for script in ["postinst", "prerm", "postrm"] {
        control.copy(script, &folder.join(script), 0o755)?;
    }
    Ok(control)
}

/// As Debian's tools take it from the environment. Else an address that exists nowhere.
fn maintainer() -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = variable("DEBFULLNAME").unwrap_or_else(|| "The uraid authors".to_owned());
    let address =
        variable("DEBEMAIL").or_else(|| variable("EMAIL")).unwrap_or_else(|| "uraid@uraid.invalid".to_owned());
    format!("{name} <{address}>")
}

/// The line about the C library, which a static program does not need.
fn depends(program: &Path) -> Result<String, String> {
    let headers = done(Command::new("readelf").args(["-l", "-W"]).arg(program))?;
    if !headers.contains("INTERP") {
        return Ok(String::new());
    }
    let versions = done(Command::new("readelf").args(["-V", "-W"]).arg(program))?;
    let number = |word: &str| word.strip_prefix("GLIBC_2.").and_then(|rest| rest.parse::<u32>().ok());
    let newest = versions.split_whitespace().filter_map(number).max().unwrap_or(0);
    Ok(format!("Depends: libc6 (>= 2.{newest}), libgcc-s1\n"))
}

/// The names in a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.path().is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}
