//! What became of a device that was taken in.
//! Owns: the words for it, for people and for udev. Not here: what is done (the parent).
//! Spec: mdadm(8) on --export; systemd.unit(5) on names of units.

use uraid_format::uuid;

/// MD_STARTED.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Started {
    /// Members are missing.
    No,
    /// It ran before.
    Already,
    /// Now.
    Yes,
    /// Members are missing without which it could be started.
    Unsafe,
    /// All are there, and somebody else starts it.
    Nothing,
}

impl Started {
    fn word(self) -> &'static str {
        match self {
            Started::No => "no",
            Started::Already => "already",
            Started::Yes => "yes",
            Started::Unsafe => "unsafe",
            Started::Nothing => "nothing",
        }
    }
}

/// The array of the device, and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) uuid: [u8; 16],
    pub(super) is_foreign: bool,
    pub(super) started: Started,
}

impl Outcome {
    /// For udev.
    pub(super) fn exported(&self) -> String {
        let foreign = if self.is_foreign { "yes" } else { "no" };
        let (name, started) = (&self.name, self.started.word());
        let mut text = format!("MD_DEVICE={name}\nMD_DEVNAME={name}\nMD_FOREIGN={foreign}\nMD_STARTED={started}\n");
        text.push_str(&format!("URAID_ARRAY={}\n", uuid::text(&self.uuid)));
        if let Some(service) = self.service() {
            text.push_str(&format!("URAID_SERVICE={service}\n"));
        }
        text
    }

    /// The unit that is to be started: none before the array could be, nor when it runs, nor where the name does not fit
    /// into a unit's as it is.
    fn service(&self) -> Option<String> {
        let is_due = match self.started {
            Started::Unsafe | Started::Nothing => true,
            Started::No | Started::Already | Started::Yes => false,
        };
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        (is_due && self.name.chars().all(fits)).then(|| format!("uraid@{}.service", self.name))
    }

    /// For people.
    pub(super) fn said(&self, device: &str, there: usize, slots: u32) -> String {
        let name = &self.name;
        match self.started {
            Started::No => {
                format!("{device}: taken in for {name}, which has {there} of {slots} members and is not started")
            }
            Started::Unsafe => format!(
                "{device}: taken in for {name}, which has {there} of {slots} members and could be started without the \
                 others: --run, --run-after"
            ),
            Started::Nothing => format!("{device}: taken in for {name}, which has all of its members"),
            Started::Yes => format!("{device}: taken in for {name}, which is started"),
            Started::Already => format!("{device}: {name} runs, and has it"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_named_when_it_has_something_to_start() {
        let outcome =
            |name: &str, started| Outcome { name: name.to_owned(), uuid: [0x11; 16], is_foreign: false, started };
        let text = outcome("home", Started::Unsafe).exported();
        let expected = "MD_DEVICE=home\nMD_DEVNAME=home\nMD_FOREIGN=no\nMD_STARTED=unsafe\n\
                        URAID_ARRAY=11111111:11111111:11111111:11111111\nURAID_SERVICE=uraid@home.service\n";
        assert_eq!(text, expected);
        assert!(outcome("home", Started::Nothing).service().is_some());
        for started in [Started::No, Started::Already, Started::Yes] {
            assert_eq!(outcome("home", started).service(), None);
        }
        assert_eq!(outcome("my home", Started::Unsafe).service(), None);
    }
}
