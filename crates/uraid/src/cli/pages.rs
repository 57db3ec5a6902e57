//! `uraid write-pages FOLDER`: man pages and completions, made from the definition of the command line.
//! Owns: how a verb becomes a page, which shells have completions. Not here: the texts (the rooms of the verbs), where a
//! package has the files (`cargo xtask dist`).
//! Invariant: every verb has a page, and what is in it is what `--help` says. Spec: man-pages(7), groff_man(7).

use clap::{Arg, Command};
use clap_complete::Shell;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

/// A page has these parts besides those of its verb.
pub(super) struct Whole<'a> {
    /// The line with the version, as `0.1.0 (03fb0548 2026-11-27)`.
    pub(super) version: &'a str,
    /// Sections of the page of the program: heading, text.
    pub(super) topics: &'a [(&'static str, String)],
}

/// Writes `uraid.1`, `uraid-VERB.1` for each verb, and a file for each shell into the folder.
pub(super) fn write(line: &mut Command, whole: &Whole<'_>, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    line.build();
    fs::write(folder.join("uraid.1"), page_of_program(line, whole))?;
    for verb in verbs(line) {
        let name = format!("uraid-{}", verb.get_name());
        fs::write(folder.join(format!("{name}.1")), page_of_verb(verb, &name, whole))?;
    }
    for (shell, name) in [(Shell::Bash, "uraid.bash"), (Shell::Zsh, "_uraid"), (Shell::Fish, "uraid.fish")] {
        let mut bytes = Vec::new();
        clap_complete::generate(shell, line, "uraid", &mut bytes);
        fs::write(folder.join(name), bytes)?;
    }
    Ok(())
}

fn verbs(line: &Command) -> impl Iterator<Item = &Command> {
    line.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn page_of_program(line: &Command, whole: &Whole<'_>) -> String {
    let mut page = head("uraid", whole.version);
    section(&mut page, "NAME", &format!("uraid \\- {}\n", escaped(&about(line))));
    section(&mut page, "SYNOPSIS", ".B uraid\n.I VERB\n\\&...\n");
    let mut commands = String::new();
    for verb in verbs(line) {
        write!(commands, ".TP\n.BR uraid\\-{} (1)\n", escaped(verb.get_name())).expect("a string takes all");
        commands.push_str(&filled(&about(verb)));
    }
    section(&mut page, "VERBS", &commands);
    for (heading, text) in whole.topics {
        section(&mut page, heading, &paragraphs(text));
    }
    let others: Vec<String> = verbs(line).map(|verb| format!(".BR uraid\\-{} (1)", escaped(verb.get_name()))).collect();
    section(&mut page, "SEE ALSO", &format!("{},\n.BR mdadm (8),\n.BR mdadm.conf (5)\n", others.join(",\n")));
    page
}

fn page_of_verb(verb: &Command, name: &str, whole: &Whole<'_>) -> String {
    let mut page = head(name, whole.version);
    section(&mut page, "NAME", &format!("{} \\- {}\n", escaped(name), escaped(&about(verb))));
    let usage = verb.clone().render_usage().to_string();
    let usage: Vec<&str> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
    section(&mut page, "SYNOPSIS", &preformatted(&usage.join("\n")));
    let long = verb.get_long_about().map_or_else(|| about(verb), ToString::to_string);
    section(&mut page, "DESCRIPTION", &paragraphs(&long));
    let (places, options): (Vec<&Arg>, Vec<&Arg>) =
        verb.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| arg.is_positional());
    for (heading, list) in [("ARGUMENTS", places), ("OPTIONS", options)] {
        if !list.is_empty() {
            section(&mut page, heading, &list.iter().map(|arg| entry(arg)).collect::<String>());
        }
    }
    let after = verb.get_after_long_help().map_or_else(String::new, ToString::to_string);
    for (heading, text) in headed(&after).into_iter().filter(|(heading, _)| heading != "SEE ALSO") {
        section(&mut page, &heading, &preformatted(&text));
    }
    section(&mut page, "SEE ALSO", ".BR uraid (1)\n");
    page
}

fn head(name: &str, version: &str) -> String {
    let (number, rest) = version.split_once(' ').unwrap_or((version, ""));
    let date = rest.trim_end_matches(')').rsplit(' ').next().unwrap_or_default();
    format!(".TH {} 1 \"{}\" \"uraid {}\"\n", escaped(&name.to_uppercase()), escaped(date), escaped(number))
}

