//! Which running array a word means, and the list of them.
//! Owns: asking all control sockets of the runtime directory, choosing by name, device or member. Not here: one connection
//! (`client`), which words fit one array (`report::named`).
//! Invariant: a socket without a listener is treated as if it did not exist. Where a word fits several arrays, none is
//! chosen.

use super::{Client, ClientError, STATUS_OF_ALL_TIME_MAX, is_denied, is_ended, own_user, resolved_path};
use crate::asking;
use crate::member_name;
use crate::report::{Fit, Report};
use crate::runtime;
use crate::words::names;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// How long the others have for an answer once it is clear which array is meant: enough to find that the word is
/// ambiguous among servers that work, and no wait for one that hangs.
const OTHERS_TIME_MAX: Duration = Duration::from_millis(300);

/// Finds a running array: by its control socket if one is given, else by its name, else by one of its members.
pub fn find(array: Option<&str>, control: Option<&Path>) -> Result<Client, ClientError> {
    find_within(array, control, Some(asking::TIME_MAX))
}

/// The same, with a time limit for the member's path.
pub fn find_within(
    array: Option<&str>,
    control: Option<&Path>,
    time_max: Option<Duration>,
) -> Result<Client, ClientError> {
    if let Some(control) = control {
        return Client::connect(control);
    }
    let array = array.unwrap_or_default();
    let sockets = control_sockets()?;
    let file = format!("{}.ctl", names::file_name(array));
    let own = sockets.iter().find(|path| path.file_name().is_some_and(|name| *name == *file));
    // The server of the only array may hang: it is not asked whether it is the one.
    if let (Some(path), 1) = (own, sockets.len()) {
        match Client::connect(path) {
            Err(error) if !is_denied(&error) => {}
            outcome => return outcome,
        }
    }
    let mut answered = Answered::ask(array, &sockets, own.map(PathBuf::as_path))?;
    let mut found = answered.called.pop().or_else(|| answered.with_member.pop());
    if found.is_none()
        && let Some(path) = own
        && let Some(place) = answered.silent.iter().position(|error| error.socket() == Some(path))
    {
        // It has had its time: one more call would wait as long again.
        return Err(answered.silent.swap_remove(place));
    }
    if found.is_none() && !answered.others.is_empty() {
        let resolved = resolved_path(array, time_max, "")?;
        found = answered.others.into_iter().find(|(_, report)| report.has_member(&resolved));
    }
    if found.is_none() {
        // One of these may have the member.
        answered.silent.iter().for_each(|error| crate::log::complain(error));
    }
    let not_running = || ClientError::NotRunning { array: array.to_owned() };
    found.map(|(client, report)| Client { report: Some(report), ..client }).ok_or_else(not_running)
}

/// What the running arrays are to a word.
#[derive(Default)]
struct Answered {
    /// The word is its name; at most one.
    called: Vec<(Client, Report)>,
    /// The word, as it is written, is the path of a member. Resolving links would wait for a member that hangs.
    with_member: Vec<(Client, Report)>,
    others: Vec<(Client, Report)>,
    silent: Vec<ClientError>,
}

impl Answered {
    /// `own`: the socket whose file is called as the word.
    fn ask(word: &str, sockets: &[PathBuf], own: Option<&Path>) -> Result<Answered, ClientError> {
        let written = member_name::as_written(word);
        let (mut answered, mut fits) = (Answered::default(), Vec::new());
        let (receiver, mut until) = (asked(sockets), None);
        while let Some(answer) = next_until(&receiver, until) {
            match answer {
                Ok((client, report)) => match report.fit(word) {
                    Some(fit) => {
                        // A socket that is called as the word may be of an array that does not answer.
                        let is_clear = fit != Fit::Name || own.is_none_or(|own| own == client.socket());
                        until = until.or(is_clear.then(|| Instant::now() + OTHERS_TIME_MAX));
                        fits.push((fit, client, report));
                    }
                    None if report.has_member(&written) => {
                        // A path is no name, and a word that names no socket is hardly one.
                        let is_clear = word.contains('/') || own.is_none();
                        until = until.or(is_clear.then(|| Instant::now() + OTHERS_TIME_MAX));
                        answered.with_member.push((client, report));
                    }
                    None => answered.others.push((client, report)),
                },
                Err(error) if is_of_running(&error) => answered.silent.push(error),
                Err(_) => {}
            }
        }
        fits.sort_by(|(_, _, one), (_, _, other)| identity(one).cmp(&identity(other)));
        // A socket may have two names.
        fits.dedup_by(|(_, _, one), (_, _, other)| identity(one) == identity(other));
        if fits.len() > 1 {
            return Err(ClientError::Ambiguous { word: word.to_owned(), meanings: meanings(word, &fits) });
        }
        answered.called = fits.into_iter().map(|(_, client, report)| (client, report)).collect();
        Ok(answered)
    }
}

