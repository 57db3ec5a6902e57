//! The project's own checks and tools: `cargo xtask help` lists them.

mod bench;
mod checks;
mod dist;
mod documents;
mod mutants;
mod programs;
mod project;
mod proofs;
mod runs;
mod vm;

use crate::checks::figures;
use crate::documents::{messages, wrap};
use crate::mutants::canaries;
use crate::programs::packages;
use crate::proofs::{deny, fuzz, parsers, prove};
use crate::runs::{ci, deep, demo};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask ci [--record]
                        what every commit must pass: fmt, floors, tidy, clippy, tests, 400 seeds, 20 s of crash images;
                        --record notes the seconds of each stage in docs/proof.md
cargo xtask test [--record]
                        what every merge must pass: system packages, ci with foreign clients, a release build, a minute of
                        proofs, canaries, the demo, the VM's short form; `make test` runs it
cargo xtask deep [PART]...
                        what takes long, those parts that are due or are named: prove, loom, shuttle, museum, vm, fuzz,
                        mutants, features, documentation, dependencies; docs/proof.md has their results
cargo xtask floors      imports go down, never sideways or up
cargo xtask tidy        lengths, heads, leftovers, links, citations, walks through the code, indexes, figures, width
cargo xtask wrap        breaks lines of prose in the documents at 100 columns
cargo xtask errors      makes docs/operating/error-messages.md from the sources
cargo xtask figures [--at COMMIT] [--build] [--json]
                        asserts per function, import circles, longest function and file, by crate; with --build also a
                        default build of a cold clone
cargo xtask fuzz [TARGET] [--time 10m] [--keep | --minimise]
                        libFuzzer over the parsers and the planner; --keep adds to their corpora
cargo xtask prove [--time 5m] [--json]
                        the figures of every proof, measured now: simulator, crash images, museum, layouts,
                        erasures, kill -9
cargo xtask mutants [--check | --quick | --tests | --short] [--resume] [--jobs N] [--only ID...]
                        the kept list of faults, each put into a copy of the code: which stage catches it
cargo xtask canaries [check | canaries | museum | marks | shrinking | tests | shuttle [WORD]...]
                        mistakes of the engine, put into a copy of the code: the simulator must find each; one of the
                        checks, or all but shuttle's
cargo xtask parsers [--short]
                        node_exporter, check_raid, jc, Glances and others read `mdstat` and `detail` in every state of an array
cargo xtask deny        licences, origins and known weaknesses of the crates that we use; needs cargo-deny
cargo xtask packages    installs the system packages that `test` needs, or names them
cargo xtask vm run [--linux-6.1 | --linux-newest] [--disk IMAGE[,ro]]... SCRIPT [ARG]...
                        runs a shell script in a real Linux with the real md driver: 6.12, or the one named
cargo xtask vm matrix [--linux-6.1 | --linux-6.12 | --linux-newest]
                        the real md driver against uraid, both ways, every level; each form below takes a kernel, too:
                        --linux-newest is the newest of Debian's, asked for again after 30 days
cargo xtask vm matrix --short
                        a few arrays both ways, whole and degraded, and a few with a bitmap: half a minute
cargo xtask vm matrix --full [MINUTES]
                        every layout, 4 to 6 members, every loss, every metadata; writes docs/compat.md, unless a kernel
                        is named
cargo xtask vm matrix --bad-blocks
                        lists of bad blocks: the kernel's known to uraid, and uraid's to the kernel
cargo xtask vm matrix --bitmap
                        arrays with a write-intent bitmap, cut off or with a member away: one side leaves them, the other re-adds and resyncs
cargo xtask vm matrix --day
                        an XFS is written while members fail, leave and join and uraid is killed; the kernel gets the members
cargo xtask vm matrix --handover
                        arrays written without a member, by uraid or the kernel; the kernel takes over and rebuilds
cargo xtask vm matrix --force
                        uraid fails members and is killed; `mdadm --assemble --force` must not believe them
cargo xtask vm matrix --killed [SEED [ARRAY]...]
                        uraid is killed in a recovery or a replacement while it is written; the kernel must lose nothing
cargo xtask vm matrix --mount
                        `uraid mount` and `umount` in the guest, by the kernel's NBD driver and by FUSE; the kernel's md reads what was written
cargo xtask vm matrix --ppl
                        a raid5 with a partial parity log is cut off by one side, with or without a member; the other takes over
cargo xtask vm matrix --rebuild
                        the kernel is cut off while it rebuilds a member; uraid recovers it, or a part; the kernel goes on
cargo xtask vm matrix --reshape
                        the kernel is cut off while it reshapes an array; uraid copies it
cargo xtask vm systemd PACKAGE.deb [--folder FOLDER [--from STAGE]]
                        a Debian with systemd and that package (`cargo xtask dist deb`): arrays at boot, a member that goes,
                        mail, a spare, a reboot in its recovery, a scheduled scrub, an upgrade under load; as root;
                        FOLDER keeps the disks as they are before each boot, so that STAGE, 1 to 4, can be booted again
cargo xtask vm golden [NAME]...
                        makes crates/format/tests/golden anew with the real md driver and mdadm
cargo xtask man         the man pages and completions, from the definition of the command line, into target/dist/pages
cargo xtask dist [binary | deb | oci]... [--program FILE]
                        a static program, a Debian package and an image for containers, into target/dist; each is read by
                        dpkg, lintian and tar, as far as they are installed
cargo xtask demo        what `make demo` runs
cargo xtask bench [tests|kernels|scenarios|direct|nbd]... [--rounds N] [--seconds N]
                        every figure of speed, measured now: what must hold of a read, parity kernels beside ISA-L,
                        arrays beside their own members, beside fio on direct files, over NBD beside nbdkit
cargo xtask bench --beside PROGRAM [SCENARIO]... [--rounds N] [--seconds N]
                        arrays beside their own members, by this tree's program and by an older one in turn
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let is_good = match words.as_slice() {
        ["ci", rest @ ..] => ci::ci(rest),
        ["test", rest @ ..] => ci::everything(rest),
        ["deep", parts @ ..] => deep::run(parts),
        ["floors"] => ci::floors(),
        ["tidy"] => ci::tidy(),
        ["wrap"] => wrap::write(),
        ["errors"] => messages::write(),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["prove", rest @ ..] => prove::run(rest),
        ["mutants", rest @ ..] => mutants::run(rest),
        ["canaries", rest @ ..] => canaries::run(rest),
        ["figures", rest @ ..] => figures::run(rest),
        ["parsers"] => parsers::run(false).failed == 0,
        ["parsers", "--short"] => parsers::run(true).failed == 0,
        ["deny"] => deny::run().0.failed == 0,
        ["packages"] => packages::ensure(),
        ["man"] => dist::pages(),
        ["dist", rest @ ..] => dist::run(rest),
        ["demo", ..] => demo::run(),
        ["bench", rest @ ..] => bench::run(rest),
        ["vm", "run", rest @ ..] => return vm::run_command(rest),
        ["vm", "golden", names @ ..] => vm::golden_command(names),
        ["vm", "systemd", words @ ..] => vm::systemd::command(words),
        ["vm", "matrix", rest @ ..] => vm::matrix_command(rest),
        ["help" | "--help"] => {
            print!("{HELP}");
            true
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
