//! Sectors that no member can give.
//! Owns: the line about them. Not here: which ones they are (`engine`, `opening::without_copy`).

use uraid_block::Sectors;

/// What members that are out leave without a copy. `which`: the words that name them.
pub(crate) fn lost_line(sectors: Sectors, which: &str) -> String {
    format!(
        "no member is left that has {}{which}: those that are there list them as bad blocks; reads of them fail until a \
         member that has them is taken back by re-add, or they are written again",
        if sectors == Sectors(1) { "1 sector".to_owned() } else { format!("{} sectors", sectors.0) }
    )
}
