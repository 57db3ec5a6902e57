//! Which requests of one turn are merged into one request to a member, and in which order.
//! Owns: [`Waiting`], [`Limits`], [`RecentRequests`], [`arrange`], [`together`]: pure. Not here: submitting them
//! (`ring`).
//! Invariant: if requests overlap and one of them is a write, they are submitted in the order in which they came.
//!
//! A request that crosses the end of a chunk waits for two members, which end their parts at different times. So the
//! parts of a stream's next requests arrive at a member one by one, while another request is in flight there, and would
//! be submitted as fragments. If such a part continues a request in flight, and is smaller than the largest request
//! merged into that one, it is held until that request has ended, and is merged with the parts that arrive meanwhile:
//! ```text
//!   in flight |---- 192K ----|            in the meantime, from the client's next request
//!                            |- 64K -|---- 192K ----|     submitted as one
//! ```
//! What continues a held part, and is too long to be merged with it, is held with it: else it would go first.

/// The kind of a request; only requests of one kind are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Read,
    Write,
    WriteDurably,
}

/// A read or write that was started in this turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Waiting {
    pub(super) at: u64,
    pub(super) bytes: u64,
    /// The number of memory segments.
    pub(super) segments: u32,
    pub(super) direction: Direction,
    /// How many requests were started before it in this turn.
    pub(super) order: u32,
    pub(super) token: u32,
    /// The request for which this one was held, if any. Once that has ended, this one is not held again.
    pub(super) held: Option<Identity>,
}

/// Identifies one operation: tokens are reused, numbers are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    pub(super) token: u32,
    pub(super) number: u64,
}

impl Waiting {
    fn end(&self) -> u64 {
        self.at + self.bytes
    }

    pub(super) fn is_continued_by(&self, next: &Waiting) -> bool {
        self.end() == next.at && self.direction == next.direction
    }
}

/// How many of a lane's last requests are remembered; a new request may continue one of them.
const RECENT_MAX: usize = 16;

/// A request that was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sent {
    pub(super) identity: Identity,
    direction: Direction,
    end: u64,
    /// The size of the largest request in it.
    pub(super) part_bytes: u64,
}

/// The last requests of a lane; the oldest one is dropped first.
#[derive(Default, Debug)]
pub(super) struct RecentRequests {
    sent: [Option<Sent>; RECENT_MAX],
    next: usize,
}

impl RecentRequests {
    /// Records a group that was submitted as one request, `identity`.
    pub(super) fn note(&mut self, group: &[Waiting], identity: Identity) {
        let last = group.last().expect("something goes down");
        let part_bytes = group.iter().map(|one| one.bytes).max().expect("as before");
        self.sent[self.next] = Some(Sent { identity, direction: last.direction, end: last.end(), part_bytes });
        self.next = (self.next + 1) % RECENT_MAX;
    }

    /// The requests for which a group may be held: the one for which it is held already, or those that it continues.
    pub(super) fn before<'a>(&'a self, group: &'a [Waiting]) -> impl Iterator<Item = &'a Sent> {
        let first = group[0];
        let held = group.iter().find_map(|one| one.held);
        self.sent.iter().flatten().filter(move |sent| match held {
            Some(identity) => sent.identity == identity,
            None => sent.end == first.at && sent.direction == first.direction,
        })
    }
}

/// The limits of a merged request that the member has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes_max: u64,
    pub(crate) segments_max: usize,
}

/// A merged request is not longer than this, or than so many of the longest request in it. A pass has 512 KiB to 1 MiB of
/// adjacent windows in flight on each member. One request for all of them would leave the member without work while the
/// bytes are computed:
/// ```text
///   merged into one   member |== 1 MiB ==|        |== 1 MiB ==|      into four   member |==|==|==|==|==|==|==|
///                     shard              |compute|                               shard     |c| |c| |c| |c| |c|
/// ```
const MERGED_MAX: u64 = 256 << 10;
const PARTS_MAX: u64 = 4;

/// Sorts the requests in ascending order and returns true: they may be merged. If a write overlaps another request,
/// returns false and leaves them in the order in which they came.
pub(super) fn arrange(waiting: &mut [Waiting]) -> bool {
    if !waiting.is_sorted_by_key(|one| one.at) {
        waiting.sort_unstable_by_key(|one| (one.at, one.order));
    }
    let (mut end, mut end_of_writes) = (0, 0);
    for one in &*waiting {
        let is_write = one.direction != Direction::Read;
        if one.at < if is_write { end } else { end_of_writes } {
            waiting.sort_unstable_by_key(|one| one.order);
            return false;
        }
        end = end.max(one.end());
        if is_write {
            end_of_writes = end_of_writes.max(one.end());
        }
    }
    true
}

