//! A line of mdadm as a value: its mode, its options, its devices in order.
//! Owns: reading the words as getopt_long does, finding the mode wherever it stands. Not here: names of options
//! (`options`), what the line makes uraid do (`translate`).
//! Invariant: a word is an option, the value of one, or a device, and none is lost.

use super::options::{self, Mode, Named, Opt, Takes};

/// Why a line is not carried out. It is one sentence, which begins with the word that it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// mdadm would refuse it, too.
    Wrong(String),
    /// mdadm would do it; uraid cannot.
    Missing(String),
}

/// An option of the line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Given {
    pub option: Opt,
    /// As it was typed, without its value.
    pub word: String,
    pub value: Option<String>,
}

/// A word of the line that is no option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Device {
    pub word: String,
    /// The last of `--add`, `--remove`, ... before it.
    pub operation: Option<Opt>,
    /// Behind `--write-mostly`.
    pub is_write_mostly: bool,
    /// Behind `--failfast`, or behind `--nofailfast`.
    pub failfast: Option<bool>,
}

/// A line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Line {
    pub mode: Mode,
    pub options: Vec<Given>,
    pub devices: Vec<Device>,
}

/// A part of a line.
enum Token {
    Option(Given),
    Device(String),
}

impl Line {
    /// Reads the words behind the program's name.
    pub(super) fn parse(words: &[String]) -> Result<Line, Refusal> {
        let mode = mode_of(&tokens(words, None)?)?;
        let mut line = Line { mode, options: Vec::new(), devices: Vec::new() };
        let (mut operation, mut is_write_mostly, mut failfast) = (None, false, None);
        for token in tokens(words, Some(mode))? {
            match token {
                Token::Device(word) => line.devices.push(Device { word, operation, is_write_mostly, failfast }),
                Token::Option(given) => {
                    let option = given.option;
                    is_write_mostly |= option == Opt::WriteMostly;
                    if option.is_managing() {
                        operation = Some(option);
                    } else if [Opt::Failfast, Opt::NoFailfast].contains(&option) {
                        failfast = Some(option == Opt::Failfast);
                    }
                    line.options.push(given);
                }
            }
        }
        Ok(line)
    }

    /// Whether an option is given.
    pub(super) fn has(&self, option: Opt) -> bool {
        self.options.iter().any(|given| given.option == option)
    }

    /// The value of an option; of several, the last one.
    pub(super) fn value(&self, option: Opt) -> Option<&str> {
        self.options.iter().rev().find(|given| given.option == option)?.value.as_deref()
    }

    /// The devices' words.
    pub(super) fn words(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.word.clone()).collect()
    }

    /// The first device, which is the array, and those behind it.
    pub(super) fn array(&self) -> Result<(&str, &[Device]), Refusal> {
        match self.devices.as_slice() {
            [array, members @ ..] => Ok((&array.word, members)),
            [] => {
                let mode = self.mode.word();
                Err(Refusal::Wrong(format!("{mode}: which array? /dev/mdN, /dev/md/NAME or NAME comes first")))
            }
        }
    }
}

/// Whether a word is an option of mdadm, or several letters that are.
pub(crate) fn is_option(word: &str) -> bool {
    let Some(name) = word.strip_prefix("--") else {
        let read = tokens(&[word.to_owned(), String::new()], None);
        return read.is_ok_and(|tokens| matches!(tokens.first(), Some(Token::Option(_))));
    };
    options::long(name.split_once('=').map_or(name, |(name, _)| name)) != Named::None
}

/// Whether the words say what to do, in mdadm's way.
pub(crate) fn has_mode(words: &[String]) -> bool {
    let chooses = |token: &Token| match token {
        Token::Option(given) => given.option.mode().is_some() || given.option.is_managing() || given.option.is_misc(),
        Token::Device(_) => false,
    };
    tokens(words, None).is_ok_and(|tokens| tokens.iter().any(chooses))
}

