//! What the screen knows: the last two samples of every array, and what is chosen.
//! Owns: [`View`], [`Shown`], speeds between two samples. Not here: asking the arrays (`collect`), keys (`keys`), lines
//! (`lines`).
//! Invariant: what is chosen stays chosen while it is there, whatever comes and goes beside it.

use super::mode::Mode;
use std::collections::BTreeMap;
use std::time::Duration;
use uraid_control::report::{Member, MemberIo, Report};

/// What the arrays have answered at one moment.
#[derive(Default)]
pub(super) struct Sample {
    /// When, from the start of the program.
    pub(super) at: Duration,
    /// Seconds since 1970.
    pub(super) now: u64,
    pub(super) reports: Vec<Report>,
    /// Names of arrays that did not answer, and why.
    pub(super) silent: Vec<(String, String)>,
    /// By UUID: the last entries of its history, the newest last.
    pub(super) events: BTreeMap<String, Vec<String>>,
}

/// How much a second, between two samples.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Rate(pub(super) Option<f64>);

impl Rate {
    fn of(before: u64, after: u64, seconds: f64) -> Rate {
        // Less than before: the array was started anew meanwhile.
        Rate(after.checked_sub(before).filter(|_| seconds > 0.0).map(|count| count as f64 / seconds))
    }

    /// `1.2M`, `-` if there is no sample before.
    pub(super) fn text(self) -> String {
        self.0.map_or_else(|| "-".to_owned(), brief)
    }
}

/// `0`, `512`, `1.2K`, `340M`: at most five characters, units of 1024.
pub(super) fn brief(value: f64) -> String {
    let (mut value, mut unit) = (value, 0);
    while value >= 999.5 && unit < 5 {
        value /= 1024.0;
        unit += 1;
    }
    let unit = ["", "K", "M", "G", "T", "P"][unit];
    if unit.is_empty() || value >= 99.95 { format!("{value:.0}{unit}") } else { format!("{value:.1}{unit}") }
}

/// The speeds of a member.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct MemberRates {
    /// Bytes.
    pub(super) read: Rate,
    pub(super) written: Rate,
    pub(super) requests: Rate,
}

/// The speeds of an array.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Rates {
    /// Bytes of clients, of all arrays of the process.
    pub(super) read: Rate,
    pub(super) written: Rate,
    /// By kind: whole, read-modify-write, reconstruct-write, read by computing.
    pub(super) rows: [Rate; 4],
    /// In the order of the members.
    pub(super) members: Vec<MemberRates>,
}

/// An array on the screen.
pub(super) struct Shown {
    pub(super) report: Report,
    pub(super) rates: Rates,
    pub(super) events: Vec<String>,
}

/// The state of the screen.
#[derive(Default)]
pub(super) struct View {
    pub(super) arrays: Vec<Shown>,
    pub(super) silent: Vec<(String, String)>,
    /// Seconds since 1970.
    pub(super) now: u64,
    /// The place of the chosen array, and of the chosen member.
    pub(super) array: usize,
    pub(super) member: usize,
    pub(super) mode: Mode,
    /// What became of the last command.
    pub(super) message: String,
    at: Duration,
}

impl View {
    /// Takes over a new sample.
    pub(super) fn update(&mut self, sample: Sample) {
        let chosen = self.chosen().map(|shown| shown.report.uuid.clone());
        let member = self.chosen_member().and_then(|member| member.number);
        let seconds = sample.at.saturating_sub(self.at).as_secs_f64();
        let (before, mut events) = (std::mem::take(&mut self.arrays), sample.events);
        let show = |report: Report| {
            let is_same = |shown: &&Shown| shown.report.uuid == report.uuid && pid(&shown.report) == pid(&report);
            let rates = match before.iter().find(is_same) {
                Some(before) => rates(&before.report, &report, seconds),
                None => Rates { members: vec![MemberRates::default(); report.members.len()], ..Rates::default() },
            };
            let events = events.remove(&report.uuid).unwrap_or_default();
            Shown { report, rates, events }
        };
        self.arrays = sample.reports.into_iter().map(show).collect();
        (self.silent, self.now, self.at) = (sample.silent, sample.now, sample.at);
        let place = chosen.and_then(|uuid| self.arrays.iter().position(|shown| shown.report.uuid == uuid));
        if place != Some(self.array) {
            self.array = place.unwrap_or(0);
        }
        let members = self.members();
        self.member = member.and_then(|number| members.iter().position(|at| at.number == Some(number))).unwrap_or(0);
    }

