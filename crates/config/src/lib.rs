//! mdadm.conf: which file is read, its grammar, and what its lines say about devices, arrays and their owner's wishes.
//! Owns: the places of the file, words and lines, each keyword. Not here: which members exist (`uraid`), what runs
//! (`control`).
//! Invariant: a line that is not understood is told once, and costs nothing but itself.

mod array;
mod auto;
mod complaint;
mod create;
mod keyword;
mod lines;
mod places;
mod policy;
mod reader;
mod standing;
mod uraid;

pub use array::{ArrayDevice, ArrayFacts, ArrayLine};
pub use auto::{Auto, Homehost, HomehostName};
pub use complaint::{Complaint, Place, Problem};
pub use create::{Create, SysfsLine, SysfsOf};
pub use lines::words;
pub use places::{Choice, read};
pub use policy::{Action, DevicePlace, Policy, PolicyKind, PolicyOf};
pub use standing::{Left, PARTITIONS, Standing};
pub use uraid::{UraidLine, UraidOf};

use std::path::PathBuf;
use std::time::Duration;

/// All that the files of one configuration say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// The files that were read, in their order.
    pub files: Vec<PathBuf>,
    /// The words of all DEVICE lines: paths and patterns, `partitions`, `containers`. None: all block devices.
    pub devices: Vec<String>,
    /// The ARRAY lines.
    pub arrays: Vec<ArrayLine>,
    /// The URAID lines: which arrays are uraid's, and how they are served.
    pub uraid: Vec<UraidLine>,
    /// MAILADDR: who gets a monitor's mail.
    pub mail_address: Option<String>,
    /// MAILFROM: whom that mail is from.
    pub mail_from: Option<String>,
    /// PROGRAM: what a monitor runs for each event.
    pub program: Option<String>,
    /// MONITORDELAY.
    pub monitor_delay: Option<Duration>,
    /// CREATE: what a new array gets unless its command says something else.
    pub create: Create,
    /// HOMEHOST: the host whose arrays are this system's.
    pub homehost: Homehost,
    /// HOMECLUSTER.
    pub homecluster: Option<String>,
    /// AUTO: which arrays may be started that no ARRAY line names.
    pub auto: Auto,
    /// The POLICY and PART-POLICY lines.
    pub policies: Vec<Policy>,
    /// The SYSFS lines.
    pub sysfs: Vec<SysfsLine>,
    /// What was not understood, in the order of the files and lines.
    pub complaints: Vec<Complaint>,
}

/// What one text says, as a file named `mdadm.conf`.
pub fn parse(text: &str) -> Config {
    let mut config = Config::default();
    reader::Reader::new(&mut config, std::path::Path::new("mdadm.conf"), &mut reader::Seen::default()).read(text);
    config
}
