//! Which requests of one turn go down to a member as one, and in which order.
//! Owns: [`Waiting`], [`Limits`], [`arrange`], [`together`]: pure. Not here: who carries it out (`ring`).
//! Invariant: requests that overlap, one of them a write, go down in the order in which they came.

/// What can be merged: with nothing but itself.
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
    /// Pieces of memory.
    pub(super) segments: u32,
    pub(super) direction: Direction,
    /// How many were started before it in this turn.
    pub(super) order: u32,
    pub(super) token: u32,
}

impl Waiting {
    fn end(&self) -> u64 {
        self.at + self.bytes
    }
}

/// The largest request that goes down as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) bytes_max: u64,
    pub(crate) segments_max: usize,
}

/// Puts requests into ascending order. Where one that writes overlaps another, all are left in the order in which they
/// came. Whether they may be merged: false in that case.
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

/// How many of the first requests go down as one: each begins where the one before it ends. At least 1.
pub(super) fn together(waiting: &[Waiting], limits: Limits) -> usize {
    let first = waiting[0];
    let (mut bytes, mut segments) = (first.bytes, first.segments as usize);
    let mut count = 1;
    for next in &waiting[1..] {
        bytes += next.bytes;
        segments += next.segments as usize;
        let adjoins = next.at == first.at + bytes - next.bytes && next.direction == first.direction;
        if !adjoins || bytes > limits.bytes_max || segments > limits.segments_max {
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
            Waiting { at, bytes, segments: 1, direction, order, token: order }
        };
        requests.iter().enumerate().map(waiting).collect()
    }

    /// The tokens of each request that goes down.
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
    fn neighbours_of_one_kind_go_down_as_one_and_ascending() {
        use Direction::{Read, Write, WriteDurably};
        assert_eq!(groups(&[(10, 5, Read), (0, 5, Read), (5, 5, Read), (20, 1, Read)]), [vec![1, 2, 0], vec![3]]);
        assert_eq!(groups(&[(0, 5, Write), (5, 5, WriteDurably), (10, 5, WriteDurably)]), [vec![0], vec![1, 2]]);
        assert_eq!(groups(&[(5, 5, Read), (0, 5, Write)]), [[1], [0]]);
        assert_eq!(groups(&[(0, 5, Read), (0, 5, Read), (5, 5, Read)]), [vec![0], vec![1, 2]], "read twice");
        assert_eq!(groups(&[(0, 60, Read), (60, 40, Read), (100, 60, Read)]), [vec![0, 1], vec![2]], "too long");
        let many: Vec<_> = (0..6).map(|n| (n, 1, Read)).collect();
        assert_eq!(groups(&many), [vec![0, 1, 2, 3], vec![4, 5]], "too many segments");
    }

    #[test]
    fn what_overlaps_a_write_stays_in_order() {
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