/// What tells running arrays apart: two servers may have copies of one array.
fn identity(report: &Report) -> (&str, Option<u32>) {
    (&report.uuid, report.server.as_ref().map(|server| server.pid))
}

/// The arrays that a word may mean, and words that mean one of them.
fn meanings(word: &str, fits: &[(Fit, Client, Report)]) -> String {
    let of_one = |(fit, client, report): &(Fit, Client, Report)| {
        let how = match fit {
            Fit::Number => "by its number",
            Fit::Name => "by its name",
            Fit::Uuid => "by its UUID",
        };
        let device = report.device.as_ref().map_or(String::new(), |device| format!("/dev/{device}, "));
        let name = names::printable(report.full_name());
        format!("{name} {how} ({device}UUID {}, --control {})", report.uuid, client.socket().display())
    };
    let arrays: Vec<String> = fits.iter().map(of_one).collect();
    let is_number = |(fit, ..): &(Fit, Client, Report)| *fit == Fit::Number;
    let advice = if fits.iter().any(is_number) && !fits.iter().all(is_number) {
        format!("/dev/{word} is always the number, /dev/md/{word} always the name, and a UUID is neither")
    } else {
        "give its full name, its UUID or its device /dev/mdNUMBER, whichever only one of them has".to_owned()
    };
    format!("may be any of {} running arrays: {}: {advice}", arrays.len(), arrays.join("; "))
}

/// Refuses words that name neither this array nor a member of it.
pub fn check_words(report: &Report, words: &[String]) -> Result<(), ClientError> {
    for word in words {
        if !report.is_named_by(word) && !report.has_member(&resolved_path(word, Some(asking::TIME_MAX), "")?) {
            return Err(ClientError::NotOfArray { word: word.clone(), array: report.name.clone() });
        }
    }
    Ok(())
}

/// The arrays that run now and are found in the runtime directory.
pub struct Running {
    /// By name.
    pub reports: Vec<Report>,
    /// Whether arrays are left out because this user may not ask them, or they did not answer. This was reported on
    /// stderr.
    pub is_incomplete: bool,
}

/// Asks all arrays that run now.
pub fn running() -> Result<Running, ClientError> {
    let mut running = Running { reports: Vec::new(), is_incomplete: false };
    let mut found = Vec::new();
    for answer in answers(control_sockets()?) {
        match answer {
            Ok(answer) => found.push(answer),
            Err(error) => {
                crate::log::complain(&error);
                running.is_incomplete = true;
            }
        }
    }
    found.sort_by_key(|(place, ..)| *place);
    running.reports = found.into_iter().map(|(.., report)| report).collect();
    Ok(running)
}

/// The running arrays, for a program that goes on when some do not answer.
#[derive(Debug, Default)]
pub struct AllAsked {
    /// Those that answered, by name; each once.
    pub reports: Vec<Report>,
    /// Those that did not.
    pub silent: Vec<Unasked>,
}

/// An array that runs and could not be asked.
#[derive(Debug)]
pub struct Unasked {
    /// Its name, as far as the name of its socket tells.
    pub name: String,
    /// Why.
    pub error: ClientError,
}

