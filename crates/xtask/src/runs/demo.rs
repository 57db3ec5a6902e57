//! `cargo xtask demo`, which `make demo` runs.
//! Owns: building the binary and the demo, with cargo alone. Not here: the steps of the demo (`crates/blackbox/src/bin/uraid-demo`).

use crate::project;
use std::process::Command;

/// Quick to build: no demo waits for a fast program.
const PROFILE: &str = "demo";

/// Builds both and lets the demo run; whether all went well.
pub(crate) fn run() -> bool {
    let build = ["build", "--profile", PROFILE, "--package", "uraid", "--package", "uraid-blackbox", "--bins"];
    if !project::cargo(&build).status().is_ok_and(|status| status.success()) {
        eprintln!("demo: the build failed");
        return false;
    }
    run_built(PROFILE)
}

/// Lets the demo run that cargo has built with this profile.
pub(crate) fn run_built(profile: &str) -> bool {
    let built = project::target().join(profile);
    let mut demo = Command::new(built.join("uraid-demo"));
    demo.env("URAID_BIN", built.join("uraid"));
    match demo.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("demo: {}: {error}", built.join("uraid-demo").display());
            false
        }
    }
}
