//! Helper threads for blocking operations. Each member has its own, so one that hangs blocks no other.
//! Owns: [`Pools`]. Not here: sockets (waiting for them needs no thread).
//! Invariant: every job that was started gives one completion. Dropping the pools does not wait for a thread that has a
//! job: before the drop, the owner has waited for the jobs to end, or it leaks their memory.

use super::{Completion, Kind, Request};
use crate::mail::door::Door;
use crate::process::processors::Roaming;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard};
use crate::sys;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The addresses of a job's buffers. Valid until its completion was returned.
struct Segments(*const libc::iovec, usize);

// SAFETY: plain addresses; nothing else uses the operation they point to until the job's completion.
unsafe impl Send for Segments {}

enum Work {
    Read { at: u64, into: Segments },
    Write { at: u64, from: Segments, sync: bool },
    Sync,
    Allocate { mode: i32, at: u64, length: u64 },
    Call(Box<dyn FnOnce() -> i32 + Send>),
}

/// Work that blocks: one system call or several.
pub(crate) struct Call {
    work: Option<Box<dyn FnOnce() -> i32 + Send>>,
    /// Whether it takes no longer than a read or a write.
    pub(super) is_short: bool,
}

impl Call {
    pub(crate) fn take(&mut self) -> Box<dyn FnOnce() -> i32 + Send> {
        self.work.take().expect("an operation is started once")
    }
}

impl Kind {
    /// A call that may take as long as a flush.
    pub(crate) fn call(work: impl FnOnce() -> i32 + Send + 'static) -> Kind {
        Kind::Call(Call { work: Some(Box::new(work)), is_short: false })
    }

    /// A call that does no I/O, such as fstat. A write may wait for it, so it may take only as long as a write.
    pub(crate) fn short_call(work: impl FnOnce() -> i32 + Send + 'static) -> Kind {
        Kind::Call(Call { work: Some(Box::new(work)), is_short: true })
    }
}

struct Job {
    token: u32,
    fd: RawFd,
    work: Work,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    is_closing: bool,
}

/// The completions of all members' threads.
struct Done {
    list: Mutex<Vec<Completion>>,
    has_some: AtomicBool,
    door: Arc<Door>,
}

struct Shared {
    queue: Mutex<Queue>,
    came: Condvar,
    done: Arc<Done>,
}

/// The helper threads of one shard: up to `workers_max` per lane, started when first needed.
pub(super) struct Pools {
    of_lanes: BTreeMap<u32, Pool>,
    done: Arc<Done>,
    workers_max: usize,
    roaming: Roaming,
}

struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    pub(super) fn new(workers_max: usize, door: Arc<Door>) -> Pools {
        assert!(workers_max > 0);
        let done = Arc::new(Done { list: Mutex::default(), has_some: AtomicBool::new(false), door });
        Pools { of_lanes: BTreeMap::new(), done, workers_max, roaming: Roaming::of_this_thread() }
    }

    /// Queues a job. Panics for sockets.
    ///
    /// # Safety
    /// The operation's segments and what they point to must stay valid until the completion was returned.
    pub(super) unsafe fn start(&mut self, token: u32, request: &mut Request) {
        let job = Job { token, fd: request.fd, work: work(request) };
        let pool = self.of_lanes.entry(request.lane.0).or_insert_with(|| Pool::new(self.done.clone()));
        pool.start(job, self.workers_max, |shared| worker(shared, &self.roaming));
    }

    /// Takes the completions so far.
    pub(super) fn take(&self, completions: &mut Vec<Completion>) {
        if self.done.has_some.load(Ordering::Acquire) {
            let mut list = self.done.list.lock().unwrap_or_else(PoisonError::into_inner);
            self.done.has_some.store(false, Ordering::Release);
            completions.append(&mut list);
        }
    }
}

impl Done {
    fn add(&self, completion: Completion) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(completion);
        self.has_some.store(true, Ordering::Release);
        drop(list);
        self.door.knock();
    }
}

impl Pool {
    fn new(done: Arc<Done>) -> Pool {
        let shared = Shared { queue: Mutex::default(), came: Condvar::new(), done };
        Pool { shared: Arc::new(shared), workers: Vec::new() }
    }

