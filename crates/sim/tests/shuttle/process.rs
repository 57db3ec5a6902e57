//! Replaces `signals`, `panic_hook` and `processors` of the host's `src/process`.
//! Owns: functions of the same names that do nothing: there are no signals, and shuttle reports a panic as a finding.

pub(crate) mod signals {
    use std::os::fd::OwnedFd;

    /// None arrives.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Signal {}

    pub(crate) fn ignore_signals_of_writes() {}

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

/// No pinning: there is one thread here.
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
