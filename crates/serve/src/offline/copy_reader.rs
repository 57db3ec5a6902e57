//! The reading half of a copy: reads several stretches at a time, and passes them on in order.
//! Owns: cutting the work, skipping known zeroes, narrowing an unreadable stretch down to sectors.
//! Not here: writing (`uraid copy`), the way to the writer (`queue`), reading around a failed member (`engine`).
//! Invariant: a sector is given up only after it was read alone.

pub mod gone;
pub mod queue;

use crate::lines::progress::ProgressLine;
use crate::offline::one_shot::Arrays;
use gone::Gone;
use queue::{Ended, Job, Queue};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use uraid_arrays::{ArrayIndex, HostArray};
use uraid_block::local::{Either, Receiver, oneshot, race};
use uraid_block::{Allocation, Device, IoError, Range, Sector, Sectors};
use uraid_host::{CLIENT_ARENA, Local};

/// The most that is read at once.
const READ_MAX: Sectors = Sectors(1 << 11);
/// The most reads in flight.
const READS_MAX: usize = 8;
/// How long a read waits for buffers that other reads hold.
const BUFFER_RETRY: Duration = Duration::from_micros(100);

/// How reading ended.
#[derive(Debug)]
pub enum Outcome {
    /// All stretches were passed to the writer.
    Done,
    /// The writer ended early; it reports why.
    WriterEnded,
    /// The copy was told to stop.
    Interrupted,
    /// The array cannot be read any more, from `at` on.
    Failed {
        /// The first sector that was not read.
        at: Sector,
        /// Why.
        error: IoError,
    },
}

/// A range of the source, and the array that it is read from. Both have the same addresses.
struct Part {
    range: Range,
    array: Rc<HostArray>,
    /// What need not be tried.
    gone: Option<Arc<Gone>>,
}

/// What is read.
pub struct Source<'a> {
    /// The ranges of the source and the array that each is read from; they are adjacent and cover all stretches.
    pub parts: &'a [(Range, ArrayIndex)],
    /// What of each array cannot be read, by its index.
    pub gone: &'a [Option<Arc<Gone>>],
    /// Of how many bytes of the members space is taken, and how many they have: for the time left.
    pub allocated: (u64, u64),
}

/// Reads the stretches in order and passes them to the writer. `line` shows the progress; `done` sectors were done before.
#[inline(never)]
pub fn read_all<'a>(
    arrays: &'a Arrays,
    source: &Source<'a>,
    work: &'a [Range],
    queue: &'a Queue,
    line: &'a mut ProgressLine,
    done: Sectors,
) -> Pin<Box<dyn Future<Output = Outcome> + 'a>> {
    let local = &arrays.local;
    let Source { parts, gone, allocated } = *source;
    let part = |&(range, index): &(Range, ArrayIndex)| {
        let (array, gone) = (arrays.arrays[index.0].clone(), gone[index.0].clone());
        Part { range, array, gone }
    };
    let parts = parts.iter().map(part).collect();
    let (under_way, stored_to, there_to) = (VecDeque::new(), Sector(0), Sector(0));
    let reads = Reads { local: local.clone(), parts, under_way, stored_to, there_to, allocated };
    Box::pin(async move {
        match race(local.terminated(), reads.run(work, queue, line, done)).await {
            Either::Left(_) => Outcome::Interrupted,
            Either::Right(Ok(())) => Outcome::Done,
            Either::Right(Err(outcome)) => outcome,
        }
    })
}

struct Reads {
    local: Local,
    parts: Vec<Part>,
    under_way: VecDeque<UnderWay>,
    /// Where the data found by the last allocation query ends. One query covers many reads.
    stored_to: Sector,
    /// How many bytes of the members take space on their file systems, and how many they have.
    allocated: (u64, u64),
    /// Where the last piece ends that was looked through for what is gone.
    there_to: Sector,
}

/// About how much of the source is read, if so many bytes of all bytes of its members are stored.
fn stored_of(total: Sectors, (stored, bytes): (u64, u64)) -> Sectors {
    Sectors((u128::from(total.0) * u128::from(stored) / u128::from(bytes.max(1))) as u64)
}

/// The result of a stretch: jobs in order, or the first sector that was not read.
type Stretch = Result<Vec<Job>, (Sector, IoError)>;

struct UnderWay {
    range: Range,
    content: Content,
}

/// What a stretch holds.
enum Content {
    /// It is all zeroes, and is not read.
    Zero,
    /// No member has it: it is not tried.
    Gone,
    /// What is read.
    Jobs(Receiver<Stretch>),
}

impl From<Ended> for Outcome {
    fn from(_: Ended) -> Outcome {
        Outcome::WriterEnded
    }
}

