//! What wakes the monitor before its delay is over: a history that grows, an array that comes or goes.
//! Owns: watching folders. Not here: what is seen then (`life`).
//! Invariant: without a watch nothing is missed, only later. What the monitor writes itself does not wake it.

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::Path;
use std::thread;

/// What of a folder wakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Of {
    /// Files that come and go.
    Names,
    /// Files that are written, too.
    Content,
}

/// Calls `changed` after changes in these folders, for as long as it returns true.
pub(crate) fn watch(folders: &[(&Path, Of)], changed: impl Fn() -> bool + Send + 'static) {
    let Ok(file) = inotify::init(CreateFlags::CLOEXEC) else { return };
    for (folder, of) in folders {
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO;
        let flags = if *of == Of::Content { names | WatchFlags::MODIFY } else { names };
        // One that is not there yet, or cannot be watched, is looked at after the delay.
        let _ = inotify::add_watch(&file, *folder, flags);
    }
    let body = move || {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&file, &mut buffer);
        while let Ok(event) = events.next() {
            if event.file_name().is_some_and(is_own) {
                continue;
            }
            if !changed() {
                return;
            }
        }
    };
    // Without a thread the delay is what there is.
    let _ = thread::Builder::new().name("uraid-wake".to_owned()).spawn(body);
}

/// Files of the monitor, and hidden ones.
fn is_own(name: &CStr) -> bool {
    let name = name.to_bytes();
    name.starts_with(b"monitor.") || name.starts_with(b".")
}
