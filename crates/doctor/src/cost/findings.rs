//! What of an array, its partitions and its file systems costs I/O or safety, and what helps.
//! Owns: [`Finding`], [`examine`]: each rule, and its figures. Not here: reading (the caller), the facts (`facts`), the
//! plans behind the figures (`engine::write_cost`).
//! Invariant: a figure of a cost comes from the planner that performs the writes, never from a formula of its own.

use crate::cost::facts::{Content, Facts, MemberFacts, Volume};
use crate::cost::healthy::healthy_cost;
use uraid_block::sizes::{binary, counted};
use uraid_block::{SECTOR_BYTES, Sector, Sectors};
use uraid_engine::WriteCost;
use uraid_format::file_system::{FileSystem, FileSystemKind};
use uraid_layout::Level;

/// An array without a bitmap is named from this size of its members on.
const RESYNC_IS_LONG: Sectors = Sectors(100 << 21);
/// Of a hard disk, for the time of a resync.
const BYTES_A_SECOND: u64 = 200 << 20;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// It costs something, and may be meant.
    Note,
    /// It costs much, and can be avoided.
    Warning,
}

/// Something that costs I/O or safety.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// A word for scripts: `partition-start`.
    pub id: &'static str,
    /// `the array`, `partition 1`, or a member's name.
    pub about: String,
    /// What it is.
    pub what: String,
    /// What it costs.
    pub cost: Option<String>,
    /// What to do.
    pub advice: Option<String>,
}

impl Finding {
    fn new(severity: Severity, id: &'static str, about: &str, what: String) -> Finding {
        Finding { severity, id, about: about.to_owned(), what, cost: None, advice: None }
    }

    fn costs(self, cost: impl Into<String>) -> Finding {
        Finding { cost: Some(cost.into()), ..self }
    }

    fn advice(self, advice: impl Into<String>) -> Finding {
        Finding { advice: Some(advice.into()), ..self }
    }
}

