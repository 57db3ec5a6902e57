//! What was made, seen by other programs.
//! Owns: which of them judge a package and an image, and what they must find. Not here: making them.
//! Invariant: what is missing on this system is said, and judges nothing.

use super::archive::sha256;
use super::{Release, done};
use crate::programs::packages;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Paths that a package must have.
const EXPECTED: [&str; 10] = [
    "usr/bin/uraid",
    "usr/lib/uraid/mdadm",
    "usr/lib/systemd/system/uraid@.service",
    "usr/lib/systemd/system/uraid.target",
    "usr/lib/udev/rules.d/63-uraid-assembly.rules",
    "usr/share/initramfs-tools/hooks/uraid",
    "usr/share/man/man1/uraid-serve.1.gz",
    "usr/share/bash-completion/completions/uraid",
    "usr/share/doc/uraid/copyright",
    "etc/default/uraid",
];

/// Lets dpkg unpack the package and install it below a folder, runs the program in it, and asks lintian.
pub(super) fn deb(release: &Release, package: &Path) -> Result<(), String> {
    if packages::find("dpkg-deb").is_none() {
        println!("dpkg-deb is not installed: nobody has read the package");
        return Ok(());
    }
    let root = release.folder.join("root");
    let _ = std::fs::remove_dir_all(&root);
    done(Command::new("dpkg-deb").arg("-x").arg(package).arg(&root))?;
    for path in EXPECTED {
        if std::fs::symlink_metadata(root.join(path)).is_err() {
            return Err(format!("{} has no {path}", package.display()));
        }
    }
    let in_path = ["usr/bin/mdadm", "usr/sbin/mdadm", "sbin/mdadm"];
    if let Some(path) = in_path.iter().find(|path| std::fs::symlink_metadata(root.join(path)).is_ok()) {
        return Err(format!("{} puts {path} into PATH", package.display()));
    }
    let version = done(Command::new(root.join("usr/bin/uraid")).arg("-V"))?;
    if !version.contains(&release.version) {
        return Err(format!("the program in the package says {version}, not {}", release.version));
    }
    installed(release, package)?;
    if packages::find("lintian").is_none() {
        println!("lintian is not installed: it has not judged the package");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on", "error,warning"]).arg(package);
    let output = lintian.output().map_err(|error| format!("lintian: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("lintian: {}\n{said}", output.status));
    }
    print!("lintian: nothing to say\n{said}");
    Ok(())
}

/// Installs, upgrades, removes and purges it in a folder of its own. Its scripts run with this system's shell, and know of
/// the folder by `DPKG_ROOT`: they leave this system alone.
fn installed(release: &Release, package: &Path) -> Result<(), String> {
    let root = release.folder.join("install");
    let _ = std::fs::remove_dir_all(&root);
    for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates"] {
        std::fs::create_dir_all(root.join(folder)).map_err(|error| error.to_string())?;
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").map_err(|error| error.to_string())?;
    let dpkg = |words: &[&str], package: Option<&Path>| {
        let mut command = Command::new("dpkg");
        let admin = format!("--root={}", root.display());
        // Neither its dependencies nor a shell for its scripts are in this folder.
        command.args([admin.as_str(), "--force-depends", "--force-not-root", "--force-script-chrootless"]);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").args(words).args(package);
        done(&mut command).map(drop)
    };
    dpkg(&["--install"], Some(package))?;
    std::fs::write(root.join("etc/default/uraid"), "MONITOR_OPTIONS=--delay=5\n").map_err(|error| error.to_string())?;
    dpkg(&["--force-confold", "--install"], Some(package))?;
    let kept = std::fs::read_to_string(root.join("etc/default/uraid")).unwrap_or_default();
    if !kept.contains("--delay=5") {
        return Err("an upgrade has replaced /etc/default/uraid".to_owned());
    }
    dpkg(&["--remove", "uraid"], None)?;
    if root.join("usr/bin/uraid").exists() {
        return Err("usr/bin/uraid stays when the package is removed".to_owned());
    }
    dpkg(&["--purge", "uraid"], None)?;
    if root.join("etc/default/uraid").exists() {
        return Err("etc/default/uraid stays when the package is purged".to_owned());
    }
    println!("dpkg: installed, upgraded, removed and purged below {}", root.display());
    Ok(())
}

/// Reads the image as its format says: every blob under its digest, every digest a blob.
pub(super) fn oci(image: &Path) -> Result<(), String> {
    let names = done(Command::new("tar").arg("-tf").arg(image))?;
    let blobs: BTreeSet<&str> =
        names.lines().filter(|name| name.starts_with("blobs/sha256/") && !name.ends_with('/')).collect();
    let mut named = BTreeSet::new();
    for name in names.lines().filter(|name| !name.ends_with('/')) {
        let mut command = Command::new("tar");
        let output = command.arg("-xOf").arg(image).arg(name).output().map_err(|error| format!("tar: {error}"))?;
        let digest = sha256(&output.stdout)?;
        if blobs.contains(name) && *name != *format!("blobs/sha256/{digest}") {
            return Err(format!("{name} holds {digest}"));
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        named.extend(text.split("\"digest\":\"sha256:").skip(1).map(|rest| format!("blobs/sha256/{}", &rest[..64])));
    }
    if named.iter().map(String::as_str).collect::<BTreeSet<_>>() != blobs {
        return Err(format!("{}: the blobs are {blobs:?}, and {named:?} are named", image.display()));
    }
    println!("oci: {} blobs, each under its digest, each named", blobs.len());
    Ok(())
}
