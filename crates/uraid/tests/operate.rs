//! The tests of what operates arrays, as one program: names and configuration, mdadm's command line, services, status,
//! history, scrub, monitor, metrics.
//! Owns: the list of their files, which are in `operate/`. Not here: arrays themselves (`suite`).

#[path = "operate/assembling.rs"]
mod assembling;
#[path = "operate/bad_input.rs"]
mod bad_input;
mod common;
#[path = "operate/creating.rs"]
mod creating;
#[path = "operate/history.rs"]
mod history;
#[path = "operate/isolation.rs"]
mod isolation;
#[path = "operate/maintenance.rs"]
mod maintenance;
#[path = "operate/mdadm.rs"]
mod mdadm;
#[path = "operate/mdadm_rows.rs"]
mod mdadm_rows;
#[path = "operate/metrics.rs"]
mod metrics;
#[path = "operate/monitor.rs"]
mod monitor;
#[path = "operate/monitor_kills.rs"]
mod monitor_kills;
#[path = "operate/scrub.rs"]
mod scrub;
#[path = "operate/service.rs"]
mod service;
#[path = "operate/status.rs"]
mod status;
#[path = "operate/taking_in.rs"]
mod taking_in;
#[path = "operate/units.rs"]
mod units;
#[path = "operate/watch.rs"]
mod watch;
