//! From a line of mdadm to command lines of uraid.
//! Owns: [`Plan`], which mode is translated where, what every mode takes and what none does. Not here: reading the line
//! (`line`), carrying a plan out (the parent).
//! Invariant: an option that would be lost is refused by its name; nothing is done here.

mod assemble;
mod create;
mod incremental;
mod manage;
mod misc;
mod monitor;

use super::line::{Line, Refusal};
use super::options::{Mode, Opt};
pub(super) use create::{NO_OVERWRITE, NewArray};

/// What a line makes uraid do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// The version, to stderr, as mdadm prints it.
    Version,
    /// A new array, which is served in the background.
    Create(NewArray),
    /// These steps.
    Steps(Steps),
}

/// Command lines, one after the other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Steps {
    pub steps: Vec<Step>,
    /// The first that fails is the last.
    pub stops_at_failure: bool,
    /// `--test` of `--manage`: exit code 2 if these left the array as it was.
    pub tests_change: bool,
    /// The words that name arrays: if one is the kernel's, the line is not uraid's.
    pub arrays: Vec<String>,
}

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The words behind `uraid`.
    Verb(Vec<String>),
    /// The array must run; nothing is done to it.
    MustRun(String),
}

/// A verb with its words.
fn verb(words: &[&str]) -> Step {
    Step::Verb(words.iter().map(|word| (*word).to_owned()).collect())
}

/// A verb for an array and members of it.
fn verb_on(name: &str, array: &str, rest: impl IntoIterator<Item = String>) -> Step {
    Step::Verb([name.to_owned(), array.to_owned()].into_iter().chain(rest).collect())
}

/// Options that mdadm takes in every mode, and that ask for nothing that uraid does otherwise.
const EVERYWHERE: [Opt; 8] =
    [Opt::Verbose, Opt::Quiet, Opt::Offroot, Opt::Homehost, Opt::Prefer, Opt::Brief, Opt::NoDevices, Opt::Export];

/// What the line makes uraid do. `why_not`: why uraid has no such option, behind the option's name.
pub(super) fn plan(line: &Line, why_not: fn(&str) -> Option<String>) -> Result<Plan, Refusal> {
    if line.has(Opt::Version) {
        return Ok(Plan::Version);
    }
    let refuse_by = |word: &str| match why_not(word) {
        Some(text) => Refusal::Missing(text),
        None => Refusal::Missing(format!("{word}: uraid has nothing like it")),
    };
    match line.mode {
        Mode::AutoDetect => Err(Refusal::Missing(
            "--auto-detect: it is the kernel that starts arrays of version 0.90 so; `uraid serve MEMBER...` starts one"
                .to_owned(),
        )),
        Mode::Build => Err(refuse_by(line.mode.word())),
        Mode::Incremental => {
            check(line, incremental::OPTIONS, why_not)?;
            incremental::plan(line).map(Plan::Steps)
        }
        Mode::Monitor => {
            check(line, monitor::OPTIONS, why_not)?;
            monitor::plan(line).map(Plan::Steps)
        }
        Mode::Create => {
            check(line, create::OPTIONS, why_not)?;
            create::plan(line).map(Plan::Create)
        }
        Mode::Assemble => {
            check(line, assemble::OPTIONS, why_not)?;
            assemble::plan(line).map(Plan::Steps)
        }
        Mode::Manage => {
            check(line, manage::OPTIONS, why_not)?;
            manage::plan(line).map(Plan::Steps)
        }
        Mode::Grow => {
            check(line, manage::GROW_OPTIONS, why_not).map_err(|_| refuse_by("--grow"))?;
            manage::grow(line, || refuse_by("--grow")).map(Plan::Steps)
        }
        Mode::Misc => {
            check(line, misc::OPTIONS, why_not)?;
            misc::plan(line).map(Plan::Steps)
        }
    }
}

/// Refuses the first option that the mode does not take, with the reason if uraid knows one.
fn check(line: &Line, options: &[Opt], why_not: fn(&str) -> Option<String>) -> Result<(), Refusal> {
    let is_taken = |option: Opt| options.contains(&option) || EVERYWHERE.contains(&option);
    let is_mode = |option: Opt| option.mode() == Some(line.mode) && [Opt::Manage, Opt::Misc].contains(&option);
    let Some(given) = line.options.iter().find(|given| !is_taken(given.option) && !is_mode(given.option)) else {
        return Ok(());
    };
    let named = format!("--{}", given.option.name());
    Err(match why_not(&named).filter(|_| NOWHERE.contains(&given.option)) {
        Some(text) => Refusal::Missing(text),
        None => Refusal::Wrong(format!("{}: means nothing with {}", given.word, line.mode.word())),
    })
}

