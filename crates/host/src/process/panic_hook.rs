//! The panic hook of shard threads.
//! Owns: reporting a panic on a shard thread and ending the process. Not here: panics of other threads.
//! Invariant: after one shard's panic, no other shard continues, and the panic is always reported.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static ABORTS: Cell<bool> = const { Cell::new(false) };
}

/// While this guard lives, a panic on this thread aborts the process.
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

/// Writes to standard error directly, even if a test captures output.
pub(crate) fn say(text: &str) {
    crate::sys::write_stderr(text);
}

/// Installs the hook, once.
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
            // Abort in the hook, before unwinding: a destructor could panic again and hide the first panic.
            say(&format!(
                "\nthread '{name}' {info}\n{}\nthe process ends: a shard cannot go on\n",
                Backtrace::capture()
            ));
            std::process::abort();
        }));
    });
}
