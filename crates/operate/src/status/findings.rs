//! From the report of an array to what is said of it.
//! Owns: [`Finding`]: when an array is of a kind, the sentences about it. Not here: the kinds' numbers and how bad they are
//! (`kind`), what is printed (the parent).
//! Invariant: each array has at least one finding; `Healthy` is never beside one that needs attention. A command in a
//! sentence is one that can be typed as it stands, but for words in capital letters.

use super::kind::{Kind, Severity};
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use std::time::Duration;
use uraid_block::sizes::counted;
use uraid_control::client::Unasked;
use uraid_control::log::with_causes;
use uraid_control::names::one_line;
use uraid_control::report::{Member, MemberIo, Report};

/// A request that took longer was slow: healthy disks answer within a few seconds even while they retry.
const SLOW_MIN: Duration = Duration::from_secs(5);

/// What is said of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which kind of state.
    pub kind: Kind,
    /// What is so.
    pub state: String,
    /// What it means for the data.
    pub meaning: String,
    /// What to type, or to do, next; empty if nothing has to be done.
    pub action: String,
}

impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Finding", 5)?;
        fields.serialize_field("number", &self.kind.number())?;
        fields.serialize_field("severity", &self.kind.severity())?;
        fields.serialize_field("state", &self.state)?;
        fields.serialize_field("meaning", &self.meaning)?;
        fields.serialize_field("action", &self.action)?;
        fields.end()
    }
}

impl Finding {
    /// Of these sentences.
    pub fn new(kind: Kind, state: impl Into<String>, meaning: impl Into<String>, action: impl Into<String>) -> Finding {
        Finding { kind, state: state.into(), meaning: meaning.into(), action: action.into() }
    }

    /// Of an array that could not be asked.
    pub fn of_silent(unasked: &Unasked) -> Finding {
        Finding::new(
            Kind::ServerSilent,
            format!("{}: {}", unasked.name, with_causes(&unasked.error)),
            "nothing is known of this array; its clients may wait for the same process",
            "if it is another user's array, ask as that user or as root; else look at its log (NAME.log beside the socket) \
             and at its process: one in state D waits for a device",
        )
    }

    /// Whether it is more than a note.
    pub fn needs_attention(&self) -> bool {
        self.kind.severity() >= Severity::Attention
    }

    /// Its lines.
    pub fn text(&self) -> String {
        let mut out = format!("  state: {} {}\n", self.kind.number(), one_line(&self.state));
        out.push_str(&format!("  means: {}\n", one_line(&self.meaning)));
        if !self.action.is_empty() {
            out.push_str(&format!("   next: {}\n", one_line(&self.action)));
        }
        out
    }
}

/// What is said of a running array, and `more` of it, the worst first.
pub(super) fn of_report(report: &Report, more: Vec<Finding>) -> Vec<Finding> {
    let look = Look { report, name: shell_word(&report.name) };
    let mut findings = look.all();
    findings.extend(more);
    if !findings.iter().any(Finding::needs_attention) {
        findings.push(look.healthy());
    }
    findings.sort_by_key(|finding| (std::cmp::Reverse(finding.kind.severity()), finding.kind));
    findings
}

/// A word as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

struct Look<'a> {
    report: &'a Report,
    /// As a shell takes it.
    name: String,
}

