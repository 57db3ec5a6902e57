//! The tasks that run trims and write-zeroes.
//! Owns: [`put`], the tasks. Not here: which request is next and how many tasks there may be (`clear_queue`), the length
//! and the effect of a piece (`pieces`).
//! Invariant: while a request may run and a task may be started, there is a task for it.

use crate::clear_queue::{ClearQueue, ClearRequest, Lane, Next};
use crate::connection::Connection;
use crate::machine::{Machine, Transport};
use crate::pieces::{Cleared, clear_piece};
use std::rc::Rc;
use uraid_block::Device;
use uraid_block::local::yield_now;

/// Begins a trim or write-zeroes, or queues it. In the workers' job queue, hundreds of them would delay the reads
/// behind them.
pub(crate) fn put<M: Machine, T: Transport, D: Device + 'static>(
    queue: &Rc<ClearQueue<Connection<M, T, D>>>,
    connection: &Rc<Connection<M, T, D>>,
    request: ClearRequest,
) {
    let lane = request.lane();
    queue.put(connection, request);
    start_tasks(queue, connection.shared().machine(), lane);
}

/// Starts a task for each request that may run, up to the limit of tasks.
fn start_tasks<M: Machine, T: Transport, D: Device + 'static>(
    queue: &Rc<ClearQueue<Connection<M, T, D>>>,
    machine: &M,
    lane: Lane,
) {
    while let Some(first) = queue.start_task(lane) {
        machine.spawn(run(queue.clone(), machine.clone(), lane, first));
    }
}

/// A task: runs one piece after the other, round robin over the connections, until none may run.
async fn run<M: Machine, T: Transport, D: Device + 'static>(
    queue: Rc<ClearQueue<Connection<M, T, D>>>,
    machine: M,
    lane: Lane,
    first: Next<Connection<M, T, D>>,
) {
    let mut next = Some(first);
    while let Some((connection, mut request)) = next {
        assert_eq!(request.lane(), lane);
        let (result, pause) = clear_piece(&connection, &mut request).await;
        match result {
            Ok(Cleared::Piece) => queue.put_back(&connection, request),
            Ok(Cleared::All) => connection.answer_clear(request, Ok(())),
            Err(error) => connection.answer_clear(request, Err(error)),
        }
        drop(connection);
        if let Some(pause) = pause {
            pause.pass(&machine).await;
        }
        // If the device answers at once, let other tasks of the shard run.
        yield_now().await;
        next = queue.next(lane);
        start_tasks(&queue, &machine, lane);
    }
}
