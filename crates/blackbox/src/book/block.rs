//! The blocks of a page.
//! Owns: finding them, and the markers before them. Not here: running them (`shell`).
//! Invariant: a fence without a kind, and a marker outside of the closed lists, is an error with its line.

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Lines to paste.
    Sh,
    /// Lines to type, each with its output.
    Console,
    /// Lines that are run and not shown: what the page takes for granted.
    Given,
    /// No commands.
    Text(Shown),
}

/// What a block of `text` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Contents of a file.
    File,
    /// Lines of a log.
    Log,
    /// A screen.
    Screen,
    /// A drawing, or a form.
    Drawing,
}

/// What no test of this crate has. Each is tried by another one, or by hand: the page says what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// A running systemd, with the units of the package.
    Systemd,
    /// The kernel's md driver.
    KernelMd,
    /// The Debian package, installed.
    Package,
    /// An engine for containers.
    ContainerEngine,
    /// A virtual machine with a system in it.
    VirtualMachine,
    /// A second machine.
    AnotherHost,
    /// A disk with sectors that cannot be read, or an array that a reshape left half-way.
    BrokenDisk,
}

const SHOWN: [(&str, Shown); 4] =
    [("a file", Shown::File), ("a log", Shown::Log), ("a screen", Shown::Screen), ("a drawing", Shown::Drawing)];

const ABSENT: [(&str, Absent); 7] = [
    ("systemd", Absent::Systemd),
    ("the kernel's md", Absent::KernelMd),
    ("the package", Absent::Package),
    ("a container engine", Absent::ContainerEngine),
    ("a virtual machine", Absent::VirtualMachine),
    ("another host", Absent::AnotherHost),
    ("a broken disk", Absent::BrokenDisk),
];

/// One block.
#[derive(Clone, Debug)]
pub struct Block {
    /// What it is.
    pub kind: Kind,
    /// Programs, `mounts`, `fuse`.
    pub needs: Vec<String>,
    /// Why it is not run.
    pub absent: Option<Absent>,
    /// The exit code, if not 0.
    pub exit: Option<i32>,
    /// Of its fence or comment, from 1; for messages.
    pub line: usize,
    /// What is in it.
    pub lines: Vec<String>,
}

impl Block {
    /// Whether a test runs it.
    pub fn is_run(&self) -> bool {
        match self.kind {
            Kind::Sh | Kind::Console | Kind::Given => self.absent.is_none(),
            Kind::Text(_) => false,
        }
    }

    /// The commands of a block of `console`, each with the lines that it prints.
    pub fn commands(&self) -> Vec<(&str, Vec<&str>)> {
        let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
        for line in &self.lines {
            match line.strip_prefix("$ ") {
                Some(command) => found.push((command, Vec::new())),
                None => found.last_mut().expect("a block of console begins with a command").1.push(line),
            }
        }
        found
    }

    /// What a reader types: the lines of `sh`, the commands of `console`.
    pub fn typed(&self) -> Vec<&str> {
        match self.kind {
            Kind::Sh => self.lines.iter().map(String::as_str).collect(),
            Kind::Console => self.commands().into_iter().map(|(command, _)| command).collect(),
            Kind::Given | Kind::Text(_) => Vec::new(),
        }
    }
}

/// The markers that stand directly before a block.
#[derive(Default)]
struct Markers {
    needs: Vec<String>,
    absent: Option<Absent>,
    exit: Option<i32>,
    shown: Option<Shown>,
    is_any: bool,
}

impl Markers {
    /// Takes a line if it is a marker.
    fn take(&mut self, line: &str) -> Result<bool, String> {
        let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) else {
            return Ok(false);
        };
        let (name, value) = comment.split_once(": ").ok_or_else(|| format!("`{comment}`: found no `NAME: VALUE`"))?;
        let unknown = || format!("`{comment}`: found an unknown value");
        match name {
            "needs" => self.needs.extend(value.split_whitespace().map(str::to_string)),
            "not run" => self.absent = Some(named(&ABSENT, value).ok_or_else(unknown)?),
            "shows" => self.shown = Some(named(&SHOWN, value).ok_or_else(unknown)?),
            "exit" => self.exit = Some(value.parse().map_err(|_| unknown())?),
            _ => return Err(format!("`{comment}`: found an unknown marker")),
        }
        self.is_any = true;
        Ok(true)
    }

    fn block(self, kind: Kind, line: usize, lines: Vec<String>) -> Block {
        Block { kind, needs: self.needs, absent: self.absent, exit: self.exit, line, lines }
    }
}

