//! One shard's server: receiving requests, running each, answering, stopping.
//! Owns: [`Server`]. Not here: the files' data (`transfer`), names and attributes (`folder`), the device (`inbox`, `host`).
//! Invariant: one worker at a time receives. A request is answered once, unless the kernel wants no answer or the mount
//! has ended. A stop lets the requests that run end, and takes no more.

use crate::common::Common;
use crate::folder::{Export, File, Folder, Node, VALID};
use crate::inbox::{Inbox, Message, PAYLOAD_BYTES_MAX, Received};
use crate::memory::Memory;
use crate::transfer::OpenFile;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;
use uraid_block::local::{Either, Notify, Semaphore, race};
use uraid_block::{Device, ReadPieces};
use uraid_fuse::words::{self, fallocate, init, open, seek};
use uraid_fuse::{Attributes, Errno, Init, InitReply, Operation, SetAttributes, Unique, reply, reply_header};
use uraid_host::{ArenaBlocks, FuseDevice, FuseError, Local};

/// Requests of a shard that run at once; further ones stay in the kernel.
const WORKERS_MAX: usize = 512;
/// Asynchronous requests that the kernel sends at once, and from how many on it counts the server as congested.
const BACKGROUND_MAX: u16 = 256;
const CONGESTION: u16 = 192;

/// Serves a mount on one shard.
pub struct Server<D: Device + 'static> {
    local: Local,
    /// Until the stop, or the end of the mount.
    device: RefCell<Option<Rc<FuseDevice>>>,
    folder: Folder,
    /// By export.
    devices: Vec<Rc<D>>,
    common: Common,
    memory: Memory,
    inbox: RefCell<Inbox>,
    /// The worker that has the permit receives.
    turn: Rc<Semaphore>,
    workers: Cell<usize>,
    /// Workers that wait for the turn or have it.
    idle: Cell<usize>,
    running: Cell<usize>,
    is_stopping: Cell<bool>,
    ended: Cell<Option<FuseError>>,
    changed: Notify,
}

/// What is behind the header of an answer.
enum Answer {
    Nothing,
    Bytes(SmallVec<[u8; 128]>),
    Data(ReadPieces),
}

impl<const N: usize> From<[u8; N]> for Answer {
    fn from(bytes: [u8; N]) -> Answer {
        Answer::Bytes(SmallVec::from_slice(&bytes))
    }
}

