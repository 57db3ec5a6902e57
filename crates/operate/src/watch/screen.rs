//! The terminal: keys in, pictures out.
//! Owns: the loop, the state of the terminal. Not here: what is drawn (`draw`), what keys mean (`keys`).
//! Invariant: the terminal is as it was when this returns, panics, or a signal asks the process to end.

use super::collect::{self, News};
use super::draw;
use super::keys::{Command, Key};
use super::model::View;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

/// How often news and signals are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Puts the terminal back.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the screen until a key or a signal ends it. Returns whether a key did.
pub(super) fn run(interval: Duration) -> io::Result<bool> {
    uraid_host::note_interruptions();
    let (sender, news) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let own = sender.clone();
    thread::Builder::new().name("uraid-watch".to_owned()).spawn(move || collect::collect(interval, &woken, &own))?;
    // A panic restores it, too.
    let mut terminal = ratatui::try_init()?;
    let _restore = Restore;
    let mut view = View::default();
    loop {
        terminal.draw(|frame| draw::draw(&view, frame))?;
        if event::poll(LOOK_EVERY)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match pressed(&mut view, key) {
                    Some(Command::Quit) => return Ok(true),
                    Some(Command::Do(action)) => {
                        view.message = format!("{} ...", action.words);
                        perform(*action, &sender);
                    }
                    None => {}
                },
                Event::Resize(..) => terminal.clear()?,
                Event::Key(_) | Event::Mouse(_) | Event::Paste(_) | Event::FocusGained | Event::FocusLost => {}
            }
        }
        for told in news.try_iter() {
            match told {
                News::Sample(sample) => view.update(sample),
                News::Failed(why) => view.message = why,
                News::Ended(what) => {
                    view.message = what;
                    // It shows at once what the command did; the thread has gone only if this one has.
                    let _ = wake.send(());
                }
            }
        }
        if uraid_host::interruption().is_some() {
            return Ok(false);
        }
    }
}

fn perform(action: super::mode::Action, sender: &Sender<News>) {
    let news = sender.clone();
    let body = move || drop(news.send(News::Ended(collect::perform(&action))));
    if thread::Builder::new().name("uraid-command".to_owned()).spawn(body).is_err() {
        let _ = sender.send(News::Ended("no thread could be started for the command".to_owned()));
    }
}

fn pressed(view: &mut View, key: KeyEvent) -> Option<Command> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let key = if key.code == KeyCode::Up {
        Key::Up
    } else if key.code == KeyCode::Down {
        Key::Down
    } else if key.code == KeyCode::Tab || key.code == KeyCode::Right {
        Key::Next
    } else if key.code == KeyCode::Backspace {
        Key::Back
    } else if key.code == KeyCode::Enter {
        Key::Enter
    } else if key.code == KeyCode::Esc {
        Key::Escape
    } else if let KeyCode::Char(letter) = key.code {
        if is_control {
            return (letter == 'c').then_some(Command::Quit);
        }
        Key::Letter(letter)
    } else {
        return None;
    };
    view.key(key)
}
