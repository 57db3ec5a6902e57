//! Programs that are told events: what they get, and what becomes of those that fail or hang.
//! Owns: these cases. Not here: mails over the binary (`crates/uraid/tests/operate`).

use super::*;
use crate::monitor::event::EventKind;
use crate::monitor::event::tests::event;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A folder with scripts, gone with the test.
struct Scripts(PathBuf);

impl Scripts {
    fn new(name: &str) -> Scripts {
        let path = std::env::temp_dir().join(format!("uraid-channel-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary folder is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        Scripts(path)
    }

    /// Another process writes it: while this one has it open for writing, a child of another test may hold it, and it
    /// could not be run.
    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.0.join(name);
        let text = format!("#!/bin/sh\n{body}\n");
        let mut shell = Command::new("sh");
        shell.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", &text]).arg(&path);
        assert!(shell.status().expect("a shell").success());
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn job(kind: EventKind, component: Option<&str>) -> Job {
    Job { event: event(kind, component), is_again: false, mdstat: "Personalities : \n".to_owned() }
}

fn program(path: &Path) -> Program {
    Program { path: path.to_owned() }
}

#[test]
fn a_program_gets_mdadm_s_arguments_and_the_event_as_its_environment_without_a_shell() {
    let scripts = Scripts::new("arguments");
    let out = scripts.0.join("out");
    let body = format!("printf '%s|' \"$@\" >{0}; env | grep ^URAID_ | sort >>{0}", out.display());
    let path = scripts.script("program", &body);
    let mut hostile = job(EventKind::Fail, Some("/dev/$(touch x); 'a b'"));
    hostile.event.device = "/dev/md/`id`".to_owned();
    assert!(matches!(program(&path).tell(&hostile), Ok(Told::Done)));
    let got = scripts.read("out");
    assert!(got.starts_with("Fail|/dev/md/`id`|/dev/$(touch x); 'a b'|"), "{got}");
    for line in ["URAID_EVENT=Fail", "URAID_EVENT_ID=e-1", "URAID_AGAIN=0", "URAID_REPEAT=0", "URAID_SEVERITY=critical"]
    {
        assert!(got.contains(&format!("{line}\n")), "{line}: {got}");
    }
    assert!(matches!(program(&path).tell(&job(EventKind::NewArray, None)), Ok(Told::Done)));
    assert!(scripts.read("out").starts_with("NewArray|/dev/md/home|"));
}

#[test]
fn a_program_that_fails_was_told_and_one_that_asks_for_it_or_is_not_safe_is_told_again() {
    let scripts = Scripts::new("codes");
    let fail = job(EventKind::Fail, None);
    let failing = scripts.script("failing", "exit 3");
    let said = program(&failing).tell(&fail).expect("it was told");
    assert!(matches!(said, Told::DoneSaying(text) if text.ends_with("failing ended with exit code 3")));
    let later = program(&scripts.script("later", "exit 75")).tell(&fail).expect_err("it wants it again");
    assert!(later.text.ends_with("later ended with exit code 75: it is told again"), "{later}");
    let open = scripts.script("open", "exit 0");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("ours");
    let refused = program(&open).tell(&fail).expect_err("anybody could change it");
    assert!(refused.text.contains("other users may write to"), "{refused}");
    assert!(program(&scripts.0.join("none")).tell(&fail).is_err());
}

#[test]
fn a_mail_program_that_fails_or_hangs_is_named_and_its_mail_stays() {
    let scripts = Scripts::new("mail");
    let out = scripts.0.join("mail");
    let good = scripts.script("good", &format!("echo \"$@\" >{0}; cat >>{0}", out.display()));
    let mail = |program: PathBuf| Mail {
        time_max: Duration::from_millis(300),
        ..Mail::new("root".to_owned(), Some("md@box".to_owned()), program)
    };
    let fail = job(EventKind::Fail, Some("/dev/sdb"));
    let mut patient = Mail { time_max: Duration::from_secs(60), ..mail(good) };
    assert!(matches!(patient.tell(&fail), Ok(Told::Done)));
    let got = scripts.read("mail");
    assert!(got.starts_with("-t -f md@box\nFrom: md@box\nTo: root\nSubject: Fail event on /dev/md/home:"), "{got}");
    assert!(got.ends_with("following:\n\nPersonalities : \n"), "{got}");
    let mut failing = Mail { time_max: Duration::from_secs(60), ..mail(scripts.script("failing", "exit 1")) };
    let failed = failing.tell(&fail).expect_err("it failed");
    assert!(failed.text.ends_with("failing ended with exit code 1") && !failed.may_have_arrived, "{failed}");
    let hung = mail(scripts.script("hung", "sleep 1000")).tell(&fail).expect_err("it hangs");
    assert!(hung.text.contains("did not end within") && hung.may_have_arrived, "{hung}");
}

#[test]
fn a_folder_of_reactions_has_a_file_for_each_kind() {
    let scripts = Scripts::new("reactions");
    let out = scripts.0.join("out");
    for name in ["Fail", "RebuildNN"] {
        scripts.script(name, &format!("echo {name} $URAID_EVENT >>{}", out.display()));
    }
    let mut reactions = Reactions::new(scripts.0.clone(), 2);
    let filter = reactions.filter();
    assert!(filter.admits(&event(EventKind::Fail, None)) && filter.admits(&event(EventKind::Rebuild(40), None)));
    assert!(!filter.admits(&event(EventKind::NewArray, None)));
    assert!(matches!(reactions.tell(&job(EventKind::Rebuild(40), None)), Ok(Told::Done)));
    for _ in 0..2 {
        assert!(matches!(reactions.tell(&job(EventKind::Fail, None)), Ok(Told::Done)));
    }
    let said = reactions.tell(&job(EventKind::Fail, None)).expect("it is left out");
    assert!(matches!(said, Told::DoneSaying(text) if text.ends_with("at most 2 times a minute: left out")));
    assert!(matches!(reactions.tell(&job(EventKind::Fail, None)), Ok(Told::Done)), "that is said once");
    assert_eq!(scripts.read("out"), "RebuildNN Rebuild40\nFail Fail\nFail Fail\n");
}
