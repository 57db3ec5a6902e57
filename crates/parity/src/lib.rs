//! Every xor and GF(2^8) operation: P, Q, updates, recovery; and CRC-32C by instruction.
//! Owns: the arithmetic of raid4/5/6 rows, and the choice of the fastest kernel this processor has.
//! Not here: which block of a row is data, P or Q, and which exponent a data block has (`layout`).
//! Invariant: every kernel gives the bytes of the portable one. Spec: docs/md/address-mapping.md#parity-and-syndrome.
//!
//! A row is n data blocks D0..Dn-1 of equal length with
//!
//! ```text
//! P = D0 ^ D1 ^ ... ^ Dn-1
//! Q = g^e0*D0 ^ g^e1*D1 ^ ... ^ g^en-1*Dn-1        g = 2 in GF(2^8) modulo 0x11d
//! ```
//!
//! The exponents are distinct, below 255, and in any order: md's layouts permute them, the DDF ones leave holes.
//! Slices may have any length and any alignment. Slices of one call that differ in length are our bug and panic.

#![allow(unsafe_code, reason = "vector instructions")]

mod crc32c;
mod kernel;
mod locate;
mod portable;
mod recover;
mod table;
#[cfg(any(test, target_arch = "x86_64"))]
mod vector;

pub mod gf256;

pub use crc32c::crc32c;
pub use kernel::{Kernel, STREAMING_ROW_BYTES};
pub use locate::locate;
pub use recover::{Lost, Row, TooManyLost, recover};
pub use table::Stores;

/// `target ^= source`.
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    Kernel::best().xor_into(target, source);
}

/// Writes P, the xor of all data blocks; without data P is zero.
pub fn generate_p(p: &mut [u8], data: &[&[u8]]) {
    Kernel::best().generate_p(p, data);
}

/// Writes P and Q of a row in one pass over its data; `exponents[k]` is the Q exponent of `data[k]`.
pub fn generate_pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]], exponents: &[u8]) {
    Kernel::best().generate_pq(p, q, data, exponents);
}

/// Writes Q alone, for a row whose P is lost or already right.
pub fn generate_q(q: &mut [u8], data: &[&[u8]], exponents: &[u8]) {
    Kernel::best().generate_q(q, data, exponents);
}

/// Moves P from the old to the new content of one data block: `p ^= old ^ new`.
pub fn update_p(p: &mut [u8], old: &[u8], new: &[u8]) {
    Kernel::best().update_p(p, old, new);
}

/// Moves Q from the old to the new content of the data block with this exponent.
pub fn update_q(q: &mut [u8], old: &[u8], new: &[u8], exponent: u8) {
    Kernel::best().update_q(q, old, new, exponent);
}

/// Moves P and Q in one pass from the old to the new content of the data block with this exponent.
pub fn update_pq(p: &mut [u8], q: &mut [u8], old: &[u8], new: &[u8], exponent: u8) {
    Kernel::best().update_pq(p, q, old, new, exponent);
}

/// Whether P is the xor of the data.
pub fn check_p(p: &[u8], data: &[&[u8]]) -> bool {
    Kernel::best().check_p(p, data)
}

/// Whether P and Q both agree with the data.
pub fn check_pq(p: &[u8], q: &[u8], data: &[&[u8]], exponents: &[u8]) -> bool {
    Kernel::best().check_pq(p, q, data, exponents)
}
