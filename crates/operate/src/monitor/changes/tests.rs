//! Which events arise, as tables: first sights, what comes and goes, with and without a history, in mdadm's order.
//! Owns: these cases, and all short courses of one member. Not here: the real binary (`crates/uraid/tests/operate`).

use super::*;
use crate::monitor::sight::{Health, What};

fn now(seconds: u64) -> Moment {
    Moment::of("boot", seconds, 1_700_000_000 + seconds)
}

fn rules(seconds: u64) -> Rules {
    Rules { increment: 20, tells_new: true, now: now(seconds) }
}

/// A raid1 of two slots; each word is a member: `+` in sync, `s` spare, `-` faulty.
fn sight(members: &str) -> Sight {
    let mut sight = Sight {
        name: "home".to_owned(),
        device: "/dev/md/home".to_owned(),
        uuid: "u".to_owned(),
        level: "raid1".to_owned(),
        has_redundancy: true,
        slots: 2,
        server: Some(1),
        ..Sight::default()
    };
    for member in members.split_whitespace() {
        let (path, state) = member.split_at(1);
        match state {
            "-" => drop(sight.faulty.insert(path.to_owned())),
            "s" => drop(sight.spares.insert(path.to_owned())),
            slot => drop(sight.in_sync.insert(path.to_owned(), slot.trim_start_matches('+').parse().expect("a slot"))),
        }
    }
    sight
}

fn running(members: &str) -> Seen {
    Seen::Running(Box::new(sight(members)))
}

fn passing(members: &str, word: &str, percent: u8) -> Seen {
    Seen::Running(Box::new(Sight { pass: Some((word.to_owned(), percent)), ..sight(members) }))
}

/// `Fail a`, `RebuildFinished`.
fn words(news: &[News]) -> Vec<String> {
    let word = |news: &News| match &news.component {
        Some(component) => format!("{} {component}", news.kind.name()),
        None => news.kind.name(),
    };
    news.iter().map(|news| word(news) + if news.is_repeat { " again" } else { "" }).collect()
}

/// An array that was seen with these members.
fn known(members: &str) -> ArrayMemory {
    let mut memory = ArrayMemory::default();
    changes(&mut memory, &running(members), Some(&[]), &rules(0));
    memory
}

fn record(what: What) -> Happening {
    Happening { time: 1_700_000_000, is_in_maintenance: false, what }
}

fn failed(path: &str) -> Happening {
    record(What::Failed { path: path.to_owned(), was_spare: false, reason: None })
}

fn active(path: &str, slot: u16) -> Happening {
    record(What::Active { path: path.to_owned(), slot: Some(slot) })
}

fn added(path: &str) -> Happening {
    record(What::Added { path: path.to_owned() })
}

fn started(word: &str) -> Happening {
    record(What::PassStarted { word: word.to_owned() })
}

fn ended(word: &str, is_complete: bool, mismatched: u64) -> Happening {
    let why = (!is_complete).then(|| "ended".to_owned());
    let what = What::PassEnded { word: word.to_owned(), is_complete, why, mismatched, places: Vec::new() };
    record(what)
}

#[test]
fn a_first_sight_tells_what_is_so_in_mdadm_s_order() {
    let of = |seen: &Seen, wanted: Option<u32>, tells_new| {
        let mut seen = seen.clone();
        if let Seen::Running(sight) = &mut seen {
            sight.spares_wanted = wanted;
        }
        let rules = Rules { tells_new, ..rules(0) };
        words(&changes(&mut ArrayMemory::default(), &seen, None, &rules))
    };
    assert_eq!(of(&running("a+0 b+1"), None, false), [""; 0]);
    assert_eq!(of(&running("a+0 b+1"), None, true), ["NewArray"]);
    assert_eq!(of(&running("a+0 b-"), None, false), ["DegradedArray"]);
    assert_eq!(of(&running("a+0 b+1"), Some(1), false), ["SparesMissing"]);
    assert_eq!(of(&running("a+0 b+1 cs"), Some(1), false), [""; 0]);
    let all = of(&passing("a+0 bs", "recovery", 45), Some(2), true);
    assert_eq!(all, ["NewArray", "DegradedArray", "SparesMissing", "RebuildStarted", "Rebuild40"]);
}