/// Asks all arrays that run now, at the same time, and returns when all have answered, or after `time_max`. Nothing is
/// written to stderr.
pub fn ask_all(time_max: Duration) -> Result<AllAsked, ClientError> {
    let sockets = control_sockets()?;
    let mut outcomes: Vec<Option<Answer>> = sockets.iter().map(|_| None).collect();
    let (receiver, begun) = (asked(&sockets), Instant::now());
    while outcomes.iter().any(Option::is_none) {
        match receiver.recv_timeout(time_max.saturating_sub(begun.elapsed())) {
            Ok((place, answer)) => outcomes[place] = Some(answer),
            Err(_) => break,
        }
    }
    let mut all = AllAsked::default();
    for (path, outcome) in sockets.into_iter().zip(outcomes) {
        let late = || Err(ClientError::NoAnswer { path: path.clone(), pid: None, source: super::late() });
        match outcome.unwrap_or_else(late) {
            // A socket may have two names.
            Ok((_, report)) if all.reports.iter().all(|other| identity(other) != identity(&report)) => {
                all.reports.push(report);
            }
            Err(error) if is_of_running(&error) => {
                let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                all.silent.push(Unasked { name, error });
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(all)
}

/// Yields the answers of the running arrays as they arrive, each with its position by name. All arrays are asked at the
/// same time, so that a process that hangs delays no other. An error stands for an array that this user may not ask, or that
/// has not answered.
fn answers(sockets: Vec<PathBuf>) -> impl Iterator<Item = Result<(usize, Client, Report), ClientError>> {
    asked(&sockets).into_iter().filter_map(|(place, answer)| match answer {
        Ok((client, report)) => Some(Ok((place, client, report))),
        Err(error) => is_of_running(&error).then_some(Err(error)),
    })
}

type Answer = Result<(Client, Report), ClientError>;

/// The next answer; `None`: all have answered, or the time is over.
fn next_until(receiver: &Receiver<(usize, Answer)>, until: Option<Instant>) -> Option<Answer> {
    let next = match until {
        Some(until) => receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
        None => receiver.recv().ok(),
    };
    next.map(|(_, answer)| answer)
}

/// Asks all at the same time; each answer comes with the position of its socket.
fn asked(sockets: &[PathBuf]) -> Receiver<(usize, Answer)> {
    let (sender, receiver) = mpsc::channel();
    for (place, path) in sockets.iter().enumerate() {
        let answer = sender.clone();
        let (own, asked) = (path.clone(), thread::Builder::new().name("uraid-ask".to_owned()));
        // If sending fails, the caller had all the answers it wanted and has dropped the receiver.
        if asked.spawn(move || drop(answer.send((place, ask(&own))))).is_err() {
            // No thread could be started, so this one asks.
            let _ = sender.send((place, ask(path)));
        }
    }
    receiver
}

/// Whether an array runs there that did not answer, or that this user may not ask. Else no process listens there any
/// more, or it is not a socket of uraid.
fn is_of_running(error: &ClientError) -> bool {
    matches!(error, ClientError::NoAnswer { .. }) || is_denied(error)
}

fn ask(path: &Path) -> Result<(Client, Report), ClientError> {
    let once = || {
        let mut client = Client::connect_within(path, STATUS_OF_ALL_TIME_MAX)?;
        let report = client.status_within(STATUS_OF_ALL_TIME_MAX)?;
        Ok((client, report))
    };
    match once() {
        // It ends just now, or has more callers than places.
        Err(ClientError::NoAnswer { source, .. }) if is_ended(source.kind()) => {
            thread::sleep(Duration::from_millis(50));
            once()
        }
        outcome => outcome,
    }
}

fn control_sockets() -> Result<Vec<PathBuf>, ClientError> {
    let mut paths = Vec::new();
    for directory in runtime::looked_through()? {
        match std::fs::read_dir(&directory) {
            Ok(entries) => paths.extend(entries.flatten().map(|entry| entry.path())),
            Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ClientError::Directory { path: directory, own: own_user(), source });
            }
            Err(_) => {}
        }
    }
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ctl"));
    paths.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    Ok(paths)
}
