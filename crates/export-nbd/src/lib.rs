//! Serves a Device over NBD
