//! Ten tasks that a reader performs with nothing but the book.
//! Owns: the tasks: what is asked, which lines of which page the reader takes, what must be true afterwards. Not here: that
//! every block of a page runs (`documented_commands`).
//! Invariant: what the reader types stands in a page, word for word, but for the names, levels and files that are his own
//! (`Own`); so a task fails when its page loses the line.

use uraid_blackbox::book::block::{self, Block};
use uraid_blackbox::book::document;
use uraid_blackbox::book::shell::{Shell, User, has_all};

/// What is the reader's own in a line: the text of the page, and what stands there for him.
type Own = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A line of a block, or code in a sentence or a table, of a page.
    Line(&'static str, &'static str, Own),
    /// The whole block that begins with this line.
    Block(&'static str, &'static str, Own),
    /// What happens to the reader: a disk that dies, bytes that are lost.
    World(&'static str),
    /// What uraid itself has told him to type.
    Told(&'static str),
}

struct Task {
    asks: &'static str,
    /// As before a block: programs, `mounts`.
    needs: &'static [&'static str],
    steps: &'static [Step],
    /// Succeeds if the task is done.
    holds: &'static str,
}

use Step::{Block as Whole, Line, Told, World};

const DIES: &str = "when-a-disk-dies.md";
const FIRST: &str = "first-array.md";

/// The array of the page on dead disks, which several tasks begin with.
const HOME: Step = Whole(DIES, "truncate -s 64M disk0 disk1 disk2 disk3 disk4 disk5", &[]);

