//! Which imports among the files of a crate are allowed: down from room to room, and never in a circle.
//! Owns: the order of each crate's rooms, how many entries its top level has. Not here: what imports what (`imports`),
//! imports between crates (`floors`).
//! Invariant: a room that the order does not name does not pass. Spec: ARCHITECTURE.md, "Rooms".

use crate::checks::imports::{self, Imports};
use crate::project::source::{self, Source};
use crate::project::{self, Finding};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From the top down; rooms beside each other, with a comma, do not import each other.
const ORDERS: &[(&str, &str)] = &[
    ("arrays", "run, recorded_array > build > array, barrier > world, recorder"),
    ("bench", "scenario, nbd, kernels > report > measure > target > work > figures, screen"),
    ("blackbox", "bin > day, storm, book > filesystem, sectors > members > programs > nbd > random"),
    ("block", "memory > device > foreign > pieces > buffer, error, sizes, slots, local > sync, units"),
    ("control", "client, history > state > runtime > report > protocol > member_name > asking > log > words"),
    ("doctor", "order, cost"),
    ("engine", "array > command > pass > steward, request > row > shard > state > assemble > words"),
    ("export-fuse", "server > inbox, transfer > common > turns, memory, folder, errors"),
    ("export-nbd", "server > reader > job > clients > connection > shared > request > handshake > machine"),
    ("format", "change, other_formats > logs > superblock > crc32"),
    ("host", "member, net, fuse > shard > ring > options, executor > mail > process > sys, sync"),
    ("layout", "map > levels > plan, rows > spec"),
    ("operate", "watch, monitor, metrics, scrub, maintenance > history > status > sample_reports"),
    ("parity", "locate, recover > kernel > vector > portable > table > gf256, crc32c"),
    ("serve", "life > overseer > session > frontend > opening > memory > offline > stack > lines > background"),
    ("sim", "proof, crash > scenario > rig > judge > setup > machine > image > reference > random"),
    ("uraid", "cli > mdadm > bench, mount > copy, doctor, offline, serve > create, running > arguments, shared"),
    ("xtask", "runs > bench, dist, proofs, vm > mutants > checks > documents > programs > project"),
];

/// All findings of the project at `root`, and how many imports were looked at.
pub(crate) fn check(root: &Path) -> (Vec<Finding>, usize) {
    let (mut findings, mut looked_at) = (Vec::new(), 0);
    for (name, folder) in project::packages(root) {
        let imports = imports_of(&folder.join("src"), &source::shipped_files(root, &folder));
        looked_at += imports.values().map(BTreeSet::len).sum::<usize>();
        let circles = imports::circles(&imports).into_iter().map(|circle| {
            let files = circle.join(", ");
            format!("these files import each other in a circle: {files}")
        });
        let wrong = circles.chain(arrows_up(&name, &imports));
        findings.extend(wrong.map(|what| Finding { path: folder.join("src"), line: 0, what }));
    }
    (findings, looked_at)
}

/// The imports among these files, which lie below `src`.
pub(crate) fn imports_of(src: &Path, files: &[(PathBuf, Source)]) -> Imports {
    let below = |path: &PathBuf| path.strip_prefix(src).unwrap_or(path).to_path_buf();
    imports::of(&files.iter().map(|(path, source)| (below(path), source.code.join("\n"))).collect())
}

/// The imports of a crate that go up or sideways from one room to another, and its modules without a place in the order.
/// None, if the crate has no order.
pub(crate) fn arrows_up(name: &str, imports: &Imports) -> Vec<String> {
    let Some((_, order)) = ORDERS.iter().find(|(of, _)| *of == name) else { return Vec::new() };
    wrong_arrows(order, imports)
}

fn wrong_arrows(order: &str, imports: &Imports) -> Vec<String> {
    let floors = order.split('>').enumerate();
    let places: BTreeMap<&str, usize> =
        floors.flat_map(|(at, rooms)| rooms.split(',').map(move |room| (room.trim(), at))).collect();
    let room = |module: &str| module.split("::").next().unwrap_or_default().to_string();
    let mut wrong = BTreeSet::new();
    for (from, others) in imports {
        let Some(own) = places.get(room(from).as_str()) else {
            wrong.insert(format!("{from} is in no room; the rooms are {order}"));
            continue;
        };
        for to in others.iter().filter(|to| room(to) != room(from)) {
            match places.get(room(to).as_str()) {
                Some(other) if other < own => wrong.insert(format!("{from} imports up: {to}; the order is {order}")),
                Some(other) if other == own => {
                    wrong.insert(format!("{from} imports sideways: {to}; the order is {order}"))
                }
                _ => false,
            };
        }
    }
    wrong.into_iter().collect()
}

/// What stands on the top level of a crate's sources.
#[derive(Clone, Copy, Default)]
pub(crate) struct Top {
    /// Folders.
    pub(crate) rooms: usize,
    /// Files beside them, the root among them.
    pub(crate) files: usize,
}

impl Top {
    pub(crate) fn of(src: &Path) -> Top {
        let entries = std::fs::read_dir(src).into_iter().flatten().flatten();
        let (rooms, files): (Vec<_>, Vec<_>) = entries.partition(|entry| entry.path().is_dir());
        Top { rooms: rooms.len(), files: files.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(imports: &[(&str, &[&str])]) -> Vec<String> {
        let texts = |others: &[&str]| others.iter().map(|other| (*other).to_string()).collect();
        wrong_arrows(
            "top > left, right > ground",
            &imports.iter().map(|(of, to)| (of.to_string(), texts(to))).collect(),
        )
    }

    #[test]
    fn imports_go_down_or_stay_in_their_room() {
        assert_eq!(wrong(&[("top::a", &["left::b", "ground", "top::c"]), ("left::b", &["ground"])]), [""; 0]);
    }

    #[test]
    fn up_sideways_and_unknown_rooms_are_found() {
        let up = wrong(&[("ground", &["right::a"])]);
        assert_eq!(up, ["ground imports up: right::a; the order is top > left, right > ground"]);
        assert!(wrong(&[("left", &["right"])])[0].starts_with("left imports sideways: right"));
        assert!(wrong(&[("cellar::a", &[])])[0].starts_with("cellar::a is in no room"));
    }
}
