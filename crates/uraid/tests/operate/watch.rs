//! `uraid watch`: of arrays that serve, into a pipe and on a terminal.
//! Owns: that it prints without a terminal, and leaves a terminal as it was. Not here: each picture (`uraid_operate`).

use crate::common::{MIB, Scratch, Served, wait};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::Read;
use std::process::Child;
use std::sync::{Arc, Mutex};

fn served(scratch: &Scratch) -> Served {
    let members = scratch.members("m", 3, 4 * MIB);
    scratch.create("home", "-l 5 -n 3 --assume-clean", &members);
    scratch.ready(&[], &members)
}

#[test]
fn without_a_terminal_it_prints_tables_once_and_no_code_of_a_terminal() {
    let scratch = Scratch::new();
    assert!(scratch.uraid(["watch"]).expect_done().stdout.contains("no array runs"));
    let _home = served(&scratch);
    scratch.uraid(["fail", "home", "2"]).expect_done();
    let printed = scratch.uraid(["watch"]).expect_done().stdout;
    for part in ["NAME", "home", "raid5", "UU_", "degraded", "faulty", "READ/s"] {
        assert!(printed.contains(part), "{part:?} is not in:\n{printed}");
    }
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    let wrong = scratch.uraid(["watch", "--interval", "0"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("expected seconds"), "{wrong:?}");
}

/// A terminal of 80 by 24, and what was written to it.
struct Terminal {
    controller: File,
    written: Arc<Mutex<String>>,
}

impl Terminal {
    /// With this command on it.
    fn start(scratch: &Scratch, words: &[&str]) -> (Terminal, Child) {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudoterminal");
        grantpt(&controller).and_then(|()| unlockpt(&controller)).expect("ours");
        let name = ptsname(&controller, Vec::new()).expect("it has a name").into_string().expect("ASCII");
        let side = File::options().read(true).write(true).open(name).expect("it is unlocked");
        tcsetwinsize(&side, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).expect("a terminal");
        let mut command = scratch.command(words);
        let copy = || side.try_clone().expect("a descriptor");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        let child = command.spawn().expect("the binary runs");
        let controller = File::from(controller);
        let (mut reader, written) =
            (controller.try_clone().expect("a descriptor"), Arc::new(Mutex::new(String::new())));
        let own = written.clone();
        // Ends when no process has the terminal any more.
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut part) {
                own.lock().expect("no holder panics").push_str(&String::from_utf8_lossy(&part[..count]));
            }
        });
        (Terminal { controller, written }, child)
    }

    fn text(&self) -> String {
        self.written.lock().expect("no holder panics").clone()
    }

    fn types(&mut self, keys: &str) {
        std::io::Write::write_all(&mut self.controller, keys.as_bytes()).expect("the terminal takes keys");
    }

    fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.controller).expect("a terminal").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    #[track_caller]
    fn wait_for(&self, text: &str) {
        wait(|| self.text().contains(text)).unwrap_or_else(|()| panic!("{text:?} is not in {:?}", self.text()));
    }
}

/// What leaves the alternate screen.
const LEFT: &str = "\u{1b}[?1049l";

#[test]
fn keys_ask_first_and_q_leaves_the_terminal_as_it_was() {
    let scratch = Scratch::new();
    let _home = served(&scratch);
    let (mut terminal, mut child) = Terminal::start(&scratch, &["watch"]);
    terminal.wait_for("raid5");
    assert!(!terminal.is_cooked());
    let is_paused = || scratch.uraid(["list", "--json"]).stdout.contains("\"passes_frozen\":true");
    terminal.types("pn");
    terminal.wait_for("not done");
    assert!(!is_paused());
    terminal.types("p");
    terminal.wait_for("Pause");
    terminal.types("y");
    wait(is_paused).unwrap_or_else(|()| panic!("{}", terminal.text()));
    terminal.types("q");
    assert_eq!(child.wait().expect("it is our child").code(), Some(0));
    assert!(terminal.is_cooked());
    wait(|| terminal.text().contains(LEFT)).expect("it leaves its screen");
}

#[test]
fn sigterm_leaves_the_terminal_as_it_was() {
    let scratch = Scratch::new();
    let (terminal, mut child) = Terminal::start(&scratch, &["watch"]);
    terminal.wait_for("Arrays");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM).expect("it runs");
    assert_eq!(child.wait().expect("it is our child").code(), Some(1));
    assert!(terminal.is_cooked());
    wait(|| terminal.text().contains(LEFT)).expect("it leaves its screen");
}
