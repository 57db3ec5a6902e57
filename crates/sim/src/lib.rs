//! The deterministic simulator: the engine unchanged, on simulated members
