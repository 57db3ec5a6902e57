//! What all connections of one server share.
//! Owns: [`Shared`]: exports, counters, whether the server stops; [`SharedDevice`]: the memory and the permits of one
//! device's clients.
//! Not here: the connections themselves (`connections`), waiting requests (`job`, `clear_queue`), who may
//! hold how much memory (`shares`).
//! Invariant: each device has its own shares, so a member of one array that does not answer stops no other array. A
//! request that was begun is counted as running until it is answered.

pub(crate) mod limits;
pub(crate) mod memory;
pub(crate) mod news;
pub(crate) mod shares;
pub(crate) mod statistics;
pub(crate) mod transfers;

use crate::handshake::export::{Export, Offer};
use crate::machine::Machine;
use crate::request::clear_queue::Lane;
use crate::shared::limits::Limits;
use crate::shared::memory::Memory;
use crate::shared::news::News;
use crate::shared::shares::Shares;
use crate::shared::statistics::Statistics;
use crate::shared::transfers::AllTransfers;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use uraid_block::Device;
use uraid_block::local::{Notify, Semaphore};

/// One device, and what its clients share. It may have several exports.
pub(crate) struct SharedDevice<D> {
    device: Rc<D>,
    /// Its index in the server's list of devices.
    index: usize,
    shares: Shares,
    /// The permits of trims and write-zeroes beside other clients' reads and writes. One piece of the short requests
    /// and one piece of the long ones run at a time.
    piece_permits: [Rc<Semaphore>; 2],
}

impl<D> SharedDevice<D> {
    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Each connection's share of the memory.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn piece_permit(&self, lane: Lane) -> &Rc<Semaphore> {
        &self.piece_permits[lane as usize]
    }
}

/// What all connections of one server share.
pub(crate) struct Shared<M: Machine, D: Device + 'static> {
    machine: M,
    limits: Limits,
    /// What clients are told of each export; never empty, the first is the default.
    offers: Vec<Offer>,
    devices: Vec<Rc<SharedDevice<D>>>,
    /// The index in `devices` of each export.
    device_of: Vec<usize>,
    memory: Memory<M>,
    /// Notified when a request begins to wait for memory.
    shortage: Rc<Notify>,
    transfers: AllTransfers,
    /// Requests that were begun and are not answered.
    running: Cell<usize>,
    /// Counts receives and sends on all connections.
    activity: Cell<u64>,
    statistics: RefCell<Statistics>,
    is_stopping: Cell<bool>,
    changed: Notify,
    log: OnceCell<Box<dyn Fn(News)>>,
}

