//! What a monitor is asked to do, by its options and by the configuration.
//! Owns: [`Settings`], what they mean together, refusals. Not here: the options' help (`args`).
//! Invariant: an option counts before the configuration. Programs that cannot be trusted are refused before it begins.

use super::args::MonitorArgs;
use super::channel::{Channel, Mail, Print, Program, Reactions, SystemLog, sendmail_of};
use super::trusted::{self, Kind, NotTrusted};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use uraid_config::{ArrayFacts, ArrayLine, Choice, Config, DevicePlace, Standing};
use uraid_control::log::complain;
use uraid_control::report::Report;
use uraid_format::uuid;

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
    #[error("{option}")]
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
    /// mdadm.conf.
    pub config: Config,
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
        let config = uraid_config::read(&Choice::of(args.config.as_deref()));
        config.complaints.iter().for_each(|complaint| complain(complaint));
        let channels = channels(args, &config)?;
        let delay = args.delay.map(Duration::from_secs).or(config.monitor_delay).filter(|delay| !delay.is_zero());
        Ok(Settings {
            arrays: args.arrays.clone(),
            is_scan: args.scan,
            delay: delay.unwrap_or(DELAY),
            increment: args.increment,
            is_oneshot: args.oneshot,
            is_test: args.test,
            is_sharing: !args.no_sharing && !args.oneshot,
            is_mdadm_only: args.mdadm_events,
            config,
            channels,
        })
    }

    /// How many spares an array should have.
    pub(crate) fn spares_of(&self, report: &Report) -> Option<u32> {
        self.config.array_line(&facts(report)?)?.spares
    }

    /// Its spare group: as its server was told, or as its line says.
    pub(crate) fn group_of(&self, report: &Report) -> Option<String> {
        let of_line = || self.config.array_line(&facts(report)?)?.spare_group.clone();
        report.spare_group.clone().or_else(of_line)
    }

    /// The domains of a device, by POLICY lines.
    pub(crate) fn domains_of(&self, path: &str) -> BTreeSet<String> {
        let device = DevicePlace { paths: &[path], partition: None, metadata: None };
        self.config.policy(&device).domains
    }

    /// Whether an array may give this spare to another one: they have a spare group in common, or a domain.
    pub(crate) fn may_share(&self, from: &Report, to: &Report, spare: &str) -> bool {
        let group = self.group_of(to);
        if group.is_some() && group == self.group_of(from) {
            return true;
        }
        let of_spare = self.domains_of(spare);
        let members = to.members.iter().filter_map(|member| member.path.as_deref());
        members.flat_map(|path| self.domains_of(path)).any(|domain| of_spare.contains(&domain))
    }

    /// The arrays that the configuration lists and gives to uraid: UUID and name.
    pub(crate) fn listed(&self) -> Vec<(String, String)> {
        let own = |line: &ArrayLine| {
            let (uuid, name) = (line.uuid?, line.name_of_array()?);
            let (level, metadata) = (line.level.as_deref().unwrap_or_default(), line.metadata.as_deref());
            let metadata = metadata.unwrap_or("1.2");
            let raid_devices = line.raid_devices.unwrap_or_default();
            let facts = ArrayFacts {
                uuid,
                set_name: name,
                metadata,
                super_minor: None,
                level,
                raid_devices,
                // A pattern stands for itself, too.
                members: line.devices.iter().map(String::as_str).collect(),
            };
            let is_ours = matches!(self.config.standing(&facts, ""), Standing::Ours { .. });
            is_ours.then(|| (uuid::text(&uuid), name.to_owned()))
        };
        self.config.arrays.iter().filter_map(own).collect()
    }
}

fn facts(report: &Report) -> Option<ArrayFacts<'_>> {
    Some(ArrayFacts {
        uuid: uuid::parse(&report.uuid)?,
        set_name: &report.set_name,
        metadata: &report.metadata,
        super_minor: None,
        level: &report.level,
        raid_devices: report.raid_devices.into(),
        members: report.members.iter().filter_map(|member| member.path.as_deref()).collect(),
    })
}

fn channels(args: &MonitorArgs, config: &Config) -> Result<Vec<Box<dyn Channel>>, SettingsError> {
    let trust = |option, path: &Path, kind| {
        trusted::trusted(path, kind).map_err(|source| SettingsError::NotTrusted { option, source })
    };
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    let of_option = args.program.as_deref().map(|path| ("--program", path));
    let of_config = config.program.as_ref().map(|path| ("PROGRAM", Path::new(path)));
    if let Some((option, path)) = of_option.or(of_config) {
        channels.push(Box::new(Program { path: trust(option, path, Kind::Program)? }));
    }
    if let Some(folder) = &args.reactions {
        let folder = trust("--reactions", folder, Kind::Folder)?;
        channels.push(Box::new(Reactions::new(folder, args.reactions_a_minute)));
    }
    if let Some(address) = args.mail.as_ref().or(config.mail_address.as_ref()) {
        // One that is missing is said with the first mail: it may be installed later.
        if let Some(path) = &args.sendmail {
            trust("--sendmail", path, Kind::Program)?;
        }
        let program: PathBuf = sendmail_of(args.sendmail.as_deref());
        channels.push(Box::new(Mail::new(address.clone(), config.mail_from.clone(), program)));
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