#[test]
fn without_a_history_reports_are_compared_as_by_mdadm() {
    let steps = |steps: &[(Seen, &[&str])]| {
        let mut memory = known("a+0 b+1 cs");
        for (nth, (seen, expected)) in steps.iter().enumerate() {
            let news = changes(&mut memory, seen, None, &rules(nth as u64));
            assert_eq!(words(&news), *expected, "step {nth}: {seen:?}");
            assert_eq!(words(&changes(&mut memory, seen, None, &rules(nth as u64))), [""; 0], "step {nth} again");
        }
    };
    steps(&[
        (passing("a+0 b- cs", "recovery", 5), &["RebuildStarted", "Fail b"]),
        (passing("a+0 b- cs", "recovery", 41), &["Rebuild40"]),
        (passing("a+0 b- cs", "recovery", 59), &[]),
        (running("a+0 b- c+1"), &["RebuildFinished", "SpareActive c"]),
        (running("a+0 c+1"), &[]),
        (Seen::Absent, &["DeviceDisappeared"]),
        (running("a+0 c+1"), &["NewArray"]),
    ]);
    steps(&[(running("a+0 b+1 c-"), &["FailSpare c"]), (running("b+1 a- c-"), &["Fail a"])]);
    steps(&[(running("a- b+1 c+0"), &["Fail a", "SpareActive c"])]);
    steps(&[
        (passing("a+0 b+1 cs", "recovery", 9), &["RebuildStarted"]),
        (running("a+0 b-"), &["RebuildAborted", "Fail b"]),
    ]);
    // The disks have other names after a boot.
    steps(&[(running("x+0 y+1 zs"), &[]), (running("x+0 y-"), &["Fail y"])]);
}

#[test]
fn what_came_and_went_between_two_looks_is_told_from_the_history_in_its_order() {
    let mut memory = known("a+0 b+1");
    let records = [
        failed("b"),
        record(What::Removed { path: "b".into() }),
        added("b"),
        started("recovery"),
        ended("recovery", true, 0),
        active("b", 1),
        started("check"),
        ended("check", true, 8),
        started("check"),
        ended("check", false, 0),
        record(What::Stopped),
        record(What::Started),
    ];
    let news = changes(&mut memory, &running("a+0 b+1"), Some(&records), &rules(9));
    let expected = [
        "Fail b",
        "RebuildStarted",
        "RebuildFinished",
        "SpareActive b",
        "RebuildStarted",
        "RebuildFinished",
        "MismatchesFound",
        "RebuildStarted",
        "RebuildPaused",
        "DeviceDisappeared",
        "NewArray",
    ];
    assert_eq!(words(&news), expected);
    assert_eq!(news[5].description.as_deref(), Some("mismatches found: 8 (on raid level 1)"));
    assert_eq!(words(&changes(&mut memory, &running("a+0 b+1"), Some(&[]), &rules(10))), [""; 0]);
}

#[test]
fn only_a_check_that_a_command_ended_is_paused_and_what_ends_otherwise_is_aborted() {
    for (word, why, expected) in [
        ("check", "ended", "RebuildPaused"),
        ("check", "superseded", "RebuildAborted"),
        ("check", "stopped", "RebuildAborted"),
        ("repair", "ended", "RebuildAborted"),
        ("recovery", "ended at 7 of 9", "RebuildAborted"),
    ] {
        let mut memory = known("a+0 b+1");
        let (word, why) = (word.to_owned(), Some(why.to_owned()));
        let ended = record(What::PassEnded { word, is_complete: false, why, mismatched: 0, places: Vec::new() });
        assert_eq!(words(&changes(&mut memory, &running("a+0 b+1"), Some(&[ended]), &rules(1))), [expected]);
    }
}

#[test]
fn a_history_that_is_late_doubles_nothing_and_one_that_says_nothing_loses_nothing() {
    let mut memory = known("a+0 b+1");
    let look = |memory: &mut ArrayMemory, records: &[Happening], seconds| {
        words(&changes(memory, &running("a+0 b-"), Some(records), &rules(seconds)))
    };
    assert_eq!(look(&mut memory, &[], 1), [""; 0]);
    assert_eq!(look(&mut memory.clone(), &[failed("b")], 2), ["Fail b"], "it was late");
    assert_eq!(look(&mut memory, &[], 2), [""; 0]);
    assert_eq!(look(&mut memory, &[], 6), ["Fail b"], "its server was killed before it wrote");
    assert_eq!(look(&mut memory, &[failed("b")], 7), [""; 0], "or its disk was full until now");
    // The report is older than the records that were read behind it.
    let mut memory = known("a+0 b+1");
    let old = |memory: &mut ArrayMemory, records: &[Happening], seconds| {
        words(&changes(memory, &running("a+0 b+1"), Some(records), &rules(seconds)))
    };
    assert_eq!(old(&mut memory, &[failed("b")], 1), ["Fail b"]);
    assert_eq!(look(&mut memory, &[], 9), [""; 0]);
    // A server that was killed has recorded no end.
    let absent = |memory: &mut ArrayMemory, seconds| words(&changes(memory, &Seen::Absent, Some(&[]), &rules(seconds)));
    assert_eq!(absent(&mut memory, 20), [""; 0]);
    assert_eq!(absent(&mut memory, 25), ["DeviceDisappeared"]);
    assert_eq!(absent(&mut memory, 30), [""; 0]);
}

