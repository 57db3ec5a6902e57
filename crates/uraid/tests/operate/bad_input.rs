//! Bad input for what operates arrays: each is answered by one sentence, and the array serves the same bytes as before.
//! Owns: the tables of it: what is refused, and what a configuration may have. Not here: what each verb makes of good input
//! (its own file), each line of a configuration (`config`), a full disk under the history (`history`), a mail program that
//! fails or hangs (`monitor`).

use crate::common::{MIB, pattern};
use crate::history::Rig;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;

/// A raid5 that serves these bytes.
struct Bystander {
    rig: Rig,
    data: Vec<u8>,
}

impl Bystander {
    fn new() -> Bystander {
        let (rig, data) = (Rig::new("5", 3), pattern(50, MIB as usize));
        rig.served.write_all(0, &data);
        Bystander { rig, data }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.rig.scratch.path(name)
    }

    /// A folder in the scratch folder with these permissions.
    fn folder(&self, name: &str, mode: u32) {
        fs::create_dir(self.path(name)).expect("room");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).expect("ours");
    }

    #[track_caller]
    fn expect_unharmed(&self, after: &str) {
        assert_eq!(self.rig.served.first_difference(&self.data), None, "after {after}");
        let state = self.rig.uraid("detail --test home");
        assert_eq!(state.code, Some(0), "after {after}: {state:?}");
    }

    /// Runs the words, in which `@` is the scratch folder, with the environment's variable before them, if there is one.
    fn run(&self, line: &str) -> (Option<i32>, Vec<String>) {
        let line = line.replace("@", &self.path("").display().to_string());
        let (variables, words): (Vec<&str>, Vec<&str>) =
            line.split_whitespace().partition(|word| word.starts_with("URAID_"));
        let mut command = self.rig.scratch.command(words);
        command.envs(variables.iter().filter_map(|variable| variable.split_once('=')));
        let output = command.output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // Of a wrong option, what follows says where help is.
        let lines = said.lines().take_while(|line| !line.is_empty()).map(str::to_owned).collect();
        (output.status.code(), lines)
    }
}

/// What is refused at once: the words, the exit code, and what the only line on stderr says.
const REFUSED: [(&str, i32, &str); 39] = [
    ("monitor --scan", 1, "No mail address or alert command - not monitoring"),
    ("monitor --scan home --json", 1, "--scan watches all arrays"),
    ("monitor --scan --webhook https://a/b", 2, "https is not spoken here"),
    ("monitor --scan --webhook nonsense", 2, "is no address of a web server, expected http://HOST[:PORT]/PATH"),
    ("monitor --scan --reactions @/none", 1, "--reactions: @/none: not found"),
    ("monitor --scan --reactions @/open", 1, "--reactions: other users may write to @/open (mode 777)"),
    ("monitor --scan --reactions @/m0", 1, "--reactions: @/m0 is not a folder"),
    ("monitor --scan --reactions @ --reactions-a-minute 0", 2, "expected a number from 1 to 1000"),
    ("monitor --scan --program @/none", 1, "--program: @/none: not found"),
    ("monitor --scan --program @/m0", 1, "--program: @/m0 is not an executable file"),
    ("monitor --scan --mail root --sendmail @/none", 1, "--sendmail: @/none: not found"),
    ("monitor --scan --json --delay 0", 2, "expected a number from 1 to 86400"),
    ("monitor --acknowledge nobody", 1, "no monitor has kept anything there"),
    ("URAID_STATE_DIR=@/m0 monitor --scan --json --oneshot", 1, "@/m0 is not a directory"),
    ("URAID_STATE_DIR=@/open monitor --scan --json --oneshot", 1, "other users may write to @/open (mode 777)"),
    ("metrics --listen unix:@/none/a.sock", 1, "--listen unix:@/none/a.sock: not found"),
    ("metrics --listen unix:/sys/a.sock", 1, "--listen unix:/sys/a.sock: "),
    ("metrics --listen unix:@/m0", 1, "another process listens there, or it is no socket"),
    ("metrics --listen tcp:127.0.0.1:PORT", 1, "--listen tcp:127.0.0.1:PORT: address already in use"),
    ("metrics --listen tcp:127.0.0.1:99999", 2, "is not an address and a port"),
    ("metrics --listen unix:LONG", 1, "the path has 150 bytes, more than the 107 of a socket"),
    ("metrics --textfile @/none/a.prom", 1, "--textfile @/none/a.prom: not found"),
    ("metrics --textfile /sys/a.prom", 1, "--textfile /sys/a.prom: "),
    ("metrics --textfile @/m0", 1, "node_exporter reads only names that end in .prom"),
    ("URAID_RUNTIME_DIR=@/open metrics --once", 1, "other users may write to @/open (mode 777)"),
    ("scrub --now --window 25:00-26:00", 2, "is no window, expected hours such as 01:00-06:00 that differ"),
    ("scrub --now --window 01:00-01:00", 2, "is no window, expected hours such as 01:00-06:00 that differ"),
    ("scrub --now --window night", 2, "is no window, expected hours such as 01:00-06:00 that differ"),
    ("scrub --now --max fast", 2, "\"fast\" is not a size"),
    ("scrub --now nobody", 1, "no running array is called nobody"),
    ("scrub --status nobody", 1, "no history has an array nobody"),
    ("URAID_STATE_DIR=@/m0 scrub --now", 1, "@/m0 is not a directory"),
    ("maintenance home --for soon", 2, "\"soon\" is no time, expected 90s, 30m, 1h or 2d"),
    ("maintenance home --for 0s", 2, "\"0s\" is no time"),
    ("maintenance home --for 99999999999999d", 1, "home: maintenance is at most 7 days"),
    ("history --since noon", 2, "\"noon\" is no time, expected 90s, 30m, 2h, 7d, 2026-11-30 or 2026-11-30T18:00:00Z"),
    ("history --since 2026-02-30", 2, "\"2026-02-30\" is no time"),
    ("watch --interval 0", 2, "expected seconds, from 0.1 to 86400"),
    ("URAID_RUNTIME_DIR=@/m0 status", 1, "the runtime directory @/m0 is not used: @/m0 is not a directory"),
];

