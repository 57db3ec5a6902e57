//! Intel's ISA-L, found at run time (Debian: `libisal2`); nothing is linked, nothing else knows of it.
//! Owns: the five functions measured against, with Rust types. Not here: what they are asked to do (`works`).

use std::ffi::{CStr, c_int, c_uchar, c_void};

/// Coefficients of one output, row after row.
type EncodeData = unsafe extern "C" fn(c_int, c_int, c_int, *const c_uchar, *const *mut u8, *const *mut u8);
type EncodeUpdate = unsafe extern "C" fn(c_int, c_int, c_int, c_int, *const c_uchar, *const u8, *const *mut u8);
type InitTables = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type Generate = unsafe extern "C" fn(c_int, c_int, *const *mut c_void) -> c_int;

/// The library's functions, under their own names.
#[derive(Clone, Copy)]
pub(crate) struct Isal {
    /// Blocks, length, sources followed by the one target: its xor.
    pub(crate) xor_gen: Generate,
    /// Blocks, length, sources followed by P and Q.
    pub(crate) pq_gen: Generate,
    /// Length, sources, targets, tables, sources, targets.
    pub(crate) ec_encode_data: EncodeData,
    /// Length, sources, targets, which source, tables, the source, targets that its products are added to.
    pub(crate) ec_encode_data_update: EncodeUpdate,
    ec_init_tables: InitTables,
}

impl Isal {
    /// `None` where the library is not installed.
    pub(crate) fn find() -> Option<Isal> {
        // SAFETY: the name ends in a zero; the library's constructors only look at the processor.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: each type is the function's declaration in raid.h and erasure_code.h of ISA-L 2.
        unsafe {
            Some(Isal {
                xor_gen: std::mem::transmute::<*mut c_void, Generate>(symbol(library, c"xor_gen")?),
                pq_gen: std::mem::transmute::<*mut c_void, Generate>(symbol(library, c"pq_gen")?),
                ec_encode_data: std::mem::transmute::<*mut c_void, EncodeData>(symbol(library, c"ec_encode_data")?),
                ec_encode_data_update: std::mem::transmute::<*mut c_void, EncodeUpdate>(symbol(
                    library,
                    c"ec_encode_data_update",
                )?),
                ec_init_tables: std::mem::transmute::<*mut c_void, InitTables>(symbol(library, c"ec_init_tables")?),
            })
        }
    }

    /// The tables of a matrix of this many rows of `sources` coefficients.
    pub(crate) fn tables(&self, sources: usize, coefficients: &[u8]) -> Vec<u8> {
        let rows = coefficients.len() / sources;
        assert_eq!(rows * sources, coefficients.len());
        let mut tables = vec![0; 32 * coefficients.len()];
        // SAFETY: the tables take 32 bytes a coefficient.
        unsafe { (self.ec_init_tables)(sources as c_int, rows as c_int, coefficients.as_ptr(), tables.as_mut_ptr()) };
        tables
    }
}

/// # Safety
/// The library was opened and is never closed.
unsafe fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: promised by the caller.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
