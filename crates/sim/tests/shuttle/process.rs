//! What the host's shards do to the process they are in, in place of the host's `src/signals.rs` and `src/panic_hook.rs`.
//! Owns: nothing but their names: no signal comes here, and a panic is a finding that shuttle reports.

pub(crate) mod signals {
    use crate::shard::Signal;
    use std::os::fd::OwnedFd;

    pub(crate) fn ignore_broken_pipes() {}

    pub(crate) fn restore_default() {}

    pub(crate) fn listen() -> &'static OwnedFd {
        panic!("these tests have no signals")
    }

    pub(crate) fn take() -> Option<Signal> {
        None
    }
}

pub(crate) mod panic_hook {
    pub(crate) struct NoAbort;

    pub(crate) fn install() {}

    pub(crate) fn abort_on_panic() -> NoAbort {
        NoAbort
    }

    pub(crate) fn say(text: &str) {
        panic!("{text}")
    }
}

/// Shards on processors of their own: there is one thread here.
pub(crate) mod processors {
    pub(crate) fn pin(_: u16) {}

    #[derive(Clone)]
    pub(crate) struct Roaming;

    impl Roaming {
        pub(crate) fn of_this_thread() -> Roaming {
            Roaming
        }

        pub(crate) fn resume(&self) {}
    }
}
