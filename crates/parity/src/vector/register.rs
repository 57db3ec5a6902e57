//! What a vector register can do.
//! Owns: the operations that a row needs, and what the loops must know of an instruction set. Not here: the instructions
//! (`x86`), the loops (`vector`, `sums`). Spec: docs/md/address-mapping.md#parity-and-syndrome.

/// A register, and the few operations a row needs.
///
/// # Safety For every method: the processor has the instructions. `load`, `store` and `stream`: `BYTES` bytes at the
/// address may be read or written; for `stream` it is a multiple of `BYTES`, and `fence` follows before anyone else may
/// look.
pub(crate) trait Vector: Copy {
    const BYTES: usize;
    /// Whether multiplying by any factor costs no more than doubling. Then every step is multiplied by its own factor
    /// and depends on no other step; with Horner's rule, each step would depend on the one before.
    const MULTIPLIES_AT_ONCE: bool;
    /// Whether rows of few blocks have loops of their own, which keep addresses and factors in registers, and rows of many
    /// blocks are summed in wider columns. This needs 32 registers.
    const UNROLLS: bool;
    /// A factor, prepared for `multiply`.
    type Factor: Copy;
    unsafe fn load(at: *const u8) -> Self;
    unsafe fn store(self, at: *mut u8);
    /// A store past the cache.
    unsafe fn stream(self, at: *mut u8);
    /// Orders what was streamed before all later stores.
    unsafe fn fence();
    /// Prefetches the cache line at this address; any address will do.
    unsafe fn prefetch(at: *const u8);
    unsafe fn zero() -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    unsafe fn double(self) -> Self;
    unsafe fn factor(factor: u8) -> Self::Factor;
    unsafe fn multiply(self, factor: Self::Factor) -> Self;
}
