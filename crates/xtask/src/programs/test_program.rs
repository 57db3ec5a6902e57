//! The workspace's test programs: what cargo builds of them, and how one is started as cargo starts it.
//! Owns: [`TestProgram`], the reader of cargo's list. Not here: running many of them (`runner`), faults (`mutants`).
//! Invariant: a test program runs in the folder of its package.

use crate::project;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A test program that was built.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TestProgram {
    /// `engine/requests`; `engine/lib` has the unit tests.
    pub(crate) name: String,
    /// The package's folder, as of `crates/`.
    pub(crate) package: String,
    /// The program.
    pub(crate) executable: PathBuf,
    /// Where it runs.
    pub(crate) folder: PathBuf,
}

impl TestProgram {
    /// Builds what `words` of `cargo test` name; the programs, by name. The error is for people; cargo has said more.
    pub(crate) fn build(mut cargo: Command, words: &[&str]) -> Result<Vec<TestProgram>, String> {
        cargo.arg("test").args(words).args(["--no-run", "--quiet", "--message-format", "json-render-diagnostics"]);
        let done = cargo.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let done = done.map_err(|error| format!("cargo: {error}"))?;
        if !done.status.success() {
            return Err(format!("cargo test {} --no-run failed, see above", words.join(" ")));
        }
        let mut programs: Vec<TestProgram> =
            String::from_utf8_lossy(&done.stdout).lines().filter_map(TestProgram::from_line).collect();
        programs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(programs)
    }

    /// One line of cargo's messages.
    fn from_line(line: &str) -> Option<TestProgram> {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let executable = message["executable"].as_str().filter(|_| is_test)?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        let package = folder.file_name()?.to_str()?.to_string();
        let target = message["target"]["name"].as_str()?;
        let name = match message["target"]["kind"][0].as_str()? {
            "test" | "bin" => format!("{package}/{target}"),
            "lib" => format!("{package}/lib"),
            _ => return None,
        };
        Some(TestProgram { name, package, executable: executable.into(), folder: folder.to_path_buf() })
    }

    /// A command that starts it as `cargo test` does.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).stdin(Stdio::null());
        command
    }
}

/// The tests in the documentation of all crates, which only rustdoc can build.
pub(crate) fn documentation_tests() -> Command {
    project::cargo(&["test", "--workspace", "--doc", "--quiet"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_read_from_cargos_messages() {
        let line = "{\"reason\":\"compiler-artifact\",\"package_id\":\"x\",\"manifest_path\":\"/tree/crates/engine/Cargo.toml\",\
                    \"target\":{\"kind\":[\"test\"],\"crate_types\":[\"bin\"],\"name\":\"requests\",\"test\":true},\
                    \"profile\":{\"opt_level\":\"1\",\"test\":true},\"executable\":\"/target/debug/deps/requests-1\"}";
        let program = TestProgram::from_line(line).expect("a test");
        assert_eq!((program.name.as_str(), program.folder.to_str()), ("engine/requests", Some("/tree/crates/engine")));
        let library = line.replace("\"kind\":[\"test\"]", "\"kind\":[\"lib\"]");
        assert_eq!(TestProgram::from_line(&library).expect("unit tests").name, "engine/lib");
        assert_eq!(TestProgram::from_line(&line.replace("\"1\",\"test\":true", "\"1\",\"test\":false")), None);
    }
}