/// Options that mdadm has and uraid has nowhere.
const NOWHERE: [Opt; 17] = [
    Opt::AddJournal,
    Opt::ArraySize,
    Opt::BackupFile,
    Opt::ClusterConfirm,
    Opt::Continue,
    Opt::DetailPlatform,
    Opt::Dump,
    Opt::FreezeReshape,
    Opt::HomeCluster,
    Opt::InvalidBackup,
    Opt::KillSubarray,
    Opt::LogicalBlockSize,
    Opt::Nodes,
    Opt::Restore,
    Opt::Sparc22,
    Opt::WriteJournal,
    Opt::WriteZeroes,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// `uraid detail x; serve a b`, or `refused: TEXT`.
    fn shown(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let why_not = |word: &str| Some(format!("{word}: uraid has a reason"));
        let steps = match Line::parse(&words).and_then(|line| plan(&line, why_not)) {
            Err(Refusal::Wrong(text)) => return format!("wrong: {text}"),
            Err(Refusal::Missing(text)) => return format!("missing: {text}"),
            Ok(Plan::Version) => return "version".to_owned(),
            Ok(Plan::Create(new)) => {
                return format!("{} as {}; serve {}", new.words.join(" "), new.array, new.served.join(" "));
            }
            Ok(Plan::Steps(steps)) => steps,
        };
        let one = |step: &Step| match step {
            Step::Verb(words) => words.join(" "),
            Step::MustRun(array) => format!("runs {array}"),
        };
        steps.steps.iter().map(one).collect::<Vec<String>>().join("; ")
    }

    #[track_caller]
    fn assert_shown<const N: usize>(lines: [(&str, &str); N]) {
        for (line, expected) in lines {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_of_mdadm_are_lines_of_uraid() {
        assert_shown([
            (
                "--create /dev/md0 --level=1 --raid-devices=2 a b",
                "create --level=1 --raid-devices=2 --no-overwrite --name=0 a b as /dev/md0; serve a b",
            ),
            (
                "-Cv /dev/md/home -l5 -n3 -x1 -c64 -e1.2 a b missing d",
                "create --level=5 --raid-devices=3 --spare-devices=1 --chunk=64 --metadata=1.2 --no-overwrite --name=home a b \
                 missing d as /dev/md/home; serve a b d",
            ),
            (
                "-C home -l1 -n2 -b internal --write-behind a -W b",
                "create --level=1 --raid-devices=2 --bitmap=internal --write-behind --no-overwrite --name=home \
                 a --write-mostly b as home; serve a b",
            ),
            (
                "-C home -lmirror -n2 -N data -Ro a b",
                "create --level=mirror --raid-devices=2 --run --name=data a b as home; \
                                                     serve --read-only a b",
            ),
            ("-A /dev/md0 a b", "assemble /dev/md0 a b"),
            ("--assemble --run -f /dev/md0 a b", "assemble --run --force /dev/md0 a b"),
            ("-A /dev/md0 --update=resync a b", "update resync a b; assemble /dev/md0 a b"),
            ("-A /dev/md0 -U name -N home a b", "update name --name=home a b; assemble /dev/md0 a b"),
            ("-A /dev/md0 -u 1:2:3:4 a b", "assemble --uuid=1:2:3:4 /dev/md0 a b"),
            ("-As", "assemble --scan"),
            ("-As -c x.conf --no-degraded", "assemble --scan --no-degraded --config=x.conf"),
            ("-As -u 1:2:3:4", "assemble --uuid=1:2:3:4"),
            ("-A --scan /dev/md0", "assemble --scan /dev/md0"),
            ("-A /dev/md0", "assemble /dev/md0"),
            ("-Ao /dev/md0 a", "assemble --read-only /dev/md0 a"),
            ("-D /dev/md0", "detail /dev/md0"),
            ("-D /dev/md0 home", "detail /dev/md0; detail home"),
            ("--detail --test /dev/md0 home", "detail --test /dev/md0 home"),
            ("-Dsv", "detail --scan --verbose"),
            ("--detail --scan --config=partitions", "detail --scan"),
            ("--query --detail --export /dev/md0", "detail --export /dev/md0"),
            ("-Db /dev/md0", "detail --brief /dev/md0"),
            ("-E a b", "examine a b"),
            ("-Es", "examine --scan"),
            ("--examine --scan --config=partitions", "examine --scan --config=partitions"),
            ("--detail --no-devices --export /dev/md0", "detail --export --no-devices /dev/md0"),
            ("-EY a", "examine --export a"),
        ]);
    }

    #[test]
    fn lines_about_running_arrays_are_lines_of_uraid() {
        assert_shown([
            ("--misc --zero-superblock a b", "zero-superblock a; zero-superblock b"),
            ("--zero-superblock --force a", "zero-superblock --force a"),
            ("-S /dev/md0 home", "stop /dev/md0; stop home"),
            ("--stop --scan", "stop --scan"),
            ("-Ss", "stop --scan"),
            ("-W /dev/md0", "wait /dev/md0"),
            ("--wait-clean --scan", ""),
            ("--wait-clean /dev/md0", "runs /dev/md0"),
            ("--action=check /dev/md0", "check /dev/md0"),
            ("--misc --action=frozen /dev/md0", "freeze /dev/md0"),
            ("-o /dev/md0", "readonly /dev/md0"),
            ("--readwrite /dev/md0", "readwrite /dev/md0"),
            ("/dev/md0 --fail a --remove a --add b c", "fail /dev/md0 a; remove /dev/md0 a; add /dev/md0 b c"),
            ("/dev/md0 -a b -W c", "add /dev/md0 b --write-mostly c"),
            ("--add /dev/md0 b", "add /dev/md0 b"),
            ("--manage /dev/md0 --re-add missing", "re-add /dev/md0 missing"),
            ("/dev/md0 --re-add faulty", "remove /dev/md0 failed; re-add /dev/md0 missing"),
            ("/dev/md0 --replace a b --with c d", "replace /dev/md0 a b --with c d"),
            ("/dev/md0 --replace a", "replace /dev/md0 a"),
            ("/dev/md0 -r faulty", "remove /dev/md0 failed"),
            ("/dev/md0 -r failed detached", "remove /dev/md0 failed; remove /dev/md0 detached"),
            ("/dev/md0 --add --force a", "add --force /dev/md0 a"),
            ("/dev/md0 --stop", "stop /dev/md0"),
            ("/dev/md0 -o -a b", "readonly /dev/md0; add /dev/md0 b"),
            ("/dev/md0 --run", "runs /dev/md0"),
            ("--grow --bitmap=internal /dev/md0", "bitmap /dev/md0 internal"),
            ("-G /dev/md0 -b none", "bitmap /dev/md0 none"),
            ("--monitor --scan --mail=root --delay=1800", "monitor --mail=root --delay=1800 --scan"),
            (
                "-F -f -i pid -y -1 -t -r 30 -p prog /dev/md0",
                "monitor --program=prog --increment=30 --pid-file=pid --syslog --daemonise --oneshot --test /dev/md0",
            ),
            ("-I /dev/sdb", "incremental /dev/sdb"),
            ("-IRs", "incremental --run --scan"),
            ("-If sdb --path pci-1", "incremental --fail sdb"),
            ("--incremental --export /dev/sdb --offroot /dev/disk/x", "incremental --export /dev/sdb /dev/disk/x"),
            ("-V", "version"),
        ]);
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_its_name() {
        for (line, expected) in [
            ("--grow /dev/md0 -n 5", "missing: --grow: "),
            ("--grow /dev/md0 --size=max", "missing: --grow: "),
            ("-B /dev/md0 -l1 -n2 a b", "missing: --build: "),
            ("-Ir", "missing: --rebuild-map: "),
            ("--auto-detect", "missing: --auto-detect: "),
            ("-C x -l1 -n2 -e imsm a b", "missing: --metadata=imsm: "),
            ("-C x -l1 -n2 -e 0.90 a b", "missing: --metadata=0.90: "),
            ("-C x -l container -n2 a b", "missing: --level=container: "),
            ("-C x -l5 -n3 --write-journal j a b c", "missing: --write-journal: "),
            ("-C x -l1 -n2 -b clustered a b", "missing: --bitmap=clustered: "),
            ("-C x -l1 -n2 -b /boot/bits a b", "missing: --bitmap=/boot/bits: "),
            ("-C x -l5 -n3 -k journal a b c", "missing: --consistency-policy=journal: "),
            ("-C x -n2 a b", "wrong: --level: "),
            ("-C x -l1 a b", "wrong: --raid-devices: "),
            ("-C -l1 -n2", "wrong: --create: which array?"),
            ("-C /dev/sda -l1 -n2 a b", "wrong: /dev/sda: "),
            ("-C x -l1 -n2 --fail a", "wrong: --fail: means nothing with --create"),
            ("/dev/md0 --add-journal j", "missing: --add-journal: "),
            ("--manage /dev/md0 a b", "wrong: a: "),
            ("/dev/md0 --add", "wrong: --add: "),
            ("/dev/md0 --with a", "wrong: --with: "),
            ("/dev/md0 --replace a --with b c", "wrong: --with: "),
            ("/dev/md0 --fail set-A", "missing: set-A: "),
            ("--detail-platform", "missing: --detail-platform: "),
            ("--dump=d a", "missing: --dump: "),
            ("--action=resync x", "wrong: --action=resync: "),
            ("-D", "wrong: --detail: "),
            ("-A -m 0 /dev/md0 a", "missing: --super-minor: "),
        ] {
            let found = shown(line);
            assert!(found.starts_with(expected), "{line}: {found}");
        }
    }
}
