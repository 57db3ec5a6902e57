//! The output of the demo: a picture that is redrawn on a terminal, plain lines elsewhere.
//! Owns: colours, the live line, how times are written. Not here: what happens (`main`).

use crate::load::Load;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Member {
    Absent,
    Up,
    Failed,
}

/// The terminal, or whatever stdout is.
pub(crate) struct Screen {
    is_live: bool,
    folder: String,
}

/// A duration for people: `1.2 ms`, `3.4 s`.
pub(crate) fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} ms", seconds * 1e3),
    }
}

impl Screen {
    pub(crate) fn new(folder: &Path) -> Screen {
        Screen { is_live: std::io::stdout().is_terminal(), folder: format!("{}/", folder.display()) }
    }

    /// Paths without the folder that all of them are in.
    pub(crate) fn short(&self, text: &str) -> String {
        text.replace(&self.folder, "")
    }

    fn line(&self, text: &str) {
        println!("{text}");
        // Flush, because the reader of a pipe must see each line at once. A closed pipe is ignored.
        let _ = std::io::stdout().flush();
    }

    pub(crate) fn title(&self, text: &str) {
        self.line(&self.bold(text));
    }

    pub(crate) fn chapter(&self, text: &str) {
        self.line("");
        self.line(&self.bold(&format!("== {text}")));
    }

    pub(crate) fn say(&self, text: &str) {
        self.line(&format!("   {text}"));
    }

    /// A command of a system program, as it would be typed.
    pub(crate) fn plain(&self, text: &str) {
        self.line(&format!("$ {text}"));
    }

    pub(crate) fn command(&self, words: &[String]) {
        self.foreign("uraid", words);
    }

    pub(crate) fn foreign(&self, program: &str, words: &[String]) {
        let quoted = words.iter().map(|word| if word.contains('?') { format!("'{word}'") } else { word.clone() });
        self.plain(&self.short(&format!("{program} {}", quoted.collect::<Vec<_>>().join(" "))));
    }

    /// Redraws the picture; nothing where lines cannot be redrawn.
    pub(crate) fn live(&self, members: &[Member], load: &Load) {
        if self.is_live {
            print!("\r\x1b[K   {}", self.picture(members, load));
            let _ = std::io::stdout().flush();
        }
    }

    /// Leaves the picture as it is now.
    pub(crate) fn live_end(&self, members: &[Member], load: &Load) {
        if self.is_live {
            print!("\r\x1b[K");
        }
        self.say(&self.picture(members, load));
    }

    fn picture(&self, members: &[Member], load: &Load) -> String {
        let one = |(n, member): (usize, &Member)| match member {
            Member::Absent => format!("m{n} [    ]"),
            Member::Up => format!("m{n} [ UP ]"),
            Member::Failed => self.red(&format!("m{n} [ XX ]")),
        };
        let all: Vec<String> = members.iter().enumerate().map(one).collect();
        let slots: String = members.iter().map(|member| if *member == Member::Up { 'U' } else { '_' }).collect();
        format!("{}  [{slots}]  {:>6} requests, {:>5.0}/s", all.join(" "), load.answered(), load.per_second())
    }

    fn bold(&self, text: &str) -> String {
        if self.is_live { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
    }

    fn red(&self, text: &str) -> String {
        if self.is_live { format!("\x1b[31m{text}\x1b[0m") } else { text.to_string() }
    }
}
