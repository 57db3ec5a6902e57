//! AUTO and HOMEHOST: which arrays may be started that no ARRAY line names, and whose they are.
//! Owns: their words. Not here: the POLICY lines' `auto=` (`policy`), what follows (`standing`).

use crate::array::metadata_matches;
use crate::complaint::Problem;

/// The AUTO line: the first rule that fits an array decides; if none does, it may be started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Auto {
    rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Rule {
    /// Arrays with this metadata may be started, or may not.
    Metadata(String, bool),
    /// Arrays of this host may be started.
    Homehost,
    /// All arrays may be started, or none may.
    All(bool),
}

impl Auto {
    pub(crate) fn of(words: &[String], tell: &mut dyn FnMut(Problem)) -> Auto {
        let mut rules = Vec::new();
        for word in words {
            let lower = word.to_ascii_lowercase();
            let allows = lower.starts_with('+');
            match (lower.as_str(), lower.strip_prefix(['+', '-'])) {
                ("homehost", _) | (_, Some("homehost")) if lower != "-homehost" => rules.push(Rule::Homehost),
                ("all", _) => rules.push(Rule::All(true)),
                (_, Some("all")) => rules.push(Rule::All(allows)),
                (_, Some(name)) if !name.is_empty() => rules.push(Rule::Metadata(name.to_owned(), allows)),
                _ => tell(Problem::Word { keyword: "AUTO", word: word.clone() }),
            }
        }
        Auto { rules }
    }

    /// The same rules behind those of another, which are asked first.
    pub(crate) fn behind(mut self, mut first: Auto) -> Auto {
        first.rules.append(&mut self.rules);
        first
    }

    /// Whether an array with this metadata may be started that no ARRAY line names. `is_local`: it is of this host.
    pub fn allows(&self, metadata: &str, is_local: bool) -> bool {
        let decided = self.rules.iter().find_map(|rule| match rule {
            Rule::Metadata(name, allows) => metadata_matches(name, metadata).then_some(*allows),
            Rule::Homehost => is_local.then_some(true),
            Rule::All(allows) => Some(*allows),
        });
        decided.unwrap_or(true)
    }
}

/// HOMEHOST.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Homehost {
    /// Whose name arrays of this system have in front of theirs.
    pub name: HomehostName,
    /// `<ignore>`: arrays of other hosts get no suffix behind their names.
    pub is_ignored: bool,
}

/// A host's name, or where it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum HomehostName {
    /// `<system>`: the name of this system.
    #[default]
    System,
    /// `<none>`: no array is of this host.
    None,
    /// This one.
    Name(String),
}

impl Homehost {
    pub(crate) fn of(words: &[String], tell: &mut dyn FnMut(Problem)) -> Homehost {
        let mut homehost = Homehost::default();
        let mut is_named = false;
        for word in words {
            let name = match word.to_ascii_lowercase().as_str() {
                "<ignore>" => {
                    homehost.is_ignored = true;
                    continue;
                }
                "<system>" => HomehostName::System,
                "<none>" => HomehostName::None,
                _ if word.contains([':', '/']) || word.chars().any(char::is_control) || is_named => {
                    tell(Problem::Word { keyword: "HOMEHOST", word: word.clone() });
                    continue;
                }
                _ => HomehostName::Name(word.clone()),
            };
            (homehost.name, is_named) = (name, true);
        }
        homehost
    }

    /// Whether an array with this set name is of this host, `system` being its name. One without a host is.
    pub fn is_local(&self, set_name: &str, system: &str) -> bool {
        let Some((host, _)) = set_name.split_once(':') else { return true };
        if host.is_empty() || host == "any" {
            return true;
        }
        match &self.name {
            HomehostName::System => host == system,
            HomehostName::None => false,
            HomehostName::Name(name) => host == name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(line: &str) -> Auto {
        let mut told = Vec::new();
        let auto = Auto::of(&crate::words(line), &mut |problem| told.push(problem));
        assert_eq!(told, []);
        auto
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        for (line, metadata, is_local, allows) in [
            ("", "1.2", false, true),
            ("+1.x -all", "1.2", false, true),
            ("+1.x -all", "0.90", true, false),
            ("-0.90", "1.0", false, true),
            ("-0.90", "0.90", false, false),
            ("homehost -all", "1.2", true, true),
            ("homehost -all", "1.2", false, false),
            ("+homehost -ALL", "1.2", true, true),
            ("all", "1.2", false, true),
            ("-1.2 +1.x", "1.2", false, false),
            ("+ddf +imsm -all", "1.2", true, false),
        ] {
            assert_eq!(auto(line).allows(metadata, is_local), allows, "{line} {metadata} {is_local}");
        }
        assert!(!auto("+1.x").behind(auto("-all")).allows("1.2", true));
    }

    #[test]
    fn words_without_a_sign_are_told() {
        for word in ["1.2", "+", "-homehost", "yes"] {
            let mut told = Vec::new();
            Auto::of(&[word.to_owned()], &mut |problem| told.push(problem));
            let is_told = matches!(told[..], [Problem::Word { keyword: "AUTO", .. }]);
            // mdadm takes any word behind a sign for a kind of metadata.
            assert_eq!(is_told, word != "-homehost", "{word}");
        }
    }

    #[test]
    fn arrays_are_of_this_host_by_their_name() {
        let homehost = |line: &str| Homehost::of(&crate::words(line), &mut |_| ());
        for (line, set_name, is_local) in [
            ("", "here:a", true),
            ("", "there:a", false),
            ("", "a", true),
            ("", "any:a", true),
            ("<system>", "here:a", true),
            ("<none>", "here:a", false),
            ("there", "there:a", true),
            ("there", "here:a", false),
            ("<ignore> there", "there:a", true),
        ] {
            assert_eq!(homehost(line).is_local(set_name, "here"), is_local, "{line} {set_name}");
        }
        assert!(homehost("<ignore>").is_ignored && !homehost("x").is_ignored);
    }
}
