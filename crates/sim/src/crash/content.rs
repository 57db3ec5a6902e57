//! The contents of sectors, each identified by a number.
//! Owns: [`Contents`], [`PrehashedMap`], the maps whose keys are hashes already. Not here: where a content lies (`media`).
//! Invariant: two sectors have the same number exactly if they hold the same 512 bytes.

use crate::random::rng::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use uraid_block::SECTOR_BYTES;

/// The number of a content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Content(pub u32);

/// A map whose keys are well-mixed numbers. It is never iterated, so its order does not matter.
pub type PrehashedMap<K, V> = HashMap<K, V, BuildHasherDefault<LastWordHasher>>;

/// A hasher that uses the last word of a key as its hash.
#[derive(Default)]
pub struct LastWordHasher(u64);

impl Hasher for LastWordHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u128(&mut self, word: u128) {
        self.0 = word as u64;
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// All contents met so far.
#[derive(Default)]
pub struct Contents {
    bytes: Vec<[u8; SECTOR_BYTES]>,
    digests: Vec<u64>,
    by_digest: PrehashedMap<u128, Content>,
}

fn digest(bytes: &[u8; SECTOR_BYTES]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    for words in bytes.chunks_exact(32) {
        for (lane, word) in lanes.iter_mut().zip(words.chunks_exact(8)) {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            *lane = (*lane ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    lanes.into_iter().fold(0, |sum, lane| mix(sum ^ lane))
}

impl Contents {
    /// The number of these bytes.
    pub fn number(&mut self, bytes: &[u8; SECTOR_BYTES]) -> Content {
        let digest = digest(bytes);
        if let Some(&known) = self.by_digest.get(&u128::from(digest)) {
            assert_eq!(&self.bytes[known.0 as usize], bytes, "two contents with one digest: mix them better");
            return known;
        }
        let fresh = Content(u32::try_from(self.bytes.len()).expect("fewer than four thousand million contents"));
        self.bytes.push(*bytes);
        self.digests.push(digest);
        self.by_digest.insert(u128::from(digest), fresh);
        fresh
    }

    /// The bytes of a content.
    pub fn bytes(&self, content: Content) -> &[u8; SECTOR_BYTES] {
        &self.bytes[content.0 as usize]
    }

    /// The hash of a content at a place. The key of an image is the xor of these.
    pub fn key(&self, place: usize, content: Content) -> u128 {
        let digest = self.digests[content.0 as usize];
        let low = mix(digest ^ mix(place as u64 + 1));
        let high = mix(digest.rotate_left(32) ^ mix(!(place as u64)));
        u128::from(high) << 64 | u128::from(low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_one_number_and_keys_depend_on_the_place() {
        let mut contents = Contents::default();
        let (a, b) = (contents.number(&[1; SECTOR_BYTES]), contents.number(&[2; SECTOR_BYTES]));
        assert_eq!(contents.number(&[1; SECTOR_BYTES]), a);
        assert_ne!(a, b);
        assert_eq!(contents.bytes(b), &[2; SECTOR_BYTES]);
        assert_ne!(contents.key(0, a) ^ contents.key(1, b), contents.key(0, b) ^ contents.key(1, a));
    }
}
