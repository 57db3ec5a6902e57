//! The ring over io_uring.
//! Owns: [`Uring`]. Not here: operation slots and futures (`ring`).
//! Invariant: that of [`Ring`]. Queued entries point only into requests and buffers, which stay until the completion.

use super::pool::Pools;
use super::registered::Registered;
use super::{Completion, Depth, Kind, Request, Ring, Wait};
use crate::mail::door::Door;
use io_uring::{IoUring, opcode, squeue, types};
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use uraid_block::Arena;

const ENTRIES: u32 = 256;
const COMPLETIONS: u32 = 4096;
/// The user data of completions that belong to no operation.
const BELL: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
const TRIAL: u64 = u64::MAX - 2;
/// Per member, one thread for ioctls on a block device and for operations that may wait for a file server.
const WORKERS_MAX: usize = 1;

/// The most operations submitted by one call. The kernel starts the operations of a call only after it has read all of
/// them; with smaller calls, a device begins with the first ones earlier. With 32 in flight, this bound makes 4 KiB
/// reads through a loop device 1.2 times as fast as without it; bounds from 2 to 8 are equally good.
const BATCH_MAX: usize = 4;

/// An io_uring of one thread.
pub(super) struct Uring {
    // Dropped before the memory that it refers to.
    ring: IoUring,
    registered: Registered,
    door: Arc<Door>,
    pools: Pools,
    bell_is_armed: bool,
    // Completions that were reaped to make room in the queue, and that `wait` has not returned yet.
    early: Vec<Completion>,
    // The most kernel worker threads for files and block devices; 0: no limit.
    workers_max: u32,
}

impl Uring {
    /// Fails if the system refuses io_uring, or has a version that is too old (before Linux 5.11).
    pub(super) fn new(door: Arc<Door>) -> io::Result<Uring> {
        let mut ring = build()?;
        let has = ring.params();
        if !(has.is_feature_nodrop() && has.is_feature_submit_stable() && has.is_feature_ext_arg()) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        // Some sandboxes allow the setup and refuse the use.
        let trial = opcode::Nop::new().build().user_data(TRIAL);
        // SAFETY: the entry contains no pointer.
        unsafe { ring.submission().push(&trial) }.map_err(|_| io::Error::from_raw_os_error(libc::ENOSYS))?;
        ring.submit_and_wait(1)?;
        ring.completion().next().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSYS))?;
        let pools = Pools::new(WORKERS_MAX, door.clone());
        let registered = Registered::new(&ring.submitter());
        Ok(Uring { ring, registered, door, pools, bell_is_armed: false, early: Vec::new(), workers_max: 0 })
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the entry points into a `Request` that stays until its completion, see `start`, or has no pointer.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.enter(None);
            let mut early = std::mem::take(&mut self.early);
            self.reap(&mut early);
            self.early = early;
        }
        if self.ring.submission().len() >= BATCH_MAX {
            self.enter(None);
        }
    }

    /// Submits the queue to the kernel; with `wait`, also waits for a completion.
    fn enter(&mut self, wait: Option<Wait>) {
        let result = match wait {
            None | Some(Wait::No) => self.ring.submit(),
            Some(Wait::Forever) => self.ring.submit_and_wait(1),
            Some(Wait::For(time)) => {
                let time = types::Timespec::new().sec(time.as_secs()).nsec(time.subsec_nanos());
                self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
        };
        match result.map_err(|error| error.raw_os_error()) {
            Ok(_) => {}
            // Timeout, interrupted, out of memory, or completion queue full: reap, then try again.
            Err(Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM)) => {}
            Err(os) => panic!("io_uring_enter refused its arguments, errno {os:?}"),
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            match entry.user_data() {
                BELL => {
                    self.bell_is_armed = false;
                    self.door.bell().silence();
                }
                CANCEL => {}
                token => {
                    let token = u32::try_from(token).expect("every other completion carries a token");
                    completions.push(Completion { token, result: entry.result() });
                }
            }
        }
        self.pools.take(completions);
    }
}

fn build() -> io::Result<IoUring> {
    let mut best = IoUring::builder();
    best.setup_cqsize(COMPLETIONS).setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let mut plain = IoUring::builder();
    plain.setup_cqsize(COMPLETIONS);
    best.build(ENTRIES).or_else(|_| plain.build(ENTRIES))
}

