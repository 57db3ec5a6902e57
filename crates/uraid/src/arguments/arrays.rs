//! `--array MEMBER...`, given once for each array, on the command line.
//! Owns: [`MemberArrays`]: which members were named together. Not here: what becomes of the arrays.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// The members of each `--array`, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberArrays(pub Vec<Vec<String>>);

const ID: &str = "array";

impl MemberArrays {
    /// The members of each array. Without `--array` there is one array, of the `members` that were named without it.
    pub(crate) fn groups_or(&self, members: &[String]) -> Vec<Vec<String>> {
        if self.0.is_empty() { vec![members.to_owned()] } else { self.0.clone() }
    }

    /// The members of each `--array`, with the place of the first among all words.
    pub(crate) fn places(matches: &ArgMatches) -> Vec<(usize, Vec<&String>)> {
        let mut places = matches.indices_of(ID).into_iter().flatten();
        let occurrences = matches.get_occurrences::<String>(ID).into_iter().flatten();
        let members = occurrences.map(|members| members.collect::<Vec<&String>>());
        members.filter_map(|members| Some((places.by_ref().take(members.len()).min()?, members))).collect()
    }
}

impl FromArgMatches for MemberArrays {
    fn from_arg_matches(matches: &ArgMatches) -> Result<MemberArrays, Error> {
        let occurrences = matches.get_occurrences::<String>(ID);
        let groups = occurrences.map(|groups| groups.map(|members| members.cloned().collect()).collect());
        Ok(MemberArrays(groups.unwrap_or_default()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = MemberArrays::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for MemberArrays {
    fn augment_args(command: Command) -> Command {
        let help = "The members of one array; repeat --array for each array";
        let option = Arg::new(ID).long(ID).value_name("MEMBER").num_args(1..).action(ArgAction::Append).help(help);
        command.arg(option)
    }

    fn augment_args_for_update(command: Command) -> Command {
        MemberArrays::augment_args(command)
    }
}
