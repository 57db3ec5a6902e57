//! Copies between buffers and memory that other threads may change meanwhile.
//! Owns: the instructions, and which of them a copy takes. Not here: which addresses are valid (`memory`).
//! Invariant: the compiler sees none of the bytes, so for the language there is no data race: the bytes are what the
//! processor reads and writes.
//!
//! ```text
//!   below 16 KiB, or not AMD Zen 3 or 4   rep movsb
//!   a longer read                         four pages side by side: the processor fetches ahead within a page only
//!   a longer write                        past the cache: the lines need not be read first, and are not read again soon
//! ```
//! Nanoseconds for memory that is not in the cache, on AMD EPYC (Zen 4), by `rep movsb` -> by this: 16 KiB read 1819 ->
//! 1181, write 1718 -> 840; 64 KiB read 4468 -> 4044, write 4716 -> 2739. On Zen 5 (family 26) it is the other way round:
//! a 64 KiB read of a benchmark takes 1950 by `rep movsb` and 2850 by this. Other makers' processors were not measured:
//! they use `rep movsb`, which their makers recommend.

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{read, write};

#[cfg(not(target_arch = "x86_64"))]
pub(super) use {portable as read, portable as write};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::__cpuid;
    use std::sync::OnceLock;

    /// Copies below this length are short.
    const LONG: usize = 16 * 1024;
    /// The bytes that a step of `four_pages` copies.
    const FOUR_PAGES: usize = 4 * 4096;
    /// The bytes that a step of `past_the_cache` copies.
    const STEP: usize = 128;
    /// The alignment that a store past the cache needs.
    const STORE_ALIGN: usize = 32;

    /// Copies out of shared memory.
    ///
    /// # Safety
    /// `target` and `source` are valid for `bytes` bytes and do not overlap. Other threads may change one of them.
    pub(in super::super) unsafe fn read(target: *mut u8, source: *const u8, bytes: usize) {
        let long = if bytes >= LONG && is_measured() { bytes / FOUR_PAGES * FOUR_PAGES } else { 0 };
        assert!(long <= bytes);
        for at in (0..long).step_by(FOUR_PAGES) {
            // SAFETY: inside of both, by the bound; the processor has AVX2, see `is_measured`.
            unsafe { four_pages(target.add(at), source.add(at)) };
        }
        // SAFETY: the rest of both.
        unsafe { string(target.add(long), source.add(long), bytes - long) }
    }

    /// Copies into shared memory.
    ///
    /// # Safety
    /// As for [`read`].
    pub(in super::super) unsafe fn write(target: *mut u8, source: *const u8, bytes: usize) {
        let is_long = bytes >= LONG && target.addr().is_multiple_of(STORE_ALIGN) && is_measured();
        let long = if is_long { bytes / STEP * STEP } else { 0 };
        assert!(long <= bytes);
        if long > 0 {
            // SAFETY: inside of both, aligned, and not empty; the processor has AVX2, see `is_measured`.
            unsafe { past_the_cache(target, source, long) };
        }
        // SAFETY: the rest of both.
        unsafe { string(target.add(long), source.add(long), bytes - long) }
    }

    /// AMD's number for the family of Zen 3 and Zen 4.
    const ZEN_4: u32 = 25;

    /// Whether the long copies were measured to be faster on this family of processors, and it has the instructions that
    /// they use.
    fn is_measured() -> bool {
        static IS_MEASURED: OnceLock<bool> = OnceLock::new();
        *IS_MEASURED.get_or_init(|| {
            let maker = __cpuid(0);
            let is_amd = [maker.ebx, maker.edx, maker.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD";
            // The base family, which is 15 on all of these, and the extended one.
            let signature = __cpuid(1).eax;
            let family = (signature >> 8 & 15) + (signature >> 20 & 255);
            is_amd && family == ZEN_4 && std::arch::is_x86_feature_detected!("avx2")
        })
    }

    /// # Safety
    /// As for [`read`].
    unsafe fn string(target: *mut u8, source: *const u8, bytes: usize) {
        // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rdi") target => _,
                inout("rsi") source => _,
                options(nostack, preserves_flags)
            );
        }
    }

    /// # Safety
    /// As for [`read`], with [`FOUR_PAGES`] bytes. The processor has AVX2.
    unsafe fn four_pages(target: *mut u8, source: *const u8) {
        // SAFETY: the caller's promise: each turn copies 64 bytes at the same place of all four.
        unsafe {
            asm!(
                "2:",
                "vmovdqu ymm0, [rsi]",
                "vmovdqu ymm1, [rsi + 32]",
                "vmovdqu ymm2, [rsi + 4096]",
                "vmovdqu ymm3, [rsi + 4096 + 32]",
                "vmovdqu ymm4, [rsi + 8192]",
                "vmovdqu ymm5, [rsi + 8192 + 32]",
                "vmovdqu ymm6, [rsi + 12288]",
                "vmovdqu ymm7, [rsi + 12288 + 32]",
                "vmovdqu [rdi], ymm0",
                "vmovdqu [rdi + 32], ymm1",
                "vmovdqu [rdi + 4096], ymm2",
                "vmovdqu [rdi + 4096 + 32], ymm3",
                "vmovdqu [rdi + 8192], ymm4",
                "vmovdqu [rdi + 8192 + 32], ymm5",
                "vmovdqu [rdi + 12288], ymm6",
                "vmovdqu [rdi + 12288 + 32], ymm7",
                "add rsi, 64",
                "add rdi, 64",
                "sub rcx, 64",
                "jnz 2b",
                "vzeroupper",
                inout("rcx") 4096usize => _,
                inout("rdi") target => _,
                inout("rsi") source => _,
                // `vzeroupper` clears the upper halves of all of them.
                clobber_abi("sysv64"),
                options(nostack)
            );
        }
    }

    /// # Safety
    /// As for [`read`]. `bytes` is a multiple of [`STEP`] above zero, `target` is aligned to [`STORE_ALIGN`]. The
    /// processor has AVX2.
    unsafe fn past_the_cache(target: *mut u8, source: *const u8, bytes: usize) {
        // SAFETY: the caller's promise. The fence orders these stores before all later ones, as plain stores are.
        unsafe {
            asm!(
                "2:",
                "vmovdqu ymm0, [rsi]",
                "vmovdqu ymm1, [rsi + 32]",
                "vmovdqu ymm2, [rsi + 64]",
                "vmovdqu ymm3, [rsi + 96]",
                "vmovntdq [rdi], ymm0",
                "vmovntdq [rdi + 32], ymm1",
                "vmovntdq [rdi + 64], ymm2",
                "vmovntdq [rdi + 96], ymm3",
                "add rsi, 128",
                "add rdi, 128",
                "sub rcx, 128",
                "jnz 2b",
                "sfence",
                "vzeroupper",
                inout("rcx") bytes => _,
                inout("rdi") target => _,
                inout("rsi") source => _,
                clobber_abi("sysv64"),
                options(nostack)
            );
        }
    }
}

/// # Safety
/// `target` and `source` are valid for `bytes` bytes and do not overlap. Other threads may change one of them.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn portable(target: *mut u8, source: *const u8, bytes: usize) {
    for n in 0..bytes {
        // SAFETY: the caller's promise.
        unsafe { target.add(n).write_volatile(source.add(n).read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn each_length_and_place_is_copied_whole_and_nothing_beside_it() {
        let source: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
        for bytes in [0, 1, 511, 512, 4096, 16_383, 16_384, 16_896, 32_768, 65_536, 66_048, 81_920 + 100] {
            for (to, from) in [(64, 0), (64, 512), (65, 3), (96, 17)] {
                for copy in [read, write] {
                    let mut target = vec![0xee; 100_000];
                    // SAFETY: both are longer than the place and the length together, and apart.
                    unsafe { copy(target[to..].as_mut_ptr(), source[from..].as_ptr(), bytes) };
                    assert_eq!(target[to..to + bytes], source[from..from + bytes], "{bytes} bytes");
                    let beside = target[..to].iter().chain(&target[to + bytes..]);
                    assert!(beside.into_iter().all(|byte| *byte == 0xee), "{bytes} bytes");
                }
            }
        }
    }
}
