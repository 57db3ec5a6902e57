//! Programs beside the server, for those who operate arrays: what state an array is in and what to do, what happened, who
//! is told, what dashboards read.
//! Owns: these verbs, their options and help texts, what they keep. Not here: asking a server (`uraid_control`), the
//! verbs that change one array (`uraid`).
//! Invariant: no verb here opens a member.

pub mod history;
pub mod maintenance;
mod metrics;
pub mod monitor;
#[cfg(test)]
mod sample_reports;
pub mod scrub;
pub mod status;
mod watch;

use clap::Subcommand;
use history::HistoryArgs;
use maintenance::MaintenanceArgs;
use metrics::MetricsArgs;
use monitor::MonitorArgs;
use scrub::ScrubArgs;
use status::StatusArgs;
use std::error::Error;
use std::process::ExitCode;
use watch::WatchArgs;

/// The verbs, in the order in which messages name them.
#[derive(Subcommand, Debug)]
pub enum Operate {
    /// Say what is wrong with arrays, and what to type next
    #[command(long_about = status::STATUS, after_long_help = status::STATUS_AFTER)]
    Status(StatusArgs),
    /// Tell people and programs what happens to arrays
    #[command(long_about = monitor::MONITOR, after_long_help = monitor::MONITOR_AFTER)]
    Monitor(Box<MonitorArgs>),
    /// Show what happened to arrays, when, and by whom
    #[command(long_about = history::HISTORY, after_long_help = history::HISTORY_AFTER)]
    History(HistoryArgs),
    /// Check arrays each month, at night, and remember it
    #[command(long_about = scrub::SCRUB, after_long_help = scrub::SCRUB_AFTER)]
    Scrub(ScrubArgs),
    /// Let no spare start for a while
    #[command(long_about = maintenance::MAINTENANCE, after_long_help = maintenance::MAINTENANCE_AFTER)]
    Maintenance(MaintenanceArgs),
    /// Give metrics of running arrays to Prometheus
    #[command(long_about = metrics::METRICS, after_long_help = metrics::METRICS_AFTER)]
    Metrics(MetricsArgs),
    /// Watch arrays on a live screen
    #[command(long_about = watch::WATCH, after_long_help = watch::WATCH_AFTER)]
    Watch(WatchArgs),
}

impl Operate {
    /// Does what the verb says.
    pub fn run(&self) -> Result<ExitCode, Box<dyn Error>> {
        match self {
            Operate::Status(args) => status::run(args),
            Operate::Monitor(args) => monitor::run(args),
            Operate::History(args) => history::run(args),
            Operate::Scrub(args) => scrub::run(args),
            Operate::Maintenance(args) => maintenance::run(args),
            Operate::Metrics(args) => Ok(metrics::run(args)?),
            Operate::Watch(args) => Ok(watch::run(args)?),
        }
    }
}