const TASKS: [Task; 10] = [
    Task {
        asks: "make a raid1 of two files, with a file system, and mount it",
        needs: &["mounts", "mkfs.ext4"],
        steps: &[
            Line(FIRST, "truncate -s 256M disk0 disk1 disk2 disk3", &[("256M", "64M"), (" disk2 disk3", "")]),
            Line(
                FIRST,
                "uraid create --level 6 --raid-devices 4 --name backup disk0 disk1 disk2 disk3",
                &[("--level 6", "--level 1"), ("--raid-devices 4", "--raid-devices 2"), (" disk2 disk3", "")],
            ),
            Whole("serving.md", "mkdir files", &[("home", "backup"), ("disk0 disk1 disk2", "disk0 disk1")]),
            Line("serving.md", "mkdir srv", &[]),
            Line("serving.md", "uraid mount disk0 disk1 disk2 srv", &[(" disk2", "")]),
            Line("serving.md", "echo hello > srv/file", &[]),
        ],
        holds: "grep hello srv/file; grep -q \"$PWD/srv ext4\" /proc/mounts; uraid list | grep '^backup .*raid1'
                uraid umount srv; test -z \"$(uraid list)\"",
    },
    Task {
        asks: "give an array another name in mdadm.conf, and start it by that name",
        needs: &[],
        steps: &[
            Line("boot.md", "truncate -s 64M disk0 disk1 disk2", &[]),
            Line("boot.md", "uraid create --level 5 --raid-devices 3 --name home disk0 disk1 disk2", &[]),
            Line(
                "configuration.md",
                "uuid=$(uraid examine --export disks/home0 | sed -n s/^MD_UUID=//p)",
                &[("disks/home0", "disk0")],
            ),
            Line("boot.md", "mkdir -p ~/.config/uraid", &[]),
            Line(
                "boot.md",
                "echo \"URAID home members=$PWD/disk*\" >> ~/.config/uraid/mdadm.conf",
                &[("home ", "store uuid=$uuid ")],
            ),
            Line(
                "configuration.md",
                "uraid assemble home --config mdadm.conf",
                &[("home --config mdadm.conf", "store")],
            ),
        ],
        holds: "uraid list | grep '^store '; uraid stop store",
    },
    Task {
        asks: "exchange a disk that has died",
        needs: &[],
        steps: &[
            HOME,
            World("uraid fail home disk2"),
            Line(DIES, "uraid remove home failed", &[]),
            Line(DIES, "uraid add home disk4", &[]),
            Line(DIES, "uraid wait home", &[]),
        ],
        holds: "uraid detail --test home > detail; grep disk4 detail; ! grep disk2 detail; uraid stop home",
    },
    Task {
        asks: "have a spare, and see how it takes over",
        needs: &[],
        steps: &[
            HOME,
            Line(DIES, "uraid add home disk5", &[]),
            World("uraid fail home disk1"),
            Line(DIES, "uraid wait home", &[]),
            Line("watching.md", "uraid watch --plain", &[("--plain", "--plain > screen")]),
        ],
        holds: "grep -E '3 +1 +in sync .*disk5' screen; grep -E ' - +faulty .*disk1' screen; uraid stop home",
    },
    Task {
        asks: "find out what is wrong, and do what is advised",
        needs: &[],
        steps: &[
            HOME,
            World("uraid fail home disk0"),
            Line("status.md", "uraid status home", &[("status home", "status home > said || test $? = 1")]),
            Told("$(sed -n 's/^ *next: `\\(uraid add home\\) DEVICE`.*/\\1/p' said | head -n 1) disk3"),
            Line("status.md", "uraid wait", &[("wait", "wait home")]),
            Told("$(sed -n 's/^ *next: `\\(uraid remove home [^ ]*\\)`.*/\\1/p' said)"),
        ],
        holds: "grep URAID-03 said; uraid status home; uraid stop home",
    },
    Task {
        asks: "read what happened to an array that does not run any more",
        needs: &[],
        steps: &[
            HOME,
            World("uraid add home disk3; uraid fail home disk1; uraid wait home || test $? = 1; uraid stop home"),
            Line("history.md", "uraid history home", &[("home", "home > said")]),
        ],
        holds: "grep 'member-failed, .*disk1 (slot 1) is faulty: by command' said
                grep 'spare-taken, .*disk3 takes slot 1' said; grep 'member-recovered, .*disk3' said
                grep ' command, .* by uraid.*: fail ' said; grep ' stopped, ' said",
    },
    Task {
        asks: "be mailed when a disk fails",
        needs: &[],
        steps: &[
            HOME,
            Whole("monitoring.md", "printf '#!/bin/sh\\ncat >> mails\\n' > sendmail", &[]),
            World("uraid fail home disk1"),
            Line(
                "monitoring.md",
                "uraid monitor --scan --mail root --sendmail \"$PWD/sendmail\" --test --oneshot",
                &[(" --test", "")],
            ),
        ],
        holds: "grep '^Subject: Fail event on /dev/md/home' mails; grep 'disk1' mails; grep '^To: root' mails
                uraid stop home",
    },
    Task {
        asks: "check an array, read what disagrees, and mend it",
        needs: &[],
        steps: &[
            HOME,
            World(
                "uraid stop home
                 dd if=/dev/urandom of=disk1 bs=4k count=1 seek=4000 conv=notrunc
                 uraid serve --background disk0 disk1 disk2",
            ),
            Line("checking.md", "uraid check --wait home", &[("--wait home", "--wait home || test $? = 3")]),
            Line("checking.md", "uraid detail --mismatches home", &[("--mismatches home", "--mismatches home > said")]),
            Line("checking.md", "uraid repair --wait home", &[("--wait home", "--wait home || test $? = 3")]),
        ],
        holds: "test -s said; uraid check --wait home; uraid scrub --status | grep '^home: .* 0 sectors disagree'
                uraid stop home",
    },
    Task {
        asks: "read from the metrics that nothing more may fail",
        needs: &[],
        steps: &[
            HOME,
            Line("metrics.md", "uraid metrics --textfile uraid.prom", &[("uraid.prom", "before.prom")]),
            World("uraid fail home disk1"),
            Line("metrics.md", "uraid metrics --textfile uraid.prom", &[]),
        ],
        holds: "grep '^uraid_redundancy_left{.*array=\"home\"} 1$' before.prom
                grep '^uraid_redundancy_left{.*array=\"home\"} 0$' uraid.prom
                grep '^node_md_degraded{.*} 1$' uraid.prom; uraid stop home",
    },
    Task {
        asks: "get the data out of an array that lost all superblocks and a disk, with nothing written to the others",
        needs: &["nbdcopy"],
        steps: &[
            Line(FIRST, "truncate -s 256M disk0 disk1 disk2 disk3", &[("256M", "64M")]),
            Line(FIRST, "uraid create --level 6 --raid-devices 4 --name backup disk0 disk1 disk2 disk3", &[]),
            Line(FIRST, "uraid serve --background --nbd unix:backup.nbd disk0 disk1 disk2 disk3", &[]),
            Line(FIRST, "head -c 20M /dev/urandom > image", &[]),
            Line(FIRST, "nbdcopy --flush image 'nbd+unix:///backup?socket=backup.nbd'", &[]),
            Line(FIRST, "uraid stop backup", &[]),
            World(
                "for disk in disk0 disk2 disk3; do dd if=/dev/zero of=$disk bs=64k count=1 conv=notrunc; done
                 rm disk1; cat disk? | cksum > before",
            ),
            Line(
                "recovering.md",
                "uraid copy --assume --level 5 --raid-devices 4 --chunk 64K --data-offset 1M disk0 missing disk2 disk3 rescued.img",
                &[("--level 5", "--level 6"), (" --chunk 64K --data-offset 1M", "")],
            ),
        ],
        holds: "cmp --bytes 20971520 image rescued.img; cat disk? | cksum | cmp - before",
    },
];

