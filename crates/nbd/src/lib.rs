//! NBD's bytes on the wire, both ends
