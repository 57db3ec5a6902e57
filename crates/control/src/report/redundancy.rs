//! How many more members an array can lose, in a report.
//! Owns: [`Report::redundancy_left`]. Not here: which members are gone (`members`), what a status says of it.
//! Invariant: where the level leaves it to chance which members fail, the number is that of the worst case.

use super::Report;

impl Report {
    /// How many more members may fail, whichever they are, before data is lost. Members that are being recovered do not
    /// count yet. On raid10 the worst case is that the members which fail have the same data.
    pub fn redundancy_left(&self) -> u16 {
        let missing = self.slots().chars().filter(|&letter| letter == '_').count();
        let missing = u16::try_from(missing).unwrap_or(u16::MAX);
        let at_most: u16 = match self.level.as_str() {
            "raid1" => self.raid_devices.saturating_sub(1),
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            "raid10" => self.copies().saturating_sub(1),
            _ => 0,
        };
        at_most.saturating_sub(missing)
    }

    /// Whether the level has copies or parity.
    pub fn is_redundant(&self) -> bool {
        !matches!(self.level.as_str(), "raid0" | "linear")
    }

    /// The copies of each sector on raid10, from `near=2, far=2`.
    fn copies(&self) -> u16 {
        let layout = self.layout.as_deref().unwrap_or_default();
        let of_parts = layout.split(", ").filter_map(|part| part.split_once('=')?.1.parse::<u16>().ok());
        of_parts.fold(1, u16::saturating_mul)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::degraded;
    use super::*;

    #[test]
    fn each_level_says_how_many_may_go_in_the_worst_case() {
        // One of three is gone.
        let left = |level: &str, layout: &str| {
            let report = Report {
                level: level.to_owned(),
                layout: Some(layout.to_owned()).filter(|it| !it.is_empty()),
                ..degraded()
            };
            report.redundancy_left()
        };
        assert_eq!([left("raid1", ""), left("raid5", "left-symmetric"), left("raid6", "left-symmetric")], [1, 0, 1]);
        assert_eq!([left("raid10", "near=2"), left("raid10", "near=3"), left("raid10", "near=2, far=2")], [0, 1, 2]);
        assert_eq!([left("raid0", "original"), left("linear", "")], [0, 0]);
    }
}