/// What the rules find, warnings first.
pub fn examine(facts: &Facts, volumes: &[Volume]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = facts.members.iter().filter_map(member_alignment).collect();
    findings.extend(degraded(facts));
    findings.extend(write_hole(facts));
    findings.extend(long_resync(facts));
    findings.extend(small_bitmap_chunk(facts));
    findings.extend(discard(facts));
    findings.extend(pieces(facts));
    for volume in volumes {
        findings.extend(start(facts, volume));
        findings.extend(unreadable(volume));
        if let Content::FileSystem(found) = &volume.content {
            findings.extend(larger_than_volume(volume, found));
            findings.extend(blocks(facts, volume, found));
            findings.extend(stripes(facts, volume, found));
        }
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// The I/O of a write on the healthy array, as text: `12 member writes`, `2 reads and 2 writes`.
pub fn cost_text(cost: &WriteCost) -> String {
    let writes = counted(cost.device_writes, "member write", "member writes");
    match cost.device_reads {
        0 => writes,
        reads => format!("{} and {writes}", counted(reads, "member read", "member reads")),
    }
}

/// `64 KiB`, `512 bytes`, `3.64 TiB`.
pub fn size_text(size: Sectors) -> String {
    const MEBI: u64 = 2048;
    match size.0 {
        large if large >= 10 * MEBI => binary(size),
        odd if !odd.is_multiple_of(2) => format!("{} bytes", size.bytes()),
        small => format!("{} KiB", small / 2),
    }
}

fn bytes_text(bytes: u64) -> String {
    size_text(Sectors(bytes / SECTOR_BYTES as u64))
}

/// Writes of a drive's own blocks.
fn member_alignment(member: &MemberFacts) -> Option<Finding> {
    let (start, block) = (member.data_start?, member.physical_block?);
    if block.is_zero() || start.0.is_multiple_of(block.0) {
        return None;
    }
    let what = format!(
        "its data begins at sector {} of the drive, and the drive writes blocks of {}",
        start.0,
        size_text(block)
    );
    let cost = "a write of one such block touches two of them: the drive reads and writes both";
    let advice = "make its partition begin at a multiple of 1 MiB, and add it again";
    Some(Finding::new(Severity::Warning, "member-alignment", &member.name, what).costs(cost).advice(advice))
}

fn degraded(facts: &Facts) -> Option<Finding> {
    let missing = usize::from(facts.layout.slots()) - facts.in_sync.count();
    if missing == 0 {
        return None;
    }
    let what = format!("{} no member in sync", counted(missing as u64, "slot has", "slots have"));
    let finding = Finding::new(Severity::Warning, "degraded", "the array", what);
    Some(if facts.layout.can_serve(&facts.in_sync) {
        finding
            .costs("the next loss may be one too many")
            .advice("`uraid add ARRAY DEVICE`; all figures here are of the whole array")
    } else {
        finding.costs("too many members are missing: it cannot be served")
    })
}

/// Parity that a crash may leave wrong.
fn write_hole(facts: &Facts) -> Option<Finding> {
    if !facts.layout.level().is_parity() || ["ppl", "journal"].contains(&&*facts.policy) {
        return None;
    }
    let what = format!("its consistency policy is {}: the write hole is open", facts.policy);
    let cost = "a crash in the middle of writes, and then the loss of a member before the resync has passed there: \
                blocks that were not being written can be lost, too";
    let finding = Finding::new(Severity::Note, "write-hole", "the array", what).costs(cost);
    Some(match facts.layout.level() {
        Level::Raid5 => finding
            .advice("stop it, then `uraid update ppl MEMBER...`; each write costs one write more, and discards end"),
        Level::Linear | Level::Raid0 | Level::Raid1 | Level::Raid4 | Level::Raid6 | Level::Raid10 => finding
            .advice("a bitmap makes the time short in which that can happen; md's logs close the hole of raid5 only"),
    })
}

fn long_resync(facts: &Facts) -> Option<Finding> {
    let of_member = facts.layout.member_used(uraid_block::Slot(0));
    if facts.layout.tolerates() == 0 || facts.policy != "resync" || of_member < RESYNC_IS_LONG {
        return None;
    }
    let hours = of_member.bytes() as f64 / BYTES_A_SECOND as f64 / 3600.0;
    let what = "it has no write-intent bitmap".to_owned();
    let cost =
        format!("after a crash each member is read whole, {}: {hours:.1} hours at 200 MiB/s", size_text(of_member));
    let finding = Finding::new(Severity::Note, "no-bitmap", "the array", what).costs(cost);
    Some(finding.advice("`uraid bitmap ARRAY internal`: a resync reads only what was being written"))
}

fn small_bitmap_chunk(facts: &Facts) -> Option<Finding> {
    let (bit, chunk) = (facts.bitmap_chunk?, facts.layout.chunk());
    if chunk.is_zero() || bit >= chunk {
        return None;
    }
    let what = format!("a bit of its bitmap stands for {}, less than a chunk of {}", size_text(bit), size_text(chunk));
    let bits = chunk.0.div_ceil(bit.0);
    let cost = format!("a write of one chunk sets {bits} bits, and waits until they are durable");
    let finding = Finding::new(Severity::Note, "bitmap-chunk", "the array", what).costs(cost);
    Some(
        finding
            .advice("`uraid bitmap ARRAY none`, then `uraid bitmap ARRAY internal`: the chunk that mdadm would choose"),
    )
}

fn discard(facts: &Facts) -> Option<Finding> {
    if !facts.layout.level().is_parity() {
        return None;
    }
    let why = if facts.policy == "ppl" {
        "its partial parity log".to_owned()
    } else {
        let device = facts.members.iter().find(|member| member.lacks_holes)?;
        format!("its member {}: parity needs zeroes after a discard, and this drive does not offer that", device.name)
    };
    let finding =
        Finding::new(Severity::Note, "no-discard", "the array", format!("it takes no discards, because of {why}"));
    Some(finding.costs("fstrim and mkfs give no space back to the members"))
}

fn unreadable(volume: &Volume) -> Option<Finding> {
    let (why, advice) = match &volume.content {
        Content::Unreadable(why) => (why, "its own check program, read-only: xfs_repair -n, e2fsck -n or btrfs check"),
        Content::BadTable(why) => {
            (why, "`sfdisk --verify` on the array's file or device; is it the array that the table was made for?")
        }
        Content::FileSystem(_) | Content::Other(_) | Content::Unknown => return None,
    };
    Some(Finding::new(Severity::Warning, "unreadable", &volume.name, why.clone()).advice(advice))
}

/// Where a partition begins.
fn start(facts: &Facts, volume: &Volume) -> Option<Finding> {
    let (chunk, stripe) = (facts.layout.chunk(), facts.layout.stripe());
    // Copies and stripes without parity need whole chunks only.
    let unit = if facts.layout.level().is_parity() { stripe } else { chunk };
    let is_there = !matches!(volume.content, Content::BadTable(_));
    if !is_there || stripe.is_zero() || unit.is_zero() || volume.start.0.is_multiple_of(unit.0) {
        return None;
    }
    let into = Sectors(volume.start.0 % unit.0);
    let unit_name = if unit == stripe && stripe != chunk { "stripe" } else { "chunk" };
    let what = format!(
        "it begins at sector {}, {} into a {unit_name} of {}",
        volume.start.0,
        size_text(into),
        size_text(unit)
    );
    let here = healthy_cost(&facts.layout, volume.start, unit);
    let aligned = healthy_cost(&facts.layout, Sector(volume.start.0 - into.0), unit);
    let mut finding = Finding::new(Severity::Warning, "partition-start", &volume.name, what);
    if let (Some(here), Some(aligned)) = (here, aligned) {
        finding = finding.costs(format!(
            "a write of one {unit_name}, aligned by a file system in it, is {} instead of {}",
            cost_text(&here),
            cost_text(&aligned)
        ));
    }
    let next = volume.start.0.div_ceil(unit.0) * unit.0;
    Some(finding.advice(format!("make it anew from sector {next}; data in it has to be copied")))
}

/// A write of a whole stripe that the kernel passes on in pieces.
fn pieces(facts: &Facts) -> Option<Finding> {
    let (stripe, longest) = (facts.layout.stripe(), facts.file_write_max);
    if !facts.layout.level().is_parity() || stripe <= longest {
        return None;
    }
    let mut cost = WriteCost::default();
    for start in (0..stripe.0).step_by(longest.0 as usize) {
        cost += healthy_cost(&facts.layout, Sector(start), longest.min(Sectors(stripe.0 - start)))?;
    }
    let whole = healthy_cost(&facts.layout, Sector(0), stripe)?;
    let what = format!(
        "a write of a stripe, {}, comes through --fuse and loop devices in pieces of at most {}",
        size_text(stripe),
        size_text(longest)
    );
    let finding = Finding::new(Severity::Note, "pieces", "the array", what).costs(format!(
        "a single one, and the first two of a stream, take {} instead of {}",
        cost_text(&cost),
        cost_text(&whole)
    ));
    Some(
        finding.advice(
            "none is needed where whole stripes are written in order: their pieces are put together; by NBD each comes whole",
        ),
    )
}

fn larger_than_volume(volume: &Volume, found: &FileSystem) -> Option<Finding> {
    if found.size <= volume.length.bytes() {
        return None;
    }
    let (size, room) = (bytes_text(found.size), size_text(volume.length));
    let what = format!("its {} is {size} long, and there are {room}", found.kind);
    let finding = Finding::new(Severity::Warning, "too-long", &volume.name, what)
        .costs("it cannot be mounted, or its end is lost");
    Some(finding.advice("find out whether the array has the size that it had: `uraid examine MEMBER...`"))
}

/// The blocks of the file system and those of the drives.
fn blocks(facts: &Facts, volume: &Volume, found: &FileSystem) -> Option<Finding> {
    let sector = found.sector;
    if sector < facts.logical_block.bytes() {
        let logical = size_text(facts.logical_block);
        let what = format!(
            "its {} writes sectors of {}, and the array has blocks of {logical}",
            found.kind,
            bytes_text(sector)
        );
        let finding =
            Finding::new(Severity::Warning, "logical-block", &volume.name, what).costs("it cannot be mounted");
        return Some(finding.advice(format!(
            "read it with `uraid copy`; a new one: mkfs.xfs -s size={}",
            facts.logical_block.bytes()
        )));
    }
    let physical = facts.members.iter().filter_map(|member| member.physical_block).max()?;
    if sector >= physical.bytes() {
        return None;
    }
    let what = format!(
        "its {} writes sectors of {}, and the drives have blocks of {}",
        found.kind,
        bytes_text(sector),
        size_text(physical)
    );
    let cost = "writes of its log and of its superblocks are read-modify-writes inside the drives";
    let finding = Finding::new(Severity::Note, "physical-block", &volume.name, what).costs(cost);
    Some(finding.advice(format!("only a new one helps: mkfs.xfs -s size={}", physical.bytes())))
}

/// The stripes that the file system knows.
fn stripes(facts: &Facts, volume: &Volume, found: &FileSystem) -> Option<Finding> {
    let (chunk, stripe) = (facts.layout.chunk(), facts.layout.stripe());
    if stripe.is_zero() {
        return None;
    }
    let ours = format!("{} x {}", size_text(chunk), stripe.0 / chunk.0);
    let (severity, what) = match found.stripes {
        Some(told) if told.unit == chunk.bytes() && told.width == stripe.bytes() => return None,
        Some(told) => {
            let width = told.units();
            let text = format!(
                "its {} was made for stripes of {} x {width}, and the array has {ours}",
                found.kind,
                bytes_text(told.unit)
            );
            (Severity::Warning, text)
        }
        None if found.kind == FileSystemKind::Btrfs => {
            (Severity::Note, format!("Btrfs does not know stripes; those of the array are {ours}"))
        }
        None => {
            (Severity::Warning, format!("its {} was told of no stripes; those of the array are {ours}", found.kind))
        }
    };
    let mut finding = Finding::new(severity, "stripes", &volume.name, what);
    if let Some(cost) = average_cost(facts, volume, found) {
        finding = finding.costs(cost);
    }
    Some(match advice_for_stripes(found, chunk, stripe) {
        Some(advice) => finding.advice(advice),
        None => finding,
    })
}

/// A write of one stripe from every block where a file could begin.
fn average_cost(facts: &Facts, volume: &Volume, found: &FileSystem) -> Option<String> {
    let stripe = facts.layout.stripe();
    let block = Sectors(found.block / SECTOR_BYTES as u64).max(Sectors(1));
    let begin = volume.start.0.div_ceil(stripe.0) * stripe.0;
    let aligned = healthy_cost(&facts.layout, Sector(begin), stripe)?;
    let places = stripe.0.div_ceil(block.0);
    let mut all = WriteCost::default();
    for place in 0..places {
        all += healthy_cost(&facts.layout, Sector(begin + place * block.0), stripe)?;
    }
    let average = all.ios() as f64 / places as f64;
    let text = format!(
        "a write of one stripe at any of its blocks is {average:.1} I/Os on members on average, {} where a stripe begins",
        aligned.ios()
    );
    Some(if facts.layout.level().is_parity() {
        format!("{text}; `uraid doctor --file` counts those of one file")
    } else {
        text
    })
}

fn advice_for_stripes(found: &FileSystem, chunk: Sectors, stripe: Sectors) -> Option<String> {
    match found.kind {
        // The kernel changes stripes of its superblock, and adds none.
        FileSystemKind::Xfs if found.stripes.is_none() => Some(format!(
            "only a new one helps: mkfs.xfs -d su={}k,sw={}; data in it has to be copied",
            chunk.0 / 2,
            stripe.0 / chunk.0
        )),
        FileSystemKind::Xfs => Some(format!(
            "mount it with -o sunit={},swidth={}: new files are then laid out by stripes; `swalloc` besides for files \
             that are written in whole stripes",
            chunk.0, stripe.0
        )),
        FileSystemKind::Ext => Some(format!(
            "tune2fs -E stride={},stripe_width={} DEVICE, for blocks of 4K: new files are then laid out by stripes",
            chunk.0 / 8,
            stripe.0 / 8
        )),
        FileSystemKind::Btrfs => None,
    }
}
