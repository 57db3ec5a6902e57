//! What each sector of an array may hold, and the clients that write and read it.
//! Owns: the model of an array's content, many requests at once, reading everything. Not here: a connection (`nbd`), what a
//! sector's bytes are (`random`). Called by `storm` and by tests.

pub mod model;
pub mod writers;
