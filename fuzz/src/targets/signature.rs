//! Signatures of other formats at the start and the end of a device.
//! Owns: the legal results of `detect`. Input: device sectors 8, bytes of the head 2, head, tail.

use crate::input::Input;
use uraid_block::Sectors;
use uraid_format::signature::{detect, detect_all};

/// Places of signatures that are far from the start: the input's bytes are also copied there.
const FAR: [usize; 8] = [512, 1024, 4096, 8192, 16_384, 32_768, 65_536, 65_600];

pub(crate) fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (size, far, length) = (Sectors(input.u64()), input.byte(), usize::from(input.u16()));
    let front = input.bytes(length);
    let at = if far >> 7 == 0 { 0 } else { FAR[usize::from(far) % FAR.len()] };
    let mut head = vec![0; at];
    head.extend_from_slice(front);
    let tail = input.rest();
    let all = detect_all(&head, tail, size);
    assert_eq!(detect(&head, tail, size), all.first().copied());
    for (n, found) in all.iter().enumerate() {
        assert!(all[..n].iter().all(|other| other.kind != found.kind), "a kind is found twice");
    }
}
