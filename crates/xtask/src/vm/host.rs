//! The host's half of the matrix: the `uraid` binary and an NBD client, driven as a user would.
//! Owns: create, serve, copy, examine. Not here: which arrays, and what must come out (`matrix`).
//! Invariant: a server that this file started is gone when its `Served` is.

use super::machine::kill_child_of;
use super::{Lab, LabError, at, lab_error, output_of};
use crate::project;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that neither gets ready nor ends is killed after this.
const SECONDS_MAX: &str = "120";

const RELEASE_TIME_MAX: Duration = Duration::from_secs(20);

const RECOVERY_TIME_MAX: Duration = Duration::from_secs(60);

/// The binary that `URAID_BIN` names, or the one of a release build made now.
pub(crate) fn uraid() -> Lab<PathBuf> {
    if let Some(path) = std::env::var_os("URAID_BIN") {
        return Ok(PathBuf::from(path));
    }
    output_of(&mut project::cargo(&["build", "--quiet", "--release", "--package", "uraid"]))?;
    Ok(project::target().join("release/uraid"))
}

/// An image full of random bytes: what was on a disk before it became a member.
pub(crate) fn random_image(path: &Path, bytes: u64) -> Lab<()> {
    let source = Path::new("/dev/urandom");
    let mut from = at(source, std::fs::File::open(source))?.take(bytes);
    let mut to = at(path, std::fs::File::create(path))?;
    at(path, std::io::copy(&mut from, &mut to)).map(|_| ())
}

/// An image full of zeroes.
pub(crate) fn empty_image(path: &Path, bytes: u64) -> Lab<()> {
    let file = at(path, std::fs::File::create(path))?;
    at(path, file.set_len(bytes))
}

/// The sha256 of a file, in hex.
pub(crate) fn sha256(path: &Path) -> Lab<String> {
    let line = output_of(Command::new("sha256sum").arg(path))?;
    Ok(line.split_whitespace().next().unwrap_or("").trim_start_matches('\\').to_string())
}

/// Copies one end to the other; an end is a file or a URI.
pub(crate) fn nbdcopy(from: &str, to: &str) -> Lab<()> {
    output_of(Command::new("timeout").args([SECONDS_MAX, "nbdcopy", "--flush", from, to])).map(|_| ())
}