impl<M: Machine, D: Device + 'static> Shared<M, D> {
    /// For these exports, of which the first is the default. Panics if there is none, if two have one name, or if the
    /// machine's arena is smaller than 16 KiB.
    pub(crate) fn new(machine: M, exports: Vec<(Export, Rc<D>)>, limits: Limits) -> Shared<M, D> {
        let (device_of, devices) = distinct_devices(&exports);
        assert!(!devices.is_empty(), "there is an export");
        let count = devices.len();
        let arena_bytes = machine.arena().capacity_bytes() / count;
        let offer = |(export, device): &(Export, Rc<D>)| Offer::new(export, &device.geometry(), arena_bytes);
        let offers: Vec<Offer> = exports.iter().map(offer).collect();
        let names: BTreeSet<&str> = offers.iter().map(|offer| offer.name.as_str()).collect();
        assert_eq!(names.len(), offers.len(), "two exports have one name");
        let payload_max = offers.iter().map(|offer| offer.payload_max).max().expect("there is an export");
        let segments_max = devices.iter().map(|device| device.geometry().segments_max).min();
        let blocks = machine.arena().blocks() / count;
        let shortage = Rc::new(Notify::new());
        let shared_device = |(index, device): (usize, Rc<D>)| {
            Rc::new(SharedDevice {
                device,
                index,
                shares: Shares::new(arena_bytes, blocks, payload_max as usize, shortage.clone()),
                piece_permits: [Semaphore::new(1), Semaphore::new(1)],
            })
        };
        Shared {
            devices: devices.into_iter().enumerate().map(shared_device).collect(),
            device_of,
            offers,
            memory: Memory::new(machine.clone(), &limits, segments_max.expect("there is an export")),
            shortage,
            transfers: AllTransfers::default(),
            running: Cell::new(0),
            activity: Cell::new(0),
            statistics: RefCell::default(),
            is_stopping: Cell::new(false),
            changed: Notify::new(),
            log: OnceCell::new(),
            machine,
            limits,
        }
    }

    pub(crate) fn machine(&self) -> &M {
        &self.machine
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn memory(&self) -> &Memory<M> {
        &self.memory
    }

    /// By export, as at the start.
    pub(crate) fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// What a client is told that comes now, by export: devices may be read-only for some time, or have another size.
    pub(crate) fn offers_now(&self) -> Vec<Offer> {
        let now = |(export, offer): (usize, &Offer)| {
            let device = &self.device_of(export).device;
            offer.clone().with_read_only(device.is_read_only()).with_size(device.geometry().size)
        };
        self.offers.iter().enumerate().map(now).collect()
    }

    pub(crate) fn devices(&self) -> usize {
        self.devices.len()
    }

    /// The device of an export.
    pub(crate) fn device_of(&self, export: usize) -> &Rc<SharedDevice<D>> {
        &self.devices[self.device_of[export]]
    }

    pub(crate) fn transfers(&self) -> &AllTransfers {
        &self.transfers
    }

    /// Sets the callback for clients that connect, leave or are refused. Only the first call counts.
    pub(crate) fn log_to(&self, log: impl Fn(News) + 'static) {
        let _ = self.log.set(Box::new(log));
    }

    pub(crate) fn log(&self, news: News) {
        if let Some(log) = self.log.get() {
            log(news);
        }
    }

    /// The counters, without `connected` and `writers`.
    pub(crate) fn statistics(&self) -> Statistics {
        *self.statistics.borrow()
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Statistics)) {
        add(&mut self.statistics.borrow_mut());
    }

    /// Reads and writes that were answered.
    pub(crate) fn transfers_answered(&self) -> u64 {
        let statistics = self.statistics.borrow();
        statistics.reads + statistics.writes
    }

    /// The next number of the count of receives and sends.
    pub(crate) fn next_activity(&self) -> u64 {
        self.activity.update(|activity| activity + 1);
        self.activity.get()
    }

    pub(crate) fn request_begins(&self) {
        self.running.update(|running| running + 1);
    }

    /// A request that was begun is answered.
    pub(crate) fn request_ends(&self) {
        assert!(self.running.get() > 0, "a request is answered once");
        self.running.update(|running| running - 1);
        if self.is_stopping.get() {
            self.changed.notify_all();
        }
    }

    /// Requests that were begun and are not answered.
    pub(crate) fn requests_running(&self) -> usize {
        self.running.get()
    }

    /// Whether a request waits for memory that others hold.
    pub(crate) fn is_short(&self) -> bool {
        self.devices.iter().any(|device| device.shares.is_short())
    }

    /// Waits until a request waits for memory that others hold.
    pub(crate) async fn shortage(&self) {
        self.shortage.wait_for(|| self.is_short().then_some(())).await;
    }

    /// No more clients are served.
    pub(crate) fn begin_stop(&self) {
        self.is_stopping.set(true);
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// A connection came or ended.
    pub(crate) fn connections_changed(&self) {
        self.changed.notify_all();
    }

    /// Waits until `ready` returns a value. Calls it when a connection comes or ends and when the server stops. Once
    /// the server stops, also calls it when a request ends.
    pub(crate) async fn wait_for<V>(&self, ready: impl FnMut() -> Option<V>) -> V {
        self.changed.wait_for(ready).await
    }
}

/// The index of each export's device, and the devices.
fn distinct_devices<D>(exports: &[(Export, Rc<D>)]) -> (Vec<usize>, Vec<Rc<D>>) {
    let (mut indexes, mut devices): (Vec<usize>, Vec<Rc<D>>) = Default::default();
    for (_, device) in exports {
        let known = devices.iter().position(|known| Rc::ptr_eq(known, device));
        indexes.push(known.unwrap_or(devices.len()));
        if known.is_none() {
            devices.push(device.clone());
        }
    }
    assert_eq!(indexes.len(), exports.len());
    (indexes, devices)
}
