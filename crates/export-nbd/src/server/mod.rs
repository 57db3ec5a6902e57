//! One shard's server: accepting clients, serving each, stopping.
//! Owns: [`Server`]. Not here: one connection (`reader`, `connection`), which connection is closed for another, and
//! deadlines (`clients`), which shard serves a new connection (`spread`).
//! Invariant: a connection is served from its arrival to its end by one call of [`Server::serve`]. A stop ends all of
//! them.

pub(crate) mod spread;

use crate::clients::admission::{self, Admission};
use crate::clients::connections::Connections;
use crate::clients::watchdog::watch;
use crate::connection::{Connection, Phase};
use crate::handshake::export::Export;
use crate::job::JobQueue;
use crate::machine::{Machine, Transport};
use crate::reader::{self, Queues};
use crate::server::spread::Spread;
use crate::shared::Shared;
use crate::shared::limits::{Limits, SPARE_CONNECTIONS};
use crate::shared::news::News;
use crate::shared::statistics::Statistics;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_block::local::{Either, race, yield_now};
use uraid_block::{Device, ShardIndex};
use uraid_host::{Listener, Local, Peer, Stream};

/// How long to wait after a failed accept, such as for lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves its exports on one shard. Clones of the `Rc` are handles of the same server.
pub struct Server<M: Machine, T: Transport, D: Device + 'static> {
    shared: Rc<Shared<M, D>>,
    connections: Rc<Connections<M, T, D>>,
    /// By export.
    queues: Vec<Queues<M, T, D>>,
}

impl<M: Machine, T: Transport, D: Device + 'static> Server<M, T, D> {
    /// A server without connections for these exports, of which the first is the default. Panics if there is none, if
    /// two have one name, or if the machine's arena is smaller than 16 KiB.
    pub fn new(machine: M, exports: Vec<(Export, Rc<D>)>, limits: Limits) -> Rc<Server<M, T, D>> {
        let shared = Rc::new(Shared::new(machine, exports, limits));
        let connections = Rc::new(Connections::new());
        // Half of the tasks are for reads.
        let workers_max = (shared.limits().tasks_max() / 2 / shared.devices()).max(1);
        let queue = |_| Rc::new(JobQueue::new(shared.clone(), connections.clone(), workers_max));
        let jobs: Vec<_> = (0..shared.devices()).map(queue).collect();
        let queues_of = |export| Queues { jobs: jobs[shared.device_of(export).index()].clone(), clears: Rc::default() };
        let queues = (0..shared.offers().len()).map(queues_of).collect();
        shared.machine().spawn(watch(shared.clone(), connections.clone()));
        Rc::new(Server { shared, connections, queues })
    }

    /// Sets the callback for clients that connect, leave or are refused. Only the first call counts.
    pub fn log_to(&self, log: impl Fn(News) + 'static) {
        self.shared.log_to(log);
    }

    /// What the server did so far.
    pub fn statistics(&self) -> Statistics {
        let (connected, writers) = (self.connections() as u64, self.connections.writers() as u64);
        assert!(writers <= connected);
        Statistics { connected, writers, ..self.shared.statistics() }
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// Requests that the device has not answered yet.
    pub fn requests_running(&self) -> usize {
        self.shared.requests_running()
    }

    /// Serves a client that has just connected; returns when the connection ends. If there are too many connections,
    /// too many of this peer, or too many in their handshake, one that is idle or in its handshake is closed. If there
    /// is none, the new one is closed (`admission`).
    pub async fn serve(self: &Rc<Self>, transport: T) {
        let shared = &self.shared;
        if shared.is_stopping() || !self.make_room(transport.peer()) {
            shared.count(|counts| counts.turned_away += 1);
            shared.log(News::TurnedAway { peer: transport.peer() });
            transport.shutdown();
            return;
        }
        shared.count(|counts| counts.connections += 1);
        let connection = Rc::new(Connection::new(shared.clone(), transport));
        let number = self.connections.add(connection.clone());
        shared.connections_changed();
        let is_broken = reader::serve(connection.clone(), &self.queues).await;
        assert!(connection.phase() != Phase::Transmission, "its reader has ended");
        shared.count(|counts| counts.broken += u64::from(is_broken));
        if connection.phase() != Phase::Handshake {
            let (peer, export) = (connection.peer(), connection.agreement().export);
            shared.log(News::Left { peer, export, is_broken });
        }
        self.connections.remove(number);
        if self.connections() == 0 {
            self.queues.iter().for_each(|queues| queues.jobs.wake_idle());
        }
        shared.connections_changed();
    }

    fn make_room(&self, peer: Peer) -> bool {
        let limits = self.shared.limits();
        if self.connections() >= limits.connections_max + SPARE_CONNECTIONS {
            return false;
        }
        match admission::decide(&self.connections.candidates(self.shared.machine().now()), peer, limits) {
            Admission::Admit => true,
            Admission::Replace(number) => {
                self.connections.kill(number);
                true
            }
            Admission::Refuse => false,
        }
    }

    /// Stops reading requests, waits until those in flight are answered, and closes. After half of `time_max`, clients
    /// that do not take their replies are cut. Returns how many requests the device has not answered after `time_max`.
    pub async fn stop(self: &Rc<Self>, time_max: Duration) -> usize {
        self.shared.begin_stop();
        self.connections.all().iter().for_each(|connection| connection.close());
        if !self.ends_within(time_max / 2).await {
            self.connections.all().iter().for_each(|connection| connection.kill());
            self.ends_within(time_max / 2).await;
        }
        self.requests_running()
    }

    async fn ends_within(&self, time_max: Duration) -> bool {
        let has_ended = || (self.connections() == 0 && self.requests_running() == 0).then_some(());
        match race(self.shared.wait_for(has_ended), self.shared.machine().sleep(time_max)).await {
            Either::Left(()) => true,
            Either::Right(()) => false,
        }
    }
}

