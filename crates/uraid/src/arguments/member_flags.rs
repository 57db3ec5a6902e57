//! `--write-mostly`, `--failfast` and `--nofailfast`: options that hold for the members behind them, as in mdadm.
//! Owns: the options, and which members they hold for. Not here: the flags themselves (`uraid_format::FlagChange`), the
//! levels that have them.
//!
//! ```text
//!   create a --write-mostly b --failfast c        a: none, b: write-mostly, c: both
//! ```

use super::arrays::MemberArrays;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use uraid_format::{FlagChange, MemberFlag};
use uraid_option_values::MISSING;

/// An option, the flag that it is about, and whether members get the flag.
struct Word {
    long: &'static str,
    short: Option<char>,
    flag: MemberFlag,
    is_set: bool,
    help: &'static str,
}

/// The id of the argument that takes an array and members of it.
pub(crate) const ARRAY_AND_MEMBERS: &str = "array_and_members";

const WRITE_MOSTLY: Word = Word {
    long: "write-mostly",
    short: Some('W'),
    flag: MemberFlag::WriteMostly,
    is_set: true,
    help: "The members listed behind this are write-mostly: read only where no other has the sectors. raid1 and raid10 only",
};
const FAILFAST: Word = Word {
    long: "failfast",
    short: None,
    flag: MemberFlag::FailFast,
    is_set: true,
    help: "The members listed behind this are failfast: the first read error fails such a member, if the array can serve \
           without it. raid1 and raid10 only",
};
const NO_FAILFAST: Word = Word {
    long: "nofailfast",
    short: None,
    flag: MemberFlag::FailFast,
    is_set: false,
    help: "The members listed behind this are not failfast: ends --failfast, and takes the flag from a former member",
};
const OF_CREATE: &[Word] = &[WRITE_MOSTLY, FAILFAST];
const OF_ADD: &[Word] = &[WRITE_MOSTLY, FAILFAST, NO_FAILFAST];

/// The flags of the members of `create`, in the order of the list: of each member, or of each `--array`.
///
/// In a struct of options it stands before the members: clap takes their values out, and their places with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CreateFlags(pub Vec<FlagChange>);

/// The flags of the words of `add`, in order: of the array's name, too, if it is given.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddFlags(pub Vec<FlagChange>);

