//! POLICY and PART-POLICY: what may be done with devices, and which of them belong together.
//! Owns: their words, what all lines together say of a device. Not here: doing it.
//! Invariant: the order of the lines does not matter: the most permissive action wins, domains add up.

use crate::Config;
use crate::array::{matches_path, metadata_matches};
use crate::complaint::{Place, Problem};
use std::collections::BTreeSet;

/// What may be done with a new device, each with all that those before it allow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// A member of an array that is complete without it may join it.
    Include,
    /// A former member may go back into its slot.
    ReAdd,
    /// A bare device may become a spare, if its path had a member before.
    SpareSameSlot,
    /// A bare device may become a spare.
    Spare,
    /// Any device may become a spare, whatever is on it.
    ForceSpare,
}

/// Which devices a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyKind {
    /// Whole disks.
    Disk,
    /// Partitions.
    Partition,
}

/// One POLICY or PART-POLICY line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Where it is.
    pub at: Place,
    /// PART-POLICY: the paths are those of disks, the line is about their partitions.
    pub is_of_partitions: bool,
    /// domain=
    pub domains: Vec<String>,
    /// metadata=
    pub metadata: Vec<String>,
    /// path=: patterns of names in /dev/disk/by-path.
    pub paths: Vec<String>,
    /// type=
    pub kind: Option<PolicyKind>,
    /// auto=: `yes`, `no`, `homehost`.
    pub auto: Option<String>,
    /// action=
    pub action: Option<Action>,
}

/// A device, for those lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DevicePlace<'a> {
    /// Its paths: the one given, and its names in /dev/disk/by-path without the folder.
    pub paths: &'a [&'a str],
    /// The number of a partition.
    pub partition: Option<u32>,
    /// `1.2`, of what is on it.
    pub metadata: Option<&'a str>,
}

/// What all lines say of one device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyOf {
    /// Spares move only within a domain.
    pub domains: BTreeSet<String>,
    /// What may be done with it; `None`: no line says so.
    pub action: Option<Action>,
    /// Whether arrays of it may be started: the strictest word of all lines, `no` before `homehost` before `yes`.
    pub auto: Option<String>,
}

impl Policy {
    pub(crate) fn of(words: &[String], at: Place, is_part: bool, tell: &mut dyn FnMut(Problem)) -> Policy {
        let mut policy = Policy {
            at,
            is_of_partitions: is_part,
            domains: Vec::new(),
            metadata: Vec::new(),
            paths: Vec::new(),
            kind: None,
            auto: None,
            action: None,
        };
        for word in words {
            policy.tag(word).unwrap_or_else(&mut *tell);
        }
        policy
    }

