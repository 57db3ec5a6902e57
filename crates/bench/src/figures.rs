//! Medians and their confidence intervals.
//! Owns: [`median`], [`Interval`]. Not here: what is measured.
//! Invariant: an interval states its confidence. With few values it covers all of them, with less than 95 % confidence.
//!
//! The interval of a median by order statistics: for n values, the true median lies between the k-th smallest and the
//! k-th largest with probability 1 - 2 P(B < k), where B is binomial with n and 1/2. This holds for any distribution.
//! For 5 values, the smallest and the largest give 93.8 %; for 6 values they give 96.9 %. For 9 values, the second
//! smallest and the second largest give 96.1 %.

/// The wanted confidence of an interval, if there are enough values.
const WANTED: f64 = 0.95;

/// The middle value, or the mean of the two middle ones. Panics if there are no values.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    f64::midpoint(sorted[sorted.len() / 2], sorted[(sorted.len() - 1) / 2])
}

fn sorted(values: &[f64]) -> Vec<f64> {
    assert!(!values.is_empty());
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values
}

/// A median and its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Interval {
    /// The median of the values.
    pub median: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The probability that the true median lies between the ends, 0 to 1.
    pub confidence: f64,
}

impl Interval {
    /// The interval of these values. Panics if there are none.
    pub(crate) fn of(values: &[f64]) -> Interval {
        let sorted = sorted(values);
        let (rank, confidence) = rank(sorted.len());
        let (low, high) = (sorted[rank], sorted[sorted.len() - 1 - rank]);
        Interval { median: median(values), low, high, confidence }
    }
}

/// How many values to leave out at each end, and the confidence of the rest.
fn rank(count: usize) -> (usize, f64) {
    // P(B = 0), then P(B = k) by P(B = k - 1).
    let mut probability = 0.5f64.powi(i32::try_from(count).expect("few values"));
    let mut outside = probability;
    let mut best = (0, 1.0 - 2.0 * outside);
    for left_out in 1..count.div_ceil(2) {
        probability *= (count - left_out + 1) as f64 / left_out as f64;
        outside += probability;
        let confidence = 1.0 - 2.0 * outside;
        if confidence < WANTED {
            break;
        }
        best = (left_out, confidence);
    }
    (best.0, best.1.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between_the_middle_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[7.0]), 7.0);
    }

    #[test]
    fn the_interval_leaves_out_as_much_as_95_percent_allow() {
        // From a table of the binomial distribution.
        for (count, left_out, percent) in [(1, 0, 0.0), (5, 0, 93.75), (6, 0, 96.875), (8, 0, 99.219), (9, 1, 96.094)] {
            let (found, confidence) = rank(count);
            assert_eq!(found, left_out, "{count} values");
            assert!((confidence * 100.0 - percent).abs() < 0.001, "{count} values: {confidence}");
        }
        assert_eq!(rank(20).0, 5);
        assert!((rank(20).1 - 0.95861).abs() < 1e-5);
        assert_eq!(rank(100).0, 39);
    }

    #[test]
    fn an_outlier_does_not_move_the_ends() {
        let values = [1.0, 9.0, 9.1, 9.2, 9.3, 9.4, 9.5, 9.6, 100.0];
        let interval = Interval::of(&values);
        assert_eq!((interval.low, interval.median, interval.high), (9.0, 9.3, 9.6));
    }
}
