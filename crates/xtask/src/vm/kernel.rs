//! The guest's kernel: Debian's, from the archive that this machine's apt already uses.
//! Owns: fetching and unpacking it once, the modules in load order. Not here: what the guest does with it (`initramfs`).
//! Invariant: a folder in the cache that is marked complete is complete.

use super::{Lab, LabError, at, lab_error, output_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

/// The Debian release whose kernel is booted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Release {
    /// Linux 6.1, the last one of Debian's with the linear level.
    Bookworm,
    /// Linux 6.12.
    Trixie,
    /// The newest one in the archive, whatever its version.
    Sid,
}

impl Release {
    /// The kernel of a run that names none.
    pub(crate) const USUAL: Release = Release::Trixie;

    /// The kernel that an option of `vm` names.
    pub(crate) fn named(option: &str) -> Option<Release> {
        match option {
            "--linux-6.1" => Some(Release::Bookworm),
            "--linux-6.12" => Some(Release::Trixie),
            "--linux-newest" => Some(Release::Sid),
            _ => None,
        }
    }

    /// The kernels of a long form: the newer first.
    pub(crate) fn both_or(chosen: Option<Release>) -> Vec<Release> {
        chosen.map_or(vec![Release::Trixie, Release::Bookworm], |release| vec![release])
    }

    /// The name in Debian's archive.
    pub(crate) fn suite(self) -> &'static str {
        match self {
            Release::Bookworm => "bookworm",
            Release::Trixie => "trixie",
            Release::Sid => "sid",
        }
    }

    /// After this time the archive is asked for a newer one.
    fn kept_for(self) -> Option<Duration> {
        match self {
            Release::Bookworm | Release::Trixie => None,
            Release::Sid => Some(Duration::from_secs(30 * 24 * 3600)),
        }
    }

    /// Features that only this kernel has, or has as a module.
    fn more_modules(self) -> &'static [&'static str] {
        match self {
            Release::Bookworm => &["virtio_pci", "virtio_console", "linear"],
            Release::Trixie | Release::Sid => &[],
        }
    }
}

/// The smallest kernel package that has md and virtio (34 MB, not 108).
const META_PACKAGE: &str = "linux-image-cloud-amd64";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Modules that the guest loads, next to what they depend on. virtio-pci and virtio-console are built in.
const MODULES: &[&str] = &["virtio_blk", "md-mod", "raid0", "raid1", "raid10", "raid456"];

/// Modules that a script loads by itself.
pub(crate) const ON_DEMAND: &[&str] = &["nbd", "loop"];

/// A kernel ready to boot.
pub(crate) struct Kernel {
    /// The bootable image.
    pub(crate) image: PathBuf,
    /// Plain module files, each behind those it needs.
    pub(crate) modules: Vec<PathBuf>,
}

/// Where the lab keeps what it fetched: `$URAID_VM_CACHE`, or `uraid-vm` in the user's cache.
pub(crate) fn cache() -> Lab<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("URAID_VM_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|home| home.join("uraid-vm")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/uraid-vm")))
        .ok_or_else(|| LabError::Trouble("no HOME to keep the guest's kernel in; set URAID_VM_CACHE".to_string()))
}

/// Two machines that need the same kernel fetch it once.
static FETCHING: Mutex<()> = Mutex::new(());

/// The kernel, fetched first where the cache does not have it, or has had it for too long.
pub(crate) fn kernel(release: Release) -> Lab<Kernel> {
    let _turn = FETCHING.lock().expect("no thread panics while it holds the lock");
    let home = cache()?.join(release.suite());
    let mark = home.join("complete");
    let list = wanted(release).join("\n");
    let is_complete = std::fs::read_to_string(&mark).ok().as_ref() == Some(&list);
    if !is_complete || is_old(release, &mark) {
        println!("vm: fetching Debian {}'s kernel into {}", release.suite(), home.display());
        match fetch_anew(release, &home, &list) {
            Err(error) if is_complete => {
                println!("vm: the kernel of before is used: {error}");
                // The archive is not asked again at every boot.
                at(&mark, std::fs::write(&mark, &list))?;
            }
            done => done?,
        }
    }
    let names = at(&mark, std::fs::read_to_string(home.join("modules")))?;
    Ok(Kernel { image: home.join("vmlinuz"), modules: names.lines().map(|name| home.join(name)).collect() })
}

fn is_old(release: Release, mark: &Path) -> bool {
    let Some(kept_for) = release.kept_for() else { return false };
    let made = std::fs::metadata(mark).and_then(|about| about.modified());
    made.is_ok_and(|made| SystemTime::now().duration_since(made).is_ok_and(|age| age > kept_for))
}

