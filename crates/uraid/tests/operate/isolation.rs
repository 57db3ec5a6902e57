//! What the tests of this program start sees nothing of the machine that runs them.
//! Owns: the variables of `Scratch::command`. Not here: what each of them means (`runtime_directory`, `names`).

use crate::common::Scratch;
use std::ffi::OsStr;

#[test]
fn a_test_has_its_own_directories_and_no_configuration() {
    let scratch = Scratch::new();
    let command = scratch.command(["list"]);
    let value = |name: &str| {
        let found = command.get_envs().find(|(variable, _)| *variable == OsStr::new(name));
        found.and_then(|(_, value)| value).map(OsStr::to_owned)
    };
    assert_eq!(value("URAID_RUNTIME_DIR"), scratch.path("state").parent().map(|path| path.as_os_str().to_owned()));
    assert_eq!(value("URAID_STATE_DIR"), Some(scratch.path("state").into_os_string()));
    assert_eq!(value("URAID_CONFIG"), Some("none".into()));
}
