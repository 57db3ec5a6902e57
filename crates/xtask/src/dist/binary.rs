//! The program of a release: static and stripped.
//! Owns: for which target it is built. Not here: its profile (Cargo.toml).
//! Invariant: it needs no file of the system that it runs on.

use super::{Release, done};
use crate::project;
use std::path::PathBuf;
use std::process::Command;

/// Builds it.
pub(super) fn build(release: &Release) -> Result<PathBuf, String> {
    let host = host()?;
    let musl = host.replace("-gnu", "-musl");
    let target = if is_installed(&musl) {
        musl
    } else {
        println!(
            "the target {musl} is not installed (rustup target add {musl}): the C library is linked in from {host}"
        );
        host
    };
    // By --target, so that programs that only the build needs are not linked so.
    let mut cargo = project::cargo(&["build", "--release", "--locked", "-p", "uraid", "--target", &target]);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    done(&mut cargo)?;
    let built = project::target().join(&target).join("release/uraid");
    let path = release.folder.join("uraid");
    std::fs::copy(&built, &path).map_err(|error| format!("{}: {error}", built.display()))?;
    Ok(path)
}

fn host() -> Result<String, String> {
    let version = done(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| "rustc -vV names no host".to_owned())
}

fn is_installed(target: &str) -> bool {
    let Ok(root) = done(Command::new("rustc").args(["--print", "sysroot"])) else { return false };
    PathBuf::from(root.trim()).join("lib/rustlib").join(target).join("lib").is_dir()
}
