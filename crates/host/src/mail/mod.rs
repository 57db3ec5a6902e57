//! How the threads of shards reach each other.
//! Owns: mail, and what wakes a shard for it: its door and its bell. Not here: the content of mail; when a shard fetches it,
//! and sleeps (`shard`). Called by `executor`, `ring` and `shard`.

pub(crate) mod bell;
pub(crate) mod door;
pub(crate) mod inbox;
