//! `uraid assemble`: which arrays it finds, which are uraid's, what becomes of the others.
//! Owns: whole commands against members of the test's own folder. Not here: the grammar (`uraid_config`'s own tests).

use crate::common::{Done, MIB, Scratch};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Arrays in folders of their own, and a configuration.
struct Scene(Scratch);

impl Scene {
    fn new(names: &[&str]) -> Scene {
        let scratch = Scratch::new();
        for name in names {
            fs::create_dir(scratch.path(&format!("{name}.d"))).expect("room");
            scratch.create(name, "--level 1 --raid-devices 2 --assume-clean", &Scene::members_in(&scratch, name));
        }
        Scene(scratch)
    }

    fn members_in(scratch: &Scratch, name: &str) -> Vec<PathBuf> {
        (0..2).map(|n| scratch.member(&format!("{name}.d/disk{n}"), 4 * MIB)).collect()
    }

    fn member(&self, name: &str, n: usize) -> PathBuf {
        self.0.path(&format!("{name}.d/disk{n}"))
    }

    fn folder(&self, name: &str) -> String {
        self.0.path(&format!("{name}.d")).display().to_string()
    }

    fn directory(&self) -> String {
        self.0.path("").display().to_string().trim_end_matches('/').to_owned()
    }

    fn uuid(&self, name: &str) -> String {
        let shown = self.0.uraid(["examine".into(), "--export".into(), self.member(name, 0)]).expect_done().stdout;
        shown.lines().find_map(|line| line.strip_prefix("MD_UUID=")).expect("it has one").to_owned()
    }

    fn config(&self, text: &str) {
        let path = self.0.path("mdadm.conf");
        fs::write(&path, text.replace("DIR", &self.directory())).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
    }

    fn assemble(&self, words: &str) -> Done {
        self.uraid("assemble", words)
    }

