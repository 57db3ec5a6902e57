//! `uraid create` with a configuration.
//! Owns: CREATE and HOMEHOST as defaults. Not here: what `create` writes (`suite`).

use crate::common::{MIB, Scratch};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_configuration_says_what_a_new_array_gets_unless_the_command_does() {
    let scratch = Scratch::new();
    let members = scratch.members("m", 2, 4 * MIB);
    let config = scratch.path("mdadm.conf");
    let create = |text: &str, options: &str| {
        fs::write(&config, text).expect("room");
        fs::set_permissions(&config, Permissions::from_mode(0o644)).expect("ours");
        let words = format!("create --run -l 1 -n 2 -N home --config {} {options}", config.display());
        let words = words.split_whitespace().map(std::path::PathBuf::from).chain(members.iter().cloned());
        scratch.uraid(words.collect::<Vec<_>>())
    };
    let examined = || {
        let shown = scratch.uraid(["examine".into(), "--json".into(), members[0].clone()]).expect_done().stdout;
        let has = |text: &str| shown.contains(text);
        (has("\"version\":\"1.0\""), has("\"name\":\"box:home\""), has("\"name\":\"home\""))
    };
    create("CREATE metadata=1.0\nHOMEHOST box\n", "").expect_done();
    assert_eq!(examined(), (true, true, false));
    create("CREATE metadata=1.0\nHOMEHOST <none>\n", "-e 1.2").expect_done();
    assert_eq!(examined(), (false, false, true));
    create("HOMEHOST <none>\n", "--homehost box").expect_done();
    assert_eq!(examined(), (false, true, false));
    create("CREATE metadata=0.90\n", "")
        .expect_refused(&["CREATE metadata=0.90 in mdadm.conf: superblocks of version 0.90"]);
    create("CREATE bbl=no\nCREATE color=red\n", "").expect_done().expect_said(&[
        "mdadm.conf:2: CREATE does not take \"color=red\": the word is skipped",
        "CREATE bbl=no: new members have an empty list of bad blocks all the same",
    ]);
}