/// All courses of one member with up to seven steps: whatever part of them the monitor sees by reports alone, by records
/// alone or by both, each failure and each activation is told once and in order.
#[test]
fn every_course_of_a_member_is_told_once_whichever_way_it_is_seen() {
    let steps: [fn() -> Happening; 3] = [|| failed("b"), || added("b"), || active("b", 1)];
    let shown = |state: char| match state {
        'f' => "a+0 b-",
        's' => "a+0 bs",
        _ => "a+0 b+1",
    };
    let follow = |state: char, step: usize| match (state, step) {
        ('+', 0) | ('s', 0) => Some('f'),
        ('f', 1) => Some('s'),
        ('s', 2) => Some('+'),
        _ => None,
    };
    let mut courses = 0;
    for course in 0..3_usize.pow(7) {
        let (mut state, mut taken, mut expected) = ('+', Vec::new(), Vec::new());
        for nth in 0..7 {
            let step = course / 3_usize.pow(nth) % 3;
            let Some(next) = follow(state, step) else { break };
            match (state, step) {
                ('+', 0) => expected.push("Fail b"),
                ('s', 0) => expected.push("FailSpare b"),
                (_, 2) => expected.push("SpareActive b"),
                _ => {}
            }
            taken.push((step, next));
            state = next;
        }
        // Where the looks are: after each step or not.
        for looks in 0..1_u32 << taken.len() {
            let (mut memory, mut told, mut unread, mut seconds) = (known("a+0 b+1"), Vec::new(), Vec::new(), 10);
            let mut now = '+';
            for (nth, (step, next)) in taken.iter().enumerate() {
                unread.push(steps[*step]());
                now = *next;
                if looks & 1 << nth != 0 {
                    let records: Vec<Happening> = std::mem::take(&mut unread);
                    told.extend(words(&changes(&mut memory, &running(shown(now)), Some(&records), &rules(seconds))));
                    seconds += 10;
                }
            }
            told.extend(words(&changes(&mut memory, &running(shown(now)), Some(&unread), &rules(seconds))));
            told.extend(words(&changes(&mut memory, &running(shown(now)), Some(&[]), &rules(seconds + 10))));
            assert_eq!(told, expected, "{taken:?}, looks {looks:b}");
            courses += 1;
        }
    }
    assert!(courses > 1500, "{courses}");
}

#[test]
fn a_degraded_array_is_told_again_every_day_until_somebody_acknowledges_it() {
    let mut memory = ArrayMemory::default();
    let look = |memory: &mut ArrayMemory, members: &str, hours: u64| {
        words(&changes(memory, &running(members), None, &rules(hours * 3600)))
    };
    assert_eq!(look(&mut memory, "a+0", 0), ["NewArray", "DegradedArray"]);
    assert_eq!(look(&mut memory, "a+0", 22), [""; 0]);
    assert_eq!(look(&mut memory, "a+0", 24), ["DegradedArray again"]);
    assert_eq!(look(&mut memory, "a+0", 25), [""; 0]);
    memory.degraded.as_mut().expect("it is").is_acknowledged = true;
    assert_eq!(look(&mut memory, "a+0", 90), [""; 0]);
    assert_eq!(look(&mut memory, "a+0 b+1", 91), ["SpareActive b"]);
    assert_eq!(look(&mut memory, "a+0 b-", 92), ["Fail b"], "the failure says it");
    assert_eq!(look(&mut memory, "a+0 b-", 116), ["DegradedArray again"]);
}