    /// `begin` starts a thread that runs jobs until the pool is dropped.
    fn start(
        &mut self,
        job: Job,
        workers_max: usize,
        begin: impl FnOnce(Arc<Shared>) -> std::io::Result<JoinHandle<()>>,
    ) {
        let token = job.token;
        let mut queue = self.shared.lock();
        queue.jobs.push_back(job);
        let needs_worker = queue.jobs.len() > queue.idle && self.workers.len() < workers_max;
        drop(queue);
        if needs_worker {
            match begin(self.shared.clone()) {
                Ok(worker) => self.workers.push(worker),
                Err(_) if self.workers.is_empty() => {
                    // The system cannot start a thread: this request fails, and the next one tries again.
                    self.shared.lock().jobs.clear();
                    self.shared.done.add(Completion { token, result: -libc::EAGAIN });
                }
                // The threads that already run take the job.
                Err(_) => {}
            }
        }
        self.shared.came.notify_one();
    }
}

fn worker(shared: Arc<Shared>, roaming: &Roaming) -> std::io::Result<JoinHandle<()>> {
    let roaming = roaming.clone();
    thread::Builder::new().name("uraid-helper".into()).spawn(move || {
        roaming.resume();
        work_off(&shared);
    })
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_closing = true;
        // A thread whose job hangs keeps running until the process ends, and the job's memory is leaked: see the
        // driver's drop.
        queue.jobs.clear();
        let is_quiet = queue.idle == self.workers.len();
        drop(queue);
        self.shared.came.notify_all();
        if is_quiet {
            for worker in self.workers.drain(..) {
                // A worker that panicked has already reported its panic.
                let _ = worker.join();
            }
        }
    }
}

