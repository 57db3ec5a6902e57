//! The arrays and scripts to explore.
//! Owns: [`arrays`], [`scripts`]. Not here: their text form (`script`).
//! Invariant: the same list in every build and on every machine. No script leaves more writes uncertain at one moment
//! than the explorer's bound.

use super::script::{Schedule, Script, Tiny};
use crate::reference::model::Model;

/// One array of the catalogue.
pub struct CatalogueEntry {
    /// The array.
    pub tiny: Tiny,
    /// How many scripts, from the start of the list, are run on it.
    pub scripts: usize,
}

/// A script, the order of its members' answers, and its depth.
pub struct Job {
    /// The requests.
    pub script: Script,
    /// The order of answers.
    pub schedule: Schedule,
    /// 1, or 2 to crash in the restarts as well.
    pub depth: usize,
}

/// How much of the catalogue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Portion {
    /// A few thousand images, for every build.
    Short,
    /// All of it.
    Full,
}

// Level, layout, slots, chunk, sectors per member, missing, and sectors a bit or a log; then the number of scripts. Layouts of raid10: 258 is near
// 2, 513 far 2, 66049 offset 2; of raid5 and 6: 0 to 3 rotate, 2 is md's default. Each kind comes early in the list, so
// that a run that is cut short covers it.
const FULL: &[(&str, usize)] = &[
    ("5,2,4,1,4,0", 99),
    ("1,0,2,0,7,0", 99),
    ("10,258,4,1,3,0", 99),
    ("6,2,4,1,4,0", 99),
    ("5,2,3,1,4,0,ppl", 99),
    ("1,0,3,0,7,1", 99),
    ("10,258,4,1,5,1", 99),
    ("5,2,4,1,5,2", 99),
    ("6,2,4,1,5,1", 99),
    ("6,2,5,1,2,0", 6),
    ("5,2,3,1,4,0", 99),
    ("1,0,3,0,4,0", 99),
    ("10,513,4,1,4,0", 99),
    ("10,258,3,1,4,0", 99),
    ("5,2,3,2,4,0", 99),
    ("5,0,4,1,3,0", 99),
    ("10,66049,3,1,4,0", 99),
    ("10,513,3,1,4,0", 99),
    ("10,66049,4,1,4,0", 99),
    ("6,2,4,2,4,0", 4),
    ("6,1,5,1,2,0", 2),
    ("6,2,5,1,4,9", 99),
    ("6,2,5,1,3,2", 4),
    ("1,0,3,0,7,4", 99),
    ("10,513,4,1,4,2", 99),
    ("5,2,3,1,5,1", 99),
    ("1,0,2,0,5,0,1", 99),
    ("1,0,2,0,7,0,2", 99),
    ("10,258,3,1,3,0,1", 99),
    ("5,2,3,1,3,0,1", 99),
    ("5,2,3,2,4,0,1", 6),
    ("6,2,4,1,3,0,1", 4),
    ("5,2,4,1,3,0,ppl", 99),
    ("5,2,3,2,4,0,ppl", 6),
    ("5,0,4,1,3,2,ppl", 6),
];

const SHORT: &[(&str, usize)] = &[
    ("1,0,2,0,3,0", 5),
    ("1,0,2,0,3,0,1", 4),
    ("5,2,3,1,2,0,1", 3),
    ("5,2,3,1,2,0,ppl", 3),
    ("1,0,3,0,3,1", 3),
    ("10,258,3,1,2,0", 4),
    ("10,513,4,1,2,1", 3),
    ("5,2,3,1,3,0", 5),
    ("5,2,4,1,2,1", 3),
    ("6,2,4,1,2,0", 3),
    ("6,2,5,1,2,2", 2),
];

/// The arrays.
pub fn arrays(portion: Portion) -> Vec<CatalogueEntry> {
    let list = match portion {
        Portion::Short => SHORT,
        Portion::Full => FULL,
    };
    let entry = |(text, scripts): &(&str, usize)| CatalogueEntry {
        tiny: Tiny::parse(text).expect("the catalogue is well written"),
        scripts: *scripts,
    };
    list.iter().map(entry).collect()
}

/// Data sectors of a stripe; on mirrors, where any number would do, of two chunks.
fn stripe(tiny: &Tiny) -> u64 {
    let (slots, chunk) = (u64::from(tiny.shape.slots), tiny.shape.chunk.max(1));
    match tiny.shape.level {
        4 | 5 => (slots - 1) * chunk,
        6 => (slots - 2) * chunk,
        _ => 2 * chunk,
    }
}