#[test]
fn members_that_read_badly_or_not_at_all_are_told_once_an_hour() {
    let mut memory = known("a+0 b+1");
    let mut look = |health: Health, server: u32, seconds| {
        let mut seen = sight("a+0 b+1");
        (seen.health, seen.server) = ([("b".to_owned(), health)].into(), Some(server));
        let news = changes(&mut memory, &Seen::Running(Box::new(seen)), None, &rules(seconds));
        assert!(news.iter().all(|news| news.component.as_deref() == Some("b")));
        words(&news).iter().map(|word| word.trim_end_matches(" b").to_owned()).collect::<Vec<String>>().join(" ")
    };
    let errors = |read_errors| Health { read_errors, elsewhere: 8 * read_errors, ..Health::default() };
    assert_eq!(look(errors(0), 1, 0), "");
    assert_eq!(look(errors(1), 1, 1), "ReadErrors SectorsCorrected");
    assert_eq!(look(errors(2), 1, 2), "");
    assert_eq!(look(errors(2), 1, 3700), "ReadErrors SectorsCorrected");
    assert_eq!(look(errors(2), 1, 9000), "");
    assert_eq!(look(errors(1), 2, 9001), "ReadErrors SectorsCorrected", "another process counts anew");
    let hung = |unanswered_ms| Health { unanswered_ms, ..errors(1) };
    assert_eq!(look(hung(9_000), 2, 9002), "");
    assert_eq!(look(hung(10_000), 2, 9003), "HungMember");
    assert_eq!(look(hung(20_000), 2, 9013), "");
    assert_eq!(look(hung(0), 2, 9014), "");
    assert_eq!(look(hung(11_000), 2, 9030), "HungMember");
    let slow = Health { slowest: Some((2_500_000, "read".to_owned())), lacking: 4, ..errors(1) };
    assert_eq!(look(slow.clone(), 2, 20_000), "BadBlocks SlowMember");
    assert_eq!(look(slow, 2, 30_000), "");
}

#[test]
fn a_frozen_array_and_a_process_that_does_not_answer_are_told_once() {
    let mut memory = known("a+0 b+1");
    let frozen = Seen::Running(Box::new(Sight { frozen: Some("b: no space".to_owned()), ..sight("a+0 b+1") }));
    let mut look = |seen: &Seen, seconds| words(&changes(&mut memory, seen, None, &rules(seconds)));
    assert_eq!(look(&frozen, 1), ["ArrayFrozen"]);
    assert_eq!(look(&frozen, 2), [""; 0]);
    assert_eq!(look(&running("a+0 b+1"), 3), [""; 0]);
    assert_eq!(look(&frozen, 4), ["ArrayFrozen"]);
    assert_eq!(look(&Seen::Silent, 5), [""; 0]);
    assert_eq!(look(&Seen::Silent, 10), ["NotAnswering"]);
    assert_eq!(look(&Seen::Silent, 19), [""; 0]);
    assert_eq!(look(&running("a+0 b+1"), 20), [""; 0]);
}

#[test]
fn a_check_that_is_overdue_is_told_once_until_one_has_ended() {
    let mut memory = known("a+0 b+1");
    let mut look = |unchecked_days| {
        let seen = Seen::Running(Box::new(Sight { unchecked_days, ..sight("a+0 b+1") }));
        words(&changes(&mut memory, &seen, None, &rules(1)))
    };
    assert_eq!(look(Some(41)), ["CheckOverdue"]);
    assert_eq!(look(Some(42)), [""; 0]);
    assert_eq!(look(None), [""; 0]);
    assert_eq!(look(Some(41)), ["CheckOverdue"]);
}

#[test]
fn records_that_no_report_ever_showed_are_told_and_those_of_maintenance_say_so() {
    let mut memory = known("a+0 b+1 cs");
    let mut records = vec![
        // It failed and was removed between two looks of its server.
        record(What::Removed { path: "b".into() }),
        // So short that its beginning was not seen.
        ended("recovery", true, 0),
        active("c", 1),
        added("d"),
        record(What::Failed { path: "d".into(), was_spare: true, reason: Some("by command".into()) }),
        record(What::Replaced { path: "a".into() }),
        active("e", 0),
    ];
    records.iter_mut().for_each(|record| record.is_in_maintenance = true);
    let news = changes(&mut memory, &running("e+0 c+1 a- d-"), Some(&records), &rules(9));
    assert_eq!(words(&news), ["Fail b", "RebuildFinished", "SpareActive c", "FailSpare d", "SpareActive e"]);
    assert!(news.iter().all(|news| news.is_in_maintenance && news.time.is_some()));
    assert_eq!(news[3].description.as_deref(), Some("by command"));
    assert_eq!(words(&changes(&mut memory, &running("e+0 c+1 a- d-"), Some(&[]), &rules(30))), [""; 0]);
}
