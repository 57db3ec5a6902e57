//! Plain numbers, without a unit.
//! Owns: parsing them, and the message about anything else. Not here: their bounds, which the options give.

use std::ops::RangeInclusive;

/// A parser of numbers in this range, all of which must fit the option's type.
pub fn number<T: TryFrom<u64>>(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let (least, most) = (range.start(), range.end());
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match *most {
            u64::MAX => format!("expected a number, at least {least}"),
            most => format!("expected a number from {least} to {most}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_in_the_range_is_told_what_is() {
        let shards = number::<u16>(1..=64);
        assert_eq!((shards("1"), shards("64")), (Ok(1), Ok(64)));
        for text in ["", "abc", "-1", "0", "65", "1K", "1.5", "99999999999999999999"] {
            assert_eq!(shards(text), Err("expected a number from 1 to 64".to_owned()), "{text}");
        }
        let cycles = number::<u64>(1..=u64::MAX);
        assert_eq!(cycles("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(cycles("0"), Err("expected a number, at least 1".to_owned()));
    }
}
