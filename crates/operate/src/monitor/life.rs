//! The monitor's life: looks, events, and telling them.
//! Owns: [`Life`], when it looks, what is saved before what. Not here: which events arise (`changes`), how each is told
//! (`channel`).
//! Invariant: no event leaves before the state file has it, with the record of the history that it came from: what a crash
//! interrupts is either told anew from the history, or waits in the file.

mod look;

use super::channel::{Channel, Filter, Job, NotTold, Told};
use super::event::{Event, News};
use super::keep::{Keep, State};
use super::outbox::Patience;
use super::settings::Settings;
use super::wake::{self, Of};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};
use uraid_control::log::warn;
use uraid_control::report::Report;
use uraid_control::{dates, runtime};

/// How often the process looks whether it was told to end.
const SIGNALS_EVERY: Duration = Duration::from_millis(250);
/// Changes wake at most so often.
const LOOKS_APART: Duration = Duration::from_millis(200);
/// How soon what is not certain is looked at again.
const DOUBT_AFTER: Duration = Duration::from_secs(1);
/// How long a monitor that is told to end waits for what is on its way.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// What the main thread hears.
enum Message {
    /// Something has changed: it is worth a look.
    Changed,
    /// A channel is through with an event.
    Told {
        /// Which channel.
        line: usize,
        /// The event.
        id: String,
        /// How it went.
        outcome: Result<Told, NotTold>,
    },
}

/// One channel, whose thread tells one event at a time.
struct Line {
    name: &'static str,
    filter: Filter,
    jobs: Sender<Job>,
    patience: Patience,
}

/// A monitor that watches.
pub(crate) struct Life {
    settings: Settings,
    keep: Keep,
    state: State,
    lines: Vec<Line>,
    sender: Sender<Message>,
    heard: Receiver<Message>,
    /// What the arrays answered last.
    reports: Vec<Report>,
    /// What was said of arrays that could not be asked.
    said: String,
    /// Moves of spares that have failed.
    refused: BTreeMap<String, Instant>,
    has_looked: bool,
    /// No array that is watched could lose anything.
    has_no_redundancy: bool,
}

impl Life {
    /// Starts the channels.
    pub(crate) fn new(mut settings: Settings, keep: Keep, mut state: State) -> Life {
        let (sender, heard) = mpsc::channel();
        let channels = std::mem::take(&mut settings.channels);
        let lines: Vec<Line> =
            channels.into_iter().enumerate().map(|(nth, channel)| begin_line(nth, channel, sender.clone())).collect();
        state.outbox.keep_only(&lines.iter().map(|line| line.name).collect::<Vec<_>>());
        Life {
            settings,
            keep,
            state,
            lines,
            sender,
            heard,
            reports: Vec::new(),
            said: String::new(),
            refused: BTreeMap::new(),
            has_looked: false,
            has_no_redundancy: false,
        }
    }

