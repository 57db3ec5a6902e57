//! The tasks of an executor, by their numbers.
//! Owns: [`Tasks`], [`Entry`], the list of those that were woken. Not here: which one is polled next (`executor`).
//! Invariant: numbers are consecutive, so a task is found by its distance from the oldest one that may still run.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// One task.
pub(super) struct Entry {
    // Taken while it is polled.
    pub(super) task: Option<(Task, Waker)>,
    pub(super) name: &'static str,
    pub(super) shard: u16,
    pub(super) queued: Arc<TaskWake>,
}

/// All tasks that have not ended.
#[derive(Default)]
pub(super) struct Tasks {
    // Number n is at n - (next - entries.len()); `None` has ended.
    entries: VecDeque<Option<Entry>>,
    next: u64,
    running: usize,
}

impl Tasks {
    /// The number of the next task.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Adds the task of the next number.
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries.push_back(Some(entry));
        self.next += 1;
        self.running += 1;
    }

    fn index(&self, number: u64) -> Option<usize> {
        let first = self.next - self.entries.len() as u64;
        number.checked_sub(first).map(|index| index as usize)
    }

    /// The task, if it has not ended.
    pub(super) fn get(&self, number: u64) -> Option<&Entry> {
        self.entries.get(self.index(number)?)?.as_ref()
    }

    /// The same, to change it.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Entry> {
        let index = self.index(number)?;
        self.entries.get_mut(index)?.as_mut()
    }

    /// The task ends.
    pub(super) fn remove(&mut self, number: u64) -> Option<Entry> {
        let index = self.index(number)?;
        let entry = self.entries.get_mut(index)?.take()?;
        self.running -= 1;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
        }
        Some(entry)
    }

    /// Ends all tasks, and returns them in the order of their numbers.
    pub(super) fn take_all(&mut self) -> Vec<Entry> {
        self.running = 0;
        self.entries.drain(..).flatten().collect()
    }

    /// Starts to count from zero again. No task is left.
    pub(super) fn restart(&mut self) {
        assert!(self.entries.is_empty());
        self.next = 0;
    }

    /// How many have not ended.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Those that have not ended, with their numbers, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        let first = self.next - self.entries.len() as u64;
        (first..).zip(&self.entries).filter_map(|(number, entry)| Some((number, entry.as_ref()?)))
    }
}

/// The numbers of tasks that were woken, in order.
#[derive(Default)]
pub(super) struct Woken {
    // Whether there are any: most steps wake nobody, and need no lock to see that.
    is_any: AtomicBool,
    numbers: Mutex<Vec<u64>>,
}

impl Woken {
    fn push(&self, number: u64) {
        self.numbers.lock().expect("one thread, no panic inside").push(number);
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// Calls `take` with each, and forgets it.
    pub(super) fn drain(&self, take: impl FnMut(u64)) {
        if self.is_any.load(Ordering::Relaxed) {
            self.is_any.store(false, Ordering::Relaxed);
            self.numbers.lock().expect("one thread, no panic inside").drain(..).for_each(take);
        }
    }
}

/// Wakes one task.
pub(super) struct TaskWake {
    pub(super) number: u64,
    pub(super) is_queued: AtomicBool,
    pub(super) woken: Arc<Woken>,
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::Relaxed) {
            self.woken.push(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(tasks: &mut Tasks) {
        let number = tasks.next();
        let queued = Arc::new(TaskWake { number, is_queued: AtomicBool::new(true), woken: Arc::default() });
        tasks.push(Entry { task: None, name: "test", shard: 0, queued });
    }

    fn numbers(tasks: &Tasks) -> Vec<u64> {
        let found: Vec<u64> = tasks.iter().map(|(number, entry)| number.max(entry.queued.number)).collect();
        assert_eq!(found.len(), tasks.running());
        assert!(found.iter().all(|number| tasks.get(*number).is_some_and(|entry| entry.queued.number == *number)));
        found
    }

    #[test]
    fn a_task_keeps_its_number_when_older_ones_end() {
        let mut tasks = Tasks::default();
        (0..5).for_each(|_| add(&mut tasks));
        for (ended, left) in [(1, &[0, 2, 3, 4][..]), (0, &[2, 3, 4]), (4, &[2, 3])] {
            assert!(tasks.remove(ended).is_some_and(|entry| entry.queued.number == ended));
            assert!(tasks.remove(ended).is_none() && tasks.get_mut(ended).is_none(), "task {ended} has ended");
            assert_eq!(numbers(&tasks), left);
        }
        add(&mut tasks);
        assert_eq!(numbers(&tasks), [2, 3, 5]);
        assert!(tasks.get(6).is_none());
    }

    #[test]
    fn the_count_starts_again_after_a_restart() {
        let mut tasks = Tasks::default();
        (0..3).for_each(|_| add(&mut tasks));
        let ended: Vec<u64> = tasks.take_all().iter().map(|entry| entry.queued.number).collect();
        assert_eq!((ended, tasks.running(), tasks.next()), (vec![0, 1, 2], 0, 3));
        tasks.restart();
        add(&mut tasks);
        assert_eq!(numbers(&tasks), [0]);
    }
}
