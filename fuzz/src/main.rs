//! The driver: libFuzzer over the target that the environment variable URAID_FUZZ_TARGET names.
//! `cargo xtask fuzz` builds it, with coverage, and runs it.
#![no_main]

use std::sync::LazyLock;
use uraid_fuzz::allocation::Watched;
use uraid_fuzz::{Target, target};

#[global_allocator]
static WATCHED: Watched = Watched;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("URAID_FUZZ_TARGET").expect("URAID_FUZZ_TARGET names a target");
    target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let target = *TARGET;
    let largest = uraid_fuzz::allocation::largest_of(|| (target.run)(bytes));
    assert!(largest <= uraid_fuzz::allocation::BYTES_MAX, "an allocation of {largest} bytes");
});
