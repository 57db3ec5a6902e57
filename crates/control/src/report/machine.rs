//! A report for scripts: mdadm's `--detail --export`, `--brief` and the exit code of `--test`.
//! Owns: the keys, the line of one array, the exit codes. Not here: JSON and the text (the parent), superblocks for
//! scripts (`examine::machine`).
//! Invariant: no line can be broken by a name or a path. Spec: docs/md/behaviour.md#mdadms-reports,
//! docs/md/behaviour.md#mdadmconf.

use super::{Member, Report};
use crate::words::names::{conf_word, printable};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What `detail --test` says by its exit code. mdadm's numbers; the larger, the worse.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Every slot has a member.
    Normal = 0,
    /// At least one slot has none, and the array works.
    Degraded = 1,
    /// It does not work: it takes no more writes, or lacks too many members.
    Unusable = 2,
    /// There was no state to tell.
    Unknown = 4,
}

impl Report {
    /// The state in one number. Of an array that does not run there is none.
    pub fn verdict(&self) -> Verdict {
        let is = |word: &str| self.state.iter().any(|found| found == word);
        match () {
            () if self.server.is_none() => Verdict::Unknown,
            () if is("frozen") || is("FAILED") || is("stopped") => Verdict::Unusable,
            () if self.slots().contains('_') => Verdict::Degraded,
            () => Verdict::Normal,
        }
    }

    /// `KEY=VALUE` lines, as `mdadm --detail --export`. `MD_DEVNAME` is of an array that runs and has a name, as there.
    pub fn export(&self) -> String {
        let mut out = String::new();
        let mut line =
            |key: &str, value: &str| writeln!(out, "{key}={}", printable(value)).expect("a string takes all");
        line("MD_LEVEL", &self.level);
        line("MD_DEVICES", &self.raid_devices.to_string());
        line("MD_METADATA", &self.metadata);
        line("MD_UUID", &self.uuid);
        if let Some(file) = self.dev_path().strip_prefix("/dev/md/").filter(|_| self.device.is_some()) {
            line("MD_DEVNAME", file);
        }
        if !self.set_name.is_empty() {
            line("MD_NAME", &self.set_name);
        }
        let mut keys = BTreeSet::new();
        for (member, path) in self.present() {
            let mut key = key_of(path);
            // Where mdadm would print one key twice.
            while !keys.insert(key.clone()) {
                key.push('_');
            }
            // mdadm calls a failed member a spare here, too.
            let role = member.slot.map_or("spare".to_owned(), |slot| slot.to_string());
            line(&format!("MD_DEVICE_{key}_ROLE"), &role);
            line(&format!("MD_DEVICE_{key}_DEV"), path);
        }
        out
    }

    /// The `ARRAY` line of `mdadm --detail --brief`, for mdadm.conf. With `is_verbose` the level, the number of slots and
    /// the members too.
    pub fn brief(&self, is_verbose: bool) -> String {
        let mut out = format!("ARRAY {}", self.dev_path());
        let mut put = |text: &str| out.push_str(text);
        if is_verbose {
            put(&format!(" level={} num-devices={}", self.level, self.raid_devices));
        }
        put(&format!(" metadata={}", self.metadata));
        let spares = self.members.iter().filter(|member| member.state == "spare").count();
        if spares > 0 {
            put(&format!(" spares={spares}"));
        }
        if !self.set_name.is_empty() {
            put(&format!(" name={}", conf_word(&printable(&self.set_name))));
        }
        put(&format!(" UUID={}\n", self.uuid));
        if is_verbose {
            let in_use = self.present().filter(|(member, _)| member.state != "faulty").map(|(_, path)| path);
            put(&format!("   devices={}\n", printable(&in_use.collect::<Vec<&str>>().join(","))));
        }
        out
    }

    /// The same array without its members: for `--no-devices`.
    pub fn without_members(&self) -> Report {
        Report { members: Vec::new(), ..self.clone() }
    }

    fn present(&self) -> impl Iterator<Item = (&Member, &str)> {
        self.members.iter().filter_map(|member| Some((member, member.path.as_deref()?)))
    }
}

/// `dev_sda1` of `/dev/sda1`: a shell can have it in a variable's name.
fn key_of(path: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    path.trim_start_matches('/').chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;
    use super::*;
    use crate::report::Server;

    #[test]
    fn scripts_read_the_lines_of_mdadm() {
        let mut report = degraded();
        report.members[0].path = Some("/dev/sd a".to_owned());
        report.members[2].path = Some("/dev/sd-a".to_owned());
        report.members.push(Member {
            state: "spare".to_owned(),
            slot: None,
            path: Some("s".to_owned()),
            ..Member::removed(0)
        });
        let expected = "MD_LEVEL=raid5\nMD_DEVICES=3\nMD_METADATA=1.2\nMD_UUID=10111213:14151617:18191a1b:1c1d1e1f\n\
                        MD_NAME=box:home\nMD_DEVICE_dev_sd_a_ROLE=0\nMD_DEVICE_dev_sd_a_DEV=/dev/sd a\n\
                        MD_DEVICE_dev_sd_a__ROLE=2\nMD_DEVICE_dev_sd_a__DEV=/dev/sd-a\nMD_DEVICE_b_img_ROLE=spare\n\
                        MD_DEVICE_b_img_DEV=b.img\nMD_DEVICE_s_ROLE=spare\nMD_DEVICE_s_DEV=s\n";
        assert_eq!(report.export(), expected);
        let identity = "metadata=1.2 spares=1 name=box:home UUID=10111213:14151617:18191a1b:1c1d1e1f\n";
        assert_eq!(report.brief(false), format!("ARRAY /dev/md/home {identity}"));
        let verbose =
            format!("ARRAY /dev/md/home level=raid5 num-devices=3 {identity}   devices=/dev/sd a,/dev/sd-a,s\n");
        assert_eq!(report.brief(true), verbose);
        report.set_name = "a\nARRAY <ignore>".to_owned();
        report.name = "my array".to_owned();
        assert_eq!(report.brief(false).lines().count(), 1, "{}", report.brief(false));
        let line = "ARRAY /dev/md/my_array metadata=1.2 spares=1 name=\"a_ARRAY <ignore>\" UUID=";
        assert!(report.brief(false).starts_with(line));
        assert_eq!(report.export().lines().count(), expected.lines().count());
        report.device = Some("md127".to_owned());
        assert!(report.export().contains("\nMD_DEVNAME=my_array\nMD_NAME=a_ARRAY"), "{}", report.export());
        assert!(report.without_members().export().ends_with("\nMD_NAME=a_ARRAY <ignore>\n"));
    }

    #[test]
    fn the_state_is_one_of_mdadm_s_numbers() {
        let mut report = degraded();
        assert_eq!(report.verdict(), Verdict::Unknown, "it does not run");
        report.server = Some(Server {
            pid: 1,
            uris: Vec::new(),
            is_ready: true,
            shards: 1,
            last_record_us: None,
            kernel: None,
            member_timeout_ms: None,
            log: None,
            exports: Vec::new(),
        });
        assert_eq!((report.verdict(), Verdict::Degraded as u8), (Verdict::Degraded, 1));
        report.state.push("frozen".to_owned());
        assert_eq!((report.verdict(), Verdict::Unusable as u8), (Verdict::Unusable, 2));
        report.state = vec!["clean".to_owned()];
        report.members[1] = Member { state: "active sync".to_owned(), ..report.members[1].clone() };
        assert_eq!((report.verdict(), Verdict::Normal as u8, Verdict::Unknown as u8), (Verdict::Normal, 0, 4));
    }
}