fn page(name: &str) -> (String, Vec<Block>) {
    let path = format!("docs/operating/{name}");
    let text = document(&path);
    let blocks = block::blocks(&text).unwrap_or_else(|why| panic!("{path}:{why}"));
    (text, blocks.into_iter().filter(Block::is_run).collect())
}

/// A line without the comment behind it.
fn bare(line: &str) -> &str {
    line.split("  #").next().unwrap_or(line).trim()
}

/// Whether a page has the line in a block that is run, or as code in its text.
fn has_line(name: &str, line: &str) -> bool {
    let (text, blocks) = page(name);
    let is_typed = blocks.iter().flat_map(Block::typed).any(|typed| bare(typed) == line);
    is_typed || text.replace('\n', " ").contains(&format!("`{line}`"))
}

/// The block that begins with this line.
fn block_of(name: &str, first: &str) -> Option<String> {
    let (_, blocks) = page(name);
    let found = blocks.into_iter().find(|block| block.typed().first().is_some_and(|typed| bare(typed) == first));
    found.map(|block| block.typed().join("\n"))
}

fn with_own(quoted: &str, own: Own) -> String {
    own.iter().fold(quoted.to_string(), |text, (theirs, mine)| {
        assert!(text.contains(theirs), "{quoted}: has no `{theirs}`");
        text.replace(theirs, mine)
    })
}

/// What is typed in this step.
fn typed(step: &Step) -> String {
    match *step {
        Line(page, line, own) => {
            assert!(has_line(page, line), "{page} has no line `{line}`, so a reader does not find it there");
            with_own(line, own)
        }
        Whole(page, first, own) => {
            let block = block_of(page, first);
            with_own(&block.unwrap_or_else(|| panic!("{page} has no block that begins with `{first}`")), own)
        }
        World(script) | Told(script) => script.to_string(),
    }
}

fn perform(number: usize) {
    let task = &TASKS[number - 1];
    let needs: Vec<String> = task.needs.iter().map(|need| need.to_string()).collect();
    if !has_all(task.asks, &needs) {
        return;
    }
    let shell = Shell::new(if task.needs.contains(&"mounts") { User::Own } else { User::ordinary() });
    let lines: Vec<String> = task.steps.iter().flat_map(|step| lines_of(&typed(step))).collect();
    println!("{number}. {}\n{}", task.asks, lines.join("\n"));
    shell.run_lines(&lines).expect_done();
    shell.run_lines(&lines_of(task.holds)).expect_done();
}

fn lines_of(script: &str) -> Vec<String> {
    script.lines().map(|line| line.trim_start().to_string()).collect()
}

#[test]
fn task_01_make_and_mount() {
    perform(1);
}

#[test]
fn task_02_name_and_start() {
    perform(2);
}

#[test]
fn task_03_exchange_a_dead_disk() {
    perform(3);
}

#[test]
fn task_04_a_spare_takes_over() {
    perform(4);
}

#[test]
fn task_05_what_is_wrong() {
    perform(5);
}

#[test]
fn task_06_what_happened() {
    perform(6);
}

#[test]
fn task_07_be_mailed() {
    perform(7);
}

#[test]
fn task_08_check_and_repair() {
    perform(8);
}

#[test]
fn task_09_metrics() {
    perform(9);
}

#[test]
fn task_10_rescue() {
    perform(10);
}

#[test]
fn a_reader_takes_his_lines_from_the_pages() {
    for task in &TASKS {
        let quoted = task.steps.iter().filter(|step| match step {
            Line(..) | Whole(..) => true,
            World(_) | Told(_) => false,
        });
        assert!(quoted.count() >= 2, "{}: the reader takes at least two steps from pages", task.asks);
    }
}

#[test]
fn a_line_that_no_page_has_is_not_found() {
    assert!(has_line("checking.md", "uraid check --wait home") && !has_line("checking.md", "uraid check --wait"));
    assert!(has_line("status.md", "uraid wait") && !has_line("status.md", "uraid fly"));
    assert!(block_of("serving.md", "mkdir files").is_some_and(|block| block.contains("losetup --detach")));
    assert!(block_of("serving.md", "mkdir no-such-folder").is_none());
}
