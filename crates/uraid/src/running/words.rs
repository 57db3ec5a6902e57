//! Words of a command that a server does not understand: the array behind its members, mdadm's words where they mean nothing.
//! Owns: what was meant. Not here: what the words mean to a server (`overseer::words`).
//! Invariant: it is asked only after a refusal, and changes nothing.

use uraid_control::client::{self, ClientError};

/// mdadm's words that stand for members, the commands that take them, and what they mean.
const WORDS: [(&str, &[&str], &str); 3] = [
    ("failed", &["remove"], "all failed members: `uraid remove ARRAY failed`"),
    (
        "detached",
        &["fail", "remove"],
        "all members whose device is gone: `uraid fail ARRAY detached`, `uraid remove ARRAY detached`",
    ),
    (
        "missing",
        &["re-add"],
        "former members whose device is there: `uraid re-add ARRAY missing`; in `uraid create`, for an empty slot",
    ),
];

/// The error of a command with these words, or what is wrong with the words, if that is known.
pub(crate) fn explained(command: &str, array: Option<&str>, members: &[String], error: ClientError) -> ClientError {
    if !matches!(error, ClientError::NotRunning { .. } | ClientError::Refused(_)) {
        return error;
    }
    match misused(command, members).or_else(|| swapped(command, array?, members)) {
        Some(text) => ClientError::Words { text },
        None => error,
    }
}

fn misused(command: &str, members: &[String]) -> Option<String> {
    let is_misused = |(word, commands, _): &&(&str, &[&str], &str)| {
        !commands.contains(&command) && members.iter().any(|member| member == word)
    };
    let (word, _, meaning) = WORDS.iter().find(is_misused)?;
    Some(format!("{word}: stands for {meaning}; {command} takes members by their path or slot"))
}

/// Whether one of the members is the name of a running array, and the array is none. The members of an array may be arrays.
fn swapped(command: &str, array: &str, members: &[String]) -> Option<String> {
    let reports = client::running().ok()?.reports;
    let is_array = |word: &str| reports.iter().any(|report| report.is_called(word));
    let found = members.iter().find(|member| !is_array(array) && is_array(member))?;
    let others = std::iter::once(array).chain(members.iter().filter(|member| *member != found).map(String::as_str));
    let others: Vec<&str> = others.collect();
    Some(format!("{found}: is a running array, which comes first: `uraid {command} {found} {}`", others.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_mdadm_are_explained_where_they_mean_nothing() {
        let members = |word: &str| vec!["disk1".to_owned(), word.to_owned()];
        assert_eq!(misused("remove", &members("failed")), None);
        assert_eq!(misused("fail", &members("detached")), None);
        assert_eq!(misused("re-add", &members("missing")), None);
        assert_eq!(misused("fail", &members("disk2")), None);
        assert!(misused("fail", &members("failed")).is_some_and(|text| text.contains("`uraid remove ARRAY failed`")));
        assert!(misused("add", &members("missing")).is_some_and(|text| text.contains("`uraid re-add ARRAY missing`")));
    }
}
