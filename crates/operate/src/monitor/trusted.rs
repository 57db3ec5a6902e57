//! Whether a program or file of the monitor's may be used: nobody but its user and root can have changed it.
//! Owns: the check of a file and of each folder above it. Not here: the state directory, which `uraid_control` checks.
//! Invariant: what is checked is what is run or read: the path without links.

use rustix::process::geteuid;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The rights to write of all but the owner.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;
const EXECUTE: u32 = 0o111;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTrusted {
    /// It cannot be looked at.
    #[error("{}: {}", path.display(), uraid_host::io_text(error))]
    Io {
        /// Which.
        path: PathBuf,
        /// Why: said in the text, for those who print no causes.
        error: io::Error,
    },
    /// A file or folder of somebody else.
    #[error("{} belongs to user {owner}, expected root or user {own}: it is not used", path.display())]
    Owner {
        /// Which.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Who would use it.
        own: u32,
    },
    /// Others could change it.
    #[error("other users may write to {} (mode {mode:o}): it is not used; chmod go-w makes it safe", path.display())]
    Writable {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not what it should be.
    #[error("{} is not {expected}", path.display())]
    Kind {
        /// Which.
        path: PathBuf,
        /// `an executable file`
        expected: &'static str,
    },
}

/// What a path should lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A program.
    Program,
    /// A folder of programs.
    Folder,
}

/// The path without links, if it can be trusted.
pub(crate) fn trusted(path: &Path, kind: Kind) -> Result<PathBuf, NotTrusted> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        |error| NotTrusted::Io { path, error }
    };
    let whole = fs::canonicalize(path).map_err(failed(path))?;
    let own = geteuid().as_raw();
    for (nth, part) in whole.ancestors().enumerate() {
        let found = fs::metadata(part).map_err(failed(part))?;
        // In a user namespace the machine's root may be shown as another number: the owner of / stands for it.
        let root = fs::metadata("/").map_or(0, |status| status.uid());
        if ![0, own, root].contains(&found.uid()) {
            return Err(NotTrusted::Owner { path: part.to_owned(), owner: found.uid(), own });
        }
        // Above, nobody else can replace what is not theirs in a folder with the sticky bit.
        let is_safe = found.mode() & OTHERS_WRITE == 0
            || (nth > 0 && found.is_dir() && found.mode() & STICKY != 0)
            || (found.mode() & OTHERS_WRITE == 0o020 && found.gid() == 0);
        if !is_safe {
            return Err(NotTrusted::Writable { path: part.to_owned(), mode: found.mode() & 0o7777 });
        }
    }
    let found = fs::metadata(&whole).map_err(failed(&whole))?;
    let is_kind = match kind {
        Kind::Program => found.is_file() && found.mode() & EXECUTE != 0,
        Kind::Folder => found.is_dir(),
    };
    let expected = match kind {
        Kind::Program => "an executable file",
        Kind::Folder => "a folder",
    };
    if is_kind { Ok(whole) } else { Err(NotTrusted::Kind { path: whole, expected }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_others_could_change_is_refused_and_says_which_part() {
        let folder = std::env::temp_dir().join(format!("uraid-trusted-{}", std::process::id()));
        fs::create_dir_all(folder.join("in")).expect("the temporary folder is writable");
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        let program = folder.join("in/program");
        fs::write(&program, "#!/bin/sh\n").expect("room");
        set(&folder, 0o755);
        set(&folder.join("in"), 0o755);
        for (mode, of_folder, expected) in [
            (0o755, 0o755, ""),
            (0o700, 0o700, ""),
            (0o644, 0o755, "is not an executable file"),
            (0o757, 0o755, "program (mode 757)"),
            (0o755, 0o757, "in (mode 757)"),
            (0o755, 0o1777, ""),
        ] {
            set(&program, mode);
            set(&folder.join("in"), of_folder);
            let found = trusted(&program, Kind::Program).map_or_else(|error| error.to_string(), |_| String::new());
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{found}");
        }
        set(&folder.join("in"), 0o755);
        assert!(trusted(&folder.join("in"), Kind::Folder).is_ok());
        assert!(trusted(&program, Kind::Folder).is_err_and(|error| error.to_string().ends_with("is not a folder")));
        assert!(trusted(&folder.join("none"), Kind::Program).is_err());
        fs::remove_dir_all(&folder).expect("ours");
    }
}
