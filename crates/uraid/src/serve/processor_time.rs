//! The limit on processor time, under which the kernel ends a process.
//! Owns: saying at the start that there is one, and leaving a server the time for a clean stop. Not here: the stop
//! (`uraid_serve::life`).
//! Spec: setrlimit(2), RLIMIT_CPU.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use uraid_control::log::warn;

/// Says it if there is a limit. At the soft one the arrays stop cleanly; where it would come no earlier than the hard one,
/// at which the kernel kills, it is lowered by a second if that leaves any.
pub(super) fn prepare() {
    let given = getrlimit(Resource::Cpu);
    let Some(limit) = lowest(&given) else { return };
    let clean = clean_stop(&given).filter(|&seconds| {
        let is_lower = given.current != Some(seconds);
        !is_lower || setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), ..given }).is_ok()
    });
    let what = match clean {
        Some(seconds) => format!("after {seconds} s of it all arrays stop cleanly"),
        None => "then the kernel kills this server, which is a crash to its arrays".to_owned(),
    };
    warn(&format!(
        "this process may use {limit} s of processor time only (ulimit -t, LimitCPU=): {what}; raise that limit"
    ));
}

fn lowest(given: &Rlimit) -> Option<u64> {
    [given.current, given.maximum].into_iter().flatten().min()
}

/// The seconds after which SIGXCPU can come before SIGKILL. The kernel takes a limit of 0 for one of 1.
fn clean_stop(given: &Rlimit) -> Option<u64> {
    match (given.current, given.maximum) {
        (None, None) => None,
        (Some(soft), None) => Some(soft),
        (soft, Some(hard)) => Some(soft.unwrap_or(hard).min(hard.saturating_sub(1))).filter(|&seconds| seconds > 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_comes_before_the_kill_wherever_there_is_a_second_for_it() {
        let of = |current, maximum| clean_stop(&Rlimit { current, maximum });
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(7), None), Some(7));
        assert_eq!(of(Some(7), Some(9)), Some(7));
        assert_eq!(of(Some(9), Some(9)), Some(8));
        assert_eq!(of(Some(2), Some(2)), Some(1));
        assert_eq!(of(Some(1), Some(1)), None);
    }
}
