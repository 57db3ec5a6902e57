//! Lines of mdadm whose mode is not their first word: `mdadm /dev/md0 --fail X`, `mdadm --manage /dev/md0 -a X`,
//! `mdadm -v --stop /dev/md0`, `mdadm -Ds`.
//! Owns: finding the mode or the operations, and the answer. Not here: the tables (`mdadm`).
//! Invariant: a line whose first word is a verb of uraid does not come here.

use super::mdadm::{completed, instead_of, instead_of_mode, redirect, why_not};
use std::time::Duration;
use uraid_control::asking;
use uraid_control::member_name;

/// How long the first word may take to be found to be a file.
const LOOK_TIME_MAX: Duration = Duration::from_secs(2);

/// Words that mdadm takes before a mode, and that change nothing in the answer.
const BEFORE_A_MODE: [&str; 11] =
    ["-v", "--verbose", "-q", "--quiet", "-t", "--test", "--offroot", "--manage", "manage", "--misc", "misc"];

/// Options that stand for something else behind a device than alone.
const BEHIND_A_DEVICE: [(&[&str], &str); 2] =
    [(&["-a", "--add-spare"], "add ARRAY DEVICE..."), (&["-R", "--run"], "serve --run MEMBER...")];

/// mdadm takes several of them in one line.
const OPERATIONS: [&str; 5] = ["add ", "re-add ", "remove ", "fail ", "replace "];

/// What to type instead of these words, the program's name left out, if a mode of mdadm is among them.
pub(super) fn instead_of_line(words: &[&str]) -> Option<String> {
    let first = *words.first()?;
    if BEFORE_A_MODE.contains(&first) || !first.starts_with('-') && instead_of_mode(first).is_none() {
        return operations(&words[1..]).or_else(|| instead_of_mode(first));
    }
    let of_letter =
        |letter: String| instead_of(&letter).map(|instead| redirect(first, instead)).or_else(|| why_not(&letter));
    let of_letters = || letters(first).find_map(of_letter);
    instead_of_mode(first).or_else(|| instead_of_mode(completed(first)?)).or_else(of_letters)
}

/// `-D` and `-s` of `-Ds`: modes, which are capitals, first.
fn letters(word: &str) -> impl Iterator<Item = String> {
    let letters = word.strip_prefix('-').filter(|letters| letters.chars().all(|letter| letter.is_ascii_alphabetic()));
    let (modes, others): (Vec<char>, Vec<char>) =
        letters.unwrap_or_default().chars().partition(|letter| letter.is_ascii_uppercase());
    modes.into_iter().chain(others).map(|letter| format!("-{letter}"))
}

/// The operations on an array among these words, or the mode.
fn operations(words: &[&str]) -> Option<String> {
    let mut named = words.iter().filter(|word| word.starts_with('-')).filter_map(|word| {
        let word = word.split_once('=').map_or(*word, |(option, _)| option);
        let here = BEHIND_A_DEVICE.iter().find(|(words, _)| words.contains(&word)).map(|(_, instead)| *instead);
        // All arrays: what is asked of them is another word.
        let instead = here.or_else(|| instead_of(word)).filter(|instead| *instead != "list")?;
        Some((word, instead))
    });
    let is_operation = |instead: &str| OPERATIONS.iter().any(|verb| instead.starts_with(verb));
    let Some((option, first)) = named.next() else {
        let whole = words.iter().find_map(|word| completed(word).filter(|whole| whole != word));
        return whole.and_then(instead_of_mode);
    };
    let mut steps = vec![first];
    if is_operation(first) {
        for (_, step) in named.filter(|(_, step)| is_operation(step)) {
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    Some(redirect(option, &steps.join(", then uraid ")))
}

/// The answer to a line that begins with a device, a file or a member, and names no operation that uraid has.
pub(super) fn instead_of_device(words: &[&str]) -> Option<String> {
    let first = *words.first()?;
    let number = first.strip_prefix("md").unwrap_or_default();
    let is_kernels = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    let own = first.to_owned();
    let exists = || asking::ask(first, Some(LOOK_TIME_MAX), move || member_name::exists(&own)).unwrap_or(false);
    if first.starts_with('-') || !(is_kernels || first.contains('/') || exists()) {
        return None;
    }
    let missing = words[1..].iter().filter(|word| word.starts_with('-')).find_map(|word| why_not(word));
    missing.or_else(|| {
        let verbs = "`uraid detail ARRAY` shows an array, `uraid serve MEMBER...` starts one";
        Some(format!("{first}: is where the verb is expected: {verbs}"))
    })
}
