//! Requests that wait for a device, and what they do there.
//! Owns: [`Job`], [`JobQueue`] of one device, the tasks that run jobs. Not here: which worker takes a job (`workers`),
//! trims and write-zeroes, which have a queue and tasks of their own (`clear_queue`, `clears`).
//! Invariant: a job that began runs to its end, even if its client leaves, and is answered once.

pub(crate) mod block_status;
pub(crate) mod clear_pieces;
pub(crate) mod clears;
pub(crate) mod workers;

use crate::clients::connections::Connections;
use crate::connection::{Answer, Connection};
use crate::job::workers::{Worker, Workers};
use crate::machine::{Machine, Transport};
use crate::shared::Shared;
use crate::shared::limits::JOB_BYTES;
use crate::shared::shares::Hold;
use std::future::poll_fn;
use std::rc::Rc;
use uraid_block::{Device, Fua, Range, Sector, WritePieces};
use uraid_nbd::Request;

/// What a job does on the device.
pub(crate) enum Operation {
    Read(Range),
    /// The payload, which has arrived completely, to this sector.
    Write(Sector, WritePieces, Fua),
    Flush,
    Status {
        range: Range,
        /// Only the first extent is wanted.
        one: bool,
    },
}

/// A request that was checked, has its permits, and is counted as begun.
pub(crate) struct Job<M: Machine, T: Transport, D: Device + 'static> {
    pub(crate) connection: Rc<Connection<M, T, D>>,
    pub(crate) request: Request,
    pub(crate) operation: Operation,
    pub(crate) hold: Hold,
}

impl<M: Machine, T: Transport, D: Device + 'static> Job<M, T, D> {
    /// Runs the request on the device, and answers.
    async fn run(self) {
        let Job { connection, request, operation, hold } = self;
        let shared_device = connection.device();
        let device = shared_device.device();
        let result = match operation {
            Operation::Read(range) => {
                // Take buffers only now: if the device answers at once, the next read gets the buffers of this one,
                // which are still in the processor's cache.
                let memory = connection.shared().memory();
                let into = memory.buffers(shared_device.shares(), range.length.len_bytes()).await;
                device.read(range.start, into).await.map(|data| Answer::Data(data.freeze()))
            }
            Operation::Write(at, from, fua) => device.write(at, from, fua).await.map(|()| Answer::Done),
            Operation::Flush => device.flush().await.map(|()| Answer::Done),
            Operation::Status { range, one } => {
                let minimum = connection.offer().sizes.minimum;
                block_status::extents(device, range, minimum, one).await.map(Answer::Status)
            }
        };
        connection.answer(&request, result, hold);
        connection.send_if_enough();
    }
}

/// The jobs of one device.
pub(crate) struct JobQueue<M: Machine, T: Transport, D: Device + 'static> {
    shared: Rc<Shared<M, D>>,
    connections: Rc<Connections<M, T, D>>,
    reads: Workers<Job<M, T, D>>,
    /// For all but reads. All of these workers may wait for a member that does not answer; reads continue.
    others: Workers<Job<M, T, D>>,
}

/// Which workers of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Reads,
    Others,
}

impl<M: Machine, T: Transport, D: Device + 'static> JobQueue<M, T, D> {
    /// With at most `workers_max` workers for reads, and as many for the rest.
    pub(crate) fn new(
        shared: Rc<Shared<M, D>>,
        connections: Rc<Connections<M, T, D>>,
        workers_max: usize,
    ) -> JobQueue<M, T, D> {
        let (reads, others) = (Workers::new(workers_max), Workers::new(workers_max));
        JobQueue { shared, connections, reads, others }
    }

    fn workers(&self, line: Line) -> &Workers<Job<M, T, D>> {
        match line {
            Line::Reads => &self.reads,
            Line::Others => &self.others,
        }
    }

    /// Queues a job for the workers of its kind, and starts one if none is free.
    pub(crate) fn put(self: &Rc<Self>, job: Job<M, T, D>) {
        const { assert!(size_of::<Job<M, T, D>>() <= JOB_BYTES, "the memory of waiting requests is counted") };
        if let Operation::Write(_, payload, _) = &job.operation {
            assert_eq!(payload.bytes() as u64, job.request.length, "a payload has arrived completely");
        }
        let line = if matches!(job.operation, Operation::Read(_)) { Line::Reads } else { Line::Others };
        let worker = self.workers(line).put(job);
        self.start(line, worker);
    }

    fn start(self: &Rc<Self>, line: Line, worker: Option<Worker>) {
        if let Some(worker) = worker {
            self.shared.machine().spawn(self.clone().work(line, worker));
        }
    }

    /// A worker, a task: runs jobs until no connection is left that could bring more.
    async fn work(self: Rc<Self>, line: Line, mut worker: Worker) {
        loop {
            let next = poll_fn(|context| {
                let is_over = self.connections.count() == 0;
                self.workers(line).poll_next(&mut worker, is_over, context)
            });
            let Some((job, other)) = next.await else { return };
            self.start(line, other);
            job.run().await;
        }
    }

    /// The last connection has ended: wakes idle workers, which end.
    pub(crate) fn wake_idle(&self) {
        self.reads.wake_idle();
        self.others.wake_idle();
    }
}
