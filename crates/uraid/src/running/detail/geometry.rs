//! What `uraid detail --draw` draws: a reported array, or a described geometry.
//! Owns: its layout and its columns. Not here: the drawing (`drawing`).

use super::DetailError;
use super::args::GeometryArgs;
use super::drawing::{Column, Drawing, Held};
use uraid_block::Sectors;
use uraid_control::report::Report;
use uraid_layout::{Layout, Level, Spec};
use uraid_option_values::{chunk_size, layout_number, usage_error};

/// Default data on each member: 1 GiB, or more if that is only a few chunks.
const SIZE: Sectors = Sectors(2 << 20);
const CHUNKS_MIN: u64 = 256;

/// The layout of an array, running or not.
pub(crate) fn layout_of(report: &Report) -> Result<Layout, DetailError> {
    let unknown = || DetailError::NoGeometry { array: report.name.clone(), level: report.level.clone() };
    let geometry = report.geometry.as_ref().ok_or_else(unknown)?;
    let spec = Spec {
        level: Level::parse(&report.level).ok_or_else(unknown)?,
        layout: geometry.layout,
        chunk: Sectors(geometry.chunk),
        raid_disks: report.raid_devices,
        size: Sectors(geometry.size),
        member_sizes: geometry.member_sizes.iter().map(|&size| Sectors(size)).collect(),
    };
    Ok(Layout::new(&spec)?)
}

/// The drawing of an array, running or not.
pub(super) fn of_report(report: &Report, rows: Option<u64>) -> Result<Drawing, DetailError> {
    let layout = layout_of(report)?;
    let column = |slot| {
        let member = report.members.iter().find(|member| member.slot == Some(slot) && member.state == "active sync");
        let held = member.map(|member| Held { name: member.path.clone(), data_offset: member.data_offset });
        Column { member: held }
    };
    let columns = (0..report.raid_devices).map(column).collect();
    Ok(Drawing::new(Some(&report.name), &layout, columns, rows))
}

/// The drawing of an array as `create` would lay it out. `level` is one of the options.
pub(super) fn of_options(level: Level, options: &GeometryArgs, rows: Option<u64>) -> Result<Drawing, DetailError> {
    let raid_disks = options.raid_devices.expect("clap requires it");
    let layout = layout_number(level, options.layout.as_deref());
    let chunk = chunk_size(level, options.chunk);
    let is_sized_by_member = matches!(level, Level::Linear | Level::Raid0);
    let default = SIZE.max(Sectors(chunk.0.saturating_mul(CHUNKS_MIN)));
    let sizes = match options.size[..] {
        [] => vec![default; raid_disks.into()],
        [size] => vec![size; raid_disks.into()],
        [..] if is_sized_by_member && options.size.len() == usize::from(raid_disks) => options.size.clone(),
        [..] if is_sized_by_member => {
            usage_error(&format!("--size has {} sizes, expected one or {raid_disks}", options.size.len()))
        }
        [..] => usage_error(&format!("--size has {} sizes, {level} takes one", options.size.len())),
    };
    let size = if is_sized_by_member { Sectors::ZERO } else { sizes.first().copied().unwrap_or(Sectors::ZERO) };
    let member_sizes = if is_sized_by_member { sizes } else { Vec::new() };
    let layout = Layout::new(&Spec { level, layout, chunk, raid_disks, size, member_sizes })?;
    let there = Column { member: Some(Held { name: None, data_offset: None }) };
    Ok(Drawing::new(None, &layout, vec![there; raid_disks.into()], rows))
}