fn named<T: Copy>(list: &[(&str, T)], name: &str) -> Option<T> {
    list.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// The blocks of a page, in its order; or what is wrong with one, with its line.
pub fn blocks(text: &str) -> Result<Vec<Block>, String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    let mut markers = Markers::default();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let until = |end: &str| -> Result<Vec<String>, String> {
            let inside = &lines[at + 1..];
            let length = inside.iter().position(|line| *line == end).ok_or(format!("{}: it has no end", at + 1))?;
            Ok(inside[..length].iter().map(|line| line.to_string()).collect())
        };
        let kind = if line == "<!-- given:" {
            Some(Kind::Given)
        } else if let Some(word) = line.trim_start().strip_prefix("```") {
            Some(kind_of(word, &markers).map_err(|why| format!("{}: {why}", at + 1))?)
        } else {
            None
        };
        if let Some(kind) = kind {
            let inside = until(if kind == Kind::Given { "-->" } else { "```" })?;
            let next = at + inside.len() + 2;
            found.push(std::mem::take(&mut markers).block(kind, at + 1, inside));
            at = next;
            continue;
        }
        let is_marker = markers.take(line).map_err(|why| format!("{}: {why}", at + 1))?;
        if markers.is_any && !is_marker {
            return Err(format!("{}: found no block behind a marker", at + 1));
        }
        if line.starts_with("    ") && line.trim_start().starts_with("uraid ") {
            return Err(format!("{}: found an indented command; expected a block of sh or console", at + 1));
        }
        at += 1;
    }
    Ok(found)
}

/// The kind of a fence with this word.
fn kind_of(word: &str, markers: &Markers) -> Result<Kind, String> {
    match (word, markers.shown) {
        ("sh", None) => Ok(Kind::Sh),
        ("console", None) => Ok(Kind::Console),
        ("text", Some(shown)) => Ok(Kind::Text(shown)),
        ("text", None) => Err("found a block of text without a marker `shows`".to_string()),
        (word, Some(_)) => Err(format!("found a block of `{word}` behind a marker `shows`; expected text")),
        (word, None) => Err(format!("found a block of `{word}`; expected sh, console or text")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Absent, Kind, Shown, blocks};

    #[test]
    fn a_page_has_its_blocks_with_their_markers() {
        let page = "text\n\n<!-- needs: mounts mkfs.xfs -->\n<!-- exit: 1 -->\n```sh\na\nb\n```\n<!-- given:\nc\n-->\n\
                    <!-- not run: systemd -->\n```console\n$ d\ne\n```\n<!-- shows: a log -->\n```text\nf\n```\n";
        let found = blocks(page).expect("the page is right");
        assert_eq!(found.iter().map(|block| block.line).collect::<Vec<_>>(), [5, 9, 13, 18]);
        assert_eq!(found[0].needs, ["mounts", "mkfs.xfs"]);
        assert_eq!((found[0].kind, found[0].exit), (Kind::Sh, Some(1)));
        assert_eq!((found[1].kind, found[1].lines.as_slice()), (Kind::Given, ["c".to_string()].as_slice()));
        assert_eq!((found[2].absent, found[2].is_run()), (Some(Absent::Systemd), false));
        assert_eq!(found[2].commands(), [("d", vec!["e"])]);
        assert_eq!(found[3].kind, Kind::Text(Shown::Log));
    }

    #[test]
    fn what_would_be_forgotten_is_refused() {
        let wrong = [
            "```\nls\n```\n",
            "```bash\nls\n```\n",
            "```text\nls\n```\n",
            "<!-- shows: a file -->\n```sh\nls\n```\n",
            "<!-- not run: no time -->\n```sh\nls\n```\n",
            "<!-- skip: me -->\n```sh\nls\n```\n",
            "<!-- needs: x -->\n\n```sh\nls\n```\n",
            "```sh\nls\n",
            "text\n\n    uraid list\n",
        ];
        for page in wrong {
            assert!(blocks(page).is_err(), "{page}");
        }
    }
}