fn flags(is_remote: bool, has_slot: bool) -> squeue::Flags {
    // Submitting a request that waits for a file server would block the shard, so such a request goes to a worker
    // thread at once.
    let by_worker = if is_remote { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
    // The entry then names a slot instead of a descriptor.
    let by_slot = if has_slot { squeue::Flags::FIXED_FILE } else { squeue::Flags::empty() };
    by_worker | by_slot
}

/// The entry for an operation; `None` if it is for the helper thread. `memory`: the index of the registered buffer that
/// contains the operation's single piece.
fn entry(request: &mut Request, memory: Option<u16>) -> Option<squeue::Entry> {
    let fd = types::Fd(request.slot.map_or(request.fd, u32::cast_signed));
    let (list, count) = (request.segments.as_ptr(), request.segments.len() as u32);
    let one =
        request.segments.first().filter(|_| count == 1).map(|one| (one.iov_base.cast::<u8>(), one.iov_len as u32));
    let entry = match &request.kind {
        Kind::Read { at } => match (one, memory) {
            (Some((bytes, length)), Some(memory)) => {
                opcode::ReadFixed::new(fd, bytes, length, memory).offset(*at).build()
            }
            (Some((bytes, length)), None) => opcode::Read::new(fd, bytes, length).offset(*at).build(),
            (None, _) => opcode::Readv::new(fd, list, count).offset(*at).build(),
        },
        Kind::Write { at, sync } => {
            let flags = if *sync { libc::RWF_DSYNC } else { 0 };
            match (one, memory) {
                (Some((bytes, length)), Some(memory)) => {
                    opcode::WriteFixed::new(fd, bytes, length, memory).offset(*at).rw_flags(flags).build()
                }
                (Some((bytes, length)), None) => {
                    opcode::Write::new(fd, bytes, length).offset(*at).rw_flags(flags).build()
                }
                (None, _) => opcode::Writev::new(fd, list, count).offset(*at).rw_flags(flags).build(),
            }
        }
        Kind::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        Kind::Allocate { mode, at, length } => opcode::Fallocate::new(fd, *length).offset(*at).mode(*mode).build(),
        Kind::Receive { whole } => {
            let flags = if *whole { libc::MSG_WAITALL } else { 0 };
            match one {
                Some((bytes, length)) => opcode::Recv::new(fd, bytes, length).flags(flags).build(),
                None => opcode::RecvMsg::new(fd, request.message()).flags(flags as u32).build(),
            }
        }
        Kind::Send => {
            let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
            match one {
                Some((bytes, length)) => opcode::Send::new(fd, bytes, length).flags(flags).build(),
                None => opcode::SendMsg::new(fd, request.message()).flags(flags as u32).build(),
            }
        }
        Kind::Poll { is_shared } => {
            let alone = if *is_shared { libc::EPOLLEXCLUSIVE.cast_unsigned() } else { 0 };
            opcode::PollAdd::new(fd, libc::POLLIN as u32 | alone).build()
        }
        Kind::Call(_) => return None,
    };
    Some(entry)
}

impl Ring for Uring {
    unsafe fn start(&mut self, token: u32, request: *mut Request) {
        // SAFETY: the caller's promise: the operation belongs to the ring until the completion.
        let request = unsafe { &mut *request };
        let (slot, memory) = match (request.slot, &request.segments[..]) {
            (Some(slot), [one]) => {
                (Some(slot), self.registered.memory(&self.ring.submitter(), one.iov_base.addr(), one.iov_len))
            }
            (slot, _) => (slot, None),
        };
        let flags = flags(request.is_remote, slot.is_some());
        match entry(request, memory) {
            Some(entry) => self.push(&entry.flags(flags).user_data(u64::from(token))),
            // SAFETY: the caller's promise.
            None => unsafe { self.pools.start(token, request) },
        }
    }

    fn cancel(&mut self, token: u32) {
        self.push(&opcode::AsyncCancel::new(u64::from(token)).build().user_data(CANCEL));
    }

    fn wait(&mut self, wait: Wait, completions: &mut Vec<Completion>) {
        completions.append(&mut self.early);
        self.reap(completions);
        if completions.is_empty() && wait != Wait::No {
            if !self.bell_is_armed {
                self.bell_is_armed = true;
                let bell = types::Fd(self.door.bell().descriptor());
                self.push(&opcode::PollAdd::new(bell, libc::POLLIN as u32).build().user_data(BELL));
            }
            // If the completions reaped to make room for the bell's poll were the last ones in flight, there is nothing
            // to wait for.
            completions.append(&mut self.early);
            self.enter(Some(if completions.is_empty() { wait } else { Wait::No }));
            self.reap(completions);
            return;
        }
        let queue = self.ring.submission();
        let has_work = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if has_work {
            self.enter(None);
            self.reap(completions);
        }
    }

    fn announce_memory(&mut self, arenas: &[Arena]) {
        self.registered.announce_memory(&self.ring.submitter(), arenas);
    }

    /// Requests that would block go to kernel threads. By default a few threads serve all files, and one member that
    /// hangs would occupy all of them.
    fn announce_member(&mut self, depth: Depth) {
        let mut now = [0, 0];
        if self.workers_max == 0 && self.ring.submitter().register_iowq_max_workers(&mut now).is_ok() {
            self.workers_max = now[0];
        }
        self.workers_max = self.workers_max.saturating_add(depth.0);
        // Before Linux 5.15 the number cannot be set; a member that hangs may then delay others until it is failed.
        let _ = self.ring.submitter().register_iowq_max_workers(&mut [self.workers_max, 0]);
    }

    fn registered_bytes(&self) -> usize {
        self.registered.bytes()
    }

    fn add_file(&mut self, fd: RawFd) -> Option<u32> {
        self.registered.add_file(&self.ring.submitter(), fd)
    }

    fn remove_file(&mut self, slot: u32) {
        self.registered.remove_file(&self.ring.submitter(), slot);
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn completions_reaped_while_the_queue_was_full_are_returned_before_a_sleep() {
        // If io_uring is refused, there is nothing to test.
        let Ok(mut ring) = Uring::new(Door::new()) else { return };
        // Fill the queue, as if the system had accepted no entry for a time.
        for token in 0..ENTRIES {
            let entry = opcode::Nop::new().build().user_data(u64::from(token));
            // SAFETY: the entry contains no pointer.
            unsafe { ring.ring.submission().push(&entry) }.expect("there is room");
        }
        let mut completions = Vec::new();
        ring.wait(Wait::For(Duration::from_secs(1)), &mut completions);
        assert_eq!(completions.len(), ENTRIES as usize);
    }

    /// The parts of an entry that the kernel reads: the operation's number, the address and the flags of the operation.
    fn seen(entry: &squeue::Entry) -> (u8, u64, u32) {
        assert_eq!(size_of_val(entry), 64, "struct io_uring_sqe");
        // SAFETY: an entry is the kernel's struct of 64 bytes, which is plain data.
        let bytes: [u8; 64] = unsafe { std::mem::transmute_copy(entry) };
        let offset = u64::from_ne_bytes(*bytes[8..].first_chunk().expect("long enough"));
        let flags = u32::from_ne_bytes(*bytes[28..].first_chunk().expect("long enough"));
        (bytes[0], offset, flags)
    }

    /// A read of a FUSE file without FUSE_ASYNC_READ blocks its submitter, unless a worker submits it.
    #[test]
    fn requests_to_remote_files_are_submitted_by_workers() {
        let seen =
            [(false, false), (false, true), (true, false), (true, true)].map(|(remote, slot)| flags(remote, slot));
        let (worker, slot) = (squeue::Flags::ASYNC, squeue::Flags::FIXED_FILE);
        assert_eq!(seen, [squeue::Flags::empty(), slot, worker, worker | slot]);
    }

    #[test]
    fn every_form_of_a_durable_write_has_its_flag_and_a_sync_is_fdatasync() {
        // From linux/io_uring.h.
        const WRITEV: u8 = 2;
        const FSYNC: u8 = 3;
        const WRITE_FIXED: u8 = 5;
        const WRITE: u8 = 23;
        const DATASYNC: u32 = 1;
        let arena = uraid_block::Arena::new(4, 0);
        for (pieces, memory, number) in [(1, None, WRITE), (1, Some(3), WRITE_FIXED), (2, None, WRITEV)] {
            for (sync, flags) in [(false, 0), (true, libc::RWF_DSYNC as u32)] {
                let mut from = arena.take(4096).expect("room").freeze();
                (1..pieces).for_each(|_| from.append(arena.take(4096).expect("room").freeze()));
                let mut request =
                    Request::new(Kind::Write { at: 12345, sync }, super::super::Buffers::Write(from), None);
                let entry = entry(&mut request, memory).expect("not for the helper thread");
                assert_eq!(seen(&entry), (number, 12345, flags));
            }
        }
        let mut request = Request::new(Kind::Sync, super::super::Buffers::None, None);
        assert_eq!(seen(&entry(&mut request, None).expect("not for the helper thread")), (FSYNC, 0, DATASYNC));
    }
}
