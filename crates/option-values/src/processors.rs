//! Lists of processors, as taskset(1) and fio write them.
//! Owns: parsing them, the check that this process may run there. Not here: what runs there.

/// One processor for each thread, each once, at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processors(Vec<u16>);

/// The most threads, as for `serve --shards`.
const COUNT_MAX: usize = 64;

impl Processors {
    /// How many threads.
    pub fn count(&self) -> u16 {
        self.0.len() as u16
    }

    /// The processor of each thread.
    pub fn list(&self) -> &[u16] {
        &self.0
    }
}

/// Parses `0-3`, `2,4,6`, `0,4-7`. Fails if this process may not run on one of them.
pub fn parse_processors(text: &str) -> Result<Processors, String> {
    let is_none = || format!("{text:?} is not a list of processors, expected one like 0-3 or 2,4,6");
    let number = |text: &str| text.parse::<u16>().map_err(|_| is_none());
    let mut list: Vec<u16> = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(is_none());
        }
        for processor in first..=last {
            if list.contains(&processor) {
                return Err(format!("{text:?} names processor {processor} twice"));
            }
            if list.len() == COUNT_MAX {
                return Err(format!("{text:?}: expected at most {COUNT_MAX} processors, one for each thread"));
            }
            list.push(processor);
        }
    }
    let allowed = uraid_host::processors_allowed();
    if let Some(processor) = list.iter().find(|processor| !allowed.contains(processor)) {
        return Err(format!("this process may not run on processor {processor}, only on {}", ranges(&allowed)));
    }
    Ok(Processors(list))
}

/// `0-3,6` for ascending numbers.
fn ranges(numbers: &[u16]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next).map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read_as_taskset_reads_them() {
        let allowed = uraid_host::processors_allowed();
        assert_eq!(parse_processors(&ranges(&allowed)), Ok(Processors(allowed.clone())));
        let one = allowed[0].to_string();
        assert_eq!(parse_processors(&one), Ok(Processors(vec![allowed[0]])));
        for text in ["", ",", "0-", "-1", "3-1", "a", "65536", &format!("{one},{one}"), "0-65535", "1023"] {
            assert!(parse_processors(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_in_a_row_are_written_as_a_range() {
        assert_eq!(ranges(&[0, 1, 2, 3, 6, 8, 9]), "0-3,6,8-9");
        assert_eq!(ranges(&[]), "");
    }
}
