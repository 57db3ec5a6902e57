//! How much memory a server takes, and what it says when there is less.
//! Owns: `--memory-limit`, limits on address space. Not here: what each buffer is for (`uraid::memory`).

use crate::common::{Client, MIB, Scratch, Served, pattern, wait};
use std::fs;
use std::path::PathBuf;

/// `uraid serve` with at most this many MiB of address space.
fn serve_within(scratch: &Scratch, mebibytes: u64, options: &[&str], members: &[PathBuf]) -> Served {
    let inner = scratch.command([""; 0]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v $0; exec \"$@\"", &(mebibytes << 10).to_string()]);
    command.arg(inner.get_program()).arg("serve").args(options).args(members);
    command.env("URAID_RUNTIME_DIR", scratch.path("")).stdin(std::process::Stdio::null());
    Served::start(&mut command)
}

fn has_ended(served: &Served) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", served.pid())).unwrap_or_default();
    status.is_empty() || status.contains("State:\tZ")
}

#[test]
fn whatever_the_address_space_is_a_server_runs_or_says_what_it_wanted() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 8 * MIB);
    scratch.create("tight", "--level 6 --raid-devices 4 --assume-clean", &members);
    let (mut refused, mut served) = (0, 0);
    for mebibytes in [48, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1100, 1200, 1300, 1400, 1600, 2000, 3000] {
        let server = serve_within(&scratch, mebibytes, &["--shards", "4"], &members);
        wait(|| has_ended(&server) || scratch.path("tight.nbd").exists() && !server.is_silent())
            .expect("it starts or ends");
        if has_ended(&server) {
            let done = server.end();
            let said = [
                "uraid: cannot start 4 threads: ",
                " MiB more of address space are needed, and this process may have ",
                " MiB in all (ulimit -v); raise the limit, or start with --memory-limit SIZE (at least ",
                "M) or fewer --shards",
            ];
            assert_eq!(done.code, Some(1), "{mebibytes} MiB: {done:?}");
            assert_eq!(served, 0, "{mebibytes} MiB are refused, and less was enough: {done:?}");
            done.expect_refused(&said);
            refused += 1;
        } else {
            let mut client = server.client();
            let data = pattern(mebibytes, MIB as usize);
            assert_eq!(client.write(0, &data).expect("connected"), 0, "{mebibytes} MiB");
            assert_eq!(client.read(0, data.len()).expect("connected"), Ok(data), "{mebibytes} MiB");
            let done = server.stop();
            assert_eq!(done.code, Some(0), "{mebibytes} MiB: {done:?}");
            served += 1;
        }
    }
    assert!(refused > 1 && served > 1, "{refused}, {served}");
}

#[test]
fn a_limit_that_is_too_small_is_refused_with_the_least_that_works_and_that_one_is_kept() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 4, 32 * MIB);
    scratch.create("small", "--level 5 --raid-devices 4 --assume-clean", &members);
    // A bare number is in KiB as in every other size; the message repeats it with its unit.
    for (limit, meant) in [("200", "200 KiB"), ("0200k", "200 KiB"), ("1", "1 KiB"), ("1s", "1 KiB")] {
        let done = scratch.serve(&["--shards", "2", "--memory-limit", limit], &members).end();
        done.expect_refused(&[
            &format!("--memory-limit {meant} is too small for 2 threads"),
            "a bare number is in KiB",
        ]);
    }
    let done = scratch.serve(&["--shards", "2", "--memory-limit", "1M"], &members).end();
    let said = "--memory-limit 1 MiB is too small for 2 threads: expected at least ";
    let done = done.expect_refused(&[said, " MiB with --shards 1"]);
    let least = done.stderr.split(said).nth(1).and_then(|rest| rest.split(' ').next()).expect("the least").to_owned();
    let limit = format!("{least}M");
    let served = scratch.ready(&["--shards", "2", "--memory-limit", &limit], &members);
    let socket = served.socket();
    // More clients than it has room for, each with all that it may ask for.
    std::thread::scope(|scope| {
        for seed in 0..16 {
            let socket = &socket;
            scope.spawn(move || {
                let mut client = Client::connect(socket).expect("it is served");
                let data = pattern(seed, MIB as usize);
                for round in 0..8 {
                    let at = (seed * 8 + round) % 64 * MIB;
                    assert_eq!(client.write(at, &data).expect("connected"), 0);
                    assert!(client.read(at, data.len()).expect("connected").is_ok());
                }
            });
        }
    });
    let status = fs::read_to_string(format!("/proc/{}/status", served.pid())).expect("it runs");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says it");
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    let least: u64 = least.parse().expect("a number");
    assert!(peak <= least << 10, "{peak} KiB of {least} MiB");
    assert_eq!(served.stop().code, Some(0));
    // A lower --memory-limit also fits into less address space.
    let tight = serve_within(&scratch, 1150, &["--shards", "2", "--memory-limit", &limit], &members);
    tight.wait_until_ready();
    assert_eq!(tight.stop().code, Some(0));
}
