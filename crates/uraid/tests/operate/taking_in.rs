//! `uraid incremental`: devices that come one by one, and go.
//! Owns: whole commands against members of the test's own folder. Not here: udev's rules, which call them (`units`).

use crate::common::{Done, MIB, Scratch, wait};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// One array, and a configuration that gives it to uraid.
struct Scene {
    scratch: Scratch,
    members: Vec<PathBuf>,
}

impl Scene {
    fn new(options: &str, count: usize) -> Scene {
        let scratch = Scratch::new();
        let members = scratch.members("m", count, 4 * MIB);
        scratch.create("home", options, &members);
        let scene = Scene { scratch, members };
        scene.config("URAID home members=DIR\n");
        scene
    }

    fn config(&self, text: &str) {
        let path = self.scratch.path("mdadm.conf");
        let folder = self.scratch.path("").display().to_string();
        fs::write(&path, text.replace("DIR", folder.trim_end_matches('/'))).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("ours");
    }

    /// `uraid incremental WORDS`, with `m0` for the path of that member.
    fn incremental(&self, words: &str) -> Done {
        let word = |word: &str| match word.strip_prefix('m').and_then(|n| n.parse::<usize>().ok()) {
            Some(n) => self.members[n].clone(),
            None => PathBuf::from(word),
        };
        let words = ["incremental".into()].into_iter().chain(words.split_whitespace().map(word));
        let mut command = self.scratch.command(words);
        let output = command.env("URAID_CONFIG", self.scratch.path("mdadm.conf")).output().expect("the binary runs");
        Done {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn runs(&self) -> bool {
        self.scratch.uraid(["list"]).stdout.contains("home")
    }

    fn detail(&self) -> String {
        self.scratch.uraid(["detail", "home"]).expect_done().stdout
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.runs() {
            self.scratch.uraid(["stop", "--force", "home"]);
        }
    }
}

const RAID5: &str = "--level 5 --raid-devices 3 --assume-clean --bitmap internal";

#[test]
fn an_array_starts_with_its_last_member() {
    let scene = Scene::new(RAID5, 3);
    let first = scene.incremental("m1").expect_done();
    assert!(first.stderr.contains("taken in for home, which has 1 of 3 members and is not started"), "{first:?}");
    let second = scene.incremental("m0").expect_done();
    assert!(second.stderr.contains("2 of 3 members and could be started without the others"), "{second:?}");
    // Once more changes nothing.
    scene.incremental("m0").expect_done();
    assert!(!scene.runs());
    let third = scene.incremental("m2").expect_done();
    assert!(third.stdout.contains("nbd+unix:///home") && third.stderr.contains("which is started"), "{third:?}");
    assert!(scene.detail().contains("State : clean"), "{}", scene.detail());
    let again = scene.incremental("m2").expect_done();
    assert!(again.stderr.contains("home runs, and has it"), "{again:?}");
}

#[test]
fn what_is_not_uraids_is_refused_by_the_first_test_that_it_fails() {
    let scene = Scene::new(RAID5, 3);
    let stranger = scene.scratch.member("other", MIB);
    let words = |path: &PathBuf| path.display().to_string();
    scene.incremental(&words(&stranger)).expect_refused(&["superblock"]);
    scene.config("DEVICE /nowhere/*\nURAID home\n");
    scene.incremental("m0").expect_refused(&["no DEVICE line and no members= of any URAID line names it"]);
    scene.config("DEVICE DIR/m*\nURAID attic\n");
    scene.incremental("m0").expect_refused(&["is a member of home", "no URAID line names it, so it is mdadm's"]);
    scene.config("DEVICE DIR/m*\nURAID home\n");
    let done = scene.incremental("--export m0").expect_done();
    assert!(done.stdout.contains("MD_STARTED=no\n"), "{done:?}");
    scene.config("DEVICE DIR/m*\nURAID home\nARRAY <ignore> name=x UUID=0\n");
    assert_eq!(scene.incremental("").code, Some(2), "a device is missing");
    assert!(!scene.runs());
}

#[test]
fn udev_is_told_what_to_start_and_nothing_starts() {
    let scene = Scene::new(RAID5, 3);
    let told = |n: usize| scene.incremental(&format!("--export --no-start m{n}")).expect_done().stdout;
    let first = told(0);
    assert!(
        first.starts_with("MD_DEVICE=home\nMD_DEVNAME=home\nMD_FOREIGN=no\nMD_STARTED=no\nURAID_ARRAY="),
        "{first}"
    );
    assert!(!first.contains("URAID_SERVICE"), "{first}");
    let second = told(1);
    assert!(
        second.contains("MD_STARTED=unsafe\n") && second.contains("URAID_SERVICE=uraid@home.service\n"),
        "{second}"
    );
    let third = told(2);
    assert!(third.contains("MD_STARTED=nothing\n") && third.contains("URAID_SERVICE=uraid@home.service\n"), "{third}");
    assert!(!scene.runs());
    // All that wait.
    scene.incremental("--run --scan").expect_done();
    assert!(scene.runs());
    assert!(told(2).contains("MD_STARTED=already\n"));
}

/// Without the lines, mdadm's rules would make a second array of what has failed here.
#[test]
fn udev_is_told_whose_a_device_is_that_its_array_does_not_take() {
    let scene = Scene::new("--level 5 --raid-devices 3 --assume-clean", 3);
    (0..3).for_each(|n| drop(scene.incremental(&format!("m{n}")).expect_done()));
    let failed = scene.scratch.path("m0").display().to_string();
    scene.scratch.uraid(["fail", "home", &failed]).expect_done();
    scene.scratch.uraid(["remove", "home", &failed]).expect_done();
    scene.incremental("m0").expect_refused(&["m0"]);
    let told = scene.incremental("--export --no-start m0");
    assert!(told.code == Some(0) && !told.stderr.is_empty(), "{told:?}");
    assert!(told.stdout.contains("MD_STARTED=no\nURAID_ARRAY=") && !told.stdout.contains("URAID_SERVICE"), "{told:?}");
    // Also where no line admits the device as a member of it.
    scene.config("DEVICE DIR/m*\nURAID home members=DIR/m1\n");
    let told = scene.incremental("--export --no-start m0");
    assert!(told.code == Some(0) && told.stdout.contains("URAID_ARRAY="), "{told:?}");
}

#[test]
fn an_array_that_lacks_a_member_starts_by_run_or_after_a_time() {
    let scene = Scene::new(RAID5, 3);
    scene.incremental("m0").expect_done();
    let done = scene.incremental("--run m1").expect_done();
    assert!(done.stderr.contains("which is started"), "{done:?}");
    // The one that comes late is taken back by the bitmap.
    scene.incremental("m2").expect_done();
    wait(|| scene.detail().contains("State : clean \n")).unwrap_or_else(|()| panic!("{}", scene.detail()));
    scene.scratch.uraid(["stop", "--force", "home"]).expect_done();
    wait(|| !scene.runs()).expect("it stops");
    fs::create_dir(scene.scratch.path("away")).expect("room");
    fs::rename(&scene.members[2], scene.scratch.path("away/m2")).expect("ours");
    scene.incremental("--run-after 1s m0").expect_done();
    scene.incremental("--run-after 1s m1").expect_done();
    wait(|| scene.runs()).expect("the process that waits starts it");
    assert!(scene.detail().contains("degraded"), "{}", scene.detail());
}

#[test]
fn one_process_starts_an_array_whose_members_come_at_once() {
    let scene = Scene::new(RAID5, 3);
    let codes: Vec<Done> = std::thread::scope(|scope| {
        let each = [0, 1, 2, 0, 1, 2].map(|n| {
            let scene = &scene;
            scope.spawn(move || scene.incremental(&format!("m{n}")))
        });
        each.into_iter().map(|done| done.join().expect("it only runs")).collect()
    });
    assert!(codes.iter().all(|done| done.code == Some(0)), "{codes:?}");
    assert_eq!(codes.iter().filter(|done| done.stderr.contains("which is started")).count(), 1, "{codes:?}");
    assert!(scene.runs());
}

#[test]
fn a_spare_joins_and_a_device_that_has_gone_leaves() {
    let scene = Scene::new("--level 1 --raid-devices 2 --spare-devices 1 --assume-clean", 3);
    scene.incremental("m0").expect_done();
    scene.incremental("m1").expect_done();
    assert!(scene.runs());
    scene.incremental("m2").expect_done();
    assert!(scene.detail().contains("spare"), "{}", scene.detail());
    let gone = scene.incremental("--fail m0").expect_done();
    assert!(gone.stderr.contains("has gone: it is failed and removed"), "{gone:?}");
    let is_whole = || scene.detail().matches("active sync").count() == 2;
    wait(is_whole).unwrap_or_else(|()| panic!("{}", scene.detail()));
    scene.incremental("--fail m0").expect_refused(&["no running array has it as a member"]);
    // One that the array has failed already.
    scene.scratch.uraid(["fail", "home", "1"]).expect_done();
    scene.incremental("--fail m1").expect_done();
}

#[test]
fn a_unit_serves_an_array_of_the_configuration_in_the_foreground() {
    let scene = Scene::new(RAID5, 3);
    fs::rename(&scene.members[2], scene.scratch.path("away")).expect("ours");
    fs::create_dir(scene.scratch.path("disks")).expect("room");
    for member in &scene.members[..2] {
        fs::rename(member, scene.scratch.path("disks").join(member.file_name().expect("a name"))).expect("ours");
    }
    scene.config("URAID home members=DIR/disks\n");
    let mut command = scene.scratch.command(["assemble", "--foreground", "--run-after", "500ms", "--", "home"]);
    let served = crate::common::Served::start(command.env("URAID_CONFIG", scene.scratch.path("mdadm.conf")));
    served.wait_until_ready();
    assert!(scene.detail().contains("degraded"), "{}", scene.detail());
    assert_eq!(served.stop().code, Some(0));
    // A folder that is called as the array, as /home is where systemd starts services, is not taken for a member.
    fs::create_dir(scene.scratch.path("home")).expect("room");
    for word in ["home", "/dev/md/home"] {
        let mut command = scene.scratch.command(["assemble", "--foreground", "--run-after", "500ms", "--", word]);
        command.env("URAID_CONFIG", scene.scratch.path("mdadm.conf")).current_dir(scene.scratch.path(""));
        let served = crate::common::Served::start(&mut command);
        served.wait_until_ready();
        assert_eq!(served.stop().code, Some(0));
    }
    scene.config("URAID home members=DIR/nothing\n");
    let mut command = scene.scratch.command(["assemble", "--foreground", "home"]);
    let output = command.env("URAID_CONFIG", scene.scratch.path("mdadm.conf")).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
}