/// The mode that the line names, or that its operations stand for.
fn mode_of(tokens: &[Token]) -> Result<Mode, Refusal> {
    let is_device_first = matches!(tokens.first(), Some(Token::Device(_)));
    let given = || {
        tokens.iter().filter_map(|token| match token {
            Token::Option(given) => Some(given),
            Token::Device(_) => None,
        })
    };
    let mut named: Option<(Mode, &str)> = None;
    for (mode, word) in given().filter_map(|given| Some((given.option.mode()?, given.word.as_str()))) {
        match named {
            Some((first, of)) if first != mode => {
                return Err(Refusal::Wrong(format!("{word}: the line has another mode already, {of}")));
            }
            Some(_) => {}
            None => named = Some((mode, word)),
        }
    }
    if let Some((mode, _)) = named {
        return Ok(mode);
    }
    match given().find(|given| given.option.is_managing() || given.option.is_misc()) {
        Some(given) if given.option.is_managing() || is_device_first => Ok(Mode::Manage),
        Some(_) => Ok(Mode::Misc),
        None if given().any(|given| matches!(given.option, Opt::Help | Opt::Version)) => Ok(Mode::Misc),
        None => match given().find(|given| !matches!(given.option, Opt::Verbose | Opt::Quiet | Opt::Offroot)) {
            Some(given) => Err(Refusal::Wrong(format!(
                "{}: does not say what to do: --create, --assemble, --detail, --examine, --add or another mode is missing",
                given.word
            ))),
            None if tokens.is_empty() => {
                Err(Refusal::Wrong("mdadm: what is to be done? `uraid mdadm --help` shows it".to_owned()))
            }
            None => match tokens.iter().filter_map(device_of).nth(1) {
                Some(second) => Err(Refusal::Wrong(format!(
                    "{second}: what is to be done? --add, --fail, --create or another option comes before a second device"
                ))),
                None => Ok(Mode::Misc),
            },
        },
    }
}

fn device_of(token: &Token) -> Option<&str> {
    match token {
        Token::Device(word) => Some(word),
        Token::Option(_) => None,
    }
}

/// The words as options with their values, and devices.
fn tokens(words: &[String], mode: Option<Mode>) -> Result<Vec<Token>, Refusal> {
    let mut tokens = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            tokens.extend(words.by_ref().map(|word| Token::Device(word.clone())));
        } else if let Some(name) = word.strip_prefix("--") {
            tokens.push(Token::Option(long(name, &mut words)?));
        } else if word.len() > 1 && word.starts_with('-') {
            letters(word, mode, &mut words, &mut tokens)?;
        } else {
            tokens.push(Token::Device(word.clone()));
        }
    }
    Ok(tokens)
}

fn long<'a>(name: &str, words: &mut impl Iterator<Item = &'a String>) -> Result<Given, Refusal> {
    let (name, value) = match name.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (name, None),
    };
    let word = format!("--{name}");
    let option = match options::long(name) {
        Named::One(option) => option,
        Named::Several(names) => {
            let names: Vec<String> = names.iter().map(|name| format!("--{name}")).collect();
            return Err(Refusal::Wrong(format!("{word}: may be {}", names.join(" or "))));
        }
        Named::None => return Err(Refusal::Wrong(format!("{word}: mdadm has no such option"))),
    };
    let word = format!("--{}", if name == "set-faulty" { name } else { option.name() });
    let value = match (option.takes(), value) {
        (Takes::Nothing, Some(value)) => {
            return Err(Refusal::Wrong(format!("{word}: takes no value, and {value} is given")));
        }
        (Takes::Value, None) => Some(wanted(&word, words.next())?),
        (Takes::Nothing | Takes::Maybe, None) => None,
        (Takes::Value | Takes::Maybe, Some(value)) => Some(value),
    };
    Ok(Given { option, word, value })
}

/// `-Cv`, `-l1`, `-n 2`.
fn letters<'a>(
    word: &str,
    mode: Option<Mode>,
    words: &mut impl Iterator<Item = &'a String>,
    tokens: &mut Vec<Token>,
) -> Result<(), Refusal> {
    let letters: Vec<char> = word.chars().skip(1).collect();
    for (at, letter) in letters.iter().enumerate() {
        let word = format!("-{letter}");
        let Some(option) = options::short(*letter, mode) else {
            return Err(Refusal::Wrong(format!("{word}: mdadm has no such option")));
        };
        if option.takes() != Takes::Value {
            tokens.push(Token::Option(Given { option, word, value: None }));
            continue;
        }
        let rest: String = letters[at + 1..].iter().collect();
        // Many write `-n=2`, which mdadm refuses: the number is what they mean.
        let rest = rest.strip_prefix('=').unwrap_or(&rest).to_owned();
        let value = if rest.is_empty() { wanted(&word, words.next())? } else { rest };
        tokens.push(Token::Option(Given { option, word, value: Some(value) }));
        return Ok(());
    }
    Ok(())
}

