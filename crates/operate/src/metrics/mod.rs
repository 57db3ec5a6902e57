//! `uraid metrics`: what dashboards and alert rules read, in OpenMetrics.
//! Owns: its options and help texts, where the text goes. Not here: the facts (`uraid_control::report`).
//! Invariant: a scrape only asks control sockets, which no request path waits for.
//! Spec: docs/operating/metrics.md.

mod array;
mod family;
mod http;
mod listen;
mod md;
mod members;
pub(crate) mod names;
mod process;
mod scrape;
mod server;

use clap::{ArgGroup, Args};
use http::Form;
use listen::Address;
use listen::ListenError;
use scrape::Scrape;
use server::Listener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use uraid_control::client::ClientError;
use uraid_control::log::{complain, print, print_or_warn};

pub(crate) const METRICS: &str = "\
Serve metrics of all running arrays to Prometheus, or write them: state, redundancy, passes, checks,
members with their requests and errors, clients. node_exporter's node_md_* are among them with the
same names and meanings, so dashboards and alert rules for md work unchanged; the others begin with
uraid_.

Each scrape asks the processes that serve arrays, all at the same time. One that hangs delays the
answer by three seconds at most, and its array has uraid_array_up 0.";

pub(crate) const METRICS_AFTER: &str = "\
EXAMPLES
  uraid metrics --once
  uraid metrics --listen tcp:127.0.0.1:9634
  uraid metrics --listen unix:/run/uraid/metrics.sock
  curl --unix-socket /run/uraid/metrics.sock http://localhost/metrics
  uraid metrics --textfile /var/lib/prometheus/node-exporter/uraid.prom
  uraid metrics --textfile /var/lib/prometheus/node-exporter/uraid.prom --interval 15

In prometheus.yml:
  scrape_configs: [{job_name: uraid, static_configs: [{targets: ['127.0.0.1:9634']}]}]

Prometheus' own node_exporter on the same machine shows the kernel's arrays under the same names: give
the job of uraid a label of its own, or use --textfile only where the kernel has no arrays. Alert
rules and a Grafana dashboard are in contrib/prometheus and contrib/grafana.";

/// Options of `uraid metrics`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("where").required(true))]
pub struct MetricsArgs {
    /// Serve GET /metrics there: unix:PATH, or tcp:ADDRESS:PORT with an address of this machine alone
    #[arg(long, value_name = "ADDRESS", value_parser = Address::parse, group = "where")]
    listen: Option<Address>,
    /// Also listen where other machines can connect; there is no password and no encryption
    #[arg(long, conflicts_with_all = ["once", "textfile"])]
    insecure: bool,
    /// Print the metrics once
    #[arg(long, group = "where")]
    once: bool,
    /// With --once: as OpenMetrics 1.0; else the older text that every reader knows
    #[arg(long, conflicts_with_all = ["listen", "textfile"])]
    openmetrics: bool,
    /// Replace this file, for node_exporter's textfile collector: NAME.prom in its folder
    #[arg(long, value_name = "PATH", group = "where")]
    textfile: Option<PathBuf>,
    /// With --textfile: do so again every so many seconds, until the process is ended
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["listen", "once"], value_parser = clap::value_parser!(u64).range(1..=86_400))]
    interval: Option<u64>,
}

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MetricsError {
    /// The arrays cannot be asked.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// They cannot be served or written.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Serves, prints or writes metrics.
pub(crate) fn run(args: &MetricsArgs) -> Result<ExitCode, MetricsError> {
    if let Some(address) = &args.listen {
        address.check(args.insecure)?;
        let listener = Listener::open(address)?;
        print_or_warn(&format!("{}\n", listener.place(address)));
        listener.serve();
    }
    if let Some(path) = &args.textfile {
        match args.interval {
            None => write(path)?,
            Some(seconds) => write_again(path, Duration::from_secs(seconds))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let form = if args.openmetrics { Form::OpenMetrics } else { Form::Plain };
    print(&server::text(&Scrape::take()?, form));
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path) -> Result<(), MetricsError> {
    listen::check_textfile(path)?;
    Ok(listen::write_textfile(path, &server::text(&Scrape::take()?, Form::Plain))?)
}

/// The first time, an error is the end; later it may pass, as a full disk.
fn write_again(path: &Path, interval: Duration) -> Result<(), MetricsError> {
    write(path)?;
    loop {
        std::thread::sleep(interval);
        if let Err(error) = write(path) {
            complain(&error);
        }
    }
}