impl FromArgMatches for CreateFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<CreateFlags, Error> {
        let mut places = places_of_words(matches, "members");
        places.extend(MemberArrays::places(matches).into_iter().map(|(at, members)| {
            let is_missing = matches!(members[..], [only] if only == MISSING);
            Place { at, is_missing }
        }));
        flags_of(matches, OF_CREATE, &places).map(CreateFlags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = CreateFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl FromArgMatches for AddFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<AddFlags, Error> {
        let places = places_of_words(matches, ARRAY_AND_MEMBERS);
        flags_of(matches, OF_ADD, &places).map(AddFlags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = AddFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for CreateFlags {
    fn augment_args(command: Command) -> Command {
        command.args(OF_CREATE.iter().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        CreateFlags::augment_args(command)
    }
}

impl Args for AddFlags {
    fn augment_args(command: Command) -> Command {
        command.args(OF_ADD.iter().map(option))
    }

    fn augment_args_for_update(command: Command) -> Command {
        AddFlags::augment_args(command)
    }
}

/// A member on the command line.
struct Place {
    /// Its place among all words.
    at: usize,
    is_missing: bool,
}

fn places_of_words(matches: &ArgMatches, id: &str) -> Vec<Place> {
    let words = matches.get_many::<String>(id).into_iter().flatten();
    let places = matches.indices_of(id).into_iter().flatten();
    places.zip(words).map(|(at, word)| Place { at, is_missing: word == MISSING }).collect()
}

/// clap notes the place of an option without a value only if it gets a value from the definition.
fn option(word: &Word) -> Arg {
    let arg = Arg::new(word.long).long(word.long).help(word.help).action(ArgAction::Append);
    let arg = arg.num_args(0).default_missing_value("");
    match word.short {
        Some(short) => arg.short(short),
        None => arg,
    }
}

/// The flags of each member. An option with no member behind it is refused: its user expected it to do something.
fn flags_of(matches: &ArgMatches, words: &[Word], places: &[Place]) -> Result<Vec<FlagChange>, Error> {
    let mut given: Vec<(usize, &Word)> = words
        .iter()
        .flat_map(|word| matches.indices_of(word.long).into_iter().flatten().map(move |at| (at, word)))
        .collect();
    given.sort_by_key(|(at, _)| *at);
    let last_member = places.iter().filter(|place| !place.is_missing).map(|place| place.at).max().unwrap_or(0);
    if let Some((_, word)) = given.iter().find(|(at, _)| *at > last_member) {
        let text = format!("--{} holds for the members behind it, and none is: put it before them", word.long);
        return Err(Error::raw(ErrorKind::ValueValidation, format!("{text}\n")));
    }
    let flags_at = |place: &Place| {
        let before = given.iter().take_while(|(at, _)| *at < place.at);
        before.fold(FlagChange::default(), |flags, (_, word)| flags.with(word.flag, word.is_set))
    };
    Ok(places.iter().map(flags_at).collect())
}

#[cfg(test)]
mod tests {
    use crate::cli::{Change, Cli, Command as Verb};
    use clap::Parser;
    use uraid_format::MemberFlag::{FailFast, WriteMostly};

    /// `w` and `f` for the flags that a member gets, `-` for failfast that it loses.
    fn shown(line: &str) -> Result<Vec<String>, String> {
        let parsed = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let flags = if let Verb::Create(args) = &parsed.command {
            &args.flags.0
        } else if let Verb::Change(Change::Add(args)) = &parsed.command {
            &args.flags.0
        } else {
            panic!("neither create nor add")
        };
        let letters = |flags: &uraid_format::FlagChange| {
            let write_mostly = if flags.of(WriteMostly) == Some(true) { "w" } else { "" };
            let failfast = flags.of(FailFast).map_or("", |is_set| if is_set { "f" } else { "-" });
            format!("{write_mostly}{failfast}")
        };
        Ok(flags.iter().map(letters).collect())
    }

    #[test]
    fn a_flag_holds_for_the_members_behind_it() {
        for (line, expected) in [
            ("create -l 1 -n 2 a b", &["", ""][..]),
            ("create -l 1 -n 2 a --write-mostly b", &["", "w"]),
            ("create -l 1 -W -n 2 a b", &["w", "w"]),
            ("create -l 1 -n 3 a -W missing b", &["", "w", "w"]),
            ("create -l 1 -n 4 a --failfast b -W c --failfast d", &["", "f", "wf", "wf"]),
            ("create -l 1 -n 2 --array a b -W --array c --array d e", &["", "w", "w"]),
            ("create -l 1 -n 2 -W --array a b --failfast --array c d", &["w", "wf"]),
            ("add home -W a b", &["", "w", "w"]),
            ("add -W home a --failfast b --nofailfast c -f", &["w", "w", "wf", "w-"]),
            ("add --control sock --nofailfast a", &["-"]),
        ] {
            assert_eq!(shown(&format!("uraid {line}")).expect(line), expected, "{line}");
        }
    }

    #[test]
    fn a_flag_with_no_member_behind_it_is_refused() {
        for (line, option) in [
            ("create -l 1 -n 2 a b -W", "--write-mostly"),
            ("create -l 1 -n 3 a b -W missing", "--write-mostly"),
            ("create -l 1 -n 3 a -W b --failfast", "--failfast"),
            ("create -l 1 -n 2 --array a b --array c d -W", "--write-mostly"),
            ("add home a --nofailfast", "--nofailfast"),
        ] {
            let error = shown(&format!("uraid {line}")).expect_err(line);
            let expected =
                format!("error: {option} holds for the members behind it, and none is: put it before them\n");
            assert!(error.starts_with(&expected), "{line}: {error}");
        }
    }
}
