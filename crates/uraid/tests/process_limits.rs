//! Limits that a shell, systemd or a container sets for the process.
//! Owns: file sizes, processor time, stack, threads. Not here: open files and memory of a server (`members`, `memory`).

use crate::common::{MIB, Scratch, Served, pattern};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `uraid WORDS` under limits of the shell: `-f 100`.
fn limited(scratch: &Scratch, limits: &str, words: &[&str]) -> Command {
    let uraid = scratch.command(words);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("ulimit {limits} && exec \"$0\" \"$@\"")])
        .arg(uraid.get_program())
        .args(uraid.get_args());
    shell.envs(uraid.get_envs().filter_map(|(name, value)| Some((name, value?)))).current_dir(scratch.path(""));
    shell
}

fn array(scratch: &Scratch) -> Vec<PathBuf> {
    let members = scratch.members("m", 2, 8 * MIB);
    scratch.create("home", "-l 1 -n 2 --assume-clean", &members);
    members
}

#[test]
fn a_limit_on_file_sizes_below_the_end_of_a_member_is_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let members = array(&scratch);
    let before: Vec<Vec<u8>> = members.iter().map(|path| std::fs::read(path).expect("ours")).collect();
    // dash counts in blocks of 512 bytes: 4 MiB.
    for words in [&["serve", "m0", "m1"][..], &["create", "-l", "1", "-n", "2", "--force", "m0", "m1"]] {
        let output = limited(&scratch, "-f 8192", words).output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        let text = "m0: its last byte is 8388608, and this process may write files up to byte 4194304 only (ulimit -f";
        assert!(said.contains(text), "{words:?}: {said}");
    }
    let after: Vec<Vec<u8>> = members.iter().map(|path| std::fs::read(path).expect("ours")).collect();
    assert!(before == after, "a member was written");
    // The server in the background cannot even write its log.
    let output = limited(&scratch, "-f 0", &["serve", "--background", "m0", "m1"]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the server in the background has ended: exit status: 1, and has not said why"), "{said}");
    let why = "no more than 0 bytes, because that is the limit on file sizes (ulimit -f, LimitFSIZE=): raise it";
    assert!(said.contains(why), "{said}");
    // Reading needs no such limit; a copy that meets it is an error that says so, and ends by no signal.
    let output = limited(&scratch, "-f 2", &["copy", "m0", "m1", "out"]).output().expect("sh runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) || output.status.success(), "{:?}: {said}", output.status);
}

#[test]
fn the_end_of_the_processor_time_stops_an_array_cleanly() {
    let scratch = Scratch::new();
    let members = array(&scratch);
    let mut command = limited(&scratch, "-S -t 1", &["serve", "--spin", "1ms", "m0", "m1"]);
    let served = Served::start(&mut command);
    served.wait_until_ready();
    let data = pattern(1, MIB as usize);
    let mut client = served.client();
    // As many writes as use it up; the last ones meet the stop.
    for _ in 0..200_000 {
        if !client.write(0, &data).is_ok_and(|code| code == 0) {
            break;
        }
    }
    drop(client);
    let done = served.end();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("SIGXCPU (the limit on processor time: ulimit -t, LimitCPU=)"), "{}", done.stderr);
    let shown = scratch.uraid([Path::new("examine"), &members[0]]).expect_done().stdout;
    assert!(shown.contains("State : clean\n"), "{shown}");
}

#[test]
fn a_limit_on_processor_time_is_told_and_the_kernel_does_not_kill_where_a_second_is_left() {
    for (limit, told) in [
        (
            "-S -t 100",
            "may use 100 s of processor time only (ulimit -t, LimitCPU=): after 100 s of it all arrays stop cleanly",
        ),
        (
            "-t 100",
            "may use 100 s of processor time only (ulimit -t, LimitCPU=): after 99 s of it all arrays stop cleanly",
        ),
        ("-t 1", "then the kernel kills this server, which is a crash to its arrays; raise that limit"),
    ] {
        let scratch = Scratch::new();
        array(&scratch);
        let served = Served::start(&mut limited(&scratch, limit, &["serve", "m0", "m1"]));
        served.wait_until_ready();
        let said = served.stderr();
        assert!(said.contains(told), "{limit}: {said}");
        assert_eq!(said.matches("processor time").count(), 1, "{limit}: {said}");
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", served.pid())).expect("it runs");
        let of_time = limits.lines().find(|line| line.starts_with("Max cpu time")).expect("Linux has it");
        assert_eq!(limit == "-t 100", of_time.contains(" 99 "), "{limit}: {of_time}");
        assert_eq!(served.stop().code, Some(0));
    }
}

