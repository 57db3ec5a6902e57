//! What keys do.
//! Owns: the questions before a command, which command a key is. Not here: reading keys (`screen`), doing it (`collect`).
//! Invariant: no key alone changes an array: each command is asked about, and only `y` confirms.

use super::mode::{Action, Mode};
use super::model::View;
use uraid_control::member_name;
use uraid_control::protocol::{Method, NewDevice, NewDevices};
use uraid_control::report::Report;
use uraid_format::FlagChange;

/// A key, as far as the screen knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Key {
    Up,
    Down,
    Next,
    Back,
    Enter,
    Escape,
    Letter(char),
}

/// What the program has to do after a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Command {
    Quit,
    Do(Box<Action>),
}

impl View {
    /// Takes a key.
    pub(super) fn key(&mut self, key: Key) -> Option<Command> {
        match std::mem::take(&mut self.mode) {
            Mode::Watching => self.watching(key),
            Mode::Typing(path) => {
                self.typing(key, path);
                None
            }
            Mode::Asking(action) => match key {
                Key::Letter('y' | 'Y') => Some(Command::Do(action)),
                Key::Letter('n' | 'N' | 'q') | Key::Escape => {
                    self.message = "not done".to_owned();
                    None
                }
                // Another key was meant for something else.
                Key::Letter(_) | Key::Up | Key::Down | Key::Next | Key::Back | Key::Enter => {
                    self.mode = Mode::Asking(action);
                    None
                }
            },
        }
    }

    fn watching(&mut self, key: Key) -> Option<Command> {
        let moved = |at: usize, count: usize, by: usize| if count == 0 { 0 } else { (at + by) % count };
        let (arrays, members) = (self.arrays.len(), self.members().len());
        match key {
            Key::Letter('q') | Key::Escape => return Some(Command::Quit),
            Key::Down | Key::Letter('j') => (self.array, self.member) = (moved(self.array, arrays, 1), 0),
            Key::Up | Key::Letter('k') => {
                (self.array, self.member) = (moved(self.array, arrays, arrays.saturating_sub(1)), 0);
            }
            Key::Next => self.member = moved(self.member, members, 1),
            Key::Letter('f') => self.ask(View::fail),
            Key::Letter('a') if self.chosen().is_some() => self.mode = Mode::Typing(String::new()),
            Key::Letter('c') => self.ask(|view| view.chosen().map(|shown| check(&shown.report))),
            Key::Letter('p') => self.ask(|view| view.chosen().map(|shown| pause(&shown.report))),
            Key::Letter(_) | Key::Back | Key::Enter => {}
        }
        None
    }

    fn typing(&mut self, key: Key, mut path: String) {
        match key {
            Key::Letter(letter) => path.push(letter),
            Key::Back => drop(path.pop()),
            Key::Escape => return,
            Key::Enter if path.is_empty() => return,
            Key::Enter => return self.ask(|view| view.chosen().map(|shown| add(&shown.report, &path))),
            Key::Up | Key::Down | Key::Next => {}
        }
        self.mode = Mode::Typing(path);
    }

    fn ask(&mut self, action: impl FnOnce(&View) -> Option<Action>) {
        self.message.clear();
        match action(self) {
            Some(action) => self.mode = Mode::Asking(Box::new(action)),
            None => self.message = "there is nothing chosen that this could be done to".to_owned(),
        }
    }

    fn fail(&self) -> Option<Action> {
        let (report, member) = (&self.chosen()?.report, self.chosen_member()?);
        let path = member.path.as_ref().filter(|_| member.state != "faulty")?;
        let left = report.redundancy_left();
        let cost = match (member.state.as_str(), left) {
            ("active sync", 0) => "The array cannot serve all of its data without it!",
            ("active sync", 1) => "No other member may fail then.",
            _ => "",
        };
        let (name, number) = (&report.name, member.number.unwrap_or_default());
        Some(Action {
            array: report.own_word(),
            method: Method::Fail { members: vec![path.clone()] },
            question: format!("Fail member {number} of {name}, {path}? {cost}").trim_end().to_owned(),
            words: format!("fail {name} {path}"),
        })
    }
}

fn add(report: &Report, path: &str) -> Action {
    let device = NewDevice { path: member_name::as_written(path), flags: FlagChange::default() };
    let name = &report.name;
    Action {
        array: report.own_word(),
        question: format!("Add {} to {name}? Its bytes are overwritten.", device.path),
        words: format!("add {name} {}", device.path),
        method: Method::Add(NewDevices { members: vec![device], force: false }),
    }
}

