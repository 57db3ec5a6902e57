//! Shards, executor, buffers, timers, files and block devices as members, sockets
