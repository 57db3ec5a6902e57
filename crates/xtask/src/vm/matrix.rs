//! x
use super::Lab;
use crate::stage::Tally;
pub(crate) fn run() -> Lab<Tally> {
    Ok(Tally::one(false))
}
