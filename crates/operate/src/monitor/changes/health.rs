//! The events that follow from counts of members' requests, which mdadm lacks.
//! Owns: read errors, sectors that others supplied, bad blocks, slow and hung members; how often they are told. Not here:
//! members that failed (`records`, `compare`).
//! Invariant: a member with many errors gives one event an hour with their number, not one for each.

use crate::monitor::event::{EventKind, News};
use crate::monitor::memory::{ArrayMemory, Counted};
use crate::monitor::moment::Moment;
use crate::monitor::sight::{Health, Sight};
use uraid_block::sizes::counted;

/// How long more errors of the same member wait.
const EACH_SECONDS: u64 = 3600;

/// The events of all members.
pub(super) fn of(memory: &mut ArrayMemory, sight: &Sight, now: &Moment) -> Vec<News> {
    if memory.server != sight.server {
        // Another process counts from zero.
        memory.server = sight.server;
        for counted in memory.counted.values_mut() {
            *counted = Counted { told: counted.told.take(), ..Counted::default() };
        }
    }
    memory.counted.retain(|path, _| sight.health.contains_key(path));
    memory.has_silent = sight.health.values().any(Health::is_silent);
    let mut news = Vec::new();
    for (path, health) in &sight.health {
        let told = memory.counted.entry(path.clone()).or_default();
        news.extend(member(path, health, told, now));
        if *told == Counted::default() {
            memory.counted.remove(path);
        }
    }
    news
}

fn member(path: &str, health: &Health, told: &mut Counted, now: &Moment) -> Vec<News> {
    let mut news = Vec::new();
    let is_hung = health.is_hung();
    if is_hung && !told.is_hung {
        let text = format!("it has not answered a request for {} s", health.unanswered_ms / 1000);
        news.push(News::about(EventKind::HungMember, path).saying(text));
    }
    told.is_hung = is_hung;
    let may_tell = told.told.as_ref().is_none_or(|last| last.is_over(EACH_SECONDS, now));
    if !may_tell {
        return news;
    }
    if health.read_errors > told.read_errors {
        let text = format!("{} so far", counted(health.read_errors, "read error", "read errors"));
        news.push(News::about(EventKind::ReadErrors, path).saying(text));
    }
    if health.elsewhere > told.elsewhere {
        let sectors = counted(health.elsewhere, "sector", "sectors");
        let text = format!("{sectors} so far were supplied by the other members");
        news.push(News::about(EventKind::SectorsCorrected, path).saying(text));
    }
    if health.lacking > told.lacking {
        let text = format!("it lacks {}: its bad-block list", counted(health.lacking, "sector", "sectors"));
        news.push(News::about(EventKind::BadBlocks, path).saying(text));
    }
    let slowest = health.slowest.as_ref().filter(|_| health.is_slow());
    if let Some((us, kind)) = slowest.filter(|(us, _)| *us > told.slowest_us) {
        let text = format!("a {kind} took {:.1} s", *us as f64 / 1e6);
        news.push(News::about(EventKind::SlowMember, path).saying(text));
    }
    if news.iter().any(|news| news.kind != EventKind::HungMember) {
        let slowest_us = slowest.map_or(told.slowest_us, |(us, _)| *us);
        let Health { read_errors, elsewhere, lacking, .. } = *health;
        *told = Counted { read_errors, elsewhere, lacking, slowest_us, is_hung, told: Some(now.clone()) };
    }
    // The list has become shorter: what comes next is new.
    told.lacking = told.lacking.min(health.lacking);
    news
}
