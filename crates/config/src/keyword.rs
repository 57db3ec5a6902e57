//! The keywords.
//! Owns: their names, how far they may be cut. Not here: the words behind them (`reader`).

/// A keyword.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keyword {
    Device,
    Array,
    MailAddress,
    MailFrom,
    Program,
    Create,
    Homehost,
    Homecluster,
    Auto,
    Policy,
    PartPolicy,
    Sysfs,
    MonitorDelay,
    /// About the firmware's RAID, which uraid does not have.
    Firmware,
    Uraid,
}

/// In the order in which a cut word is looked up: `MAIL` is MAILADDR.
const KEYWORDS: [(&str, Keyword); 17] = [
    ("DEVICE", Keyword::Device),
    ("ARRAY", Keyword::Array),
    ("MAILADDR", Keyword::MailAddress),
    ("MAILFROM", Keyword::MailFrom),
    ("PROGRAM", Keyword::Program),
    ("CREATE", Keyword::Create),
    ("HOMEHOST", Keyword::Homehost),
    ("HOMECLUSTER", Keyword::Homecluster),
    ("AUTO", Keyword::Auto),
    ("POLICY", Keyword::Policy),
    ("PART-POLICY", Keyword::PartPolicy),
    ("SYSFS", Keyword::Sysfs),
    ("MONITORDELAY", Keyword::MonitorDelay),
    ("ENCRYPTION_NO_VERIFY", Keyword::Firmware),
    ("PROBING", Keyword::Firmware),
    ("IMSM_DISABLE_OROM", Keyword::Firmware),
    ("URAID", Keyword::Uraid),
];

/// A keyword may be cut to this many letters.
const LETTERS_MIN: usize = 3;

impl Keyword {
    /// By its name in any case, which may be cut.
    pub(crate) fn of(word: &str) -> Option<Keyword> {
        if word.len() < LETTERS_MIN {
            return None;
        }
        let begins = |name: &str| name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        KEYWORDS.iter().find(|(name, _)| begins(name)).map(|(_, keyword)| *keyword)
    }

    /// Its whole name.
    pub(crate) fn name(self) -> &'static str {
        KEYWORDS.iter().find(|(_, keyword)| *keyword == self).map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_found_in_any_case_and_cut_to_three_letters() {
        for (name, keyword) in KEYWORDS {
            assert_eq!(Keyword::of(name), Some(keyword), "{name}");
            assert_eq!(Keyword::of(&name.to_lowercase()), Some(keyword), "{name}");
            assert_eq!(Keyword::of(&format!("{name}S")), None, "{name}");
        }
        for (cut, keyword) in [
            ("DEV", Keyword::Device),
            ("arr", Keyword::Array),
            ("mail", Keyword::MailAddress),
            ("mailf", Keyword::MailFrom),
            ("PRO", Keyword::Program),
            ("prob", Keyword::Firmware),
            ("home", Keyword::Homehost),
            ("homec", Keyword::Homecluster),
            ("pol", Keyword::Policy),
            ("part", Keyword::PartPolicy),
            ("mon", Keyword::MonitorDelay),
            ("ura", Keyword::Uraid),
        ] {
            assert_eq!(Keyword::of(cut), Some(keyword), "{cut}");
        }
        for wrong in ["", "AR", "DEVIL", "ÄÖÜ", "ARÄ"] {
            assert_eq!(Keyword::of(wrong), None, "{wrong}");
        }
    }
}
