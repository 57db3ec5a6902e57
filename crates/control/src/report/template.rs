//! What one superblock says of its array, as a report.
//! Owns: the properties that are constant while an array runs. Not here: its members and its state (`overseer`; `detail`
//! for an array that does not run).

use super::{Geometry, Report};
use crate::words::names;
use uraid_block::Slot;
use uraid_format::{Features, Superblock, uuid};
use uraid_layout::{Layout, Level, layout_name};

impl Report {
    /// The constant properties of an array, by any of its superblocks. Without its layout, its size is unknown.
    pub fn of_template(template: &Superblock, layout: Option<&Layout>) -> Report {
        let set_name = template.set_name.as_str().into_owned();
        let known = template.level_layout();
        let geometry = layout.map(Layout::spec).map(|spec| Geometry {
            layout: spec.layout,
            chunk: spec.chunk.0,
            size: spec.size.0,
            member_sizes: spec.member_sizes.iter().map(|size| size.0).collect(),
        });
        Report {
            name: names::short_name(&set_name, &template.set_uuid),
            set_name,
            device: None,
            uuid: uuid::text(&template.set_uuid),
            metadata: template.version.name().to_owned(),
            level: known.map_or_else(|| format!("unknown ({})", template.level), |(level, _)| level.name().to_owned()),
            layout: known.map(|(level, layout)| layout_name(level, layout)).filter(|name| !name.is_empty()),
            chunk_sectors: layout.map_or(template.chunk, Layout::chunk).0,
            array_sectors: layout.map_or(0, |layout| layout.array_size().0),
            // raid10 can use less than the recorded size: whole chunks of each far copy.
            member_sectors: match layout {
                Some(layout) if !template.size.is_zero() => layout.member_used(Slot(0)).0,
                Some(_) | None => template.size.0,
            },
            raid_devices: layout.map_or(u16::try_from(template.raid_disks).unwrap_or(u16::MAX), Layout::slots),
            state: Vec::new(),
            frozen: None,
            created: template.created_seconds(),
            updated: template.updated_seconds(),
            events: template.events,
            resync: None,
            recovery: None,
            check: None,
            repair: None,
            last_check: None,
            checks: None,
            maintenance_until: None,
            history_error: None,
            passes_frozen: false,
            pass_limits: None,
            reshape: None,
            members: Vec::new(),
            server: None,
            counts: None,
            times: None,
            clients: None,
            consistency_policy: consistency_policy(template).to_owned(),
            bitmap: None,
            left_out: Vec::new(),
            spare_group: None,
            refusal: None,
            read_only: None,
            is_blank: false,
            in_use: Vec::new(),
            geometry,
        }
    }
}

/// How an array is made consistent after a crash, in mdadm's words.
fn consistency_policy(template: &Superblock) -> &'static str {
    let has = |features| template.features.intersects(features);
    match template.known_level() {
        Some(Level::Linear | Level::Raid0) => "none",
        Some(Level::Raid1 | Level::Raid10 | Level::Raid4 | Level::Raid5 | Level::Raid6) | None => match () {
            () if has(Features::JOURNAL) => "journal",
            () if has(Features::PPL.with(Features::MULTIPLE_PPLS)) => "ppl",
            () if has(Features::CLUSTERED) => "clustered bitmap",
            () if has(Features::BITMAP_OFFSET) => "bitmap",
            () => "resync",
        },
    }
}
