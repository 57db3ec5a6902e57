//! Members that other processes or the kernel have claimed, in a report of an array that this process could not ask.
//! Owns: [`InUse`], its text. Not here: who uses a member (`uraid_host::holder`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A member that another process or the kernel has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InUse {
    /// Its path.
    pub path: String,
    /// The process, if it is known.
    pub pid: Option<u32>,
}

/// `by process 4711: m0, m1; by the kernel or another process: m2`.
pub(super) fn text(in_use: &[InUse]) -> String {
    let mut by: BTreeMap<Option<u32>, Vec<&str>> = BTreeMap::new();
    for InUse { path, pid } in in_use {
        by.entry(*pid).or_default().push(path);
    }
    let parts = by.into_iter().rev().map(|(pid, paths)| {
        let who = pid.map_or("the kernel or another process".to_owned(), |pid| format!("process {pid}"));
        format!("by {who}: {}", paths.join(", "))
    });
    parts.collect::<Vec<String>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_named_by_who_has_them() {
        let of = |path: &str, pid| InUse { path: path.to_owned(), pid };
        let all = [of("m0", Some(7)), of("m1", None), of("m2", Some(7))];
        assert_eq!(text(&all), "by process 7: m0, m2; by the kernel or another process: m1");
    }
}
