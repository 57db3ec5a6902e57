//! The processors that threads run on.
//! Owns: [`processors_allowed`], pinning a thread, unpinning a shard's helper threads.
//! Not here: which threads are pinned.
//! Spec: sched_setaffinity(2): a thread inherits the processors of the thread that created it.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The numbers of the processors that the calling thread may run on, ascending.
pub fn processors_allowed() -> Vec<u16> {
    let set = Roaming::of_this_thread();
    (0..CpuSet::MAX_CPU).filter(|&number| set.0.is_set(number)).map(|number| number as u16).collect()
}

/// Pins the calling thread to one processor. If the system has taken that processor away, the thread stays unpinned.
pub fn pin(number: u16) {
    let mut set = CpuSet::new();
    set.set(number.into());
    let _ = sched_setaffinity(None, &set);
}

/// The processors that a thread could use before it was pinned.
#[derive(Clone)]
pub(crate) struct Roaming(CpuSet);

impl Roaming {
    /// On a system with more processors than a `CpuSet` can hold, all that it can hold.
    pub(crate) fn of_this_thread() -> Roaming {
        Roaming(sched_getaffinity(None).unwrap_or_else(|_| {
            let mut all = CpuSet::new();
            (0..CpuSet::MAX_CPU).for_each(|number| all.set(number));
            all
        }))
    }

    /// Lets the calling thread run on these processors. A helper thread on the shard's processor would compete with the
    /// shard.
    pub(crate) fn resume(&self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_on_its_processor_and_its_helper_is_not() {
        let allowed = processors_allowed();
        let last = *allowed.last().expect("a thread runs somewhere");
        let (pinned, helper) = std::thread::spawn(move || {
            let before = Roaming::of_this_thread();
            pin(last);
            let helper = std::thread::spawn(move || {
                before.resume();
                processors_allowed()
            });
            (processors_allowed(), helper.join().expect("it does not panic"))
        })
        .join()
        .expect("it does not panic");
        assert_eq!((pinned, helper), (vec![last], allowed));
    }
}
