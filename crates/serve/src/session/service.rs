//! What the service manager hears of the arrays of this process.
//! Owns: when it hears something, the line with the state of the arrays. Not here: its protocol
//! (`uraid_control::runtime::service_manager`).
//! Invariant: its watchdog hears of this process only when every shard has answered a message since the last time.

use super::Session;
use std::time::Duration;
use uraid_arrays::ArrayIndex;
use uraid_block::local::race;
use uraid_control::report::PassProgress;
use uraid_control::runtime::service_manager::ServiceManager;
use uraid_engine::Status;
use uraid_engine::view::Gate;

/// How often the line is looked at, if no watchdog asks for more.
const LOOK_PERIOD: Duration = Duration::from_secs(5);

impl Session {
    /// Tells it when the arrays are served, what becomes of them, and when they are about to stop.
    pub(crate) async fn keep_told(&self, manager: ServiceManager) {
        self.changed.wait_for(|| (self.is_ready() || self.is_stopping()).then_some(())).await;
        race(self.stop_asked(), self.tell_states(&manager)).await;
        manager.is_stopping(&self.line());
    }

    async fn tell_states(&self, manager: &ServiceManager) {
        let period = manager.beat.map_or(LOOK_PERIOD, |beat| beat.min(LOOK_PERIOD));
        let mut told = String::new();
        loop {
            let now = self.line();
            if now != told && manager.is_ready(&now) {
                told = now;
            }
            if manager.beat.is_some() && self.do_shards_answer().await {
                manager.is_alive();
            }
            self.station.shard.sleep(period).await;
        }
    }

    /// `home: [UU_] recovery 12.5%; srv: [UU]`
    fn line(&self) -> String {
        let stack = &self.setup().stack;
        let of_arrays = stack.indexes().map(|index| of_array(&stack.array(index).name, &self.array(index).status()));
        of_arrays.collect::<Vec<String>>().join("; ")
    }

    async fn do_shards_answer(&self) -> bool {
        let (counts, _) = self.counts(ArrayIndex(0)).await;
        counts.len() == usize::from(self.station.shard.count())
    }
}

fn of_array(name: &str, status: &Status) -> String {
    let gate = match status.gate {
        Gate::Open | Gate::NoNewWrites | Gate::Closed | Gate::Stopped => String::new(),
        Gate::ReadOnly => " read-only".to_owned(),
        Gate::Frozen(kind) => format!(" takes no more writes: {kind}"),
    };
    let pass = status.pass.map_or(String::new(), |pass| {
        format!(" {} {}", pass.kind.names().word, PassProgress::new(pass.done, pass.total, None).percent())
    });
    format!("{name}: {}{gate}{pass}", status.picture())
}
