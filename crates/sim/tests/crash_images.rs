//! Crash images of tiny arrays: what the exploration itself must be, and a check that it finds the engine's mistakes.
//! Not here: the exploration (`uraid_sim::crash`), of which `cargo xtask ci` runs `uraid-sim --crash-images --short`.

use uraid_sim::crash::catalogue::Portion;
use uraid_sim::crash::explore::Explorer;
use uraid_sim::crash::lab::Lab;
use uraid_sim::crash::script::{Schedule, Script, Tiny};
use uraid_sim::crash::{Selection, run};

fn short(threads: usize) -> Selection {
    Selection { level: None, portion: Portion::Short, time: None, threads }
}

#[test]
fn one_write_to_two_mirrors_leaves_only_legal_images() {
    let lab = Lab::new(Tiny::parse("1,0,2,0,3,0").expect("an array"));
    let mut explorer = Explorer::new(lab);
    let script = Script::parse("w0+2|f|s").expect("a script");
    let outcome = explorer.run(&script, Schedule::Fifo, 1);
    println!("{:?}", explorer.counts);
    assert!(outcome.is_ok(), "{outcome:?}");
    assert!(explorer.counts.images > 30);
}

#[test]
fn the_counts_do_not_depend_on_the_threads() {
    let of = |threads| {
        let report = run(&Selection { level: Some("raid1".to_string()), ..short(threads) }, || {});
        report.groups.into_values().map(|group| group.counts).collect::<Vec<_>>()
    };
    assert_eq!(of(1), of(3));
}

#[cfg(feature = "canaries")]
#[test]
fn every_mistake_that_a_crash_can_show_is_found() {
    use uraid_engine::canary::set;
    let mut missed = Vec::new();
    for mistake in [
        "SkipDirtyMark",
        "SkipResync",
        "SkipRecord",
        "SkipCleanFlush",
        "SkipParity",
        "SkipFlush",
        "SkipFua",
        "AnswerEarly",
        "RecordOnce",
        "SkipRowFlush",
        "RowFlushByOldView",
        "LogUnwritten",
        "LogUnflushed",
    ] {
        let report = run(&short(2), || set(Some(mistake)));
        match report.findings.first() {
            Some(finding) => println!("{mistake}: {} findings, first: {finding}", report.findings.len()),
            None => missed.push(mistake),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