/// Makes the folder anew beside the old one, which stays if that fails.
fn fetch_anew(release: Release, home: &Path, list: &str) -> Lab<()> {
    let new = home.with_extension("new");
    let _ = std::fs::remove_dir_all(&new);
    at(&new, std::fs::create_dir_all(&new))?;
    fetch(release, &new)?;
    at(&new, std::fs::write(new.join("complete"), list))?;
    let _ = std::fs::remove_dir_all(home);
    at(home, std::fs::rename(&new, home))
}

/// The modules of a complete folder, but for what they need. The mark lists them: one of other modules is made anew.
fn wanted(release: Release) -> Vec<&'static str> {
    [MODULES, ON_DEMAND, release.more_modules()].concat()
}

/// Leaves `vmlinuz`, plain modules and their list `modules` in `home`.
fn fetch(release: Release, home: &Path) -> Lab<()> {
    let scratch = home.join("unpack");
    let tree = scratch.join("tree");
    for package in download(release.suite(), &scratch)? {
        output_of(Command::new("dpkg-deb").arg("-x").args([&package, &tree]))?;
    }
    let image = image(&tree)?;
    at(&image, std::fs::rename(&image, home.join("vmlinuz")))?;
    let mut names = Vec::new();
    for (name, bytes) in modules(release, &tree)? {
        let file = format!("{name}.ko");
        at(home, std::fs::write(home.join(&file), bytes))?;
        names.push(file);
    }
    at(home, std::fs::write(home.join("modules"), names.join("\n")))?;
    at(&scratch, std::fs::remove_dir_all(&scratch))
}

/// Where a package of its own has the image, it lies beside the modules.
fn image(tree: &Path) -> Lab<PathBuf> {
    let is_image = |name: &str| name.starts_with("vmlinuz");
    let boot = tree.join("boot");
    if boot.is_dir() {
        return find(&boot, is_image);
    }
    find(&find(&tree.join("usr/lib/modules"), |_| true)?, is_image)
}

/// Downloads the kernel's packages with apt's own tools and a separate set of lists: the machine's sources are not
/// changed.
fn download(suite: &str, scratch: &Path) -> Lab<Vec<PathBuf>> {
    for folder in ["lists/partial", "cache/archives/partial", "parts", "package"] {
        at(scratch, std::fs::create_dir_all(scratch.join(folder)))?;
    }
    let sources = scratch.join("sources.list");
    let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", archive()?);
    at(&sources, std::fs::write(&sources, line))?;
    let apt = |program: &str| {
        let mut command = Command::new(program);
        for (key, value) in [
            ("Dir::Etc::SourceList", sources.clone()),
            ("Dir::Etc::SourceParts", scratch.join("parts")),
            ("Dir::State::Lists", scratch.join("lists")),
            ("Dir::Cache", scratch.join("cache")),
        ] {
            command.arg(format!("-o{key}={}", value.display()));
        }
        command.args(["-oAPT::Architecture=amd64", "-oAPT::Sandbox::User=root", "-oDebug::NoLocking=1"]);
        command.args(["-oAcquire::Languages=none", "-oAcquire::Retries=3", "-qq"]);
        command
    };
    output_of(apt("apt-get").arg("update"))?;
    let depends = output_of(apt("apt-cache").args(["depends", META_PACKAGE]))?;
    let package = depends
        .split_whitespace()
        .find(|word| word.starts_with("linux-image-") && *word != META_PACKAGE)
        .ok_or_else(|| LabError::Trouble(format!("{META_PACKAGE} of {suite} depends on no kernel: {depends}")))?;
    let packages = parts(package, &output_of(apt("apt-cache").args(["depends", package]))?);
    let folder = scratch.join("package");
    output_of(apt("apt-get").arg("download").args(packages).current_dir(&folder))?;
    Ok(at(&folder, std::fs::read_dir(&folder))?.flatten().map(|entry| entry.path()).collect())
}

/// The packages that hold the image and the modules: `package`, or since Linux 7 two that it depends on.
fn parts(package: &str, depends: &str) -> Vec<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let is_part = |name: &&str| ["linux-binary-", "linux-modules-"].iter().any(|part| name.starts_with(part));
    let parts: Vec<String> = names.filter(is_part).map(str::to_string).collect();
    if parts.is_empty() { vec![package.to_string()] } else { parts }
}

/// The archive of the machine's own apt sources, or `$URAID_VM_ARCHIVE`.
fn archive() -> Lab<String> {
    if let Ok(archive) = std::env::var("URAID_VM_ARCHIVE") {
        return Ok(archive);
    }
    let format = "$(LABEL) $(REPO_URI)";
    let targets = output_of(Command::new("apt-get").args(["indextargets", "--format", format, "Component: main"]))?;
    let labelled = targets.lines().find_map(|line| line.strip_prefix("Debian "));
    // Before the first `apt-get update` nothing has a label.
    let by_name = targets.lines().map(str::trim).find(|line| line.trim_end_matches('/').ends_with("/debian"));
    match labelled.or(by_name) {
        Some(archive) => Ok(archive.to_string()),
        None => lab_error("no Debian archive among apt's sources; set URAID_VM_ARCHIVE"),
    }
}

