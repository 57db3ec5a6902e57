//! Following a path of directories that only this user and root can change.
//! Owns: [`walk`], what is refused on the way. Not here: which path (`runtime`, `state`).
//! Invariant: each step is taken from the directory that the step before has checked, so nothing that others rename
//! meanwhile is followed.

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, mkdirat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// As many symbolic links as the kernel follows.
const LINKS_MAX: u32 = 40;
/// The rights to write of all but the owner.
const OTHERS_WRITE: u32 = 0o022;
const GROUP_WRITE: u32 = 0o020;
const STICKY: u32 = 0o1000;

/// What becomes of directories that do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Absent {
    /// They are made, with mode 700.
    Make,
    /// They stay absent.
    Leave,
}

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfit {
    /// A directory or symbolic link of somebody else.
    #[error("{} belongs to user {owner}", path.display())]
    Owner {
        /// Which.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// Others can make, rename and remove what is in it.
    #[error("other users may write to {} (mode {mode:o})", path.display())]
    Writable {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is below a directory for all users, and was not made by uraid.
    #[error("{} belongs to user {owner} and has mode {mode:o}, expected this user and mode 700", path.display())]
    NotPrivate {
        /// Which.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
    },
    /// A file.
    #[error("{} is not a directory", path.display())]
    NotADirectory {
        /// Which.
        path: PathBuf,
    },
    /// It could not be looked at, or made.
    #[error("{}: {}", path.display(), uraid_host::io_text(source))]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Follows a path to a directory, and checks every directory and symbolic link on the way. `None`: it does not exist.
pub(crate) fn walk(path: &Path, absent: Absent) -> Result<Option<Stat>, Unfit> {
    let whole = std::path::absolute(path).map_err(|source| Unfit::Io { path: path.to_owned(), source })?;
    let (mut at, mut shown, mut links) = (root()?, PathBuf::from("/"), 0);
    let mut status = fstat(&at).map_err(failed(&shown))?;
    // In a user namespace that does not know the machine's root, the root directory's owner stands for it.
    let trusted = [0, geteuid().as_raw(), status.st_uid];
    let mut rest: Vec<OsString> = steps(&whole);
    while let Some(name) = rest.pop() {
        check(&status, &shown, false, &trusted)?;
        let next = if name == ".." { shown.parent().unwrap_or(Path::new("/")).to_owned() } else { shown.join(&name) };
        let Some(file) = step(&at, &name, absent).map_err(failed(&next))? else { return Ok(None) };
        let found = fstat(&file).map_err(failed(&next))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind.is_dir() {
            (at, shown, status) = (file, next, found);
        } else if kind.is_symlink() {
            check_owner(&found, &next, &trusted)?;
            links += 1;
            if links > LINKS_MAX {
                return Err(failed(&next)(Errno::LOOP));
            }
            let target = readlinkat(&file, "", Vec::new()).map_err(failed(&next))?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if target.is_absolute() {
                (at, shown) = (root()?, PathBuf::from("/"));
                status = fstat(&at).map_err(failed(&shown))?;
            }
            rest.extend(steps(&target));
        } else {
            return Err(Unfit::NotADirectory { path: next });
        }
    }
    check(&status, &shown, true, &trusted)?;
    Ok(Some(status))
}

fn root() -> Result<OwnedFd, Unfit> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, "/", flags, Mode::empty()).map_err(failed(Path::new("/")))
}

/// The names on a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    path.components().rev().filter_map(name).collect()
}