    fn uraid(&self, verb: &str, words: &str) -> Done {
        let words = words.replace("DIR", &self.directory());
        let mut command = self.0.command([verb].into_iter().chain(words.split_whitespace()));
        let output = command.env("URAID_CONFIG", self.0.path("mdadm.conf")).output().expect("the binary runs");
        Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The names of the arrays that run.
    fn running(&self) -> Vec<String> {
        let listed = self.0.uraid(["list"]).expect_done().stdout;
        listed.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Two may have one name, and a call stops one of them.
        for _ in 0..3 {
            for name in self.running() {
                self.0.uraid(["stop", "--force", &name]);
            }
        }
    }
}

#[test]
fn scan_starts_what_a_uraid_line_names_and_nothing_else() {
    let scene = Scene::new(&["home", "root"]);
    scene.config("DEVICE DIR/*.d/disk*\nURAID home\n");
    let done = scene.assemble("--scan");
    assert_eq!((done.code, done.stdout.matches("nbd+unix:///home").count()), (Some(0), 1), "{done:?}");
    assert_eq!(scene.running(), ["home"]);
    let again = scene.assemble("--scan");
    assert_eq!(again.code, Some(0), "{again:?}");
    again.expect_said(&["home: runs already"]);
    let said = scene.assemble("--scan --verbose").expect_said(&["root (", "no URAID line names it, so it is mdadm's"]);
    assert_eq!(said.code, Some(0));
    assert_eq!(scene.running(), ["home"]);
}

#[test]
fn members_are_looked_for_where_the_line_says_in_folders_and_patterns() {
    let scene = Scene::new(&["home", "root", "other"]);
    scene.config("DEVICE /nowhere/*\nURAID home members=DIR/home.d\nURAID root members=DIR/root.d/disk?\n");
    let done = scene.assemble("--scan");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(scene.running(), ["home", "root"]);
}

#[test]
fn an_array_line_hides_those_that_none_lists_and_this_is_said() {
    let scene = Scene::new(&["home", "root"]);
    let uuid = scene.uuid("home");
    scene.config(&format!("DEVICE DIR/*.d/disk*\nARRAY /dev/md/attic UUID={uuid}\nURAID all\n"));
    let done = scene.assemble("--scan");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.expect_said(&["root (", "not started: there are ARRAY lines, and none is about it"]);
    // It is called as its line says, and its own name means it, too.
    assert_eq!(scene.running(), ["attic"]);
    assert!(scene.0.uraid(["detail", "home"]).expect_done().stdout.contains("Raid Level : raid1"));
    scene.config(&format!("DEVICE DIR/*.d/disk*\nARRAY <ignore> UUID={uuid}\nURAID all\n"));
    assert_eq!(scene.assemble("--scan").code, Some(0));
    assert_eq!(scene.running(), ["attic", "root"]);
}

#[test]
fn a_missing_member_keeps_an_array_from_starting_only_if_that_is_said() {
    let scene = Scene::new(&["home"]);
    scene.config("URAID home members=DIR/home.d\n");
    fs::remove_file(scene.member("home", 1)).expect("it is there");
    let refused = scene.assemble("--scan --no-degraded");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    refused.expect_said(&["home: not started or not mounted, see above"]);
    let one = scene.assemble("home");
    assert_eq!(one.code, Some(1), "{one:?}");
    assert_eq!(scene.assemble("--scan").code, Some(0));
    assert_eq!(scene.running(), ["home"]);
}

#[test]
fn one_array_is_named_by_its_line_its_uuid_its_name_or_its_members() {
    let scene = Scene::new(&["home"]);
    scene.config("");
    let uuid = scene.uuid("home");
    for (words, called) in [
        (format!("--uuid {uuid} DIR/home.d"), "home"),
        ("--name home DIR/home.d/*".to_owned(), "home"),
        (format!("/dev/md5 --uuid {uuid} DIR/home.d"), "md5"),
        ("attic DIR/home.d/disk0 DIR/home.d/disk1".to_owned(), "attic"),
        ("/dev/md/attic DIR/home.d".to_owned(), "attic"),
    ] {
        let done = scene.assemble(&words);
        assert_eq!(done.code, Some(0), "{words}: {done:?}");
        assert_eq!(scene.running(), [called], "{words}");
        let device = format!("/dev/{called}");
        let address = if called == "md5" { &device } else { called };
        scene.0.uraid(["stop", address]).expect_done();
    }
    scene.config("URAID home members=DIR/home.d\n");
    assert_eq!(scene.assemble("home").code, Some(0));
    assert_eq!(scene.running(), ["home"]);
}

#[test]
fn what_is_not_there_or_not_one_is_refused_in_a_sentence() {
    let scene = Scene::new(&["home", "root"]);
    scene.config("");
    for (words, code, said) in [
        ("--scan", 2, "without one, all arrays are mdadm's"),
        (
            "nothing",
            1,
            "nothing: no ARRAY or URAID line of DIR/mdadm.conf names it: give its members, --uuid or --name",
        ),
        ("x DIR/home.d DIR/root.d", 1, "x is found 2 times: "),
        ("--name nobody DIR/home.d", 1, "no member of nobody among DIR/home.d"),
        ("DIR/home.d/disk0 DIR/home.d/disk1", 1, "expected what the array is to be called"),
        ("x DIR/home.d/nothing", 1, "not found"),
    ] {
        let done = scene.assemble(words);
        assert_eq!(done.code, Some(code), "{words}: {done:?}");
        done.expect_said(&[&said.replace("DIR", &scene.directory())]);
    }
    scene.config("URAID home members=DIR/nowhere\n");
    scene.assemble("--scan").expect_said(&["no member of home among", "nowhere"]);
    assert_eq!(scene.running(), [""; 0]);
}

#[test]
fn faults_of_the_configuration_are_told_with_their_line_and_cost_nothing_else() {
    let scene = Scene::new(&["home"]);
    scene.config("DEVISE x\nURAID home members=DIR/home.d color=red\nURAID home\n");
    let done = scene.assemble("--scan");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.expect_said(&[
        "mdadm.conf:1: \"DEVISE\" is no keyword of mdadm.conf: the line is skipped",
        "mdadm.conf:2: URAID does not take \"color=red\": the word is skipped",
        "mdadm.conf:3: array home has a line already,",
    ]);
    assert_eq!(scene.running(), ["home"]);
}

#[test]
fn a_dry_run_says_what_it_would_start_and_starts_nothing() {
    let scene = Scene::new(&["home"]);
    scene.config("URAID home members=DIR/home.d shards=1 read-only\n");
    let done = scene.assemble("--scan --dry-run").expect_done();
    let (uuid, folder) = (scene.uuid("home"), scene.folder("home"));
    let line = format!("uraid serve --background --run --read-only --uuid={uuid} --shards=1 -- {folder}\n");
    assert_eq!(done.stdout, line);
    assert_eq!(scene.running(), [""; 0]);
}

#[test]
fn serve_takes_the_array_of_a_line_in_its_own_process() {
    let scene = Scene::new(&["home", "root"]);
    scene.config("URAID home members=DIR/home.d shards=1 read-only\nURAID root members=DIR/root.d\n");
    let several = scene.uraid("serve", "--scan");
    several.expect_refused(&["--scan means 2 arrays, home, root: name one of them"]);
    scene.uraid("serve", "--scan nobody").expect_refused(&["no member of nobody is found that a URAID line takes"]);
    let done = scene.uraid("serve", "--scan /dev/md/home --background");
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(scene.running(), ["home"]);
    let shown = scene.0.uraid(["detail", "--json", "home"]).expect_done().stdout;
    assert!(shown.contains("\"shards\":1") && shown.contains("\"read_only\":\""), "{shown}");
}

#[test]
fn a_line_whose_options_cannot_be_served_is_refused_with_its_place() {
    let scene = Scene::new(&["home"]);
    scene.config("URAID home members=DIR/home.d memory-limit=much\n");
    scene.uraid("serve", "--scan home").expect_refused(&["mdadm.conf:1: memory-limit=much: "]);
    let done = scene.assemble("--scan");
    assert_eq!(done.code, Some(1), "{done:?}");
    assert_eq!(scene.running(), [""; 0]);
}

#[test]
fn the_second_array_of_a_name_gets_a_suffix() {
    let scene = Scene::new(&["home"]);
    let scratch = &scene.0;
    fs::create_dir(scratch.path("other.d")).expect("room");
    scratch.create("home", "--level 1 --raid-devices 2 --assume-clean", &Scene::members_in(scratch, "other"));
    scene.config("DEVICE DIR/*.d/disk*\nURAID all\n");
    let done = scene.assemble("--scan");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.expect_said(&["another array that is called home runs: this one is called home_0"]);
    assert_eq!(scene.running(), ["home", "home_0"]);
    assert_eq!(scene.assemble("--scan").code, Some(0));
    assert_eq!(scene.running(), ["home", "home_0"]);
}

#[test]
fn examine_looks_where_the_configuration_says_and_takes_folders_and_patterns() {
    let scene = Scene::new(&["home", "root"]);
    scene.config("DEVICE DIR/home.d/disk*\n");
    scene.0.member("home.d/note.txt", 100);
    let listed = scene.uraid("examine", "--scan").expect_done().stdout;
    let line = format!("ARRAY /dev/md/home  metadata=1.2 UUID={} name=home\n", scene.uuid("home"));
    assert_eq!(listed, line);
    for words in ["--brief DIR/home.d", "--brief DIR/home.d/d*", "--scan DIR/home.d"] {
        assert_eq!(scene.uraid("examine", words).expect_done().stdout, line, "{words}");
    }
    let all = scene.uraid("examine", "--brief DIR/home.d DIR/root.d/*").expect_done().stdout;
    assert_eq!(all.lines().count(), 2, "{all}");
    // What the user names must be a member.
    assert_eq!(scene.uraid("examine", "--brief DIR/home.d/note.txt").code, Some(1));
}

#[test]
fn a_line_of_devices_is_about_the_array_on_them() {
    let scene = Scene::new(&["home", "root"]);
    scene.config("DEVICE DIR/*.d/disk*\nARRAY /dev/md/attic devices=DIR/root.d/disk0,DIR/root.d/disk1\nURAID all\n");
    let done = scene.assemble("--scan");
    assert_eq!(done.code, Some(0), "{done:?}");
    done.expect_said(&["home (", "not started: there are ARRAY lines, and none is about it"]);
    assert_eq!(scene.running(), ["attic"]);
    assert!(scene.0.uraid(["detail", "root"]).expect_done().stdout.contains("root.d/disk1"));
}

#[test]
fn a_configuration_that_cannot_be_read_is_named_and_harms_no_array() {
    let scene = Scene::new(&["home"]);
    scene.config("URAID home members=DIR/home.d\n");
    assert_eq!(scene.assemble("--scan").code, Some(0));
    let scratch = &scene.0;
    let fifo = std::process::Command::new("mkfifo").arg(scratch.path("fifo")).status().expect("mkfifo");
    assert!(fifo.success());
    let cycle = scratch.path("cycle");
    std::os::unix::fs::symlink(&cycle, &cycle).expect("room");
    fs::write(scratch.path("open"), "URAID home\n").expect("room");
    fs::set_permissions(scratch.path("open"), Permissions::from_mode(0o666)).expect("ours");
    for (name, said) in [
        ("fifo", "fifo: is no regular file: it is not read"),
        ("cycle", "cycle: cannot be read (too many levels of symbolic links): it is skipped"),
        ("open", "open: others may write it (mode 0666): it is not read; `chmod go-w` ends that"),
        ("missing", "missing: cannot be read (not found): it is skipped"),
    ] {
        let done = scene.assemble(&format!("--scan --config DIR/{name}"));
        assert_eq!((done.code, done.stderr.lines().count()), (Some(2), 2), "{name}: {done:?}");
        done.expect_said(&[said, "no URAID line in"]);
    }
    assert_eq!(scene.running(), ["home"]);
    assert!(scene.0.uraid(["detail", "home"]).expect_done().stdout.contains("State : clean"));
}
