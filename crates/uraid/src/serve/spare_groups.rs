//! `--spare-group NAME`, which holds for the `--array`s behind it, up to the next one.
//! Owns: [`SpareGroups`]: which array shares its spares with which others. Not here: when a spare moves
//! (`uraid_serve::spare_groups`).

use crate::arguments::MemberArrays;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

const ID: &str = "spare-group";
const HELP: &str = "The arrays given behind this share their spares, up to the next --spare-group: one that lacks a member \
                    and has no spare takes one of another that is whole";

/// The spare group of each `--array`, in order.
///
/// In a struct of options it stands before the arrays: clap takes their values out, and their places with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpareGroups(pub Vec<Option<String>>);

impl FromArgMatches for SpareGroups {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SpareGroups, Error> {
        let names = matches.get_many::<String>(ID).into_iter().flatten();
        let named: Vec<(usize, &String)> = matches.indices_of(ID).into_iter().flatten().zip(names).collect();
        let of_array = |at: usize| named.iter().rev().find(|(place, _)| *place < at).map(|(_, name)| (*name).clone());
        let groups: Vec<Option<String>> =
            MemberArrays::places(matches).into_iter().map(|(at, _)| of_array(at)).collect();
        for (_, name) in &named {
            let count = groups.iter().flatten().filter(|group| group == name).count();
            if count < 2 {
                let text = format!(
                    "--spare-group {name} holds for the arrays behind it, and {}: expected --spare-group {name} --array \
                     MEMBER... --array MEMBER...",
                    if count == 0 { "none is" } else { "only one is" }
                );
                return Err(Error::raw(ErrorKind::ValueValidation, format!("{text}\n")));
            }
        }
        Ok(SpareGroups(groups))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = SpareGroups::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SpareGroups {
    fn augment_args(command: Command) -> Command {
        let option = Arg::new(ID).long(ID).value_name("NAME").value_parser(group_name).action(ArgAction::Append);
        command.arg(option.help(HELP))
    }

    fn augment_args_for_update(command: Command) -> Command {
        SpareGroups::augment_args(command)
    }
}

/// Any name, as in mdadm.conf.
fn group_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err("expected a name without control characters".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command as Verb};
    use clap::Parser;

    fn groups(line: &str) -> Result<Vec<Option<String>>, String> {
        let parsed = Cli::try_parse_from(line.split(' ')).map_err(|error| error.to_string())?;
        let Verb::Serve(args) = parsed.command else { panic!("not serve") };
        Ok(args.spare_groups.0)
    }

    #[test]
    fn a_group_is_that_of_the_arrays_behind_its_name() {
        let some = |name: &str| Some(name.to_owned());
        for (line, expected) in [
            ("--array a --array b", vec![None, None]),
            ("--spare-group x --array a b --array c", vec![some("x"); 2]),
            ("--array a --spare-group x --array b --array c", vec![None, some("x"), some("x")]),
            (
                "--spare-group x --array a --array b --spare-group y --array c --array d --spare-group x --array e",
                vec![some("x"), some("x"), some("y"), some("y"), some("x")],
            ),
            ("a b c", vec![]),
        ] {
            assert_eq!(groups(&format!("uraid serve {line}")).expect(line), expected, "{line}");
        }
    }

    #[test]
    fn a_group_of_fewer_than_two_arrays_is_refused() {
        for (line, expected) in [
            ("--array a --array b --spare-group x", "--spare-group x holds for the arrays behind it, and none is"),
            ("--array a --spare-group x --array b", "--spare-group x holds for the arrays behind it, and only one is"),
            ("--spare-group x a b", "--spare-group x holds for the arrays behind it, and none is"),
            ("--spare-group= --array a --array b", "expected a name without control characters"),
        ] {
            let error = groups(&format!("uraid serve {line}")).expect_err(line);
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
