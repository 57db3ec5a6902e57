//! Gives a running array a write-intent bitmap, or takes it away, by command.
//! Owns: what is answered and said, what a report says of it. Not here: the steps (`engine`), how calls arrive (`control_socket`).

use super::Overseer;
use serde_json::{Value, json};
use uraid_block::Sectors;
use uraid_control::log::with_causes;
use uraid_control::protocol::{BitmapCall, RpcError};
use uraid_control::report::{self, Report};
use uraid_engine::view::Gate;
use uraid_engine::{ChangeBitmapError, Status};
use uraid_layout::Level;

/// What a report says of the bitmap, which may have been added or removed since the start.
pub(super) fn show(status: &Status, report: &mut Report) {
    match status.bitmap {
        Some(_) => "bitmap".clone_into(&mut report.consistency_policy),
        None if report.consistency_policy == "bitmap" && status.gate != Gate::ReadOnly => {
            "resync".clone_into(&mut report.consistency_policy);
        }
        None => {}
    }
    report.bitmap = status.bitmap.map(|bitmap| report::Bitmap {
        chunk_sectors: bitmap.chunk.0,
        chunks: bitmap.chunks,
        write_behind: bitmap.write_behind,
        dirty: bitmap.dirty,
        pages_dirty: bitmap.groups_dirty,
    });
}

impl Overseer {
    pub(super) async fn change_bitmap(&self, call: BitmapCall) -> Result<Value, RpcError> {
        let outcome = match call {
            BitmapCall::Add { chunk_sectors, write_behind } => {
                if write_behind > 0 {
                    self.check_write_behind()?;
                }
                match self.array.choose_bitmap(chunk_sectors.map(Sectors)) {
                    Ok(mut bitmap) => {
                        bitmap.image.change_header(|header| header.write_behind = write_behind);
                        self.array.add_bitmap(bitmap).await
                    }
                    Err(error) => Err(error),
                }
            }
            BitmapCall::Remove {} => self.array.remove_bitmap().await,
        };
        self.say_changes();
        outcome.map_err(|error| RpcError::refused(self.bitmap_text(&error)))?;
        let chunk = self.status().bitmap.map(|bitmap| bitmap.chunk.0);
        Ok(json!({ "array": self.name(), "chunk_sectors": chunk }))
    }

    /// Whether a write of this array can be behind.
    fn check_write_behind(&self) -> Result<(), RpcError> {
        let (name, level) = (self.name(), self.array.layout().level());
        if level != Level::Raid1 {
            let text = format!("{name}: {} has no write-behind: only raid1 has, as with md", level.name());
            return Err(RpcError::refused(text));
        }
        if !self.array.write_mostly().is_empty() {
            return Ok(());
        }
        Err(RpcError::refused(format!(
            "{name}: no member is write-mostly, and write-behind is for these: `uraid write-mostly {name} MEMBER` first"
        )))
    }

    fn bitmap_text(&self, error: &ChangeBitmapError) -> String {
        let name = self.name();
        match error {
            ChangeBitmapError::Busy(kind) => {
                format!("{name}: a {} runs, or is due: `uraid wait {name}` waits for its end", kind.names().word)
            }
            ChangeBitmapError::HasBitmap => {
                format!("{name}: {error}; `uraid bitmap {name} none` takes it away, as for another chunk")
            }
            ChangeBitmapError::MemberRoom { member, .. } | ChangeBitmapError::Member { member, .. } => {
                format!("{name}: {}: {}", self.member_name(*member), with_causes(error))
            }
            ChangeBitmapError::Frozen(_) => match self.frozen_over() {
                Some(reason) => format!("{name}: {error} ({reason})"),
                None => format!("{name}: {}", with_causes(error)),
            },
            ChangeBitmapError::ReadOnly => self.is_read_only_text(),
            ChangeBitmapError::NoRedundancy { .. }
            | ChangeBitmapError::NoBitmap
            | ChangeBitmapError::HasLog
            | ChangeBitmapError::Place(_)
            | ChangeBitmapError::MemberReturns
            | ChangeBitmapError::Suspect
            | ChangeBitmapError::NotOpen => format!("{name}: {}", with_causes(error)),
        }
    }
}
