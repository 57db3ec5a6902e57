//! Starting one array that was found, as a server in the background.
//! Owns: the words of that server's command line, whether the array runs already. Not here: which arrays (`assemble`,
//! `incremental`), what the server does (`serve`).
//! Invariant: an array that runs is not started again: this asks, and the claims of its members would refuse it, too.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use uraid_config::UraidLine;
use uraid_control::client::{self, ClientError};
use uraid_control::log::complain;
use uraid_control::{names, runtime};
use uraid_format::uuid;
use uraid_serve::background::{self, BackgroundError};

/// How long a running array may take to say which one it is.
const ASKED_TIME_MAX: Duration = Duration::from_secs(5);

/// Where FUSE is, if the kernel has it.
const FUSE: &str = "/dev/fuse";

/// How an array is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StartOptions {
    /// Although members are missing.
    pub(crate) run: bool,
    /// Although data may be lost.
    pub(crate) force: bool,
    /// Without a write to a member.
    pub(crate) read_only: bool,
}

/// An array that is to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Start {
    /// What it is called in messages.
    pub(crate) label: String,
    /// What it is to be called; `None`: as its superblocks say.
    pub(crate) name: Option<String>,
    /// Which one; `None`: the members are known and all of them are its.
    pub(crate) uuid: Option<[u8; 16]>,
    /// With a UUID, where its members are looked for, `partitions` for all block devices; else its members.
    pub(crate) places: Vec<String>,
    /// What the configuration says of serving it.
    pub(crate) line: Option<UraidLine>,
    /// What the command says.
    pub(crate) options: StartOptions,
}

impl Start {
    /// The words behind `uraid serve`.
    pub(crate) fn words(&self) -> Vec<String> {
        let background = "--background".to_owned();
        [background].into_iter().chain(self.foreground_words()).collect()
    }

    /// The same for a server that stays in the foreground.
    pub(crate) fn foreground_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut flag = |is_set: bool, word: &str| words.extend(is_set.then(|| word.to_owned()));
        let line = self.line.as_ref();
        let says = |of: fn(&UraidLine) -> bool| line.is_some_and(of);
        flag(self.options.run || says(|line| line.is_run), "--run");
        flag(self.options.force, "--force");
        flag(self.options.read_only || says(|line| line.is_read_only), "--read-only");
        flag(says(|line| line.is_insecure), "--insecure");
        flag(says(|line| line.is_locked), "--mlock");
        let text = |of: fn(&UraidLine) -> Option<String>| line.and_then(of);
        for (option, value) in [
            ("name", self.name.clone()),
            ("uuid", self.uuid.map(|uuid| uuid::text(&uuid))),
            ("nbd", text(|line| line.nbd.clone())),
            ("export-name", text(|line| line.export_name.clone())),
            ("fuse", text(|line| line.fuse.clone())),
            ("shards", text(|line| line.shards.map(|count| count.to_string()))),
            ("memory-limit", text(|line| line.memory_limit.clone())),
            ("member-timeout", text(|line| line.member_timeout.clone())),
        ] {
            words.extend(value.map(|value| format!("--{option}={value}")));
        }
        words.push("--".to_owned());
        words.extend(self.places.iter().cloned());
        words
    }

    /// Starts it; returns when it is served, or with the exit code of a server that has said why it is not.
    pub(crate) fn start(&self) -> Result<ExitCode, BackgroundError> {
        background::serve(self.with_folder()?.words().into_iter().map(OsString::from))
    }

    /// The same array with the folder of its file, which is made if it is not there: below /run it is gone after each boot.
    /// `mount=` needs a file, too: without `fuse=` its folder is in the runtime directory.
    pub(crate) fn with_folder(&self) -> Result<Start, BackgroundError> {
        let mut start = self.clone();
        let Some(line) = start.line.as_mut() else { return Ok(start) };
        let folder = match (&line.fuse, &line.mount) {
            (Some(folder), _) => PathBuf::from(folder),
            (None, Some(_)) if Path::new(FUSE).exists() => {
                runtime::make()?.join(format!("{}.files", names::file_name(&self.label)))
            }
            (None, _) => return Ok(start),
        };
        match std::fs::create_dir(&folder) {
            Err(source) if source.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(BackgroundError::Io { path: folder, source });
            }
            Ok(()) | Err(_) => line.fuse = Some(folder.display().to_string()),
        }
        Ok(start)
    }

    /// Does what `mount=` says, by `uraid mount`; returns whether that was done.
    pub(crate) fn mount(&self) -> Result<bool, BackgroundError> {
        let line = self.line.as_ref();
        let Some((line, folder)) = line.and_then(|line| Some((line, line.mount.as_ref()?))) else { return Ok(true) };
        let program = Path::new("/proc/self/exe");
        let failed = |source| BackgroundError::Io { path: program.to_owned(), source };
        let mut mount = Command::new(std::env::current_exe().map_err(failed)?);
        mount.arg("mount").args((line.is_read_only || self.options.read_only).then_some("--read-only"));
        let done = mount.args([&self.label, folder]).stdin(Stdio::null()).status().map_err(failed)?;
        Ok(done.success())
    }
}

/// The names of the running arrays, by UUID.
pub(crate) fn running() -> Result<BTreeMap<[u8; 16], String>, ClientError> {
    let all = client::ask_all(ASKED_TIME_MAX)?;
    // Whether it is one of those that are to be started is not known; its members are claimed.
    all.silent.iter().for_each(|silent| complain(&silent.error));
    let known = |report: uraid_control::report::Report| Some((uuid::parse(&report.uuid)?, report.name));
    Ok(all.reports.into_iter().filter_map(known).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_configuration_becomes_options_of_serve() {
        let text = "URAID home fuse=/mnt/a nbd=tcp:127.0.0.1:1 insecure shards=2 memory-limit=200M member-timeout=5s mlock run";
        let config = uraid_config::parse(text);
        let start = Start {
            label: "home".to_owned(),
            name: Some("home".to_owned()),
            uuid: Some([0x11; 16]),
            places: vec!["/disks/*".to_owned()],
            line: config.uraid.first().cloned(),
            options: StartOptions { read_only: true, ..StartOptions::default() },
        };
        assert_eq!(
            start.words().join(" "),
            "--background --run --read-only --insecure --mlock --name=home --uuid=11111111:11111111:11111111:11111111 \
             --nbd=tcp:127.0.0.1:1 --fuse=/mnt/a --shards=2 --memory-limit=200M --member-timeout=5s -- /disks/*"
        );
        let bare = Start { name: None, uuid: None, line: None, options: StartOptions::default(), ..start };
        assert_eq!(bare.words().join(" "), "--background -- /disks/*");
    }
}