#[test]
fn what_makes_no_sense_is_refused_by_one_sentence_and_the_array_serves_on() {
    let bystander = Bystander::new();
    bystander.folder("open", 0o777);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("it is bound").port().to_string();
    let long = format!("/{}", "a".repeat(149));
    let folder = bystander.path("").display().to_string();
    let folder = folder.trim_end_matches('/');
    for (line, code, says) in REFUSED {
        let fill = |text: &str| text.replace("PORT", &port).replace("LONG", &long).replace("@", folder);
        // `HOST[:PORT]` is the program's own word.
        let says = if line.contains("PORT") || says.contains("@") { fill(says) } else { says.to_owned() };
        let (found, said) = bystander.run(&fill(line));
        assert_eq!(found, Some(code), "{line}: {said:?}");
        assert!(said.len() == 1 && said[0].matches(&says).count() == 1, "{line}: {said:?} is not once {says:?}");
        bystander.expect_unharmed(line);
    }
}

#[test]
fn a_folder_of_reactions_of_another_user_is_refused() {
    let bystander = Bystander::new();
    bystander.folder("other", 0o755);
    // Only root can give a folder away; for another user, one of a third user is that of nobody he can name.
    if chown(bystander.path("other"), Some(12_345), None).is_err() {
        println!("this user cannot give a folder away: not tested");
        return;
    }
    let (code, said) = bystander.run("monitor --scan --reactions @/other");
    assert!(code == Some(1) && said.len() == 1, "{said:?}");
    assert!(said[0].contains("/other belongs to user 12345, expected root or user "), "{said:?}");
    bystander.expect_unharmed("a folder of another user");
}

/// What a configuration may have: its name in the scratch folder, its bytes, its mode, and what is said of it.
const CONFIGURATIONS: [(&str, &[u8], u32, &str); 9] = [
    ("keyword", b"FOO bar\nURAID home\n", 0o644, "keyword:1: \"FOO\" is no keyword of mdadm.conf: the line is skipped"),
    ("word", b"URAID home shards=many\n", 0o644, "word:1: \"shards=many\" is not understood, expected 1 to 64"),
    ("twice", b"URAID home\nURAID home shards=2\n", 0o644, "array home has a line already, "),
    (
        "names",
        b"ARRAY x uuid=00000001:00000002:00000003:00000004\nARRAY x uuid=00000001:00000002:00000003:00000005\nURAID home\n",
        0o644,
        "x has a line already, ",
    ),
    ("identity", b"ARRAY x\nURAID home\n", 0o644, "identity:1: ARRAY x has no identity information"),
    ("binary", b"ARRAY \xff\xfe\nURAID home\n", 0o644, "binary:1: the line has bytes that are not UTF-8 text"),
    ("open", b"URAID home\n", 0o666, "open: others may write it (mode 0666): it is not read; `chmod go-w` ends that"),
    ("circle", b"", 0, "circle: cannot be read (too many levels of symbolic links): it is skipped"),
    ("none", b"", 0, "none: cannot be read (not found): it is skipped"),
];

#[test]
fn a_configuration_that_cannot_be_used_is_named_once_and_costs_only_itself() {
    let bystander = Bystander::new();
    for (name, bytes, mode, says) in CONFIGURATIONS {
        let path = bystander.path(name);
        match name {
            "circle" => symlink(&path, &path).expect("room"),
            "none" => {}
            _ => {
                fs::write(&path, bytes).expect("room");
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("ours");
            }
        }
        let (_, said) = bystander.run(&format!("assemble --scan --dry-run --config @/{name}"));
        assert_eq!(said.iter().filter(|line| line.contains(says)).count(), 1, "{name}: {said:?}");
        bystander.expect_unharmed(name);
    }
    // A folder that has itself, a circle and a good file: the good one is read.
    bystander.folder("conf.d", 0o755);
    let inside = |name: &str| bystander.path("conf.d").join(name);
    symlink(".", inside("a.conf")).and_then(|()| symlink("b.conf", inside("b.conf"))).expect("room");
    let members = bystander.path("m*").display().to_string();
    fs::write(inside("c.conf"), format!("URAID home members={members}\n")).expect("room");
    let (_, said) = bystander.run("assemble --scan --dry-run --config @/conf.d");
    for says in ["a.conf: is no regular file: it is not read", "b.conf: cannot be read (too many levels"] {
        assert_eq!(said.iter().filter(|line| line.contains(says)).count(), 1, "{said:?}");
    }
    assert!(said.iter().any(|line| line.contains("home") && !line.contains("cannot be read")), "{said:?}");
    bystander.expect_unharmed("a folder with a circle");
}
