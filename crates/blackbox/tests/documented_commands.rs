//! The commands of README.md and of every page of the book, run as a reader pastes them.
//! Owns: which pages there are, and who runs each. Not here: what a block is, how it is run (`uraid_blackbox::book`); what
//! else the commands do (`crates/uraid/tests`); the rows of from-mdadm.md (`mdadm_rows` in `crates/uraid/tests/operate`).

use uraid_blackbox::book::block::{self, Block, Kind};
use uraid_blackbox::book::document;
use uraid_blackbox::book::output::fit;
use uraid_blackbox::book::shell::{Counts, Shell, User};
use uraid_blackbox::programs::foreign;

const FOLDER: &str = "docs/operating";
const README: &str = "README.md";
const PAGE: &str = "docs/operating/first-array.md";
const PICTURE: &str = "docs/operating/first-array.svg";

/// The command blocks of a document.
fn blocks(path: &str) -> Vec<Block> {
    block::blocks(&document(path)).unwrap_or_else(|why| panic!("{path}:{why}"))
}

/// A test for each page, so that they run beside each other and are chosen by name.
macro_rules! pages {
    ($($test:ident: $file:literal,)+) => {
        /// Every page of SUMMARY.md: another test compares the two.
        const PAGES: &[&str] = &[$($file),+];
        $(
            #[test]
            fn $test() {
                run_page($file);
            }
        )+
    };
}

pages! {
    page_install: "install.md",
    page_first_array: "first-array.md",
    page_serving: "serving.md",
    page_configuration: "configuration.md",
    page_boot: "boot.md",
    page_looking: "looking.md",
    page_status: "status.md",
    page_when_a_disk_dies: "when-a-disk-dies.md",
    page_history: "history.md",
    page_checking: "checking.md",
    page_scrub: "scrub.md",
    page_moving: "moving.md",
    page_recovering: "recovering.md",
    page_force: "force.md",
    page_monitoring: "monitoring.md",
    page_watching: "watching.md",
    page_metrics: "metrics.md",
    page_performance: "performance.md",
    page_security: "security.md",
    page_errors: "errors.md",
    page_error_messages: "error-messages.md",
    page_from_mdadm: "from-mdadm.md",
}

/// Pages without a command block: tables of what is refused and why, whose rows name their tests.
const WITHOUT_COMMANDS: [&str; 4] = ["force.md", "errors.md", "error-messages.md", "from-mdadm.md"];

/// Runs a page: as root where something is mounted, else as an ordinary user.
fn run_page(file: &str) {
    let path = format!("{FOLDER}/{file}");
    let blocks = blocks(&path);
    let has_commands = blocks.iter().any(|block| matches!(block.kind, Kind::Sh | Kind::Console));
    assert_eq!(has_commands, !WITHOUT_COMMANDS.contains(&file), "{path}: whether it has blocks of commands");
    let is_roots = blocks.iter().any(|block| block.needs.iter().any(|need| need == "mounts"));
    let shell = Shell::new(if is_roots { User::Own } else { User::ordinary() });
    let counts = shell.run_all(&path, &blocks);
    let runnable = blocks.iter().filter(|block| block.is_run()).count();
    assert_eq!(counts.run + counts.skipped, runnable, "{path}: every block was run, or skipped aloud");
    let left = shell.run("uraid list").expect_done();
    assert_eq!(left.out, "", "{path}: a page stops what it starts");
}

#[test]
fn every_page_of_the_summary_is_run_and_no_other() {
    let summary = document(&format!("{FOLDER}/SUMMARY.md"));
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    assert_eq!(links.collect::<Vec<_>>(), PAGES);
}

#[test]
fn no_command_of_the_page_on_proofs_of_rescue_is_untested() {
    // It names tests, and has no block: a block there would need one.
    assert!(blocks("docs/rescue.md").is_empty());
}

/// The test's own user, and if that is root an ordinary one.
fn users() -> Vec<User> {
    match User::ordinary() {
        User::Own => {
            foreign::skipped("the commands as another user: only root can run them so");
            vec![User::Own]
        }
        ordinary @ User::Ordinary(_) => vec![User::Own, ordinary],
    }
}

#[test]
fn the_first_array_of_the_readme_works_when_pasted() {
    let text = document(README);
    let (_, section) = text.split_once("## The first array\n").expect("README.md has the section");
    let section = section.split("\n## ").next().expect("it has text");
    let blocks = block::blocks(section).expect("its blocks have a kind");
    assert_eq!(
        blocks.len(),
        self::blocks(README).len(),
        "a command block of README.md outside of the section runs nowhere"
    );
    assert!(blocks.iter().any(|block| block.kind == Kind::Sh && block.lines.len() == 6), "six lines make an array");
    for user in users() {
        let shell = Shell::new(user);
        shell.run_all(README, &blocks);
        let detail = shell.run("uraid detail disk0 disk1 disk2 disk3").expect_done();
        assert!(detail.out.contains("State : clean, Not Started "), "{}", detail.out);
        let stopped = shell.run("! uraid detail backup");
        assert_eq!(stopped.code, Some(0), "the array still runs: {}", stopped.out);
    }
}

#[test]
fn the_page_of_the_first_array_prints_what_it_quotes() {
    let blocks = blocks(PAGE);
    for user in users() {
        let Counts { compared, .. } = Shell::new(user).run_all(PAGE, &blocks);
        assert!(compared >= 15, "{compared} commands were compared");
    }
}

#[test]
fn the_picture_shows_what_the_page_quotes() {
    let page = blocks(PAGE);
    let quoted: Vec<(&str, Vec<&str>)> =
        page.iter().filter(|b| b.kind == Kind::Console).flat_map(Block::commands).collect();
    let svg = document(PICTURE);
    let texts =
        svg.lines().filter_map(|line| Some(line.split_once("<text")?.1.split_once('>')?.1.split_once("</text>")?.0));
    let lines = texts.map(|text| text.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")).collect();
    let picture = Block { kind: Kind::Console, needs: Vec::new(), absent: None, exit: None, line: 1, lines };
    let shown = picture.commands();
    assert!(!shown.is_empty(), "{PICTURE} shows no command");
    for (command, mut found) in shown {
        let (_, expected) = quoted.iter().find(|(quoted, _)| *quoted == command).expect("the page has the command");
        while found.last().is_some_and(|line| line.is_empty()) {
            found.pop();
        }
        assert!(
            fit(expected, &found),
            "{PICTURE}: {command}\nexpected:\n{}\nfound:\n{}",
            expected.join("\n"),
            found.join("\n")
        );
    }
}