impl Reads {
    async fn run(
        mut self,
        work: &[Range],
        queue: &Queue,
        line: &mut ProgressLine,
        mut done: Sectors,
    ) -> Result<(), Outcome> {
        let total = Sectors(self.parts.iter().map(|part| part.range.length.0).sum());
        let stored = stored_of(total, self.allocated);
        let mut read = Sectors::ZERO;
        let mut left: VecDeque<Range> = work.iter().copied().collect();
        loop {
            while self.under_way.len() < READS_MAX
                && let Some(first) = left.pop_front()
            {
                let rest = self.start(first).await;
                if !rest.length.is_zero() {
                    left.push_front(rest);
                }
            }
            let Some(next) = self.under_way.pop_front() else { return Ok(()) };
            match next.content {
                Content::Zero => queue.send(Job::Zero(next.range)).await?,
                Content::Gone => queue.send(Job::Lost(next.range)).await?,
                Content::Jobs(jobs) => {
                    read += next.range.length;
                    let jobs = jobs.await.expect("a read that was started gives an answer");
                    let jobs = jobs.map_err(|(at, error)| Outcome::Failed { at, error })?;
                    for job in jobs {
                        queue.send(job).await?;
                    }
                }
            }
            done += next.range.length;
            line.show_work((done, total), read, stored);
        }
    }

    /// Starts reading the first part of a stretch, and returns the rest.
    async fn start(&mut self, all: Range) -> Range {
        let (array, gone, wanted) = self.in_one_part(all);
        // A raid0 that claims 32 TiB more than its members have: one stretch, not 32 million of 1 MiB.
        let (wanted, is_gone) = match gone {
            Some(_) if wanted.start < self.there_to => {
                (Range::between(wanted.start, self.there_to.min(wanted.end())), false)
            }
            Some(gone) => gone.first(wanted),
            None => (wanted, false),
        };
        self.there_to = wanted.end();
        if is_gone {
            self.under_way.push_back(UnderWay { range: wanted, content: Content::Gone });
            return Range::between(wanted.end(), all.end());
        }
        let known = self.known(&array, wanted).await;
        let to_edge = Sectors(READ_MAX.0 - wanted.start.0 % READ_MAX.0);
        let is_zero = known.is_zero;
        let length = if is_zero { known.length } else { known.length.min(to_edge) };
        let range = Range::new(wanted.start, length);
        let content = if is_zero {
            Content::Zero
        } else {
            let (sender, receiver) = oneshot();
            let local = self.local.clone();
            self.local.spawn(async move { sender.send(read_stretch(&local, &array, range).await) });
            Content::Jobs(receiver)
        };
        self.under_way.push_back(UnderWay { range, content });
        Range::between(range.end(), all.end())
    }

    /// The array that holds the start of a stretch, and the part of the stretch that this array holds.
    fn in_one_part(&self, wanted: Range) -> (Rc<HostArray>, Option<Arc<Gone>>, Range) {
        let part = self.parts.iter().find(|part| wanted.start < part.range.end()).expect("the parts cover all");
        assert!(part.range.start <= wanted.start, "the parts are adjacent");
        let wanted = Range::between(wanted.start, wanted.end().min(part.range.end()));
        (part.array.clone(), part.gone.clone(), wanted)
    }

    /// The allocation of the start of a stretch. If the array cannot tell, read it.
    async fn known(&mut self, array: &HostArray, wanted: Range) -> Allocation {
        let stored = |end: Sector| Allocation { length: Range::between(wanted.start, end).length, is_zero: false };
        if wanted.start < self.stored_to {
            return stored(self.stored_to.min(wanted.end()));
        }
        let known = array.allocation(wanted).await.unwrap_or_else(|_| stored(wanted.end()));
        if !known.is_zero {
            self.stored_to = wanted.start + known.length;
        }
        known
    }
}

/// Reads a stretch. A stretch that cannot be read as a whole is halved, down to single sectors, so that as little as
/// possible is lost. An error that is not about these sectors ends the reading; it is returned with the first missing
/// sector.
async fn read_stretch(local: &Local, array: &HostArray, range: Range) -> Stretch {
    let mut jobs: Vec<Job> = Vec::new();
    let mut left = vec![range];
    while let Some(part) = left.pop() {
        let into = loop {
            match local.arena(CLIENT_ARENA).take(part.length.len_bytes()) {
                Ok(into) => break into,
                Err(_) => local.sleep(BUFFER_RETRY).await,
            }
        };
        match array.read(part.start, into).await {
            Ok(pieces) => jobs.push(Job::Data(part, pieces.to_vec())),
            // The array itself failed: continuing would give up readable sectors.
            Err(error) if !error.kind.is_of_sectors() => return Err((part.start, error)),
            Err(_) if part.length > Sectors(1) => {
                let middle = part.start + Sectors(part.length.0.div_ceil(2));
                left.push(Range::between(middle, part.end()));
                left.push(Range::between(part.start, middle));
            }
            Err(_) => match jobs.last_mut() {
                Some(Job::Lost(before)) if before.end() == part.start => {
                    *before = Range::between(before.start, part.end())
                }
                Some(Job::Data(..) | Job::Lost(_) | Job::Zero(_)) | None => jobs.push(Job::Lost(part)),
            },
        }
    }
    Ok(jobs)
}
