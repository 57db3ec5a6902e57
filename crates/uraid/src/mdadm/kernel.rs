//! Arrays that the kernel's md runs: their lines are for the system's mdadm.
//! Owns: which words name such an array, finding mdadm, running it in place of this process. Not here: arrays of uraid.
//! Invariant: this program is never taken for mdadm, whatever its name is, and no line is handed over twice.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use uraid_control::log::{complain, warn};

/// Where systems have mdadm; after these come the folders of `PATH`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/usr/local/sbin"];
/// Set in what is run in place of this process: a script called mdadm may call uraid.
const HANDED_OVER: &str = "URAID_HANDED_OVER";

/// Whether an array with this name runs in the kernel: `/dev/md0`, `md0`, `/dev/md/home`, `home`.
pub(super) fn has(array: &str) -> bool {
    let Some(device) = device(array) else { return false };
    fs::read_to_string("/proc/mdstat").is_ok_and(|mdstat| is_listed(&mdstat, &device))
}

/// `md127`, of what is called so or leads there.
fn device(array: &str) -> Option<String> {
    let below = array.strip_prefix("/dev/").unwrap_or(array);
    let is_number = |name: &str| {
        name.strip_prefix("md")
            .is_some_and(|digits| digits.starts_with(|first: char| first.is_ascii_digit() || first == '_'))
    };
    if is_number(below) && !below.contains('/') {
        return Some(below.to_owned());
    }
    let name = below.strip_prefix("md/").unwrap_or(below);
    let link = (!name.contains('/')).then(|| fs::read_link(Path::new("/dev/md").join(name)).ok())??;
    link.file_name()?.to_str().filter(|name| is_number(name)).map(str::to_owned)
}

fn is_listed(mdstat: &str, device: &str) -> bool {
    mdstat.lines().any(|line| line.split_once(" : ").is_some_and(|(name, _)| name.trim_end() == device))
}

/// Runs the system's mdadm with these words in place of this process. Returns if there is none.
pub(super) fn hand_over(words: &[OsString], array: &str) -> ExitCode {
    let folders = std::env::var_os("PATH");
    let folders = folders.iter().flat_map(std::env::split_paths);
    let places = FOLDERS.iter().map(PathBuf::from).chain(folders.filter(|folder| folder.is_absolute()));
    let is_repeated = std::env::var_os(HANDED_OVER).is_some();
    let found = found_in(places, Path::new("/proc/self/exe")).filter(|_| !is_repeated);
    let Some(mdadm) = found else {
        warn(&format!(
            "{array}: is an array of the kernel's md, and the system's mdadm, whose it is, is not installed"
        ));
        return ExitCode::FAILURE;
    };
    let error = Command::new(&mdadm).args(words).env(HANDED_OVER, "1").exec();
    warn(&format!("{array}: is an array of the kernel's md, and {} cannot be run", mdadm.display()));
    complain(&error);
    ExitCode::FAILURE
}

/// The first program called mdadm that is not this one.
fn found_in(folders: impl Iterator<Item = PathBuf>, own: &Path) -> Option<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|status| (status.dev(), status.ino()));
    let own = identity(own);
    let is_program = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|status| status.is_file() && status.permissions().mode() & 0o111 != 0)
    };
    folders.map(|folder| folder.join("mdadm")).find(|path| is_program(path) && identity(path) != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MDSTAT: &str = "\
Personalities : [raid1]
md127 : active raid1 sdb[1] sda[0]
      1046528 blocks super 1.2 [2/2] [UU]

unused devices: <none>
";

    #[test]
    fn an_array_is_found_in_mdstat_by_its_whole_name() {
        assert!(is_listed(MDSTAT, "md127"));
        for other in ["md12", "md1270", "Personalities", "unused devices", ""] {
            assert_eq!(is_listed(MDSTAT, other), other == "Personalities", "{other}");
        }
        assert_eq!(device("/dev/md127").as_deref(), Some("md127"));
        assert_eq!(device("md_d0").as_deref(), Some("md_d0"));
        assert_eq!(device("/dev/md/no-such-array-here"), None);
        assert_eq!(device("home-that-is-not-there"), None);
    }

    #[test]
    fn this_program_is_not_mdadm_even_if_it_is_called_so() {
        let folder = std::env::temp_dir().join(format!("uraid-mdadm-{}", std::process::id()));
        let (link, other) = (folder.join("link"), folder.join("other"));
        for folder in [&link, &other] {
            fs::create_dir_all(folder).expect("room");
        }
        let own = std::env::current_exe().expect("it runs");
        std::os::unix::fs::symlink(&own, link.join("mdadm")).expect("a link");
        fs::write(other.join("mdadm"), "#!/bin/sh\n").expect("a file");
        let find = |folders: &[&PathBuf]| found_in(folders.iter().map(|folder| (*folder).clone()), &own);
        assert_eq!(find(&[&link, &other]), None, "nobody may run the other one");
        fs::set_permissions(other.join("mdadm"), fs::Permissions::from_mode(0o755)).expect("ours");
        assert_eq!(find(&[&link, &other]), Some(other.join("mdadm")));
        fs::remove_dir_all(&folder).expect("ours");
    }
}
