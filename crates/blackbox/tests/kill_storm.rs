//! kill -9 in the middle of writes, over and over: nothing acknowledged is lost.
//! Owns: the cycle of writing, killing, looking, starting again, checking. Not here: what a flush is worth (kill -9 keeps the
//! page cache; that is the simulator's to prove).
//! `URAID_KILL_CYCLES` (50) is the number of kills over all levels, `URAID_SEED` their seed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uraid_blackbox::binary::uraid;
use uraid_blackbox::model::Model;
use uraid_blackbox::nbd::{Connection, Options};
use uraid_blackbox::random::Random;
use uraid_blackbox::scratch::{Scratch, Shape, create};
use uraid_blackbox::server::Server;
use uraid_blackbox::writers::{SharedModel, Workload, Writers, settle, verify};

/// Small arrays: every sector is read after every kill. Chunks are small so that requests cross rows.
const RAID1: Shape = Shape { level: "raid1", layout: "", members: 2, tolerates: 1, chunk: "", member_mib: 24 };
const RAID5: Shape = Shape { level: "raid5", layout: "", members: 4, tolerates: 1, chunk: "16K", member_mib: 16 };
const RAID6: Shape = Shape { level: "raid6", layout: "", members: 6, tolerates: 2, chunk: "16K", member_mib: 16 };
const RAID10: Shape = Shape { level: "raid10", layout: "f2", members: 4, tolerates: 1, chunk: "64K", member_mib: 16 };

/// Levels that share the cycles.
const LEVELS: u64 = 4;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// This level's part of all cycles: 50 are 13, 13, 12, 12.
fn cycles(level: u64) -> u64 {
    let all = number("URAID_KILL_CYCLES", 50);
    all / LEVELS + u64::from(level < all % LEVELS)
}

struct Storm {
    scratch: Scratch,
    shape: Shape,
    members: Vec<PathBuf>,
    model: SharedModel,
    random: Random,
    /// Sectors for which a kill left a choice, over all cycles: a storm that never caught a write in flight proves little.
    choices: u64,
}

impl Storm {
    fn new(shape: &Shape, level: u64) -> Storm {
        let seed = number("URAID_SEED", 0x5eed) + level;
        let scratch = Scratch::new();
        let members = create(&scratch, "storm", shape);
        let server = Server::start(scratch.path(), &members, &[]);
        let connection = Connection::open(server.address(), &Options::default()).expect("a server");
        let model = Arc::new(Mutex::new(Model::new(connection.export().bytes / 512)));
        drop(connection);
        server.stop();
        Storm { scratch, shape: *shape, members, model, random: Random(seed), choices: 0 }
    }

    fn run(mut self, cycles: u64) {
        let mut server = self.start();
        for cycle in 0..cycles {
            let when = format!("{} cycle {cycle}", self.shape.level);
            self.write_and_kill(server, &when);
            self.assert_dirty(&when);
            server = self.start();
            self.choices += settle(server.address(), &self.model, &when);
        }
        assert!(cycles < 5 || self.choices > 0, "no kill met a write in flight");
        self.lose_members_under_writes(&server);
        server.stop();
        self.verify_degraded();
    }

    /// The members of a killed server stay locked until the kernel has ended what the process had in flight, which on a busy
    /// disk takes longer than the process lives.
    fn start(&self) -> Server {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match Server::try_start(self.scratch.path(), &self.members, &[]) {
                Ok(server) => return server,
                Err(said) => {
                    let is_locked = said.trim_end().ends_with("in use by another process or the system");
                    assert!(is_locked && Instant::now() < deadline, "not started again: {said}");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        }
    }

    fn writers(&mut self, server: &Server) -> Writers {
        let workload = Workload { writers: 4, depth: 6, seed: self.random.number() };
        Writers::start(server.address(), &self.model, workload)
    }

    fn write_and_kill(&mut self, server: Server, when: &str) {
        let writers = self.writers(&server);
        writers.wait_for(1 + self.random.below(300));
        std::thread::sleep(Duration::from_micros(self.random.below(20_000)));
        server.kill();
        let answered = writers.finish_after_kill();
        assert!(answered > 0, "{when}: nothing was answered");
    }

    /// Writes were answered and no clean stop followed: every member has to say so.
    fn assert_dirty(&self, when: &str) {
        for member in &self.members {
            let said = uraid(["examine".as_ref(), member.as_os_str()]).expect_done();
            let state = said.out.lines().find_map(|line| line.trim().strip_prefix("State : "));
            assert_eq!(state, Some("active"), "{when}: {} says\n{}", member.display(), said.out);
        }
    }

    /// The parity or the copies that the resyncs left behind are now what the data is read from.
    fn lose_members_under_writes(&mut self, server: &Server) {
        verify(server.address(), &self.model, "before any member is lost");
        let writers = self.writers(server);
        for lost in 0..self.shape.tolerates {
            writers.wait_for(200);
            // Neighbours in a raid10 hold the same data: only the first may go.
            server.fail(&self.members[usize::from(lost)]);
        }
        writers.wait_for(200);
        writers.finish();
        settle(server.address(), &self.model, "with members failed");
    }

    fn verify_degraded(&self) {
        let server = self.start();
        verify(server.address(), &self.model, "started again without the failed members");
        server.stop();
    }
}

#[test]
fn raid1_keeps_what_it_acknowledged_through_kills() {
    Storm::new(&RAID1, 0).run(cycles(0));
}

#[test]
fn raid5_keeps_what_it_acknowledged_through_kills() {
    Storm::new(&RAID5, 1).run(cycles(1));
}

#[test]
fn raid6_keeps_what_it_acknowledged_through_kills() {
    Storm::new(&RAID6, 2).run(cycles(2));
}

#[test]
fn raid10_keeps_what_it_acknowledged_through_kills() {
    Storm::new(&RAID10, 3).run(cycles(3));
}
