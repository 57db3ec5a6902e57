//! SIGTERM, SIGINT, SIGHUP and other signals that end a process, as events of a shard.
//! Owns: [`Signal`], the handlers, which only count and ring an eventfd. Not here: what to do about a signal.
//! Invariant: until a task listens, the signals keep their default action. A SIGHUP that the process was started to
//! ignore, as by nohup, stays ignored.

use crate::process::descriptors;
use crate::sys::{self, Errno};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// The signal that asked the process to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal, or the ssh session, has gone.
    HangUp,
    /// SIGXCPU: the soft limit on processor time is used up.
    ProcessorTime,
    /// SIGQUIT: Ctrl-\\ in a terminal.
    Quit,
    /// SIGUSR1, as some daemons take it for another log.
    User1,
    /// SIGUSR2.
    User2,
    /// SIGALRM: a timer that was set before this program was run.
    Alarm,
    /// SIGPWR: the power is about to fail.
    Power,
    /// SIGVTALRM, SIGPROF: timers, as [`Signal::Alarm`].
    OtherTimer,
    /// SIGIO: a file that this program was started with.
    Io,
    /// SIGSTKFLT.
    StackFault,
    /// SIGRTMIN to SIGRTMAX: SIGRTMIN+3 stops a container's first process.
    RealTime,
}

impl Signal {
    /// `SIGTERM`.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Interrupt => "SIGINT",
            Signal::Terminate => "SIGTERM",
            Signal::HangUp => "SIGHUP",
            Signal::ProcessorTime => "SIGXCPU",
            Signal::Quit => "SIGQUIT",
            Signal::User1 => "SIGUSR1",
            Signal::User2 => "SIGUSR2",
            Signal::Alarm => "SIGALRM",
            Signal::Power => "SIGPWR",
            Signal::OtherTimer => "a timer's signal",
            Signal::Io => "SIGIO",
            Signal::StackFault => "SIGSTKFLT",
            Signal::RealTime => "a real-time signal",
        }
    }
}

static BELL: AtomicI32 = AtomicI32::new(-1);
static ARRIVED: [AtomicBool; SIGNALS.len()] = [const { AtomicBool::new(false) }; SIGNALS.len()];
static REAL_TIME_ARRIVED: AtomicBool = AtomicBool::new(false);
static OWNED_BELL: OnceLock<OwnedFd> = OnceLock::new();

/// In the order in which they are taken if several have arrived. Each would end the process at once, and leave what it
/// serves to the next start as a power cut does.
const SIGNALS: [(libc::c_int, Signal); 13] = [
    (libc::SIGTERM, Signal::Terminate),
    (libc::SIGINT, Signal::Interrupt),
    (libc::SIGHUP, Signal::HangUp),
    (libc::SIGXCPU, Signal::ProcessorTime),
    (libc::SIGQUIT, Signal::Quit),
    (libc::SIGUSR1, Signal::User1),
    (libc::SIGUSR2, Signal::User2),
    (libc::SIGALRM, Signal::Alarm),
    (libc::SIGPWR, Signal::Power),
    (libc::SIGVTALRM, Signal::OtherTimer),
    (libc::SIGPROF, Signal::OtherTimer),
    (libc::SIGIO, Signal::Io),
    (libc::SIGSTKFLT, Signal::StackFault),
];

/// Those that the C library has left for programs.
fn real_time() -> std::ops::RangeInclusive<libc::c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

extern "C" fn note(signal: libc::c_int) {
    // SAFETY: errno belongs to the interrupted code of this thread; it is restored below.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    for ((number, _), came) in SIGNALS.iter().zip(&ARRIVED) {
        if *number == signal {
            came.store(true, Ordering::SeqCst);
        }
    }
    if real_time().contains(&signal) {
        REAL_TIME_ARRIVED.store(true, Ordering::SeqCst);
    }
    sys::eventfd_add(BELL.load(Ordering::SeqCst));
    // SAFETY: as above.
    unsafe { *errno = before };
}

fn set_action(signal: libc::c_int, action: libc::sighandler_t) -> Result<(), Errno> {
    // SAFETY: sigaction is plain data; all zeroes is one with an empty mask and the default action.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = action;
    new.sa_flags = libc::SA_RESTART;
    // SAFETY: `new` lives during the call; the handler does only what is safe in a signal handler.
    let result = unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
    if result < 0 { Err(Errno::last()) } else { Ok(()) }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: as in `set_action`.
    let mut now: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `now` lives during the call, which only fills it in.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &mut now) };
    result == 0 && now.sa_sigaction == libc::SIG_IGN
}

/// The signals that are handled: all, except SIGHUP if it is ignored.
fn noted() -> impl Iterator<Item = libc::c_int> {
    let named = SIGNALS.iter().map(|(signal, _)| *signal);
    named.filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal)).chain(real_time())
}

/// Installs the handlers: the signals no longer end the process. Returns the file that becomes readable when one has
/// arrived; at most one task may wait for it.
pub(crate) fn listen() -> &'static OwnedFd {
    let bell = OWNED_BELL.get_or_init(descriptors::eventfd_or_end);
    BELL.store(bell.as_raw_fd(), Ordering::SeqCst);
    for signal in noted() {
        let handler: extern "C" fn(libc::c_int) = note;
        set_action(signal, handler as libc::sighandler_t).expect("these signals can be handled");
    }
    bell
}

/// For a command without shards that waits: the signals no longer end the process, and [`interruption`] tells of them.
pub fn note_interruptions() {
    let _ = listen();
}

/// The signal that has asked this process to end since [`note_interruptions`].
pub fn interruption() -> Option<Signal> {
    take()
}

/// Restores the default action of the signals.
pub(crate) fn restore_default() {
    if BELL.load(Ordering::SeqCst) >= 0 {
        for signal in noted() {
            set_action(signal, libc::SIG_DFL).expect("these signals can be reset");
        }
    }
}

/// Makes a broken pipe or socket, and a write beyond the limit on file sizes, an error value instead of a signal.
pub fn ignore_signals_of_writes() {
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        set_action(signal, libc::SIG_IGN).expect("these signals can be ignored");
    }
}

/// Takes a signal that arrived.
pub(crate) fn take() -> Option<Signal> {
    if let Some(bell) = OWNED_BELL.get() {
        sys::eventfd_take(bell.as_raw_fd());
    }
    let named = SIGNALS.iter().zip(&ARRIVED).find(|(_, came)| came.swap(false, Ordering::SeqCst));
    let real_time = || REAL_TIME_ARRIVED.swap(false, Ordering::SeqCst).then_some(Signal::RealTime);
    named.map(|((_, signal), _)| *signal).or_else(real_time)
}
