//! Every xor and GF(2^8) operation: P, Q, updates, recovery
