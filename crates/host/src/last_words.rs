//! What a dying process still says.
//! Owns: the panic hook for shard threads: a panic there is reported and ends the process. Not here: other panics.
//! Invariant: no shard ever goes on, or is missed silently, after another one's panic.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static ABORTS: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, a panic on this thread aborts the process.
pub(crate) struct AbortOnPanic(());

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        ABORTS.set(false);
    }
}

pub(crate) fn abort_on_panic() -> AbortOnPanic {
    ABORTS.set(true);
    AbortOnPanic(())
}

/// Says something on standard error, past anything that captures it.
pub(crate) fn say(text: &str) {
    crate::sys::last_words(text);
}

/// Puts the hook in, once.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !ABORTS.try_with(Cell::get).unwrap_or(false) {
                before(info);
                return;
            }
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("unnamed").to_owned();
            // In the hook, before unwinding: destructors could only hide the first panic behind a second one.
            say(&format!(
                "\nthread '{name}' {info}\n{}\nthe process ends: a shard cannot go on\n",
                Backtrace::capture()
            ));
            std::process::abort();
        }));
    });
}