impl Look<'_> {
    fn all(&self) -> Vec<Finding> {
        let one = [
            self.not_ready(),
            self.frozen(),
            self.read_only(),
            self.redundancy(),
            self.pass(),
            self.no_spare(),
            self.write_hole(),
            self.no_bitmap(),
            self.mismatches(),
            self.passes_paused(),
        ];
        let members = self.report.members.iter().flat_map(|member| self.of_member(member));
        one.into_iter().flatten().chain(members).chain(self.left_out()).collect()
    }

    fn is(&self, word: &str) -> bool {
        self.report.state.iter().any(|found| found == word)
    }

    fn healthy(&self) -> Finding {
        let left = self.report.redundancy_left();
        let meaning = match (self.report.is_redundant(), left) {
            (false, _) => {
                "all members work; the level has no redundancy, so the first that fails takes data with it".into()
            }
            (true, 1) => "all data has its redundancy: any one member may fail".to_owned(),
            (true, left) => format!("all data has its redundancy: any {left} members may fail"),
        };
        Finding::new(Kind::Healthy, "healthy: nothing needs attention", meaning, "")
    }

    fn not_ready(&self) -> Option<Finding> {
        let word = ["starting", "stopping", "stopped"].into_iter().find(|word| self.is(word))?;
        let state = format!("the array is {word}");
        Some(Finding::new(Kind::NotReady, state, "clients are not served at this moment", ""))
    }

    fn frozen(&self) -> Option<Finding> {
        if !self.is("frozen") {
            return None;
        }
        let (name, reason) =
            (&self.name, self.report.frozen.as_deref().unwrap_or("an error that it could not survive"));
        let state = format!("frozen: the array takes no more writes: {reason}");
        let meaning = "what was answered is safe, and reads are served as far as possible; writes fail";
        if reason.contains("no space left") {
            let action = format!(
                "fail all full members with one `uraid fail {name} MEMBER...` if the array can do without them; or make room, \
                 then `uraid stop {name}` and serve it again"
            );
            return Some(Finding::new(Kind::FrozenFull, state, meaning, action));
        }
        let action = format!("check the members and their cables, then `uraid stop {name}` and serve it again");
        Some(Finding::new(Kind::FrozenError, state, meaning, action))
    }

    fn read_only(&self) -> Option<Finding> {
        if !self.is("read-only") {
            return None;
        }
        let (state, action) = match &self.report.read_only {
            Some(reason) => (format!("open read-only: {reason}"), String::new()),
            None => ("read-only by command".to_owned(), format!("`uraid readwrite {}` lets it take writes", self.name)),
        };
        Some(Finding::new(
            Kind::ReadOnly,
            state,
            "clients can read, and writes are refused; no member is changed",
            action,
        ))
    }

    /// The members that left, with their errors.
    fn failed_members(&self) -> String {
        let faulty = self.report.members.iter().filter(|member| member.state == "faulty");
        let texts: Vec<String> = faulty.map(|member| shown(member).to_owned()).collect();
        if texts.is_empty() { String::new() } else { format!("; failed: {}", texts.join(", ")) }
    }

    fn redundancy(&self) -> Option<Finding> {
        let missing = self.report.slots().chars().filter(|&letter| letter == '_').count() as u64;
        if missing == 0 || !self.report.is_redundant() {
            return None;
        }
        let (all, picture) = (self.report.raid_devices, self.report.picture());
        let without = if missing == 1 { "slots has" } else { "slots have" };
        let state =
            format!("degraded: {missing} of {all} {without} no usable member {picture}{}", self.failed_members());
        let name = &self.name;
        let action = if self.report.pass().is_some_and(|pass| pass.word == "recovery") {
            format!("wait for the recovery: `uraid wait {name}`")
        } else {
            format!("`uraid add {name} DEVICE` gives it a new member, `uraid re-add {name} DEVICE` one that was away")
        };
        Some(match self.report.redundancy_left() {
            0 => {
                let meaning = "all data is there, but if one more member fails, data may be lost".to_owned();
                Finding::new(Kind::Exposed, state, meaning, action)
            }
            left => {
                let members = counted(u64::from(left), "more member", "more members");
                let meaning = format!("all data is there, and {members} may fail without loss");
                Finding::new(Kind::Degraded, state, meaning, action)
            }
        })
    }

    fn pass(&self) -> Option<Finding> {
        let pass = self.report.pass()?;
        let left = pass.progress.time_left().map_or(String::new(), |left| format!(", {left} left"));
        let waits = if pass.is_pending { ", which waits" } else { "" };
        let how_far = format!("{}{left}{waits}", pass.progress.percent());
        let name = &self.name;
        let wait = format!("wait for its end: `uraid wait {name}`");
        let (kind, state, meaning) = match pass.word {
            "recovery" if self.report.members.iter().any(|member| member.state.ends_with("replacement")) => (
                Kind::Replacing,
                format!("a member is being copied to its replacement: {how_far}"),
                "the member stays in its slot until the copy holds everything",
            ),
            "recovery" => (
                Kind::Recovering,
                format!("recovering: a member is being filled: {how_far}"),
                "the member counts as redundancy when this has ended",
            ),
            "resync" => (
                Kind::Resync,
                format!("resync: {how_far}"),
                "after a crash, or because the array is new, copies or parity are made to agree; where they do not agree \
                 yet, a member that fails takes what was written last there with it",
            ),
            "check" => (
                Kind::Checking,
                format!("a check runs: {how_far}"),
                "copies, or parity and data, are compared; clients are served meanwhile",
            ),
            _ => (
                Kind::Checking,
                format!("a repair runs: {how_far}"),
                "what disagrees is made to agree; clients are served meanwhile",
            ),
        };
        Some(Finding::new(kind, state, meaning, wait))
    }

    fn no_spare(&self) -> Option<Finding> {
        let has = |states: &[&str]| self.report.members.iter().any(|member| states.contains(&member.state.as_str()));
        let is_degraded = self.report.is_redundant() && has(&["removed", "not given", "missing"]);
        if !is_degraded || has(&["spare", "spare rebuilding"]) {
            return None;
        }
        let action = format!("`uraid add {} DEVICE`", self.name);
        let meaning = "nothing takes the empty slot by itself; the array stays degraded until a device is added";
        Some(Finding::new(Kind::NoSpare, "no spare is there for the empty slot", meaning, action))
    }

    fn write_hole(&self) -> Option<Finding> {
        let is_parity = matches!(self.report.level.as_str(), "raid4" | "raid5" | "raid6");
        let is_degraded = self.report.slots().contains('_');
        if !is_parity || !is_degraded || self.report.consistency_policy == "ppl" {
            return None;
        }
        let meaning =
            "if the machine crashes while a row is being written, data in the same row that nobody wrote may be lost";
        let state = "a write hole is possible: the array is degraded and has no partial parity log";
        Some(Finding::new(Kind::WriteHole, state, meaning, "give it its member back soon"))
    }

    fn no_bitmap(&self) -> Option<Finding> {
        if !self.report.is_redundant() || self.report.consistency_policy != "resync" {
            return None;
        }
        let action = format!("`uraid bitmap {} internal` gives it one while it runs", self.name);
        let meaning = "after a crash all of the array is resynced, and a member that was away is filled as a whole";
        Some(Finding::new(Kind::NoBitmap, "the array has no write-intent bitmap", meaning, action))
    }

    fn mismatches(&self) -> Option<Finding> {
        let last = self.report.last_check.as_ref()?;
        let open = if last.kind == "repair" { last.mismatched.saturating_sub(last.corrected) } else { last.mismatched };
        if open == 0 && last.lacking == 0 && last.unreadable == 0 {
            return None;
        }
        let lost = last.lacking + last.unreadable;
        let also = match lost {
            0 => String::new(),
            lost => format!(", {} could not be read", counted(lost, "sector", "sectors")),
        };
        let name = &self.name;
        let state = format!("the last {} found that {} disagree{also}", last.kind, counted(open, "sector", "sectors"));
        let meaning = "at these places copies, or parity and data, differ: what is read may depend on the member, and a \
                       recovery may compute wrong data there";
        let action =
            format!("`uraid detail --mismatches {name}` lists the places; `uraid repair {name}` makes them agree");
        Some(Finding::new(Kind::Mismatches, state, meaning, action))
    }

    fn passes_paused(&self) -> Option<Finding> {
        let action = format!("`uraid unfreeze {}`", self.name);
        let meaning = "no resync, recovery or check goes on, and no spare starts, until they are continued";
        let state = "passes are paused by `uraid freeze`";
        self.report.passes_frozen.then(|| Finding::new(Kind::PassesPaused, state, meaning, action))
    }

    fn of_member(&self, member: &Member) -> Vec<Finding> {
        let of_io = member.io.as_ref().map_or_else(Vec::new, |io| self.of_io(member, io));
        self.failed_member(member).into_iter().chain(self.member_path(member)).chain(of_io).collect()
    }

    fn failed_member(&self, member: &Member) -> Option<Finding> {
        if member.state != "faulty" {
            return None;
        }
        let (name, path) = (&self.name, shown(member));
        let reason = member.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
        let action = format!("`uraid remove {name} {}` lets go of its device", shell_word(path));
        let state = format!("member {path} has failed{reason}");
        Some(Finding::new(Kind::FailedMember, state, "the array does not use it any more", action))
    }

    fn member_path(&self, member: &Member) -> Option<Finding> {
        let path = shown(member);
        let (name, word) = (&self.name, shell_word(path));
        let (state, meaning, action) = match member.path_state.as_deref()? {
            "deleted" => (
                format!("the file of member {path} is deleted"),
                "the array still uses it; its content is gone when the array stops",
                format!("`uraid add {name} DEVICE`, then `uraid replace {name} {word}`"),
            ),
            "replaced" => (
                format!("the path of member {path} leads to another file"),
                "the array still uses the first file; it is not found under this path at the next start",
                "give the file its path back".to_owned(),
            ),
            _ => (
                format!("the path of member {path} leads nowhere"),
                "the array still uses what was there; it is not found under this path at the next start",
                "give the device its path back".to_owned(),
            ),
        };
        Some(Finding::new(Kind::MemberPath, state, meaning, action))
    }

    fn of_io(&self, member: &Member, io: &MemberIo) -> Vec<Finding> {
        if member.state == "faulty" {
            return Vec::new();
        }
        let (name, path) = (&self.name, shown(member));
        let replace = format!("`uraid add {name} DEVICE`, then `uraid replace {name} {}`", shell_word(path));
        let mut found = Vec::new();
        if io.is_silent() {
            let state = format!("member {path} has not answered a request for {} s", io.unanswered_ms / 1000);
            let meaning = "requests that need it wait; reads are served by others where the level allows it";
            let action = format!("look at the device; `uraid fail {name} {}` goes on without it", shell_word(path));
            found.push(Finding::new(Kind::HungMember, state, meaning, action));
        } else if let Some(slowest) =
            io.slowest.as_ref().filter(|slowest| Duration::from_micros(slowest.us) >= SLOW_MIN)
        {
            let seconds = Duration::from_micros(slowest.us).as_secs();
            let state = format!("member {path} took {seconds} s for a {}", slowest.kind);
            let meaning = "nothing is lost; a disk that retries for so long often fails soon";
            found.push(Finding::new(Kind::SlowMember, state, meaning, format!("if it happens again: {replace}")));
        }
        if io.is_needed && member.slot.is_some() {
            let state = format!("member {path} has more read errors than allowed, and stays");
            let meaning = "the array cannot serve without it: data is lost when it fails";
            found.push(Finding::new(Kind::NeededMember, state, meaning, replace.clone()));
        }
        if !io.bad_blocks.is_empty() {
            let sectors = counted(io.bad_blocks.iter().map(|(_, sectors)| sectors).sum(), "sector", "sectors");
            let state = format!("member {path} lacks {sectors}: its bad-block list");
            let meaning = "these sectors have one copy or parity less than the others";
            found.push(Finding::new(Kind::BadBlocks, state, meaning, replace.clone()));
        }
        let errors = io.reads.errors + io.writes.errors + io.flushes.errors;
        if errors > 0 && !io.is_needed {
            let state = format!("{} to member {path} failed", counted(errors, "request", "requests"));
            let meaning = "what it could not read came from other members, and was written to it again where possible";
            let action = format!("`uraid detail --verbose {name}` has the counts; if they grow: {replace}");
            found.push(Finding::new(Kind::MemberErrors, state, meaning, action));
        }
        found
    }

    fn left_out(&self) -> impl Iterator<Item = Finding> {
        let of_one = |left: &uraid_control::report::LeftOut| {
            let (name, path) = (&self.name, &left.path);
            let state = format!("{path} was left out at the start: {}", left.reason);
            let action = format!("if it belongs to the array: `uraid re-add {name} {}`", shell_word(path));
            Finding::new(Kind::LeftOut, state, "the array runs without it", action)
        };
        // What was taken back since is a member now.
        let is_back = |path: &str| self.report.members.iter().any(|member| member.is_called(path));
        self.report.left_out.iter().filter(move |left| !is_back(&left.path)).map(of_one)
    }
}

/// The path as it was given.
fn shown(member: &Member) -> &str {
    member.written.as_deref().or(member.path.as_deref()).unwrap_or("?")
}