fn wanted(word: &str, value: Option<&String>) -> Result<String, Refusal> {
    value.cloned().ok_or_else(|| Refusal::Wrong(format!("{word}: its value is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Line, Refusal> {
        Line::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
    }

    /// The mode, the options with their values, the devices with their operations.
    fn shown(line: &str) -> String {
        let line = parsed(line).unwrap_or_else(|refusal| panic!("{line}: {refusal:?}"));
        let options = line.options.iter().map(|given| match &given.value {
            Some(value) => format!("{}={value}", given.option.name()),
            None => given.option.name().to_owned(),
        });
        let devices = line.devices.iter().map(|device| match device.operation {
            Some(operation) => format!("{}:{}", operation.name(), device.word),
            None => device.word.clone(),
        });
        let parts: Vec<String> = [line.mode.word().to_owned()].into_iter().chain(options).chain(devices).collect();
        parts.join(" ")
    }

    #[test]
    fn words_are_read_as_getopt_reads_them() {
        for (line, expected) in [
            ("--create /dev/md0 --level=1 --raid-devices=2 a b", "--create create level=1 raid-devices=2 /dev/md0 a b"),
            ("-C /dev/md0 -l1 -n2 a b", "--create create level=1 raid-devices=2 /dev/md0 a b"),
            ("-Cv -l 1 -n 2 /dev/md0 a b", "--create create verbose level=1 raid-devices=2 /dev/md0 a b"),
            ("/dev/md0 a b -n2 -l1 -C", "--create raid-devices=2 level=1 create /dev/md0 a b"),
            ("-C x -b internal -c 64 -f -a yes", "--create create bitmap=internal chunk=64 force auto=yes x"),
            ("--create x --level -1", "--create create level=-1 x"),
            ("/dev/md0 --fail a --remove a", "--manage fail remove /dev/md0 fail:a remove:a"),
            ("/dev/md0 -f a b -r a -a c", "--manage fail remove add /dev/md0 fail:a fail:b remove:a add:c"),
            ("--manage /dev/md0 -a c", "--manage manage add /dev/md0 add:c"),
            ("-f /dev/md0 a", "--manage fail fail:/dev/md0 fail:a"),
            ("-Ds", "--misc detail scan"),
            ("-As", "--assemble assemble scan"),
            ("-IRs", "--incremental incremental run scan"),
            ("-Esv", "--misc examine scan verbose"),
            ("-S /dev/md0", "--misc stop /dev/md0"),
            ("/dev/md0 -S", "--manage stop /dev/md0"),
            ("--zero-superblock -f a", "--misc zero-superblock force a"),
            ("-W /dev/md0", "--misc wait /dev/md0"),
            ("/dev/md0 -W --add a", "--manage write-mostly add /dev/md0 add:a"),
            ("-F -m root -d 30 -f -1 -s", "--monitor monitor mail=root delay=30 daemonise oneshot scan"),
            ("-Gb none /dev/md0", "--grow grow bitmap=none /dev/md0"),
            ("--assem x -- -a", "--assemble assemble x -a"),
            ("a", "--misc a"),
            ("--misc --action=check x", "--misc misc action=check x"),
            ("-n=2 -C x", "--create raid-devices=2 create x"),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    #[test]
    fn a_wrong_line_is_refused_by_the_word_that_is_wrong() {
        for (line, expected) in [
            ("--create --assemble x", "--assemble: the line has another mode already, --create"),
            ("--detail --bogus", "--bogus: mdadm has no such option"),
            ("-D -%", "-%: mdadm has no such option"),
            ("--create --level", "--level: its value is missing"),
            ("-C -n", "-n: its value is missing"),
            ("--detail=x", "--detail: takes no value, and x is given"),
            ("--wr", "--wr: may be --write-behind or --write-journal or --write-mostly or --write-zeroes"),
            ("--scan", "--scan: does not say what to do: "),
            ("", "mdadm: what is to be done?"),
            ("/dev/md0 a b", "a: what is to be done?"),
        ] {
            match parsed(line) {
                Err(Refusal::Wrong(text)) => assert!(text.starts_with(expected), "{line}: {text}"),
                other => panic!("{line}: {other:?}"),
            }
        }
    }

    #[test]
    fn flags_hold_for_the_members_behind_them() {
        let line = parsed("-C m a --write-mostly b --failfast c").expect("a line");
        let flags: Vec<_> = line.devices.iter().map(|it| (it.is_write_mostly, it.failfast)).collect();
        assert_eq!(flags, [(false, None), (false, None), (true, None), (true, Some(true))]);
    }

    #[test]
    fn a_line_is_told_from_words_that_mean_nothing_to_mdadm() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<String>>();
        assert!(has_mode(&words("home --fail sdb")) && has_mode(&words("-v /dev/md0 --stop")));
        assert!(!has_mode(&words("detial home")) && !has_mode(&words("xyzzy --json")));
        assert!(is_option("--level") && is_option("-Ds") && is_option("--fail") && !is_option("--status"));
        assert!(!is_option("home") && !is_option("-"));
    }
}