#[test]
fn a_small_stack_is_enough() {
    for stack in [32, 100, 256] {
        let (scratch, stack) = (Scratch::new(), format!("-s {stack}"));
        array(&scratch);
        let served = Served::start(&mut limited(&scratch, &stack, &["serve", "m0", "m1"]));
        served.wait_until_ready();
        served.write_all(0, &pattern(2, MIB as usize));
        assert_eq!(limited(&scratch, &stack, &["list"]).output().expect("sh runs").status.code(), Some(0));
        assert_eq!(served.stop().code, Some(0));
        for words in [&["examine", "m0"][..], &["detail", "m0", "m1"], &["copy", "m0", "m1", "out"], &["--help"]] {
            let output = limited(&scratch, &stack, words).output().expect("sh runs");
            assert_eq!(output.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// Below what the program itself takes, the kernel or the loader ends it, before anything of it runs.
#[test]
fn a_heap_that_is_exhausted_ends_a_command_with_one_sentence() {
    let scratch = Scratch::new();
    array(&scratch);
    let mut told = 0;
    for kibibytes in (300..2000).step_by(25) {
        let limit = format!("-d {kibibytes}");
        let output = limited(&scratch, &limit, &["examine", "m0", "m1"]).output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        let is_loader = said.is_empty() || said.contains("error while loading shared libraries");
        // Rust's library says by itself that a thread gets no stack for its signals; in a panic for want of memory it aborts.
        let is_thread = said.contains("failed to allocate an alternative stack");
        match output.status.code() {
            Some(0) => {}
            Some(1) => {
                assert!(is_thread || said.lines().all(|line| line.starts_with("uraid: ")), "{limit}: {said}");
                told += usize::from(said.starts_with("uraid: out of memory: ") && said.lines().count() == 1);
            }
            Some(127) | None => assert!(is_loader || is_thread, "{limit}: {:?}: {said}", output.status),
            Some(code) => panic!("{limit}: {code}: {said}"),
        }
    }
    assert!(told > 0, "some limits are enough to begin, and to do no more");
}

/// Threads count as data, and so does the heap.
#[test]
fn too_few_threads_or_open_files_are_an_error_that_says_so() {
    let scratch = Scratch::new();
    array(&scratch);
    let doctor = |limits: String| {
        let done = Served::start(&mut limited(&scratch, &limits, &["doctor", "m0", "m1"])).end();
        let is_thread = done.stderr.contains("failed to allocate an alternative stack");
        assert!(is_thread || !done.stderr.contains("panicked"), "{limits}: {done:?}");
        done
    };
    // Which thread is the one too many, and whether it is one or the heap, is the allocator's matter.
    for kibibytes in [1000, 1500, 2000, 2500, 3000, 4000] {
        let done = doctor(format!("-d {kibibytes}"));
        let is_told = done.stderr.contains("cannot start the thread that looks at the array: ")
            || done.stderr.contains("cannot be started: ")
            || done.stderr.contains("uraid: out of memory: ")
            || done.stderr.contains("failed to allocate an alternative stack");
        // Below what the program's own data take, the loader ends it.
        let is_loader = done.code == Some(127) && done.stderr.contains("error while loading shared libraries");
        assert!(is_loader || done.code == Some(0) || done.code == Some(1) && is_told, "{kibibytes}: {done:?}");
    }
    // Standard streams, two members, and then the eventfd: not one more, or a few.
    doctor("-n 5".to_owned()).expect_refused(&["cannot make an eventfd: too many open files"]);
    for files in 6..10 {
        let done = doctor(format!("-n {files}"));
        assert!(matches!(done.code, Some(0 | 1)), "{files}: {done:?}");
    }
    let other = scratch.members("n", 2, 8 * MIB);
    scratch.create("other", "-l 1 -n 2 --assume-clean", &other);
    let arrays = ["serve", "--array", "m0", "m1", "--array", "n0", "n1"];
    let served = Served::start(scratch.command(arrays).current_dir(scratch.path("")));
    served.wait_until_ready();
    // Each array is asked on a thread of its own, if there is room.
    let output = limited(&scratch, "-d 8000", &["list"]).output().expect("sh runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("home ") && told.contains("other "), "{output:?}");
    assert_eq!(served.stop().code, Some(0));
}