/// What is called so in a directory: a directory, a symbolic link itself, or something else.
fn step(at: &OwnedFd, name: &OsStr, absent: Absent) -> Result<Option<OwnedFd>, Errno> {
    let open = || openat(at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    match (open(), absent) {
        (Err(Errno::NOENT), Absent::Leave) => Ok(None),
        (Err(Errno::NOENT), Absent::Make) => {
            match mkdirat(at, name, Mode::RWXU) {
                // Another process has made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            open().map(Some)
        }
        (outcome, _) => outcome.map(Some),
    }
}

/// In a directory with the sticky bit, others cannot rename what is not theirs, but they can make what is not there yet:
/// the last directory must not be one.
fn check(status: &Stat, path: &Path, is_last: bool, trusted: &[u32]) -> Result<(), Unfit> {
    check_owner(status, path, trusted)?;
    let others = status.st_mode & OTHERS_WRITE;
    let is_safe = others == 0 || status.st_mode & STICKY != 0 || (others == GROUP_WRITE && status.st_gid == 0);
    if if is_last { others == 0 } else { is_safe } {
        return Ok(());
    }
    Err(Unfit::Writable { path: path.to_owned(), mode: status.st_mode & 0o7777 })
}

fn check_owner(status: &Stat, path: &Path, trusted: &[u32]) -> Result<(), Unfit> {
    if trusted.contains(&status.st_uid) {
        return Ok(());
    }
    Err(Unfit::Owner { path: path.to_owned(), owner: status.st_uid })
}

fn failed(path: &Path) -> impl FnOnce(Errno) -> Unfit {
    let path = path.to_owned();
    |errno| Unfit::Io { path, source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A folder of this user, gone with the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("uraid-walk-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("the temporary folder is writable");
            set_mode(&path, 0o755);
            Folder(fs::canonicalize(path).expect("it is there"))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("our file");
    }

    fn reason(path: &Path) -> String {
        walk(path, Absent::Leave).map(|found| found.is_some()).expect_err("it is refused").to_string()
    }

    #[test]
    fn what_is_absent_is_made_for_its_owner_alone_or_left_absent() {
        let folder = Folder::new("absent");
        let path = folder.0.join("a/b");
        assert!(matches!(walk(&path, Absent::Leave), Ok(None)));
        let made = walk(&path, Absent::Make).expect("it is ours").expect("it is made");
        assert_eq!((made.st_mode & 0o7777, made.st_uid), (0o700, geteuid().as_raw()));
        assert_eq!(fs::metadata(folder.0.join("a")).expect("made, too").permissions().mode() & 0o7777, 0o700);
        let again = walk(&path, Absent::Leave).expect("it is ours").expect("it is there");
        assert_eq!(again.st_ino, made.st_ino);
    }

    #[test]
    fn directories_that_others_may_write_to_are_refused_at_the_end_and_on_the_way() {
        let folder = Folder::new("writable");
        let (outer, inner) = (folder.0.join("outer"), folder.0.join("outer/inner"));
        fs::create_dir_all(&inner).expect("a folder");
        for (of_outer, of_inner, refused) in [
            (0o755, 0o755, None),
            (0o755, 0o775, Some(&inner)),
            (0o755, 0o702, Some(&inner)),
            (0o755, 0o1777, Some(&inner)),
            (0o757, 0o700, Some(&outer)),
            (0o1777, 0o700, None),
        ] {
            set_mode(&outer, of_outer);
            set_mode(&inner, of_inner);
            match refused {
                None => assert!(walk(&inner, Absent::Leave).is_ok_and(|found| found.is_some()), "{of_outer:o}"),
                Some(path) => {
                    let mode = if *path == inner { of_inner } else { of_outer };
                    let expected = format!("other users may write to {} (mode {mode:o})", path.display());
                    assert_eq!(reason(&inner), expected);
                }
            }
        }
    }

    #[test]
    fn links_are_followed_step_by_step_and_what_they_lead_to_is_checked() {
        let folder = Folder::new("links");
        let (real, open) = (folder.0.join("real"), folder.0.join("open"));
        fs::create_dir_all(real.join("sub")).expect("a folder");
        fs::create_dir_all(open.join("sub")).expect("a folder");
        set_mode(&open, 0o777);
        let link = |name: &str, target: &Path| {
            let path = folder.0.join(name);
            symlink(target, &path).expect("a link");
            path
        };
        let inode = |path: &Path| walk(path, Absent::Leave).expect("it is ours").expect("it is there").st_ino;
        assert_eq!(inode(&link("absolute", &real.join("sub"))), inode(&real.join("sub")));
        assert_eq!(inode(&link("relative", Path::new("real/sub/.."))), inode(&real));
        assert_eq!(inode(&folder.0.join("relative/sub")), inode(&real.join("sub")));
        assert!(reason(&link("through", &open.join("sub"))).contains("open (mode 777)"));
        let endless = link("endless", Path::new("endless"));
        assert!(reason(&endless).contains("symbolic link"), "{}", reason(&endless));
        fs::write(folder.0.join("file"), "").expect("a file");
        assert!(reason(&folder.0.join("file")).ends_with("file is not a directory"));
        assert!(reason(&folder.0.join("file/below")).ends_with("file is not a directory"));
    }

    #[test]
    fn directories_and_links_of_another_user_are_refused() {
        if !geteuid().is_root() {
            println!("only root can make files of another user: not tested here");
            return;
        }
        let folder = Folder::new("owners");
        let theirs = folder.0.join("theirs");
        fs::create_dir(&theirs).expect("a folder");
        fs::create_dir(theirs.join("ours")).expect("a folder");
        std::os::unix::fs::chown(&theirs, Some(65_534), None).expect("root may");
        let expected = format!("{} belongs to user 65534", theirs.display());
        assert_eq!((reason(&theirs), reason(&theirs.join("ours"))), (expected.clone(), expected));
        let (ours, link) = (folder.0.join("ours"), folder.0.join("link"));
        fs::create_dir(&ours).expect("a folder");
        symlink(&ours, &link).expect("a link");
        assert!(walk(&link, Absent::Leave).is_ok_and(|found| found.is_some()));
        std::os::unix::fs::lchown(&link, Some(65_534), None).expect("root may");
        assert_eq!(reason(&link), format!("{} belongs to user 65534", link.display()));
    }
}