    /// Watches until a signal, or until all is told where one look is all.
    pub(crate) fn run(&mut self) -> Result<(), Box<dyn Error>> {
        uraid_host::note_interruptions();
        self.wake_on_changes();
        let mut due = Instant::now();
        while uraid_host::interruption().is_none() {
            if Instant::now() >= due {
                self.look()?;
                due = Instant::now()
                    + if self.has_doubts() || self.has_silent_members() { DOUBT_AFTER } else { self.settings.delay };
            }
            self.deliver();
            if self.is_over() {
                break;
            }
            let last_look = due;
            let wait = self.wait(due);
            match self.heard.recv_timeout(wait) {
                Ok(message) => due = self.hear(message).map_or(last_look, |soon| soon.min(due)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        self.end();
        Ok(())
    }

    /// How long there is nothing to do but to listen.
    fn wait(&self, due: Instant) -> Duration {
        let tries = self.lines.iter().filter(|line| !line.patience.is_busy && self.state.outbox.waits(line.name));
        let next = tries.filter_map(|line| line.patience.not_before()).min().map_or(due, |next| next.min(due));
        next.saturating_duration_since(Instant::now()).min(SIGNALS_EVERY)
    }

    fn wake_on_changes(&self) {
        if self.settings.is_oneshot {
            return;
        }
        let sender = self.sender.clone();
        let folders = runtime::looked_through().unwrap_or_default();
        let history: PathBuf = self.keep.folder().to_owned();
        let names = folders.iter().map(|folder| (folder.as_path(), Of::Names));
        let all: Vec<_> = names.chain([(history.as_path(), Of::Content)]).collect();
        wake::watch(&all, move || sender.send(Message::Changed).is_ok());
    }

    /// Whether a look soon will say more.
    fn has_doubts(&self) -> bool {
        self.state.arrays.values().any(|array| array.doubt.is_some())
    }

    fn has_silent_members(&self) -> bool {
        self.state.arrays.values().any(|array| array.has_silent)
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        let ends = self.settings.is_oneshot || self.has_no_redundancy;
        let is_still =
            |line: &Line| !line.patience.is_busy && (line.patience.has_failed() || !self.state.outbox.waits(line.name));
        ends && self.has_looked && !self.has_doubts() && self.lines.iter().all(is_still)
    }

    /// Takes what has come. Returns when a look is worth it.
    fn hear(&mut self, first: Message) -> Option<Instant> {
        let mut soon = None;
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                Message::Changed => soon = Some(Instant::now() + LOOKS_APART),
                Message::Told { line, id, outcome } => self.note(line, &id, outcome),
            }
            next = self.heard.try_recv().ok();
        }
        soon
    }

    fn note(&mut self, line: usize, id: &str, outcome: Result<Told, NotTold>) {
        let Line { name, patience, .. } = &mut self.lines[line];
        match outcome {
            Ok(told) => {
                patience.succeed();
                self.state.outbox.done(name, id);
                if let Told::DoneSaying(text) = told {
                    warn(&text);
                }
            }
            Err(NotTold { text, may_have_arrived }) => {
                self.state.outbox.failed(name, id, may_have_arrived);
                if patience.fail(&text, Instant::now()) {
                    warn(&format!("{text}; it is tried again"));
                }
            }
        }
    }

    /// Gives each channel that is free its next event, after the file says so.
    fn deliver(&mut self) {
        let now = Instant::now();
        let mut begun = Vec::new();
        for (nth, line) in self.lines.iter_mut().enumerate() {
            let is_due = !line.patience.is_busy && line.patience.not_before().is_none_or(|time| time <= now);
            let may_begin = is_due && !(self.settings.is_oneshot && line.patience.has_failed());
            let Some((event, is_again)) = may_begin.then(|| self.state.outbox.begin(line.name)).flatten() else {
                continue;
            };
            line.patience.is_busy = true;
            let mdstat = uraid_control::report::mdstat(&self.reports);
            begun.push((nth, Job { event, is_again, mdstat }));
        }
        self.save();
        for (nth, job) in begun {
            let id = job.event.id.clone();
            if self.lines[nth].jobs.send(job).is_err() {
                let outcome =
                    Err(NotTold { text: format!("{} has ended", self.lines[nth].name), may_have_arrived: true });
                self.note(nth, &id, outcome);
            }
        }
    }

    fn save(&mut self) {
        if let Some(said) = self.keep.save(&self.state) {
            warn(&said);
        }
    }

    /// Numbers an event, and puts it on its way.
    fn tell(&mut self, key: &str, news: News) {
        let Some(News { kind, component, description, places, time, is_repeat, is_in_maintenance }) =
            self.as_asked(news)
        else {
            return;
        };
        let id = self.state.next_id();
        let array = self.state.arrays.get(key);
        let text = |of: fn(&super::memory::ArrayMemory) -> &String| array.map(of).cloned().unwrap_or_default();
        let event = Event {
            id,
            kind,
            device: text(|array| &array.device),
            array: text(|array| &array.name),
            uuid: text(|array| &array.uuid),
            component,
            description,
            places,
            time: time.unwrap_or_else(dates::now),
            is_repeat,
            is_in_maintenance,
        };
        let channels: Vec<&'static str> =
            self.lines.iter().filter(|line| line.filter.admits(&event)).map(|line| line.name).collect();
        for channel in self.state.outbox.push(event, channels) {
            warn(&format!("{channel}: too many events wait for it: the oldest is dropped"));
        }
    }

    /// With --mdadm-events, in the words of mdadm; `None`: it has none.
    fn as_asked(&self, news: News) -> Option<News> {
        use super::event::EventKind::{RebuildAborted, RebuildFinished, RebuildPaused};
        if !self.settings.is_mdadm_only || news.kind.is_of_mdadm() {
            return Some(news);
        }
        [RebuildAborted, RebuildPaused].contains(&news.kind).then_some(News { kind: RebuildFinished, ..news })
    }

    /// What is on its way has a moment to arrive.
    fn end(&mut self) {
        let end = Instant::now() + END_TIME_MAX;
        while self.lines.iter().any(|line| line.patience.is_busy) {
            match self.heard.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(message) => drop(self.hear(message)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        self.save();
    }
}

fn begin_line(nth: usize, mut channel: Box<dyn Channel>, told: Sender<Message>) -> Line {
    let (jobs, due) = mpsc::channel::<Job>();
    let (name, filter) = (channel.name(), channel.filter());
    let body = move || {
        while let Ok(job) = due.recv() {
            let outcome = channel.tell(&job);
            if told.send(Message::Told { line: nth, id: job.event.id, outcome }).is_err() {
                return;
            }
        }
    };
    // Without a thread its jobs cannot be sent, and that is said.
    let _ = thread::Builder::new().name(format!("uraid-{name}")).spawn(body);
    Line { name, filter, jobs, patience: Patience::default() }
}

/// A TestMessage for each array, without a state: another monitor has it.
pub(crate) fn test_only(settings: Settings) -> Result<(), Box<dyn Error>> {
    look::test_messages(settings)
}
