//! Logs members that have stopped answering, within seconds and long before `--member-timeout` fails them.
//! Owns: when a member gets a line, and the text. Not here: the age of a member's requests (`uraid_host`), what
//! `detail` and `list` show of it (`report`), lines about members that are failed (`watch`).
//! Invariant: a member gets at most two lines a minute, and the last of them is true. A change that is not logged at
//! once is logged after the minute, if it still holds then.

use crate::session::Session;
use crate::session::message::ArrayCounts;
use crate::stack::roster::MemberPath;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use uraid_arrays::ArrayIndex;
use uraid_block::local::{Either, race};
use uraid_block::{SlotSet, Tick};
use uraid_control::history::Event;
use uraid_control::log::warn;
use uraid_control::report::UNANSWERED_MIN;
use uraid_engine::view::Gate;
use uraid_engine::{MemberCounts, MemberState, Status};

/// The period of the checks: threads know the age of their requests to within this time.
const PERIOD: Duration = Duration::from_secs(1);
/// How long a check waits for the counts of all threads; the next check tries again. A report waits for the checks of
/// all arrays of the process at once, so no longer than this.
const WAITS_MAX: Duration = Duration::from_millis(500);
/// The shortest time between two lines about a member that does not answer.
const LINES_APART_MIN: Duration = Duration::from_secs(60);

/// One member.
#[derive(Clone, Default)]
struct Silence {
    /// When the member stopped answering; `None` if it answers.
    since: Option<Tick>,
    /// How often it has stopped answering.
    times: u64,
    /// When it was last logged as not answering.
    said: Option<Tick>,
    /// Whether the member's latest line in the log says that it does not answer.
    is_last_word: bool,
}

/// A change to log.
#[derive(PartialEq, Eq, Debug)]
enum News {
    /// It has not answered for this time.
    Silent(Duration),
    /// It answers again, after this time.
    Answers(Duration),
}

impl Silence {
    /// One check; `unanswered` is the age of the member's oldest request. Returns a change to log, if there is one.
    fn look(&mut self, now: Tick, unanswered: Duration) -> Option<News> {
        if unanswered < UNANSWERED_MIN {
            let since = self.since.take()?;
            return std::mem::take(&mut self.is_last_word).then(|| News::Answers(now.since(since)));
        }
        if self.since.is_none() {
            self.since = Some(Tick(now.0.saturating_sub(u64::try_from(unanswered.as_nanos()).unwrap_or(u64::MAX))));
            self.times += 1;
        }
        let is_due = self.said.is_none_or(|said| now.since(said) >= LINES_APART_MIN);
        if self.is_last_word || !is_due {
            return None;
        }
        (self.said, self.is_last_word) = (Some(now), true);
        Some(News::Silent(unanswered))
    }
}

/// Watches the members of all arrays of the process until dropped.
pub(crate) async fn watch(session: Rc<Session>) {
    let local = session.local();
    let mut arrays: BTreeMap<ArrayIndex, Vec<Silence>> = BTreeMap::new();
    loop {
        local.sleep(PERIOD).await;
        if let Either::Left(shards) = race(session.counts_of_all(), local.sleep(WAITS_MAX)).await {
            for index in session.setup().stack.indexes() {
                let counts: Vec<&ArrayCounts> = shards.iter().filter_map(|shard| shard.get(&index)).collect();
                // If counts of a thread are missing, its requests may be the unanswered ones.
                if counts.len() == usize::from(session.setup().shards) {
                    say(&session, index, arrays.entry(index).or_default(), &counts);
                }
            }
        }
    }
}

fn say(session: &Session, index: ArrayIndex, members: &mut Vec<Silence>, counts: &[&ArrayCounts]) {
    let (now, status) = (session.local().now(), session.array(index).status());
    members.resize(status.members.len(), Silence::default());
    let mut news = Vec::new();
    for (member, silence) in members.iter_mut().enumerate() {
        if let MemberState::Removed | MemberState::Faulty { .. } = status.members[member] {
            // The array no longer uses this member: its requests may never be answered, and nothing waits for them.
            *silence = Silence::default();
            continue;
        }
        let of_shards = counts.iter().map(|shard| shard.member(member));
        let sum = of_shards.fold(MemberCounts::default(), |sum, shard| sum.and(&shard));
        news.extend(silence.look(now, sum.unanswered_for).map(|what| (member, what)));
    }
    let array = session.array(index);
    let can_go = can_go(&status, members, |usable| array.layout().can_serve(usable));
    for (member, what) in news {
        let stack = &session.setup().stack;
        let (array, name, times) = (&stack.array(index).name, stack.member_name(index, member), members[member].times);
        let MemberPath { written, .. } = &stack.array(index).roster.seat(member).path;
        let (event, text) = match what {
            News::Silent(unanswered) => {
                let times = if times > 1 { format!(" ({times} times so far)") } else { String::new() };
                let way_out = if can_go && status.members[member].slot().is_some() {
                    format!("; `uraid fail {array} {written}` takes it out")
                } else {
                    String::new()
                };
                let text = format!("has not answered a request for {} s{times}{way_out}", unanswered.as_secs());
                (Event::MemberSilent, text)
            }
            News::Answers(after) => (Event::MemberAnswers, format!("answers again, after {} s", after.as_secs())),
        };
        warn(&format!("{array}: member {name} {text}"));
        session.note(index, event, &format!("member {name} {text}"));
    }
}

/// Whether `fail` could take out the members that do not answer: the array can serve without them, and takes commands.
fn can_go(status: &Status, members: &[Silence], can_serve: impl Fn(&SlotSet) -> bool) -> bool {
    let silent = members.iter().zip(&status.members).filter(|(silence, _)| silence.since.is_some());
    let silent = silent.filter_map(|(_, state)| state.slot());
    status.gate == Gate::Open && can_serve(&status.usable.minus(silent.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines, and when, about a member whose oldest request is `unanswered(second)` seconds old at each second.
    fn said(seconds: u64, unanswered: impl Fn(u64) -> u64) -> Vec<(u64, News)> {
        let mut silence = Silence::default();
        let look = |second| {
            let now = Tick(0) + Duration::from_secs(1000 + second);
            Some((second, silence.look(now, Duration::from_secs(unanswered(second)))?))
        };
        (0..seconds).filter_map(look).collect()
    }

    #[test]
    fn one_line_says_that_a_member_does_not_answer_and_one_that_it_does_again() {
        let hangs_at_5 = |second: u64| if second < 17 { second.saturating_sub(5) } else { 0 };
        let (silent, answers) = (News::Silent(Duration::from_secs(2)), News::Answers(Duration::from_secs(12)));
        assert_eq!(said(100, hangs_at_5), [(7, silent), (17, answers)]);
        assert_eq!(said(100, |_| 1), [], "a second now and then is no news");
    }

    #[test]
    fn a_member_that_flaps_has_two_lines_a_minute_and_the_last_word_is_true() {
        let flaps = |second: u64| second % 4;
        let said_of_flaps = said(600, flaps);
        assert_eq!(said_of_flaps.len(), 2 * 10, "{said_of_flaps:?}");
        let hangs_at_30 = |second: u64| if second < 30 { second % 4 } else { second - 30 };
        let said_then = said(3600, hangs_at_30);
        let last = (62, News::Silent(Duration::from_secs(32)));
        assert_eq!((said_then.len(), said_then.last()), (3, Some(&last)));
    }
}