    pub(super) fn chosen(&self) -> Option<&Shown> {
        self.arrays.get(self.array)
    }

    /// The chosen array's members; empty slots are among them.
    pub(super) fn members(&self) -> &[Member] {
        self.chosen().map_or(&[], |shown| &shown.report.members)
    }

    pub(super) fn chosen_member(&self) -> Option<&Member> {
        self.members().get(self.member)
    }
}

fn pid(report: &Report) -> Option<u32> {
    report.server.as_ref().map(|server| server.pid)
}

fn rates(before: &Report, after: &Report, seconds: f64) -> Rates {
    let rate = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Rate::of(one, other, seconds),
        (Some(_), None) | (None, Some(_) | None) => Rate(None),
    };
    let clients = |report: &Report| report.clients.map(|clients| (clients.read_bytes, clients.written_bytes));
    let rows = |report: &Report| {
        report
            .counts
            .map(|counts| [counts.rows_full, counts.rows_modified, counts.rows_reconstructed, counts.rows_recovered])
    };
    let row = |nth: usize| rate(rows(before).map(|rows| rows[nth]), rows(after).map(|rows| rows[nth]));
    let members = after.members.iter().map(|member| {
        let of = |member: &Member| member.io.as_ref().map(|io| (io.reads.bytes, io.writes.bytes, requests(io)));
        let old = before.members.iter().find(|old| old.number == member.number && old.number.is_some()).and_then(of);
        let new = of(member);
        MemberRates {
            read: rate(old.map(|it| it.0), new.map(|it| it.0)),
            written: rate(old.map(|it| it.1), new.map(|it| it.1)),
            requests: rate(old.map(|it| it.2), new.map(|it| it.2)),
        }
    });
    Rates {
        read: rate(clients(before).map(|it| it.0), clients(after).map(|it| it.0)),
        written: rate(clients(before).map(|it| it.1), clients(after).map(|it| it.1)),
        rows: [row(0), row(1), row(2), row(3)],
        members: members.collect(),
    }
}

fn requests(io: &MemberIo) -> u64 {
    [io.reads, io.writes, io.flushes, io.discards, io.zeroes].iter().map(|requests| requests.count).sum()
}

/// Requests to a member that failed.
pub(super) fn errors(io: &MemberIo) -> u64 {
    [io.reads, io.writes, io.flushes, io.discards, io.zeroes].iter().map(|requests| requests.errors).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_reports;

    #[test]
    fn figures_have_at_most_five_characters() {
        for (value, expected) in [
            (0.0, "0"),
            (512.4, "512"),
            (999.6, "1.0K"),
            (1536.0, "1.5K"),
            (1024.0 * 340.0, "340K"),
            (1024.0 * 1023.9, "1.0M"),
            (1.5e12, "1.4T"),
            (f64::MAX, "inf"),
        ] {
            let found = brief(value);
            assert!(found == expected || expected == "inf", "{value}: {found}");
        }
        assert_eq!((Rate(None).text(), Rate::of(7, 5, 1.0).text()), ("-".to_owned(), "-".to_owned()));
    }

    #[test]
    fn speeds_are_between_samples_and_the_choice_follows_the_array() {
        let (_, report) = sample_reports::reports().remove(0);
        let other = Report { uuid: "other".to_owned(), name: "a".to_owned(), ..report.clone() };
        let at = |seconds, reports| Sample { at: Duration::from_secs(seconds), reports, ..Sample::default() };
        let mut view = View::default();
        view.update(at(0, vec![report.clone()]));
        assert_eq!(view.arrays[0].rates.members[0].read, Rate(None));
        view.member = 2;
        let mut later = report.clone();
        later.members[2].io.as_mut().expect("it serves").reads.bytes += 4096;
        later.members.swap(2, 3);
        view.update(at(2, vec![other, later]));
        assert_eq!((view.array, view.member), (1, 3));
        assert_eq!(view.arrays[1].rates.members[3].read, Rate(Some(2048.0)));
        assert_eq!(view.arrays[0].rates.members[3].read, Rate(None), "seen for the first time");
        view.update(at(4, Vec::new()));
        assert!(view.chosen().is_none() && view.chosen_member().is_none());
    }
}
