//! Lines whose verb is uraid's and whose other words come in another order than it takes them: `bitmap internal home`,
//! `speed home 5M`.
//! Owns: the answer to those that clap could only call wrong. Not here: verbs that take members, whose words a running
//! array tells apart (`running::words`); lines of mdadm (`mdadm`, `device_first`).
//! Invariant: no line that is right is answered.

use uraid_block::sizes::parse_size_or_zero;

/// Where a bitmap is, or that there is none.
const PLACES: [&str; 2] = ["internal", "none"];

/// Options of `stop` that name no array.
const STOPS: [&str; 2] = ["--all", "--force"];

/// What to type instead of these words, the program's name left out.
pub(super) fn instead_of_order(words: &[&str]) -> Option<String> {
    match words {
        ["bitmap", place, array, rest @ ..] if is_place(place) && !is_place(array) && is_name(array) => {
            let line = ["bitmap", array, place].into_iter().chain(rest.iter().copied()).collect::<Vec<&str>>();
            Some(format!("{place}: the array comes first: `uraid {}`", line.join(" ")))
        }
        ["speed", array, speed] if is_name(array) && is_speed(speed) => Some(speed_line(array, speed)),
        ["speed", speed, array] if is_name(array) && is_speed(speed) => Some(speed_line(array, speed)),
        ["stop", options @ ..] if options.contains(&"--all") && options.iter().all(|word| STOPS.contains(word)) => {
            let text = "--all: it stops the arrays of one process, so name one of them: `uraid stop --all ARRAY`";
            Some(format!("{text}; all arrays that run are stopped by `uraid stop --scan`"))
        }
        _ => None,
    }
}

fn speed_line(array: &str, speed: &str) -> String {
    format!("{speed}: a speed is the value of an option: `uraid speed {array} --max {speed}`, or `--min {speed}`")
}

fn is_place(word: &str) -> bool {
    PLACES.contains(&word)
}

fn is_name(word: &str) -> bool {
    !word.starts_with('-')
}

fn is_speed(word: &str) -> bool {
    parse_size_or_zero(word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_another_order_are_answered_with_the_line_and_right_ones_are_not() {
        let of = |line: &str| instead_of_order(&line.split(' ').collect::<Vec<&str>>());
        let swapped = of("bitmap internal home --bitmap-chunk 4M").expect("another order");
        assert_eq!(swapped, "internal: the array comes first: `uraid bitmap home internal --bitmap-chunk 4M`");
        assert!(of("bitmap none home").is_some_and(|text| text.ends_with("`uraid bitmap home none`")));
        let speed = "5M: a speed is the value of an option: `uraid speed home --max 5M`, or `--min 5M`";
        assert_eq!((of("speed 5M home").as_deref(), of("speed home 5M").as_deref()), (Some(speed), Some(speed)));
        // The array has a number for a name.
        assert!(of("speed 0 5M").is_some_and(|text| text.contains("`uraid speed 0 --max 5M`")));
        for line in ["stop --all", "stop --force --all"] {
            assert!(of(line).is_some_and(|text| text.ends_with("`uraid stop --scan`")), "{line}");
        }
        for right in ["stop --all home", "stop --scan", "stop --force", "stop --all --control s"] {
            assert_eq!(of(right), None, "{right}");
        }
        for right in
            ["bitmap home internal", "bitmap internal none", "bitmap --control s none", "speed home", "speed 5M"]
        {
            assert_eq!(of(right), None, "{right}");
        }
        for right in ["speed home --max 5M", "speed --max 5M home", "bitmap none --control s", "fail 5M home"] {
            assert_eq!(of(right), None, "{right}");
        }
    }
}