fn section(page: &mut String, heading: &str, text: &str) {
    write!(page, ".SH \"{}\"\n{text}", escaped(heading)).expect("a string takes all");
}

fn about(command: &Command) -> String {
    command.get_about().map_or_else(String::new, ToString::to_string)
}

/// An option or argument, and what it means.
fn entry(arg: &Arg) -> String {
    let values: Vec<String> = match arg.get_value_names() {
        Some(names) if arg.is_positional() || arg.get_action().takes_values() => {
            names.iter().map(|name| format!("\\fI{}\\fR", escaped(&name.replace("> <", " ")))).collect()
        }
        Some(_) | None => Vec::new(),
    };
    let short = arg.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let long = arg.get_long().map(|long| format!("\\fB\\-\\-{}\\fR", escaped(long)));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let mut text = format!(".TP\n{}\n", [names.join(", "), values.join(" ")].join(" ").trim());
    let help = arg.get_long_help().or_else(|| arg.get_help()).map_or_else(String::new, ToString::to_string);
    text.push_str(&filled(&help));
    let choices: Vec<_> = arg.get_possible_values().into_iter().filter(|choice| !choice.is_hide_set()).collect();
    if arg.get_action().takes_values() && !choices.is_empty() {
        text.push_str(".RS\n");
        for choice in choices {
            let help = choice.get_help().map_or_else(String::new, ToString::to_string);
            write!(text, ".IP \\fB{}\\fR\n{}", escaped(choice.get_name()), filled(&help)).expect("a string takes all");
        }
        text.push_str(".RE\n");
    }
    let defaults: Vec<_> = arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
    if arg.get_action().takes_values() && !defaults.is_empty() {
        writeln!(text, ".br\nDefault: {}", escaped(&defaults.join(" "))).expect("a string takes all");
    }
    text
}

/// The parts of a text that begin with a heading in capital letters.
fn headed(text: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let is_heading = line.starts_with(|c: char| c.is_ascii_uppercase()) && !line.contains(char::is_lowercase);
        match parts.last_mut() {
            _ if is_heading => parts.push((line.to_owned(), String::new())),
            Some((_, part)) => part.extend([line, "\n"]),
            // What stands before the first heading belongs to the description; no verb has it.
            None => {}
        }
    }
    parts
}

/// Prose: blank lines part paragraphs; lines that are indented stay as they are.
fn paragraphs(text: &str) -> String {
    let mut out = String::new();
    for block in text.split("\n\n") {
        out.push_str(".PP\n");
        let is_set = block.lines().any(|line| line.starts_with(' '));
        out.push_str(&if is_set { preformatted(block) } else { filled(block) });
    }
    out
}

fn filled(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", protected(line))).collect()
}

fn preformatted(text: &str) -> String {
    let lines: String = text.trim_end().lines().map(|line| format!("{}\n", protected(line))).collect();
    format!(".nf\n{lines}.fi\n")
}

/// A line that roff takes as text, whatever it begins with.
fn protected(line: &str) -> String {
    let line = escaped(line);
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_text() {
        assert_eq!(filled(".nf is no request\na-b\\c"), "\\&.nf is no request\na\\-b\\ec\n");
        assert_eq!(paragraphs("one\ntwo\n\n  a  b"), ".PP\none\ntwo\n.PP\n.nf\n  a  b\n.fi\n");
    }

    #[test]
    fn headings_part_what_follows_the_options() {
        let parts = headed("EXAMPLES\n  uraid list\n\nFIGURES OF LOAD\n  Text.");
        let expected = [("EXAMPLES", "  uraid list\n\n"), ("FIGURES OF LOAD", "  Text.\n")];
        assert_eq!(parts, expected.map(|(heading, text)| (heading.to_owned(), text.to_owned())));
    }

    #[test]
    fn an_option_has_its_names_its_value_and_its_choices() {
        let arg = Arg::new("ring").short('r').long("ring-way").value_name("WAY").help("How").default_value("auto");
        let text = entry(&arg.value_parser(["auto", "threads"]));
        assert!(text.starts_with(".TP\n\\fB\\-r\\fR, \\fB\\-\\-ring\\-way\\fR \\fIWAY\\fR\nHow\n.RS\n"), "{text}");
        assert!(text.contains(".IP \\fBthreads\\fR\n") && text.ends_with("Default: auto\n"), "{text}");
    }
}
