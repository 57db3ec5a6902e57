//! The stack that a program's main function runs on.
//! Owns: a thread for it where the limit on stacks is small. Not here: the stacks of shards, which their threads bring.
//! Invariant: a limit that a shell or a container sets (`ulimit -s`) ends no command.

use crate::process::privileges::drop_privileges;
use rustix::process::{Resource, getrlimit};
use std::panic::resume_unwind;
use std::thread::Builder;

/// What each thread of ours has. RLIMIT_STACK limits only the main thread.
const STACK: usize = 2 << 20;

/// Runs `body` with at least 2 MiB of stack: on this thread if its limit allows that, else on a thread of its own, which
/// gets the privileges of this one. This one then gives its own up, and waits. If no thread can be started, `body` runs
/// here.
pub fn with_stack<T: Send>(body: fn() -> T) -> T {
    if getrlimit(Resource::Stack).current.is_none_or(|limit| limit >= STACK as u64) {
        return body();
    }
    std::thread::scope(|scope| {
        let Ok(thread) = Builder::new().name("main".to_owned()).stack_size(STACK).spawn_scoped(scope, body) else {
            return body();
        };
        // If they cannot be dropped, the thread that drops its own reports that.
        let _ = drop_privileges();
        thread.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}