/// The kernel keeps the files of a killed process open, with their locks, until its last I/O is done.
fn wait_until_free(image: &Path) -> Lab<()> {
    let began = Instant::now();
    loop {
        match output_of(Command::new("qemu-io").args(["-f", "raw", "-c", "quit"]).arg(image)) {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > RELEASE_TIME_MAX => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// An array being served.
pub(crate) struct Served {
    child: Child,
    control: PathBuf,
    /// Where clients reach it.
    pub(crate) uri: String,
    errors: PathBuf,
}

impl Served {
    /// Serves the members in `folder` and waits until the array takes requests and is consistent.
    pub(crate) fn start(uraid: &Path, folder: &Path, options: &[&str], members: &[PathBuf]) -> Lab<Served> {
        let mut served = Served::start_at_once(uraid, folder, options, members)?;
        while served.said().contains(": it is made consistent") && !served.said().contains("resync done: ") {
            if let Ok(Some(status)) = served.child.try_wait() {
                return lab_error(format!("uraid serve ended in its resync: {status}: {}", served.said()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(served)
    }

    /// Serves the members in `folder` and waits until the array takes requests.
    pub(crate) fn start_at_once(uraid: &Path, folder: &Path, options: &[&str], members: &[PathBuf]) -> Lab<Served> {
        let (socket, control) = (folder.join("nbd"), folder.join("ctl"));
        for old in [&socket, &control] {
            let _ = std::fs::remove_file(old);
        }
        let errors = folder.join("stderr");
        let stderr = at(&errors, std::fs::File::create(&errors))?;
        let mut child = Command::new("timeout")
            .args(["--foreground", "--kill-after=5", SECONDS_MAX])
            .arg(uraid)
            .args(["serve", "--nbd", &format!("unix:{}", socket.display()), "--control"])
            .arg(&control)
            .args(options)
            .args(members)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .map_err(|error| LabError::Trouble(format!("cannot run uraid: {error}")))?;
        let output = child.stdout.take().expect("stdout is piped");
        let uri = BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| line.split_whitespace().find(|word| word.starts_with("nbd+unix:")).map(str::to_string));
        let mut served = Served { child, control, uri: uri.unwrap_or_default(), errors };
        if served.uri.is_empty() {
            let status = at(uraid, served.child.wait())?;
            return lab_error(format!("uraid serve got not ready: {status}: {}", served.said()));
        }
        Ok(served)
    }

    /// Writes `bytes` random bytes to the start of the array and stops it: the sha256 of all that was read back.
    pub(crate) fn fill_and_stop(self, folder: &Path, bytes: u64) -> Lab<String> {
        let wrote = self.fill(folder, bytes)?;
        let read = self.read_and_stop(folder)?;
        if !read.starts_with(&wrote) {
            return lab_error("what was written over NBD is not what was read");
        }
        sha256(&folder.join("whole"))
    }

    /// The same, with a discard and a punch of sectors in the middle of chunks between the two. Only these are zeroes
    /// then: all of the punch, and of the discard as much as the level can.
    pub(crate) fn fill_clear_and_stop(self, folder: &Path, bytes: u64) -> Lab<String> {
        let wrote = self.fill(folder, bytes)?;
        let sector = |at: u64| at / 512 * 512;
        let discarded = sector(bytes / 8) + 512..sector(bytes * 5 / 8) + 1536;
        let punched = sector(bytes * 3 / 4) + 512..sector(bytes * 7 / 8) + 1024;
        let commands = [("discard", &discarded), ("write -z -u", &punched)]
            .map(|(verb, range)| format!("{verb} {} {}", range.start, range.end - range.start));
        let words = ["-f", "raw", "-d", "unmap", "-c", &commands[0], "-c", &commands[1], "-c", "flush", &self.uri];
        let said = output_of(Command::new("qemu-io").args(words))?;
        if said.contains("failed") {
            return lab_error(format!("qemu-io could not discard: {}", said.trim()));
        }
        let read = self.read_and_stop(folder)?;
        let mut zeroed = 0;
        for (at, (was, is)) in (0u64..).step_by(512).zip(wrote.chunks(512).zip(read.chunks(512))) {
            let is_zero = is.iter().all(|byte| *byte == 0);
            zeroed += u64::from(is_zero && discarded.contains(&at));
            let is_right = match (punched.contains(&at), discarded.contains(&at)) {
                (true, _) => is_zero,
                (false, true) => is_zero || is == was,
                (false, false) => is == was,
            };
            if !is_right {
                return lab_error(format!("byte {at} is wrong after {commands:?}"));
            }
        }
        if zeroed == 0 {
            return lab_error(format!("{commands:?} freed nothing"));
        }
        sha256(&folder.join("whole"))
    }

    /// Writes random bytes to the start of the array.
    fn fill(&self, folder: &Path, bytes: u64) -> Lab<Vec<u8>> {
        let data = folder.join("data");
        random_image(&data, bytes)?;
        nbdcopy(&data.display().to_string(), &self.uri)?;
        at(&data, std::fs::read(&data))
    }

    /// Reads all of the array to the file `whole`, and stops the array.
    fn read_and_stop(self, folder: &Path) -> Lab<Vec<u8>> {
        let whole = folder.join("whole");
        nbdcopy(&self.uri, &whole.display().to_string())?;
        self.stop()?;
        at(&whole, std::fs::read(&whole))
    }

    /// Asks it to stop, as a service manager would; an exit code other than 0 is an error.
    pub(crate) fn stop(mut self) -> Lab<()> {
        self.signal("TERM");
        let status = at(&self.errors, self.child.wait())?;
        if status.success() { Ok(()) } else { lab_error(format!("uraid serve ended with {status}: {}", self.said())) }
    }

    /// Declares a member failed; returns when the superblocks of the others say so.
    pub(crate) fn fail(&self, uraid: &Path, member: &Path) -> Lab<()> {
        self.change(uraid, "fail", member)
    }

    /// `uraid VERB` of a member; returns when the superblocks say so.
    pub(crate) fn change(&self, uraid: &Path, verb: &str, member: &Path) -> Lab<()> {
        output_of(Command::new(uraid).args([verb, "--control"]).arg(&self.control).arg(member)).map(|_| ())
    }

    /// `uraid speed --max`.
    pub(crate) fn speed(&self, uraid: &Path, kib: u64) -> Lab<()> {
        let words = ["speed", "--max", &kib.to_string(), "--control"];
        output_of(Command::new(uraid).args(words).arg(&self.control)).map(|_| ())
    }

    /// A pass is this fast also while clients write.
    pub(crate) fn speed_by_clients(&self, uraid: &Path, kib: u64) -> Lab<()> {
        let kib = kib.to_string();
        let words = ["speed", "--min", &kib, "--max", &kib, "--control"];
        output_of(Command::new(uraid).args(words).arg(&self.control)).map(|_| ())
    }

    /// `uraid bitmap` with these words; returns when the superblocks say so.
    pub(crate) fn bitmap(&self, uraid: &Path, words: &[&str]) -> Lab<()> {
        output_of(Command::new(uraid).args(["bitmap", "--control"]).arg(&self.control).args(words)).map(|_| ())
    }

    /// `uraid detail --json`.
    pub(crate) fn report(&self, uraid: &Path) -> Lab<serde_json::Value> {
        let text = output_of(Command::new(uraid).args(["detail", "--json", "--control"]).arg(&self.control))?;
        serde_json::from_str(&text)
            .map_err(|error| LabError::Trouble(format!("uraid detail gives no JSON: {error}: {text}")))
    }

    /// What uraid has read of a member and written to it, in bytes, since that joined.
    pub(crate) fn bytes_moved(&self, uraid: &Path, member: &Path) -> Lab<u64> {
        let report = self.report(uraid)?;
        let path = member.display().to_string();
        let members = report["members"].as_array().map(Vec::as_slice).unwrap_or_default();
        let bytes = |one: &serde_json::Value| {
            Some(one["io"]["reads"]["bytes"].as_u64()? + one["io"]["writes"]["bytes"].as_u64()?)
        };
        let found = members.iter().rfind(|one| one["path"] == path.as_str()).and_then(bytes);
        found.map_or_else(|| lab_error(format!("uraid detail counts nothing of {path}: {report}")), Ok)
    }

    /// Waits until `uraid detail` shows every slot with an active member.
    pub(crate) fn wait_until_whole(&self, uraid: &Path) -> Lab<()> {
        let began = Instant::now();
        loop {
            let text = output_of(Command::new(uraid).args(["detail", "--control"]).arg(&self.control))?;
            match text.lines().find_map(|line| line.trim().strip_prefix("State : ")) {
                Some(state) if !state.contains("degraded") && !state.contains("recovering") => return Ok(()),
                Some(state) if began.elapsed() > RECOVERY_TIME_MAX => {
                    return lab_error(format!("the array is still {state}; uraid said: {}", self.said()));
                }
                Some(_) => std::thread::sleep(Duration::from_millis(20)),
                None => return lab_error(format!("uraid detail tells no state: {text}")),
            }
        }
    }

    /// Ends it at once, as a crash would, and waits until nothing holds its members any more.
    pub(crate) fn kill(mut self, members: &[PathBuf]) -> Lab<()> {
        kill_child_of(self.child.id())?;
        at(&self.errors, self.child.wait())?;
        members.iter().try_for_each(|member| wait_until_free(member))
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default().trim().replace('\n', "; ")
    }

    /// `timeout` hands the signal on, in the foreground to its child alone: the second one would find it ended.
    fn signal(&self, name: &str) {
        let _ = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal("TERM");
            let _ = self.child.wait();
        }
    }
}
