//! Logs that name rows of which the recovering member holds nothing, or a part.
//! Owns: every position of a recovery against every row that a log names. Not here: crashes among writes to such a member
//! (`ppl`).

use super::*;
use uraid_format::Features;
use uraid_format::ppl::PplHeader;
use uraid_sim::image::areas::PPL_AT;

/// A member was replaced by a spare after writes that are answered and durable, and that the logs of the others still
/// name. Power fails when the spare's superblock has come this far.
fn with_part_of(image: &[u8], data: usize, held: u64) -> Vec<u8> {
    let mut image = image.to_vec();
    let size = Sectors((image.len() / 512) as u64);
    let place = 8 * 512..16 * 512;
    let mut superblock =
        Superblock::parse(image[place.clone()].try_into().expect("a place"), Sector(8), size).expect("a whole one");
    superblock.features = superblock.features.with(Features::RECOVERY_OFFSET);
    superblock.recovery_offset = held;
    image[place].copy_from_slice(&superblock.encode()[..]);
    let log = PPL_AT as usize * 512;
    image[log..data].fill(0);
    let header = PplHeader::complete(&superblock.set_uuid).encode();
    image[log..log + header.len()].copy_from_slice(&header[..]);
    image[data + held as usize * 512..].fill(0xee);
    image
}

/// ```text
///   raid5 of 3 or 4, chunks of 16 or 4 sectors, six rows; a log names a stretch of the row. What a member holds ends with 4 KiB
///
///   recovering member   |------ holds ------|.............|
///   logged row                          |=========|
/// ```
#[test]
fn a_log_is_not_replayed_over_what_the_recovering_member_does_not_hold() {
    let of_four = [(0, 1, 2), (1, 2, 8), (2, 0, 12), (5, 5, 1)].map(|logged| (4, 4, logged));
    let of_three = [(0, 4, 10), (1, 22, 9), (2, 0, 32)].map(|logged| (3, 16, logged));
    for (slots, chunk, (row, from, length)) in of_four.into_iter().chain(of_three) {
        let (layout, size, data_slots) = (2, 6 * chunk, u64::from(slots - 1));
        let mut rig = rig_of_chunk(chunk, layout, slots, 1, 0, 1);
        let data = rig.setup.data_offsets[0] as usize * 512;
        let live = start_with(&mut rig, &[], &config());
        let mut content = fill(&rig, &live);
        let at = row * data_slots * chunk + from;
        content[at as usize * 512..(at + length) as usize * 512].fill(99);
        assert_eq!(all(&rig, &live, vec![write_as(&rig, &live, at, length, 99, Fua::Yes)]), [Ok(())]);
        let images: Vec<Vec<u8>> = rig.judge.disks.iter().map(|disk| disk.medium().durable().to_vec()).collect();
        for slot in 0..slots {
            for held in (0..=size).filter(|held| held / chunk == row || held % chunk == 0) {
                let text = format!("{length} sectors at {at} are logged, slot {slot} holds {held} of its data");
                let of_slot = |(number, image): (usize, &Vec<u8>)| {
                    let is_recovering = number == usize::from(slot);
                    Some(if is_recovering { with_part_of(image, data, held) } else { image.clone() })
                };
                let images = images.iter().enumerate().map(of_slot).collect();
                let (after, live) = restarted(&rig, images, None, &text);
                run(&after, &live, || live.started.get().is_some());
                assert_eq!(live.started.get(), Some(true), "{text}");
                let whole = || all(&after, &live, vec![read(&live, 0, size * data_slots)]) == [Ok(content.clone())];
                assert!(whole(), "{text}");
                wait(&after, &live);
                assert!(whole(), "{text}, when it is recovered");
                after.power_off();
            }
        }
        rig.power_off();
    }
}
