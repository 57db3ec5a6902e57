# The two commands of the README. Everything behind them is Rust: `cargo xtask help`.
.PHONY: demo test ci

demo:
	cargo xtask demo

# Everything, on a fresh Debian machine with a Rust toolchain; installs the system packages it needs.
test:
	cargo xtask test

ci:
	cargo xtask ci