    fn tag(&mut self, word: &str) -> Result<(), Problem> {
        let keyword = if self.is_of_partitions { "PART-POLICY" } else { "POLICY" };
        let unknown = || Problem::Word { keyword, word: word.to_owned() };
        let wrong = |expected| Problem::Value { word: word.to_owned(), expected };
        let (tag, value) = word.split_once('=').ok_or_else(unknown)?;
        match tag.to_ascii_lowercase().as_str() {
            "domain" => self.domains.push(value.to_owned()),
            "metadata" => self.metadata.push(value.to_owned()),
            "path" => self.paths.push(value.to_owned()),
            "type" => {
                self.kind = Some(match value {
                    "disk" => PolicyKind::Disk,
                    "part" => PolicyKind::Partition,
                    _ => return Err(wrong("disk or part")),
                });
            }
            "auto" if matches!(value, "yes" | "no" | "homehost") => self.auto = Some(value.to_owned()),
            "auto" => return Err(wrong("yes, no or homehost")),
            "action" => {
                self.action = Some(match value {
                    "include" => Action::Include,
                    "re-add" => Action::ReAdd,
                    "spare" => Action::Spare,
                    "spare-same-slot" => Action::SpareSameSlot,
                    "force-spare" => Action::ForceSpare,
                    _ => return Err(wrong("include, re-add, spare, spare-same-slot or force-spare")),
                });
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    /// Whether the line is about this device; for a line about partitions, also the part of the domains' names that says
    /// which one.
    fn matches(&self, device: &DevicePlace<'_>) -> Option<String> {
        let suffix = match (self.is_of_partitions, device.partition) {
            (false, _) => String::new(),
            (true, Some(number)) => format!("-part{number}"),
            (true, None) => return None,
        };
        let is_kind = match self.kind {
            None => true,
            Some(PolicyKind::Disk) => device.partition.is_none(),
            Some(PolicyKind::Partition) => device.partition.is_some(),
        };
        let is_path = |pattern: &String| {
            let of_partition = format!("{pattern}{suffix}");
            device.paths.iter().any(|path| matches_path(&of_partition, path))
        };
        let fits_path = self.paths.is_empty() || self.paths.iter().any(is_path);
        let fits_metadata = self.metadata.is_empty()
            || device.metadata.is_some_and(|own| self.metadata.iter().any(|word| metadata_matches(word, own)));
        (is_kind && fits_path && fits_metadata).then_some(suffix)
    }
}

impl Config {
    /// What the POLICY lines say of a device.
    pub fn policy(&self, device: &DevicePlace<'_>) -> PolicyOf {
        let mut found = PolicyOf::default();
        for line in &self.policies {
            let Some(suffix) = line.matches(device) else { continue };
            found.domains.extend(line.domains.iter().map(|domain| format!("{domain}{suffix}")));
            found.action = found.action.max(line.action);
            let strictness = |word: &Option<String>| match word.as_deref() {
                Some("no") => 3,
                Some("homehost") => 2,
                Some(_) => 1,
                None => 0,
            };
            if strictness(&line.auto) > strictness(&found.auto) {
                found.auto.clone_from(&line.auto);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn config(lines: &[&str]) -> Config {
        let at = Place { file: PathBuf::new(), line: Some(1) };
        let read = |line: &&str| {
            let words = crate::words(line);
            let is_part = words[0] == "PART-POLICY";
            Policy::of(&words[1..], at.clone(), is_part, &mut |problem| panic!("{problem}"))
        };
        Config { policies: lines.iter().map(read).collect(), ..Config::default() }
    }

    #[test]
    fn the_most_permissive_action_wins_in_any_order_and_domains_add_up() {
        let mut lines =
            ["POLICY domain=a path=pci-* action=spare", "POLICY domain=b action=include", "POLICY action=re-add"];
        for _ in 0..3 {
            lines.rotate_left(1);
            let device = DevicePlace { paths: &["pci-0:1"], partition: None, metadata: None };
            let of = config(&lines).policy(&device);
            assert_eq!(of.action, Some(Action::Spare));
            assert_eq!(of.domains.into_iter().collect::<Vec<_>>(), ["a", "b"]);
            let elsewhere = DevicePlace { paths: &["usb-0:1"], ..device };
            assert_eq!(config(&lines).policy(&elsewhere).action, Some(Action::ReAdd));
        }
    }

    #[test]
    fn a_line_about_partitions_names_a_domain_for_each() {
        let config = config(&["PART-POLICY domain=x path=pci-*", "POLICY type=disk action=include", "POLICY auto=no"]);
        let device = DevicePlace { paths: &["pci-1-part2"], partition: Some(2), metadata: Some("1.2") };
        let of = config.policy(&device);
        assert_eq!(of.domains.into_iter().collect::<Vec<_>>(), ["x-part2"]);
        assert_eq!((of.action, of.auto.as_deref()), (None, Some("no")));
        let disk = DevicePlace { paths: &["pci-1"], partition: None, metadata: None };
        assert_eq!(config.policy(&disk).action, Some(Action::Include));
        assert!(config.policy(&disk).domains.is_empty());
    }

    #[test]
    fn lines_of_other_metadata_say_nothing() {
        let config = config(&["POLICY metadata=0.90 action=spare"]);
        let of = |metadata| config.policy(&DevicePlace { paths: &["x"], partition: None, metadata }).action;
        assert_eq!((of(Some("0.90")), of(Some("1.2")), of(None)), (Some(Action::Spare), None, None));
    }
}