fn work_off(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            let (token, result) = (job.token, job.run());
            shared.done.add(Completion { token, result });
            queue = shared.lock();
        } else if queue.is_closing {
            return;
        } else {
            queue.idle += 1;
            queue = shared.came.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

/// The work of an operation, in a form for a helper thread. Panics for sockets.
fn work(request: &mut Request) -> Work {
    let segments = || Segments(request.segments.as_ptr(), request.segments.len());
    match &mut request.kind {
        Kind::Read { at } => Work::Read { at: *at, into: segments() },
        Kind::Write { at, sync } => Work::Write { at: *at, from: segments(), sync: *sync },
        Kind::Sync => Work::Sync,
        Kind::Allocate { mode, at, length } => Work::Allocate { mode: *mode, at: *at, length: *length },
        Kind::Call(call) => Work::Call(call.take()),
        Kind::Receive { .. } | Kind::Send | Kind::Poll { .. } => panic!("sockets are not for helper threads"),
    }
}

/// Does the work on the calling thread. The operation owns its buffers, so nothing else uses them meanwhile.
pub(super) fn run_here(request: &mut Request) -> i32 {
    Job { token: 0, fd: request.fd, work: work(request) }.run()
}

impl Job {
    fn run(self) -> i32 {
        let fd = self.fd;
        match self.work {
            Work::Read { at, into: Segments(list, count) } => {
                // SAFETY: the segments describe live buffers that only this job uses until its completion.
                sys::as_result(unsafe { libc::preadv(fd, list, count as i32, at as i64) })
            }
            Work::Write { at, from, sync: true } => write_durably(fd, &from, at),
            Work::Write { at, from: Segments(list, count), sync: false } => {
                // SAFETY: as above, and nothing writes the buffers.
                sys::as_result(unsafe { libc::pwritev(fd, list, count as i32, at as i64) })
            }
            // SAFETY: no pointers.
            Work::Sync => sys::as_result(unsafe { libc::fdatasync(fd) } as isize),
            Work::Allocate { mode, at, length } => sys::allocate(fd, mode, at, length),
            Work::Call(call) => call(),
        }
    }
}

fn write_durably(fd: RawFd, Segments(list, count): &Segments, at: u64) -> i32 {
    let (count, at) = (*count as i32, at as i64);
    durably(
        // SAFETY: the segments describe live buffers that nothing writes until the completion.
        || sys::as_result(unsafe { libc::pwritev2(fd, *list, count, at, libc::RWF_DSYNC) }),
        // SAFETY: as above.
        || sys::as_result(unsafe { libc::pwritev(fd, *list, count, at) }),
        // SAFETY: no pointers.
        || sys::as_result(unsafe { libc::fdatasync(fd) } as isize),
    )
}

/// Writes durably in one call, or by a plain write and a sync if the file refuses that.
fn durably(in_one_call: impl FnOnce() -> i32, plain: impl FnOnce() -> i32, sync: impl FnOnce() -> i32) -> i32 {
    let result = in_one_call();
    if result != -libc::EOPNOTSUPP && result != -libc::ENOSYS {
        return result;
    }
    let result = plain();
    if result < 0 {
        return result;
    }
    let synced = sync();
    if synced < 0 { synced } else { result }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::AtomicU64;

    /// The calls in order, and the result.
    fn outcome(in_one_call: i32, plain: i32, synced: i32) -> (Vec<&'static str>, i32) {
        let calls = RefCell::default();
        let call = |name, result| {
            let calls: &RefCell<Vec<_>> = &calls;
            move || {
                calls.borrow_mut().push(name);
                result
            }
        };
        let result = durably(call("durable", in_one_call), call("plain", plain), call("sync", synced));
        (calls.into_inner(), result)
    }

    #[test]
    fn a_refused_durable_write_is_followed_by_a_sync_whose_failure_counts() {
        assert_eq!(outcome(4096, 0, 0), (vec!["durable"], 4096));
        assert_eq!(outcome(512, 0, 0), (vec!["durable"], 512), "the caller continues a short write");
        for failure in [libc::EIO, libc::EINTR, libc::EINVAL, libc::ENOSPC] {
            assert_eq!(outcome(-failure, 4096, 0), (vec!["durable"], -failure));
        }
        for refused in [libc::EOPNOTSUPP, libc::ENOSYS] {
            let all = vec!["durable", "plain", "sync"];
            assert_eq!(outcome(-refused, 4096, 0), (all.clone(), 4096));
            assert_eq!(outcome(-refused, 512, 0), (all.clone(), 512));
            assert_eq!(outcome(-refused, 4096, -libc::EIO), (all, -libc::EIO));
            assert_eq!(outcome(-refused, -libc::EIO, 0), (vec!["durable", "plain"], -libc::EIO));
        }
    }

    #[test]
    fn a_job_without_a_thread_fails_and_the_next_one_tries_again() {
        let done = Arc::new(Done { list: Mutex::default(), has_some: AtomicBool::new(false), door: Door::new() });
        let mut pool = Pool::new(done.clone());
        let job = |token| Job { token, fd: -1, work: Work::Call(Box::new(|| 7)) };
        let no_thread = |_| Err(std::io::ErrorKind::WouldBlock.into());
        pool.start(job(1), 4, no_thread);
        let results = || -> Vec<(u32, i32)> {
            done.list.lock().expect("no thread panics").drain(..).map(|end| (end.token, end.result)).collect()
        };
        assert_eq!(results(), [(1, -libc::EAGAIN)]);
        pool.start(job(2), 4, |shared| worker(shared, &Roaming::of_this_thread()));
        pool.start(job(3), 4, no_thread);
        let mut all = Vec::new();
        while all.len() < 2 {
            all.append(&mut results());
        }
        assert_eq!(all, [(2, 7), (3, 7)]);
    }

    #[test]
    fn a_file_without_durable_writes_gets_a_plain_one_and_a_sync() {
        // /proc/self/mem supports neither durable writes nor sync: the kernel refuses the first call, accepts a plain
        // write, and answers the sync with EINVAL.
        let file = std::fs::File::options().write(true).open("/proc/self/mem").expect("Linux has it");
        let target = AtomicU64::new(0);
        let text = b"durable.";
        let segment = libc::iovec { iov_base: text.as_ptr().cast_mut().cast(), iov_len: text.len() };
        let from = Segments(&raw const segment, 1);
        let at = target.as_ptr().expose_provenance() as u64;
        let job = Job { token: 0, fd: file.as_raw_fd(), work: Work::Write { at, from, sync: true } };
        assert_eq!(job.run(), -libc::EINVAL, "the sync's answer");
        assert_eq!(target.load(Ordering::Relaxed), u64::from_ne_bytes(*text));
    }
}