/// The wanted modules and what they need, unpacked, each behind those it needs.
fn modules(release: Release, tree: &Path) -> Lab<Vec<(String, Vec<u8>)>> {
    let mut known = BTreeMap::new();
    // Where /lib is no link yet, the package has its modules there.
    let homes = ["usr/lib/modules", "lib/modules"].map(|home| tree.join(home));
    let mut todo: Vec<PathBuf> = homes.into_iter().filter(|home| home.is_dir()).collect();
    while let Some(folder) = todo.pop() {
        for entry in at(&folder, std::fs::read_dir(&folder))?.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                todo.push(path);
            } else if let Some((name, _)) = name.split_once(".ko") {
                known.insert(name.replace('-', "_"), path);
            }
        }
    }
    let mut loaded: Vec<(String, Vec<u8>)> = Vec::new();
    for name in wanted(release) {
        add_module(&name.replace('-', "_"), &known, &mut loaded, 0)?;
    }
    Ok(loaded)
}

fn add_module(
    name: &str,
    known: &BTreeMap<String, PathBuf>,
    loaded: &mut Vec<(String, Vec<u8>)>,
    depth: usize,
) -> Lab<()> {
    if loaded.iter().any(|(known, _)| known == name) {
        return Ok(());
    }
    let Some(path) = known.get(name) else { return lab_error(format!("the kernel package has no module {name}")) };
    // The kernel's own chains are 4 deep; a cycle cannot occur in a valid module tree.
    assert!(depth < 32);
    let bytes = plain(path)?;
    for need in depends(&bytes) {
        add_module(&need.replace('-', "_"), known, loaded, depth + 1)?;
    }
    loaded.push((name.to_string(), bytes));
    Ok(())
}

fn plain(path: &Path) -> Lab<Vec<u8>> {
    let is_packed = path.extension().is_some_and(|extension| extension == "xz");
    if !is_packed {
        return at(path, std::fs::read(path));
    }
    let done = at(path, Command::new("xz").arg("-dc").arg(path).output())?;
    if done.status.success() { Ok(done.stdout) } else { lab_error(format!("{}: xz: {}", path.display(), done.status)) }
}

/// The names behind `depends=` in a module's `.modinfo`: strings that each end in a zero byte.
fn depends(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(start) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = module[start + key.len()..].split(|byte| *byte == 0).next().unwrap_or(&[]);
    String::from_utf8_lossy(value).split(',').filter(|name| !name.is_empty()).map(str::to_string).collect()
}

fn find(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Lab<PathBuf> {
    at(folder, std::fs::read_dir(folder))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(&is_wanted))
        .ok_or_else(|| {
            LabError::Trouble(format!("{}: the file that the package should hold is not there", folder.display()))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"ELF\0license=GPL\0depends=md-mod,raid6_pq\0name=raid456\0";
        assert_eq!(depends(module), ["md-mod", "raid6_pq"]);
        assert_eq!(depends(b"ELF\0depends=\0name=x\0"), Vec::<String>::new());
    }

    #[test]
    fn the_image_and_the_modules_are_in_one_package_or_in_two() {
        let one =
            "linux-image-6.12-cloud\n  Depends: kmod\n |Depends: initramfs-tools\n  Depends: <linux-initramfs-tool>\n";
        assert_eq!(parts("linux-image-6.12-cloud", one), ["linux-image-6.12-cloud"]);
        let two = "linux-image-7.2-cloud\n  PreDepends: linux-base\n |Depends: dracut\n  Depends: linux-base-7.2-cloud\n  \
                   Depends: linux-binary-7.2-cloud\n  Depends: linux-modules-7.2-cloud\n  Recommends: apparmor\n";
        assert_eq!(parts("linux-image-7.2-cloud", two), ["linux-binary-7.2-cloud", "linux-modules-7.2-cloud"]);
    }

    #[test]
    fn only_the_newest_kernel_grows_old() {
        let scratch = super::super::machine::Scratch::new("uraid-vm-mark").expect("a temporary folder");
        let mark = scratch.path.join("complete");
        assert!(!is_old(Release::Sid, &mark), "there is none");
        let file = std::fs::File::create(&mark).expect("the folder is ours");
        assert!(!is_old(Release::Sid, &mark), "it is new");
        file.set_modified(SystemTime::UNIX_EPOCH).expect("the file is ours");
        assert!(is_old(Release::Sid, &mark));
        assert!(!is_old(Release::Trixie, &mark) && !is_old(Release::Bookworm, &mark));
    }
}