impl<D: Device + 'static> Server<Local, Stream, D> {
    /// Accepts clients until the server stops, and gives each to the shard with the fewest connections: this one, or by
    /// `post` another one, which calls [`Server::adopt`]. Only one shard listens.
    pub async fn listen(
        self: Rc<Self>,
        listener: Listener,
        spread: Arc<Spread>,
        mut post: impl FnMut(ShardIndex, OwnedFd),
    ) {
        allow_descriptors();
        let (shared, machine) = (&self.shared, self.shared.machine());
        loop {
            let stopping = shared.wait_for(|| shared.is_stopping().then_some(()));
            match race(stopping, listener.accept(machine)).await {
                Either::Left(()) => return,
                Either::Right(Ok(stream)) => match spread.choose() {
                    shard if shard == machine.index() => self.begin(stream, spread.clone()),
                    shard => match stream.into_raw() {
                        Ok(socket) => post(shard, socket),
                        // There is no file descriptor for the client: drop it and try the next one later.
                        Err(_) => {
                            spread.leave(shard);
                            shared.count(|counts| counts.turned_away += 1);
                            machine.sleep(ACCEPT_RETRY).await;
                        }
                    },
                },
                Either::Right(Err(_)) => {
                    // The likely cause: a client waits, and there are no descriptors.
                    if let Some(number) = admission::idle_to_close(&self.connections.candidates(machine.now())) {
                        self.connections.kill(number);
                    }
                    machine.sleep(ACCEPT_RETRY).await;
                }
            }
            // A connection that is closed for the new one ends before the next client is accepted.
            yield_now().await;
        }
    }

    /// Serves a client that another shard accepted.
    pub fn adopt(self: &Rc<Self>, socket: OwnedFd, spread: Arc<Spread>) {
        let stream = Stream::from_raw(self.shared.machine(), socket);
        self.begin(stream, spread);
    }

    fn begin(self: &Rc<Self>, stream: Stream, spread: Arc<Spread>) {
        let server = self.clone();
        self.shared.machine().spawn(async move {
            server.serve(stream).await;
            spread.leave(server.shared.machine().index());
        });
    }
}

/// Raises the limit of descriptors, usually 1024, as far as this process may. If that is not enough, clients are
/// accepted when a descriptor is free.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}
