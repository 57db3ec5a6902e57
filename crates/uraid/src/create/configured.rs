//! What mdadm.conf says of new arrays.
//! Owns: CREATE and HOMEHOST, where the command says nothing. Not here: the file (`uraid_config`).
//! Invariant: an option of the command counts before the configuration.

use super::args::{CreateArgs, metadata_version};
use super::refusal::Refusal;
use uraid_config::{Choice, HomehostName};
use uraid_control::log::{complain, warn};
use uraid_format::Version;

/// What a new array gets.
pub(super) struct Defaults {
    pub(super) metadata: Version,
    /// As `--homehost` has it.
    pub(super) homehost: Option<String>,
}

impl Defaults {
    pub(super) fn of(args: &CreateArgs) -> Result<Defaults, Refusal> {
        let config = uraid_config::read(&Choice::of(args.config.as_deref()));
        config.complaints.iter().for_each(|complaint| complain(complaint));
        let configured = config.create.metadata.as_deref().filter(|word| *word != "default");
        let metadata = match (args.metadata, configured) {
            (Some(version), _) => version,
            (None, Some(word)) => {
                let word = if word == "1" { "1.2" } else { word };
                metadata_version(word).map_err(|reason| Refusal::Configured { word: word.to_owned(), reason })?
            }
            (None, None) => Version::V1_2,
        };
        if config.create.bad_block_list == Some(false) {
            warn(
                "CREATE bbl=no: new members have an empty list of bad blocks all the same; `uraid update no-bbl` takes it away",
            );
        }
        let configured = || match config.homehost.name {
            HomehostName::System => None,
            HomehostName::None => Some("none".to_owned()),
            HomehostName::Name(host) => Some(host),
        };
        Ok(Defaults { metadata, homehost: args.homehost.clone().or_else(configured) })
    }
}
