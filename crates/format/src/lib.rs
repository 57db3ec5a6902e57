//! md's bytes on disk: superblock 1.2, create geometry, foreign signatures
