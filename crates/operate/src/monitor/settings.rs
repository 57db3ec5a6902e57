//! What a monitor is asked to do, by its options and by the configuration.
//! Owns: [`Settings`], what they mean together, refusals. Not here: the options' help (`args`).
//! Invariant: an option counts before the configuration. Programs that cannot be trusted are refused before it begins.

use super::args::MonitorArgs;
use super::channel::{Channel, Mail, Print, Program, Reactions, SystemLog, sendmail_of};
use super::trusted::{self, Kind, NotTrusted};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// mdadm's delay.
const DELAY: Duration = Duration::from_secs(60);

/// Why there is nothing to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// All, and some.
    #[error("--scan watches all arrays: leave it out, or the arrays {arrays}")]
    ScanAndArrays {
        /// Those that were named.
        arrays: String,
    },
    /// None.
    #[error("no array is named: name one, or watch all with --scan")]
    NoArrays,
    /// mdadm's words.
    #[error(
        "No mail address or alert command - not monitoring: give --mail, --program, --syslog, --webhook, --reactions or \
         --json, or MAILADDR or PROGRAM in the configuration"
    )]
    NobodyToTell,
    /// A program is not safe to run.
    #[error("{option}: {source}")]
    NotTrusted {
        /// Which option or keyword names it.
        option: &'static str,
        /// Why.
        #[source]
        source: NotTrusted,
    },
}

/// What a monitor is asked to do.
pub(crate) struct Settings {
    /// The arrays to watch; none: all.
    pub arrays: Vec<String>,
    /// All of them.
    pub is_scan: bool,
    /// Between two looks.
    pub delay: Duration,
    /// Percentages that are told are multiples of it.
    pub increment: u8,
    /// One look is all.
    pub is_oneshot: bool,
    /// A message for each array at first.
    pub is_test: bool,
    /// Spares move.
    pub is_sharing: bool,
    /// Only events that mdadm has.
    pub is_mdadm_only: bool,
    /// How many spares arrays should have, by UUID.
    pub spares: BTreeMap<String, u32>,
    /// Their spare groups, by UUID.
    pub groups: BTreeMap<String, String>,
    /// Who is told.
    pub channels: Vec<Box<dyn Channel>>,
}

impl Settings {
    /// By the options and the configuration.
    pub(crate) fn of(args: &MonitorArgs) -> Result<Settings, SettingsError> {
        if args.scan && !args.arrays.is_empty() {
            return Err(SettingsError::ScanAndArrays { arrays: args.arrays.join(", ") });
        }
        if !args.scan && args.arrays.is_empty() {
            return Err(SettingsError::NoArrays);
        }
        let channels = channels(args)?;
        Ok(Settings {
            arrays: args.arrays.clone(),
            is_scan: args.scan,
            delay: args.delay.map_or(DELAY, Duration::from_secs),
            increment: args.increment,
            is_oneshot: args.oneshot,
            is_test: args.test,
            is_sharing: !args.no_sharing && !args.oneshot,
            is_mdadm_only: args.mdadm_events,
            spares: BTreeMap::new(),
            groups: BTreeMap::new(),
            channels,
        })
    }
}

fn channels(args: &MonitorArgs) -> Result<Vec<Box<dyn Channel>>, SettingsError> {
    let trust = |option, path: &PathBuf, kind| {
        trusted::trusted(path, kind).map_err(|source| SettingsError::NotTrusted { option, source })
    };
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    if let Some(path) = &args.program {
        channels.push(Box::new(Program { path: trust("--program", path, Kind::Program)? }));
    }
    if let Some(folder) = &args.reactions {
        let folder = trust("--reactions", folder, Kind::Folder)?;
        channels.push(Box::new(Reactions::new(folder, args.reactions_a_minute)));
    }
    if let Some(address) = &args.mail {
        // One that is missing is said with the first mail: it may be installed later.
        if let Some(path) = &args.sendmail {
            trust("--sendmail", path, Kind::Program)?;
        }
        channels.push(Box::new(Mail::new(address.clone(), None, sendmail_of(args.sendmail.as_deref()))));
    }
    if let Some(webhook) = &args.webhook {
        channels.push(Box::new(webhook.clone()));
    }
    if args.syslog {
        channels.push(Box::new(SystemLog::new()));
    }
    if args.scan && !args.json && channels.is_empty() {
        return Err(SettingsError::NobodyToTell);
    }
    // As mdadm: on stdout, where nobody else is told.
    if args.json || channels.is_empty() {
        channels.push(Box::new(Print { is_json: args.json }));
    }
    Ok(channels)
}