/// Two FUA writes over a write that no flush covers, in a row that loses a data member meanwhile: the content of that
/// member is then computed from the unflushed write, too. The member fails in the FUA write of its only sector, or in
/// the second row of a FUA write of two sectors, when the first row may already be written.
fn fua_losses(tiny: &Tiny, stripe: u64) -> [String; 2] {
    let model = Model::new(tiny.shape.clone());
    let is_here = |x: &u64| model.copies[*x as usize].iter().all(|place| tiny.missing & 1 << place.slot == 0);
    let mut here = (0..stripe).filter(is_here);
    let x = here.next().unwrap_or(0);
    let y = here.next().unwrap_or(x);
    let slot = |x: u64| model.copies[x as usize][0].slot;
    let last = stripe - 1;
    [format!("x{}@0 w{y}+1|W{x}+1", slot(x)), format!("x{}@1 w{x}+1|W{last}+2", slot(last))]
}

/// The scripts for an array of `size` sectors. The first ones are small, and are explored to depth 2.
pub fn scripts(entry: &CatalogueEntry, size: u64) -> Vec<Job> {
    let stripe = stripe(&entry.tiny);
    let (first, last) = (entry.tiny.missing.trailing_ones(), u32::from(entry.tiny.shape.slots) - 1);
    let last = if entry.tiny.missing & 1 << last == 0 { last } else { last - 1 };
    let hurts = entry.tiny.missing == 0 || entry.tiny.shape.level == 6 && entry.tiny.missing.count_ones() == 1;
    let (before, next) = (stripe - 1, stripe + 1);
    let fua = fua_losses(&entry.tiny, stripe);
    let deep = [
        format!("w0+{stripe}|f|s"),
        "w0+1|w0+1 f|W0+1|s".to_string(),
        format!("x{first}@1 w0+{stripe}|f|w0+1|f|s"),
        format!("{}|s", fua[0]),
        format!("w{before}+2|f|w0+1|i|w1+1|s"),
        "W0+1 w1+1 f|w0+2|s".to_string(),
        format!("x{last}@0 w0+{stripe}|W1+1 w0+1|f|s"),
        "w0+2 w1+2|f w0+1|s".to_string(),
        format!("z0+{stripe} w1+1|f|s"),
        format!("w0+{next}|f w1+1|s"),
        format!("w0+1 w{stripe}+1|W0+1|f|s"),
    ];
    let wide = [
        format!("w0+{stripe} w{stripe}+{stripe}|f|s"),
        format!("w0+{stripe}|w0+{stripe}|w1+1|f|s"),
        format!("w0+{size}|f|s"),
        format!("w1+{stripe} w0+{stripe} w{next}+1|f W0+1|s"),
        format!("x{first}@2 w0+{next} w1+{stripe}|f|W0+1|s"),
        format!("z0+{next} w{before}+2|w1+1|f|s"),
        format!("{}|w0+1 f|s", fua[0]),
        format!("{}|s", fua[1]),
    ];
    // A bitmap is removed and added while writes are under way.
    let with_bits =
        ["n w0+1|w1+1|s", "n|w0+1|b w1+1|w0+1|s", "n|b w0+2|f|i|s", "n w0+1|b|w0+1 n|f|s"].map(String::from);
    // A log is written over that names what no flush of a client covers: of the same row, and of the next row whose parity
    // is on the same member; and by two rows at once.
    let other = stripe * u64::from(entry.tiny.shape.slots);
    let with_log =
        ["w0+1|w1+1|w0+1|f|s".to_string(), format!("w0+1|w{other}+1|f|s"), format!("w0+1 w{other}+1|w1+1|f|s")];
    let fits = |script: &Script| script.groups.iter().flatten().all(|request| request.sectors().end <= size);
    let mut jobs = Vec::new();
    let texts = deep.iter().map(|text| (text, 2)).chain(wide.iter().map(|text| (text, 1)));
    let with_bits = with_bits.iter().filter(|_| entry.tiny.bits > 0).map(|text| (text, 2));
    let with_log = with_log.iter().filter(|_| entry.tiny.has_ppl).map(|text| (text, 2));
    for (text, depth) in texts.take(entry.scripts).chain(with_bits).chain(with_log) {
        let script = Script::parse(text).expect("the catalogue is well written");
        if !fits(&script) || (script.loss.is_some() && !hurts) {
            continue;
        }
        for schedule in [Schedule::Fifo, Schedule::Lifo, Schedule::Up, Schedule::Mix(1)] {
            jobs.push(Job { script: script.clone(), schedule, depth });
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_array_of_the_catalogue_has_scripts() {
        for entry in arrays(Portion::Full).iter().chain(&arrays(Portion::Short)) {
            assert!(scripts(entry, 6).len() > 4, "{}", entry.tiny);
        }
    }
}