/// How many of the first requests are merged: each begins where the one before it ends. At least 1.
pub(super) fn together(waiting: &[Waiting], limits: Limits) -> usize {
    let first = waiting[0];
    let (mut bytes, mut segments, mut longest) = (first.bytes, first.segments as usize, first.bytes);
    let mut count = 1;
    for next in &waiting[1..] {
        bytes += next.bytes;
        segments += next.segments as usize;
        longest = longest.max(next.bytes);
        let bytes_max = limits.bytes_max.min(MERGED_MAX.max(PARTS_MAX * longest));
        let adjoins = next.at == first.at + bytes - next.bytes && next.direction == first.direction;
        if !adjoins || bytes > bytes_max || segments > limits.segments_max {
            break;
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bytes_max: 100, segments_max: 4 };

    fn list(requests: &[(u64, u64, Direction)]) -> Vec<Waiting> {
        let waiting = |(order, &(at, bytes, direction))| {
            let order = order as u32;
            Waiting { at, bytes, segments: 1, direction, order, token: order, held: None }
        };
        requests.iter().enumerate().map(waiting).collect()
    }

    /// The tokens of each submitted request.
    fn groups(requests: &[(u64, u64, Direction)]) -> Vec<Vec<u32>> {
        let mut waiting = list(requests);
        let can_merge = arrange(&mut waiting);
        let (mut groups, mut rest) = (Vec::new(), &waiting[..]);
        while !rest.is_empty() {
            let (group, later) = rest.split_at(if can_merge { together(rest, LIMITS) } else { 1 });
            groups.push(group.iter().map(|one| one.token).collect());
            rest = later;
        }
        groups
    }

    #[test]
    fn adjacent_requests_of_one_kind_are_merged_in_ascending_order() {
        use Direction::{Read, Write, WriteDurably};
        assert_eq!(groups(&[(10, 5, Read), (0, 5, Read), (5, 5, Read), (20, 1, Read)]), [vec![1, 2, 0], vec![3]]);
        assert_eq!(groups(&[(0, 5, Write), (5, 5, WriteDurably), (10, 5, WriteDurably)]), [vec![0], vec![1, 2]]);
        assert_eq!(groups(&[(5, 5, Read), (0, 5, Write)]), [[1], [0]]);
        assert_eq!(groups(&[(0, 5, Read), (0, 5, Read), (5, 5, Read)]), [vec![0], vec![1, 2]], "read twice");
        assert_eq!(groups(&[(0, 60, Read), (60, 40, Read), (100, 60, Read)]), [vec![0, 1], vec![2]], "too long");
        const KIB: u64 = 1 << 10;
        let whole = |lengths: &[u64]| {
            let mut end = 0;
            let adjacent = lengths.iter().map(|kib| {
                end += kib * KIB;
                (end - kib * KIB, kib * KIB, Read)
            });
            together(&list(&adjacent.collect::<Vec<_>>()), Limits { bytes_max: u64::MAX, segments_max: 100 })
        };
        assert_eq!(whole(&[64; 16]), 4, "256 KiB");
        assert_eq!(whole(&[192; 16]), 4, "four of the longest");
        assert_eq!(whole(&[64, 192, 64, 192, 64, 192, 64]), 6);
        let many: Vec<_> = (0..6).map(|n| (n, 1, Read)).collect();
        assert_eq!(groups(&many), [vec![0, 1, 2, 3], vec![4, 5]], "too many segments");
    }

    #[test]
    fn requests_that_overlap_a_write_stay_in_order() {
        use Direction::{Read, Write};
        for overlapping in [
            [(8, 8, Write), (4, 8, Write), (0, 4, Write)],
            [(8, 8, Write), (4, 8, Read), (0, 4, Read)],
            [(8, 8, Read), (4, 8, Write), (0, 4, Write)],
            [(50, 1, Read), (0, 60, Write), (30, 1, Read)],
        ] {
            assert_eq!(groups(&overlapping), [[0], [1], [2]], "{overlapping:?}");
        }
        assert_eq!(groups(&[(8, 8, Read), (4, 8, Read)]), [[1], [0]]);
    }
}
