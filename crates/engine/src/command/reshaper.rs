//! A running array that gets another shape: the seam for growing. No command uses it yet.
//! Owns: [`ShapeError`], the order of the steps. Not here: which bytes move and what the superblocks say
//! meanwhile (the caller), what a shape is (`state::shape`), what the state does with it (`master::shape`).
//! Invariant: no request is inside while the bytes move, and none has both shapes. The gate opens when the superblocks
//! say where the data are.
//!
//! ```text
//!   publish: the gate closes            requests wait; a freeze lets none in either
//!   drain                               those inside are answered by the old shape
//!   the caller moves the bytes          an error: the gate opens, and nothing has changed
//!   publish: the new shape
//!   superblocks
//!   publish: the gate opens             a request that has waited is checked against the new size
//! ```
//!
//! Only levels without redundancy, so far. For others there is more to change with the shape: the bits of a bitmap, the
//! places of a partial parity log, what shards know of rows, the progress of passes.

use crate::World;
use crate::command::lifecycle::Lifecycle;
use crate::state::master::{Change, ShapeChange};
use crate::state::shape::NewShape;
use crate::steward::NotNow;
use uraid_block::IoError;
use uraid_layout::Level;

/// Why an array did not get another shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShapeError {
    /// It has redundancy.
    #[error("the geometry of a running {} array cannot change yet", level.name())]
    HasRedundancy {
        /// The level of the array.
        level: Level,
    },
    /// The superblock of a member is older than the others, and would be one more round behind.
    #[error(
        "a member has an older superblock than the others; stop the array, assemble it with all members and try again"
    )]
    Lagging,
    /// It was opened read-only, or became so by command.
    #[error("the array is read-only")]
    ReadOnly,
    /// It is starting or has stopped.
    #[error("the array is being started or stopped; try again when it is open")]
    NotOpen,
    /// It is frozen, perhaps since the bytes were moved.
    #[error("the array is frozen")]
    Frozen(#[source] IoError),
    /// The bytes could not be moved: it has the shape that it had.
    #[error("the data could not be moved")]
    Move(#[source] IoError),
}

impl From<NotNow> for ShapeError {
    fn from(reason: NotNow) -> ShapeError {
        match reason {
            NotNow::ReadOnly => ShapeError::ReadOnly,
            NotNow::NotOpen => ShapeError::NotOpen,
            NotNow::Frozen(error) => ShapeError::Frozen(error),
        }
    }
}

impl<W: World> Lifecycle<W> {
    /// Gives the array the shape that `moving` returns when it has moved the bytes. Panics if that is of another level, or
    /// has another number of slots.
    pub(crate) async fn set_shape(
        &self,
        moving: impl Future<Output = Result<NewShape, IoError>>,
    ) -> Result<(), ShapeError> {
        let steward = &self.steward;
        let level = steward.shared.layout().level();
        if level.is_redundant() {
            return Err(ShapeError::HasRedundancy { level });
        }
        let _one = steward.transition.acquire(1).await;
        steward.check_open()?;
        if steward.master().has_lagging() {
            return Err(ShapeError::Lagging);
        }
        let epoch = steward.publish(Change::Shape(ShapeChange::Close)).await;
        steward.drain(epoch).await;
        let outcome = match moving.await {
            Ok(next) => {
                steward.publish(Change::Shape(ShapeChange::Set(&next))).await;
                let version = steward.master().version();
                self.recorder.record_up_to(version).await.map_err(ShapeError::Frozen)
            }
            Err(error) => Err(ShapeError::Move(error)),
        };
        steward.publish(Change::Shape(ShapeChange::Open)).await;
        outcome
    }
}
