//! What a package installs for systemd, udev and dpkg: each line is one that they know, and each command one that this
//! binary has.
//! Owns: the files below contrib/. Not here: making packages (`cargo xtask dist`), what the commands do.

use crate::common::Scratch;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// By section, from systemd.unit(5), systemd.service(5), systemd.timer(5), systemd.exec(5), systemd.kill(5).
const DIRECTIVES: &[(&str, &str)] = &[
    (
        "Unit",
        "After Before Conflicts DefaultDependencies Description Documentation StartLimitBurst StartLimitIntervalSec Wants",
    ),
    (
        "Service",
        "CapabilityBoundingSet Environment EnvironmentFile ExecStart KillMode LimitCORE LimitMEMLOCK LockPersonality \
         MemoryDenyWriteExecute NoNewPrivileges OOMScoreAdjust PrivateTmp ProtectClock ProtectControlGroups ProtectHome \
         ProtectHostname ProtectKernelLogs ProtectKernelModules ProtectKernelTunables ProtectProc ProtectSystem Restart \
         RestartSec RestrictAddressFamilies RestrictNamespaces RestrictRealtime RestrictSUIDSGID RuntimeDirectory \
         RuntimeDirectoryPreserve StateDirectory SuccessExitStatus SystemCallArchitectures TimeoutStartSec TimeoutStopSec \
         Type UMask WatchdogSec",
    ),
    ("Timer", "OnCalendar RandomizedDelaySec"),
    ("Install", "WantedBy"),
];

fn contrib(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(folder);
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&folder).expect("it is in the repository").map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// The lines of a unit with their sections, without comments.
fn lines(path: &Path) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(path).expect("text");
    let mut section = String::new();
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) => section = name.to_owned(),
            None => {
                let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{}: {line}", path.display()));
                lines.push((section.clone(), key.to_owned(), value.to_owned()));
            }
        }
    }
    lines
}

/// A command of a unit or a rule: the verb and the options that it uses are ones of this binary.
#[track_caller]
fn check_command(scratch: &Scratch, command: &str) {
    let mut words = command.split_whitespace();
    assert_eq!(words.next(), Some("/usr/bin/uraid"), "{command}");
    let verb = words.next().expect("a verb");
    let help = scratch.uraid([verb, "--help"]).expect_done().stdout;
    assert!(help.contains(&format!("Usage: uraid {verb}")), "{command}: {help}");
    for option in words.filter(|word| word.starts_with("--") && word.len() > 2) {
        assert!(help.contains(option), "{command}: {option}");
    }
}

#[test]
fn units_have_directives_that_systemd_knows_and_commands_that_we_have() {
    let scratch = Scratch::new();
    let mut units = BTreeSet::new();
    for path in contrib("systemd") {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        for (section, key, value) in lines(&path) {
            let known = DIRECTIVES.iter().find(|(of, _)| *of == section).map(|(_, keys)| *keys);
            let known = known.unwrap_or_else(|| panic!("{name}: [{section}]"));
            assert!(known.split_whitespace().any(|known| known == key), "{name}: {key}");
            if key == "ExecStart" {
                check_command(&scratch, &value);
            }
        }
        units.insert(name);
    }
    // What is wanted, ordered and started is there, or systemd's own.
    let own = ["shutdown.target", "multi-user.target", "timers.target", "systemd-udevd.service"];
    for path in contrib("systemd") {
        for (_, key, value) in lines(&path) {
            if matches!(key.as_str(), "After" | "Before" | "Wants" | "WantedBy" | "Conflicts") {
                for unit in value.split_whitespace().filter(|unit| unit.contains("uraid")) {
                    assert!(units.contains(unit) || own.contains(&unit), "{}: {unit}", path.display());
                }
            }
        }
    }
    for timer in units.iter().filter_map(|name| name.strip_suffix(".timer")) {
        assert!(units.contains(&format!("{timer}.service")), "{timer}");
    }
}

#[test]
fn systemd_itself_finds_no_fault_in_the_units() {
    let scratch = Scratch::new();
    let Ok(version) = Command::new("systemd-analyze").arg("--version").output() else {
        assert_ne!(std::env::var("URAID_CLIENTS").as_deref(), Ok("required"), "systemd-analyze is not installed");
        return;
    };
    assert!(version.status.success());
    // An instance, and a program that is there.
    fs::create_dir(scratch.path("units")).expect("room");
    let mut paths = Vec::new();
    for path in contrib("systemd").into_iter().filter(|path| !path.ends_with("sandbox.conf")) {
        let name = path.file_name().expect("a name").to_string_lossy().replace('@', "@home");
        let text = fs::read_to_string(&path).expect("text").replace("/usr/bin/uraid", env!("CARGO_BIN_EXE_uraid"));
        let copy = scratch.path("units").join(name);
        fs::write(&copy, text).expect("room");
        paths.push(copy);
    }
    let done = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&paths).output().expect("it is there");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    // It also reads what this system has, which is not ours.
    let ours: Vec<&str> = said.lines().filter(|line| line.contains("uraid")).collect();
    assert_eq!(ours, [""; 0]);
}

#[test]
fn the_rules_of_udev_call_what_we_have_and_leave_alone_what_is_mdadms() {
    let scratch = Scratch::new();
    for path in contrib("udev") {
        let text = fs::read_to_string(&path).expect("text");
        let mut labels = BTreeSet::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            for part in line.split(", ") {
                let (key, value) = part.split_once('=').unwrap_or_else(|| panic!("{line}"));
                let value = value.trim_start_matches('=');
                assert!(value.starts_with('"') && value.ends_with('"') && value.len() > 1, "{part}");
                let value = value.trim_matches('"');
                match key.trim_end_matches(['!', '+', '=']) {
                    "GOTO" => drop(labels.insert(value.to_owned())),
                    "LABEL" => assert!(labels.remove(value), "{value} is jumped to"),
                    "RUN" | "IMPORT{program}" => check_command(&scratch, value),
                    "SUBSYSTEM" | "ACTION" | "TAG" => {}
                    key => assert!(key.starts_with("ENV{") && key.ends_with('}'), "{part}"),
                }
            }
        }
        assert!(labels.is_empty(), "{labels:?}");
        // They come before mdadm's.
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(*name < *"64-md-raid-assembly.rules", "{name}");
    }
}

#[test]
fn scripts_of_the_package_stop_no_array_and_know_other_roots() {
    for path in contrib("debian") {
        let text = fs::read_to_string(&path).expect("text");
        if !text.starts_with("#!") {
            continue;
        }
        let checked = Command::new("sh").arg("-n").arg(&path).status().expect("sh");
        assert!(checked.success() && text.contains("\nset -e\n"), "{}", path.display());
        for line in text.lines().filter(|line| line.contains("/run/") || line.contains("/var/")) {
            assert!(line.contains("DPKG_ROOT"), "{line}");
        }
        let stops = text.lines().filter(|line| line.contains("systemctl stop") && !line.contains("echo"));
        assert!(stops.into_iter().all(|line| !line.contains("uraid@") && !line.contains("uraid.target")), "{text}");
    }
}