impl<D: Device + 'static> Server<D> {
    /// A server of these files, with `device`, its part of the mount. Panics if a name is none or there twice.
    pub fn new(
        local: Local,
        device: OwnedFd,
        exports: Vec<(Export, Rc<D>)>,
        common: Common,
        blocks: ArenaBlocks,
    ) -> Rc<Server<D>> {
        let files = exports.iter().map(|(export, device)| File::new(export.clone(), &device.geometry())).collect();
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Rc::new(Server {
            device: RefCell::new(Some(Rc::new(FuseDevice::new(&local, device)))),
            folder: Folder::new(files, owner, local.unix_seconds()),
            devices: exports.into_iter().map(|(_, device)| device).collect(),
            common,
            memory: Memory::new(local.clone(), blocks),
            inbox: RefCell::new(Inbox::new()),
            turn: Semaphore::new(1),
            workers: Cell::new(0),
            idle: Cell::new(0),
            running: Cell::new(0),
            is_stopping: Cell::new(false),
            ended: Cell::new(None),
            changed: Notify::new(),
            local,
        })
    }

    /// Begins to serve. Returns when the mount has ended without a stop, such as by umount, with the reason.
    pub async fn serve(self: Rc<Self>) -> Option<FuseError> {
        self.start_worker();
        self.changed.wait_for(|| (self.ended.get().is_some() || self.is_stopping.get()).then_some(())).await;
        self.ended.get().filter(|_| !self.is_stopping.get())
    }

    /// Takes no more requests, waits until those that run are answered, and closes the device. Returns how many requests
    /// are not done after `time_max`.
    pub async fn stop(&self, time_max: Duration) -> usize {
        self.is_stopping.set(true);
        self.changed.notify_all();
        let done = self.changed.wait_for(|| (self.running.get() == 0).then_some(()));
        match race(done, self.local.sleep(time_max)).await {
            Either::Left(()) | Either::Right(()) => {}
        }
        drop(self.device.take());
        self.running.get()
    }

    /// Requests that are not answered yet.
    pub fn requests_running(&self) -> usize {
        self.running.get()
    }

    fn start_worker(self: &Rc<Self>) {
        self.workers.update(|workers| workers + 1);
        self.idle.update(|idle| idle + 1);
        self.local.spawn(self.clone().work());
    }

    /// A worker, a task: receives a request when it is its turn, and runs it.
    async fn work(self: Rc<Self>) {
        loop {
            let turn = self.turn.acquire(1).await;
            let received = self.receive().await;
            self.idle.update(|idle| idle - 1);
            let Some(message) = received else {
                self.workers.update(|workers| workers - 1);
                return;
            };
            self.running.update(|running| running + 1);
            if self.idle.get() == 0 && self.workers.get() < WORKERS_MAX {
                self.start_worker();
            }
            drop(turn);
            self.run(message).await;
            self.memory.request_ended();
            self.running.update(|running| running - 1);
            if self.is_stopping.get() {
                self.changed.notify_all();
            }
            self.idle.update(|idle| idle + 1);
        }
    }

    /// The next request; `None` at the end.
    async fn receive(&self) -> Option<Message> {
        loop {
            let device = self.device.borrow().clone();
            let device = device.filter(|_| !self.is_stopping.get())?;
            let lacks = self.inbox.borrow().lacks();
            if lacks > 0 {
                let more = self.memory.take(lacks).await;
                self.inbox.borrow_mut().fill(more);
                continue;
            }
            let received = self.inbox.borrow_mut().receive(&device, &self.memory);
            match received {
                Ok(Received::Message(message)) => return Some(message),
                // There is no number to answer to. The kernel does not send such a thing.
                Ok(Received::Garbage) => {}
                Ok(Received::Nothing) => {
                    let stopping = self.changed.wait_for(|| self.is_stopping.get().then_some(()));
                    match race(stopping, device.readable()).await {
                        Either::Left(()) | Either::Right(()) => {}
                    }
                }
                Err(error) => {
                    self.end(error);
                    return None;
                }
            }
        }
    }

    /// The mount has ended.
    fn end(&self, error: FuseError) {
        self.ended.set(self.ended.get().or(Some(error)));
        drop(self.device.take());
        self.changed.notify_all();
    }

    /// Runs a request, and answers.
    async fn run(&self, message: Message) {
        let Message { header, arguments, data } = message;
        let (unique, is_answered) = (header.unique, header.is_answered());
        let result = match header.operation(&arguments) {
            Ok(operation) => match self.folder.node(header.node) {
                Ok(node) => self.perform(node, operation, data).await,
                // Before the first exchange there is no folder, and some requests concern none.
                Err(error) => self.perform_on_none(operation).unwrap_or(Err(error)),
            },
            Err(_) => Err(Errno::Inval),
        };
        if is_answered {
            self.answer(unique, &result);
        }
    }

    fn answer(&self, unique: Unique, result: &Result<Answer, Errno>) {
        let Some(device) = self.device.borrow().clone() else { return };
        let bytes = match result {
            Ok(Answer::Nothing) => Ok(0),
            Ok(Answer::Bytes(bytes)) => Ok(bytes.len()),
            Ok(Answer::Data(data)) => Ok(data.bytes()),
            Err(error) => Err(*error),
        };
        let header = reply_header(unique, bytes);
        let mut slices: SmallVec<[IoSlice<'_>; 20]> = SmallVec::new();
        slices.push(IoSlice::new(&header));
        match result {
            Ok(Answer::Bytes(bytes)) => slices.push(IoSlice::new(bytes)),
            Ok(Answer::Data(data)) => slices.extend(data.iter().map(|piece| IoSlice::new(piece))),
            Ok(Answer::Nothing) | Err(_) => {}
        }
        if let Err(error) = device.answer(&slices) {
            self.end(error);
        }
    }

    /// A request that names no node.
    fn perform_on_none(&self, operation: Operation<'_>) -> Option<Result<Answer, Errno>> {
        match operation {
            Operation::Init(init) => Some(self.begin(init)),
            Operation::Interrupt | Operation::Unknown => Some(Err(Errno::NoSys)),
            Operation::Destroy | Operation::Forget => Some(Ok(Answer::Nothing)),
            Operation::Lookup { .. }
            | Operation::GetAttributes
            | Operation::SetAttributes(_)
            | Operation::Open { .. }
            | Operation::OpenFolder
            | Operation::Read(_)
            | Operation::Write(_)
            | Operation::StatFs
            | Operation::Release
            | Operation::ReleaseFolder
            | Operation::Sync
            | Operation::SyncFolder
            | Operation::SyncAll
            | Operation::Flush
            | Operation::ReadFolder { .. }
            | Operation::Access
            | Operation::Allocate { .. }
            | Operation::Seek { .. } => None,
        }
    }

    async fn perform(&self, node: Node, operation: Operation<'_>, data: ReadPieces) -> Result<Answer, Errno> {
        match operation {
            Operation::Lookup { name } if node == Node::Folder => {
                Ok(self.attributes(self.folder.find(name)?).encode_entry(VALID).into())
            }
            Operation::Lookup { .. } => Err(Errno::NotDir),
            Operation::GetAttributes => Ok(self.attributes(node).encode(VALID).into()),
            Operation::SetAttributes(change) => self.set_attributes(node, change),
            Operation::StatFs => {
                Ok(self.folder.file_system(node, |export| self.devices[export].geometry()).encode().into())
            }
            Operation::OpenFolder => Ok(reply::opened(0).into()),
            Operation::ReadFolder { offset, size } => {
                let bytes = (size as usize).min(PAYLOAD_BYTES_MAX);
                Ok(Answer::Bytes(SmallVec::from_vec(self.folder.list(offset, bytes))))
            }
            Operation::Flush | Operation::ReleaseFolder | Operation::SyncFolder => Ok(Answer::Nothing),
            Operation::SyncAll => self.flush_all().await,
            // The kernel then checks rights by itself, and interrupts nothing.
            Operation::Access | Operation::Init(_) | Operation::Interrupt | Operation::Unknown => Err(Errno::NoSys),
            Operation::Destroy | Operation::Forget => Ok(Answer::Nothing),
            Operation::Open { .. }
            | Operation::Read(_)
            | Operation::Write(_)
            | Operation::Release
            | Operation::Sync
            | Operation::Allocate { .. }
            | Operation::Seek { .. } => match node {
                Node::File(export) => self.perform_on_file(export, operation, data).await,
                Node::Folder => Err(Errno::IsDir),
            },
        }
    }

    async fn perform_on_file(
        &self,
        export: usize,
        operation: Operation<'_>,
        data: ReadPieces,
    ) -> Result<Answer, Errno> {
        let file = OpenFile {
            file: self.folder.file(export),
            state: self.common.file(export),
            device: &*self.devices[export],
            memory: &self.memory,
        };
        match operation {
            Operation::Read(range) if range.length > PAYLOAD_BYTES_MAX as u64 => Err(Errno::Inval),
            Operation::Read(range) => file.read(range).await.map(Answer::Data),
            Operation::Write(range) => file.write(range.offset, data).await.map(|bytes| reply::written(bytes).into()),
            Operation::Sync => file.device.flush().await.map_err(crate::errors::errno).map(|()| Answer::Nothing),
            Operation::Open { flags } => {
                if flags & words::ACCESS_MODE != words::READ_ONLY {
                    file.check_writable()?;
                }
                file.state.opened();
                Ok(reply::opened(open::DIRECT_IO | open::PARALLEL_DIRECT_WRITES | open::NO_FLUSH).into())
            }
            Operation::Release => {
                file.state.released();
                Ok(Answer::Nothing)
            }
            Operation::Allocate { range, mode } => {
                const ZERO_AND_KEEP: u32 = fallocate::ZERO_RANGE | fallocate::KEEP_SIZE;
                const PUNCH_AND_KEEP: u32 = fallocate::PUNCH_HOLE | fallocate::KEEP_SIZE;
                match mode {
                    PUNCH_AND_KEEP | ZERO_AND_KEEP | fallocate::ZERO_RANGE => file.zero(range, mode).await?,
                    _ => return Err(Errno::OpNotSupp),
                }
                Ok(Answer::Nothing)
            }
            Operation::Seek { offset, whence: whence @ (seek::DATA | seek::HOLE) } => {
                file.seek(offset, whence == seek::HOLE).map(|found| reply::sought(found).into())
            }
            Operation::Seek { .. } => Err(Errno::Inval),
            Operation::Init(_)
            | Operation::Lookup { .. }
            | Operation::Forget
            | Operation::GetAttributes
            | Operation::SetAttributes(_)
            | Operation::OpenFolder
            | Operation::StatFs
            | Operation::ReleaseFolder
            | Operation::SyncFolder
            | Operation::SyncAll
            | Operation::Flush
            | Operation::ReadFolder { .. }
            | Operation::Access
            | Operation::Interrupt
            | Operation::Destroy
            | Operation::Unknown => panic!("this is for any node"),
        }
    }

    /// The first exchange.
    fn begin(&self, kernel: Init) -> Result<Answer, Errno> {
        if kernel.major < words::MAJOR || (kernel.major == words::MAJOR && kernel.minor < words::MINOR_MIN) {
            return Err(Errno::Proto);
        }
        // A newer kernel asks again with the server's major number.
        let minor = if kernel.major > words::MAJOR { words::MINOR } else { kernel.minor.min(words::MINOR) };
        let wanted = init::ASYNC_READ | init::BIG_WRITES | init::ASYNC_DIO | init::PARALLEL_DIROPS | init::MAX_PAGES;
        let reply = InitReply {
            minor,
            readahead_max: kernel.readahead_max,
            flags: kernel.flags & wanted,
            background_max: BACKGROUND_MAX,
            congestion: CONGESTION,
            write_max: PAYLOAD_BYTES_MAX as u32,
            pages_max: (PAYLOAD_BYTES_MAX / 4096) as u16,
        };
        Ok(reply.encode().into())
    }

    fn attributes(&self, node: Node) -> Attributes {
        let now = |export: usize| (self.devices[export].geometry(), self.devices[export].is_read_only());
        self.folder.attributes(node, now)
    }

    /// As with a block device, no client changes the size: open(2) with O_TRUNC changes nothing, and a real truncation is refused.
    fn set_attributes(&self, node: Node, change: SetAttributes) -> Result<Answer, Errno> {
        let attributes = self.attributes(node);
        if change.which & (words::change::MODE | words::change::UID | words::change::GID) != 0 {
            return Err(Errno::Perm);
        }
        let is_open = change.which & words::change::FILE == 0;
        match change.new_size() {
            Some(_) if node == Node::Folder => Err(Errno::IsDir),
            Some(0) if is_open => Ok(attributes.encode(VALID).into()),
            Some(size) if size != attributes.size => Err(Errno::Inval),
            // Times are not kept: they are those of the start of the server.
            Some(_) | None => Ok(attributes.encode(VALID).into()),
        }
    }

    async fn flush_all(&self) -> Result<Answer, Errno> {
        for device in &self.devices {
            device.flush().await.map_err(crate::errors::errno)?;
        }
        Ok(Answer::Nothing)
    }
}
