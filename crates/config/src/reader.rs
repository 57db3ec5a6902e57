//! From the text of one file to what it says.
//! Owns: what each keyword does, lines that come twice, how many faults are told. Not here: the words (`array`, `auto`,
//! `create`, `policy`, `uraid`), which files there are (`places`).
//! Invariant: every text is read to its end, and no fault of one line changes what another says.

use crate::array::{ArrayLine, array_name};
use crate::auto::{Auto, Homehost};
use crate::complaint::{Complaint, Place, Problem};
use crate::create::SysfsLine;
use crate::keyword::Keyword;
use crate::lines::{self, Line};
use crate::policy::Policy;
use crate::uraid::{UraidLine, UraidOf};
use crate::{ArrayDevice, Config};
use std::path::Path;
use std::time::Duration;
use uraid_format::uuid;

/// The most faults that are told of one file.
const COMPLAINTS_MAX: usize = 100;

/// Adds what a file says.
pub(crate) struct Reader<'a> {
    config: &'a mut Config,
    file: &'a Path,
    told: usize,
    seen: &'a mut Seen,
}

/// Which keywords have come that may come only once, over all files.
#[derive(Default)]
pub(crate) struct Seen(Vec<&'static str>);

impl<'a> Reader<'a> {
    pub(crate) fn new(config: &'a mut Config, file: &'a Path, seen: &'a mut Seen) -> Reader<'a> {
        Reader { config, file, told: 0, seen }
    }

    pub(crate) fn read(&mut self, text: &str) {
        for line in lines::lines(text) {
            self.line(&line);
        }
    }

    fn line(&mut self, line: &Line) {
        if line.words.iter().any(|word| word.contains(char::REPLACEMENT_CHARACTER)) {
            self.tell(line.number, Problem::NotText);
            return;
        }
        if line.is_unclosed {
            self.tell(line.number, Problem::Unclosed);
        }
        let Some(keyword) = Keyword::of(&line.words[0]) else {
            self.tell(line.number, Problem::Keyword { word: line.words[0].clone() });
            return;
        };
        let words = &line.words[1..];
        // An empty DEVICE line says nothing, and an empty ARRAY line has no identity.
        if words.is_empty() && !matches!(keyword, Keyword::Firmware | Keyword::Uraid) {
            self.tell(line.number, Problem::Empty { keyword: keyword.name() });
            return;
        }
        let mut problems = Vec::new();
        self.take(keyword, words, line.number, &mut problems);
        problems.into_iter().for_each(|problem| self.tell(line.number, problem));
    }

    fn take(&mut self, keyword: Keyword, words: &[String], number: usize, problems: &mut Vec<Problem>) {
        let at = Place { file: self.file.to_owned(), line: Some(number) };
        let mut tell = |problem| problems.push(problem);
        match keyword {
            Keyword::Device => self.config.devices.extend(words.iter().cloned()),
            Keyword::Array => match ArrayLine::of(words, at, &mut tell).and_then(|line| self.not_twice(line)) {
                Ok(line) => self.config.arrays.push(line),
                Err(problem) => tell(problem),
            },
            Keyword::Uraid => match UraidLine::of(words, at, &mut tell).and_then(|line| self.not_twice_uraid(line)) {
                Ok(line) => self.config.uraid.push(line),
                Err(problem) => tell(problem),
            },
            Keyword::MailAddress | Keyword::Program => {
                words[1..].iter().for_each(|word| tell(Problem::Word { keyword: keyword.name(), word: word.clone() }));
                self.once(keyword, words[0].clone(), &mut tell);
            }
            Keyword::MailFrom => self.once(keyword, words.join(" "), &mut tell),
            Keyword::Create => self.config.create.add(words, &mut tell),
            Keyword::Homehost if self.is_second(keyword, &mut tell) => {}
            Keyword::Homehost => self.config.homehost = Homehost::of(words, &mut tell),
            Keyword::Homecluster => self.once(keyword, words[0].clone(), &mut tell),
            Keyword::Auto if self.is_second(keyword, &mut tell) => {}
            Keyword::Auto => self.config.auto = Auto::of(words, &mut tell),
            Keyword::Policy => self.config.policies.push(Policy::of(words, at, false, &mut tell)),
            Keyword::PartPolicy => self.config.policies.push(Policy::of(words, at, true, &mut tell)),
            Keyword::Sysfs => self.config.sysfs.extend(SysfsLine::of(words, at, &mut tell)),
            Keyword::MonitorDelay => match words[0].parse() {
                Ok(seconds) if self.config.monitor_delay.is_none() => {
                    self.config.monitor_delay = Some(Duration::from_secs(seconds));
                }
                Ok(_) => tell(Problem::Second { keyword: keyword.name() }),
                Err(_) => tell(Problem::Value { word: words[0].clone(), expected: "seconds" }),
            },
            Keyword::Firmware => {}
        }
    }

    /// The first line of its kind stays.
    fn once(&mut self, keyword: Keyword, value: String, tell: &mut dyn FnMut(Problem)) {
        let place = match keyword {
            Keyword::MailAddress => &mut self.config.mail_address,
            Keyword::MailFrom => &mut self.config.mail_from,
            Keyword::Program => &mut self.config.program,
            Keyword::Homecluster => &mut self.config.homecluster,
            Keyword::Device
            | Keyword::Array
            | Keyword::Create
            | Keyword::Homehost
            | Keyword::Auto
            | Keyword::Policy
            | Keyword::PartPolicy
            | Keyword::Sysfs
            | Keyword::MonitorDelay
            | Keyword::Firmware
            | Keyword::Uraid => unreachable!("it has no single word"),
        };
        match place {
            Some(_) => tell(Problem::Second { keyword: keyword.name() }),
            None => *place = Some(value),
        }
    }

    fn is_second(&mut self, keyword: Keyword, tell: &mut dyn FnMut(Problem)) -> bool {
        let name = keyword.name();
        if self.seen.0.contains(&name) {
            tell(Problem::Second { keyword: name });
            return true;
        }
        self.seen.0.push(name);
        false
    }

    /// Refuses a second line of one array, or a second array of one name.
    fn not_twice(&self, line: ArrayLine) -> Result<ArrayLine, Problem> {
        for other in &self.config.arrays {
            let twice = |what: String| Err(Problem::Twice { what: format!("array {what}"), first: other.at.clone() });
            // Two lines may list one UUID with more that tells them apart.
            let is_bare = |line: &ArrayLine| line.container.is_none() && line.devices.is_empty();
            if let Some(uuid) = line.uuid.filter(|_| other.uuid == line.uuid && is_bare(&line) && is_bare(other)) {
                return twice(uuid::text(&uuid));
            }
            let name = |line: &ArrayLine| match line.device.as_ref()? {
                ArrayDevice::Ignore => None,
                ArrayDevice::Path(path) => Some(array_name(path).to_owned()),
            };
            if let Some(name) = name(&line).filter(|own| name(other).as_ref() == Some(own)) {
                return twice(name);
            }
        }
        Ok(line)
    }

    fn not_twice_uraid(&self, line: UraidLine) -> Result<UraidLine, Problem> {
        for other in &self.config.uraid {
            let what = match (&line.of, &other.of) {
                (UraidOf::All, UraidOf::All) => Some("URAID all".to_owned()),
                (UraidOf::One { name, uuid }, UraidOf::One { name: other_name, uuid: other_uuid }) => {
                    let same_name = name.clone().filter(|_| name == other_name);
                    let same_uuid = uuid.filter(|_| uuid == other_uuid).map(|uuid| uuid::text(&uuid));
                    same_uuid.or(same_name).map(|which| format!("array {which}"))
                }
                (UraidOf::All, UraidOf::One { .. }) | (UraidOf::One { .. }, UraidOf::All) => None,
            };
            if let Some(what) = what {
                return Err(Problem::Twice { what, first: other.at.clone() });
            }
        }
        Ok(line)
    }

    fn tell(&mut self, line: usize, problem: Problem) {
        self.told += 1;
        let at = |line| Place { file: self.file.to_owned(), line };
        let complaint = match self.told {
            ..=COMPLAINTS_MAX => Complaint { at: at(Some(line)), problem },
            _ if self.told == COMPLAINTS_MAX + 1 => {
                Complaint { at: at(None), problem: Problem::More { max: COMPLAINTS_MAX } }
            }
            _ => return,
        };
        self.config.complaints.push(complaint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        let mut config = Config::default();
        Reader::new(&mut config, Path::new("/etc/mdadm.conf"), &mut Seen::default()).read(text);
        config
    }

    fn told(config: &Config) -> Vec<String> {
        config.complaints.iter().map(ToString::to_string).collect()
    }

    const SAMPLE: &str = "\
# mdadm.conf
DEVICE /dev/sd*[0-9] partitions
DEVICE /dev/vd*
CREATE owner=root group=disk mode=0660 metadata=1.2 bbl=no
HOMEHOST <system>
MAILADDR root
MAILFROM md on here
PROGRAM /usr/sbin/handle-mdadm-events
MONITORDELAY 30
AUTO +1.x -all
POLICY domain=domain1 metadata=1.2 path=pci-0000:00:1f.2-scsi-* action=spare
PART-POLICY domain=domain2 path=pci-*
SYSFS name=home group_thread_cnt=4
ARRAY /dev/md/home UUID=10111213:14151617:18191a1b:1c1d1e1f
   spare-group=g
ARRAY <ignore> UUID=20111213:14151617:18191a1b:1c1d1e1f
URAID home fuse=/mnt/arrays
IMSM_DISABLE_OROM yes
";

    #[test]
    fn every_keyword_is_read() {
        let config = read(SAMPLE);
        assert_eq!(told(&config), [""; 0]);
        assert_eq!(config.devices, ["/dev/sd*[0-9]", "partitions", "/dev/vd*"]);
        assert_eq!(config.mail_from.as_deref(), Some("md on here"));
        assert_eq!(config.monitor_delay, Some(Duration::from_secs(30)));
        assert_eq!((config.arrays.len(), config.uraid.len(), config.policies.len()), (2, 1, 2));
        assert_eq!(config.arrays[0].spare_group.as_deref(), Some("g"));
        assert!(!config.auto.allows("0.90", true));
    }

    #[test]
    fn what_comes_twice_is_told_and_the_first_stays() {
        let config = read(
            "MAILADDR a\nMAILADDR b\nPROGRAM /x y\nMAILFROM a\nMAILFROM b\nHOMEHOST a\nHOMEHOST b\nAUTO all\nAUTO -all\n\
             MONITORDELAY 5\nMONITORDELAY 6\nURAID all\nURAID all\nURAID a\nURAID a fuse=/x\n",
        );
        assert_eq!(told(&config).len(), 8, "{:#?}", told(&config));
        assert_eq!(told(&config)[0], "/etc/mdadm.conf:2: there is a MAILADDR line already: this one is skipped");
        assert_eq!((config.mail_address.as_deref(), config.uraid.len()), (Some("a"), 2));
        assert!(config.auto.allows("1.2", false));
    }

    #[test]
    fn one_name_is_of_one_array() {
        let config = read(
            "ARRAY /dev/md/a UUID=11111111111111111111111111111111\nARRAY a UUID=21111111111111111111111111111111\n\
             ARRAY /dev/md5 UUID=11111111111111111111111111111111\nARRAY b UUID=31111111111111111111111111111111\n\
             ARRAY <ignore> UUID=41111111111111111111111111111111\nARRAY <ignore> UUID=51111111111111111111111111111111\n",
        );
        assert_eq!(
            told(&config),
            [
                "/etc/mdadm.conf:2: array a has a line already, /etc/mdadm.conf:1: this line is skipped",
                "/etc/mdadm.conf:3: array 11111111:11111111:11111111:11111111 has a line already, /etc/mdadm.conf:1: \
                 this line is skipped",
            ]
        );
        assert_eq!(config.arrays.len(), 4);
    }

    #[test]
    fn wrong_lines_cost_only_themselves() {
        let config = read("DEVISE x\nARRAY\nMONITORDELAY soon\nDEVICE \u{fffd}\nDEVICE 'a\nMAILADDR root\nURAID\nx\n");
        assert_eq!(told(&config).len(), 7, "{:#?}", told(&config));
        assert_eq!(told(&config)[0], "/etc/mdadm.conf:1: \"DEVISE\" is no keyword of mdadm.conf: the line is skipped");
        assert_eq!(config.mail_address.as_deref(), Some("root"));
        assert_eq!(config.devices, ["a"]);
    }

    #[test]
    fn a_file_of_faults_is_told_in_a_hundred_lines() {
        assert_eq!(told(&read(&"wrong\n".repeat(5000))).len(), COMPLAINTS_MAX + 1);
    }

    /// Bytes of the grammar in any order: nothing panics, and words never reach a message unescaped.
    #[test]
    fn any_text_is_read() {
        let pieces = [
            "ARRAY",
            "URAID",
            "DEVICE",
            "AUTO",
            "POLICY",
            "SYSFS",
            "CREATE",
            "MAIL",
            "HOME",
            "PART",
            "MON",
            "uuid=",
            "11111111111111111111111111111111",
            "devices=",
            "[",
            "*",
            "\\",
            "'",
            "\"",
            "#",
            " ",
            "\t",
            "\n",
            "\r",
            "=",
            "<ignore>",
            "/dev/md/",
            "/dev/md",
            "\u{1b}[31m",
            "\0",
            "\u{fffd}",
            "ä",
            "all",
            "-",
            "+",
            "members=/",
            "path=[",
        ];
        let mut random = 1u64;
        for _ in 0..4000 {
            let mut text = String::new();
            for _ in 0..30 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(pieces[(random >> 33) as usize % pieces.len()]);
            }
            let config = read(&text);
            for line in told(&config) {
                assert!(!line.contains(char::is_control), "{line:?} of {text:?}");
            }
            for array in &config.arrays {
                array.admits_member("/dev/sda");
            }
        }
    }
}