fn check(report: &Report) -> Action {
    let (name, array) = (&report.name, report.own_word());
    if report.check.is_some() || report.repair.is_some() {
        let (question, words) = (format!("End the check or repair of {name}?"), format!("idle {name}"));
        return Action { array, method: Method::Idle {}, question, words };
    }
    let question = format!("Check all of {name}? Clients go first: it takes 15 % of the members beside them.");
    Action { array, method: Method::Check { resume: false }, question, words: format!("check {name}") }
}

fn pause(report: &Report) -> Action {
    let (name, array) = (&report.name, report.own_word());
    if report.passes_frozen {
        let (question, words) = (format!("Continue the passes of {name}?"), format!("unfreeze {name}"));
        return Action { array, method: Method::Unfreeze {}, question, words };
    }
    let question = format!("Pause resync, recovery, check and repair of {name}? A lost member stays unreplaced.");
    Action { array, method: Method::Freeze {}, question, words: format!("freeze {name}") }
}

#[cfg(test)]
mod tests {
    use super::super::model::Sample;
    use super::*;
    use crate::sample_reports;

    fn view(state: &str) -> View {
        let (_, report) = sample_reports::reports().into_iter().find(|(name, _)| *name == state).expect("a state");
        let mut view = View::default();
        view.update(Sample { reports: vec![report], ..Sample::default() });
        view
    }

    fn typed(view: &mut View, keys: &str) -> Option<Command> {
        keys.chars().map(Key::Letter).fold(None, |_, key| view.key(key))
    }

    #[test]
    fn only_y_confirms_and_what_it_does_is_what_was_asked() {
        for (state, keys, method) in [
            ("healthy", "f", Method::Fail { members: vec!["/dev/sdb".to_owned()] }),
            ("healthy", "c", Method::Check { resume: false }),
            ("checking", "c", Method::Idle {}),
            ("recovering", "p", Method::Freeze {}),
            ("resync pending", "p", Method::Unfreeze {}),
        ] {
            for no in [Key::Letter('n'), Key::Escape] {
                let mut view = view(state);
                assert_eq!(typed(&mut view, keys), None, "{keys}");
                let Mode::Asking(action) = view.mode.clone() else { panic!("{keys}: nothing is asked") };
                assert_eq!(action.method, method, "{keys}");
                assert!(action.question.contains("home"), "{action:?}");
                // A key that is meant for something else leaves the question.
                assert_eq!((view.key(Key::Down), view.key(Key::Enter)), (None, None));
                assert_eq!(view.mode, Mode::Asking(action.clone()));
                assert_eq!(view.clone_key('y'), Some(Command::Do(action)));
                assert_eq!(view.key(no), None);
                assert_eq!((&view.mode, view.message.as_str()), (&Mode::Watching, "not done"));
            }
        }
    }

    impl View {
        /// What a key would do, without what it changes.
        fn clone_key(&mut self, letter: char) -> Option<Command> {
            let before = self.mode.clone();
            let command = self.key(Key::Letter(letter));
            self.mode = before;
            command
        }
    }

    #[test]
    fn a_device_is_typed_and_then_asked_about() {
        let mut view = view("degraded");
        typed(&mut view, "a/dev/sdqx");
        view.key(Key::Back);
        assert_eq!(view.mode, Mode::Typing("/dev/sdq".to_owned()), "q is a letter here");
        view.key(Key::Enter);
        let Mode::Asking(action) = view.mode.clone() else { panic!("nothing is asked") };
        assert!(matches!(&action.method, Method::Add(devices) if devices.members[0].path == "/dev/sdq"), "{action:?}");
        assert_eq!(typed(&mut view, "y"), Some(Command::Do(action)));
        typed(&mut view, "ax");
        assert_eq!((view.key(Key::Escape), &view.mode), (None, &Mode::Watching));
    }

    #[test]
    fn an_empty_slot_cannot_be_failed_and_the_last_redundancy_is_named() {
        let mut view = view("degraded");
        view.member = 3;
        typed(&mut view, "f");
        assert!(view.mode == Mode::Watching && view.message.contains("nothing"), "{}", view.message);
        view.member = 0;
        typed(&mut view, "f");
        assert!(
            matches!(&view.mode, Mode::Asking(action) if action.question.ends_with("No other member may fail then."))
        );
        let mut nothing = View::default();
        assert_eq!(typed(&mut nothing, "fcpa"), None);
        assert_eq!((nothing.key(Key::Down), nothing.key(Key::Next)), (None, None));
        assert_eq!(nothing.key(Key::Letter('q')), Some(Command::Quit));
    }
}
