//! The tasks that run trims and write-zeroes.
//! Owns: [`start`], the tasks. Not here: which request is next and how many tasks there may be (`clear_queue`), the length
//! and the effect of a piece (`clear_pieces`).
//! Invariant: while a request may run and a task may be started, there is a task for it.

use crate::connection::Connection;
use crate::job::clear_pieces::clear_piece;
use crate::machine::{Machine, Transport};
use crate::request::clear_queue::{ClearQueue, Lane, Next};
use std::rc::Rc;
use uraid_block::Device;
use uraid_block::local::yield_now;

/// Starts a task for each group of trims or write-zeroes that may run, up to the limit of tasks. In the workers' job
/// queue, hundreds of them would delay the reads behind them.
pub(crate) fn start<M: Machine, T: Transport, D: Device + 'static>(
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
    while let Some((connection, mut group)) = next {
        assert_eq!(group.lane(), lane);
        let (ended, result, pause) = clear_piece(&connection, &mut group).await;
        queue.put_back(&connection, group);
        ended.into_iter().for_each(|request| connection.answer_clear(request, result));
        drop(connection);
        if let Some(pause) = pause {
            pause.pass(&machine).await;
        }
        // If the device answers at once, let other tasks of the shard run.
        yield_now().await;
        next = queue.next(lane);
        start(&queue, &machine, lane);
    }
}
