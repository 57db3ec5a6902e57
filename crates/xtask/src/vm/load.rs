//! A client that writes and flushes without a pause, and records exactly what was answered.
//! Owns: qemu-io and its commands, which block was written with what. Not here: what happens to the array then (`force`).
//! Invariant: a block that is not undecided holds the data of its last answered write.

use super::{Lab, LabError, lab_error};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Every write is of this many bytes: one chunk.
pub(crate) const BLOCK_BYTES: usize = 64 << 10;

/// The load counts as running after this many answers: qemu-io reports them in batches.
const STARTED_AFTER: usize = 40;
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// A running writer of the blocks `0..blocks`, one after the other and over again, with a flush after each round.
pub(crate) struct Load {
    child: Child,
    blocks: usize,
    feeder: JoinHandle<()>,
    answers: Receiver<bool>,
}

/// What the array must hold after its server was killed.
pub(crate) struct Written {
    /// The byte that fills each block; `None` where nothing was written.
    pub(crate) blocks: Vec<Option<u8>>,
    /// The block whose write was in flight.
    pub(crate) undecided: usize,
}

/// The fill byte of the `number`th write: it differs between rounds and between the blocks of a round.
fn fill(number: usize, blocks: usize) -> u8 {
    ((number / blocks * 7 + number % blocks) % 255 + 1) as u8
}

impl Load {
    /// Starts it and waits until requests are answered.
    pub(crate) fn start(uri: &str, blocks: usize) -> Lab<Load> {
        let mut child = Command::new("qemu-io")
            .args(["-f", "raw", uri])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| LabError::Trouble(format!("cannot run qemu-io: {error}")))?;
        let input = child.stdin.take().expect("stdin is piped");
        let output = child.stdout.take().expect("stdout is piped");
        let feeder = std::thread::spawn(move || feed(input, blocks));
        let (answer, answers) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The prompt may stand before it on the line.
                if line.contains("wrote ") || line.contains("write failed") {
                    let _ = answer.send(line.contains("wrote "));
                }
            }
        });
        let load = Load { child, blocks, feeder, answers };
        for _ in 0..STARTED_AFTER {
            if load.answers.recv_timeout(START_TIME_MAX) != Ok(true) {
                return lab_error("qemu-io does not write");
            }
        }
        Ok(load)
    }

    /// After the server was killed: what was answered until then.
    pub(crate) fn end(mut self) -> Lab<Written> {
        // The feeder writes until qemu-io has ended; after that qemu-io meets only errors.
        let mut answered = STARTED_AFTER;
        while self.answers.recv_timeout(START_TIME_MAX) == Ok(true) {
            answered += 1;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.feeder.join();
        let mut blocks = vec![None; self.blocks];
        for number in answered.saturating_sub(self.blocks)..answered {
            blocks[number % self.blocks] = Some(fill(number, self.blocks));
        }
        Ok(Written { blocks, undecided: answered % self.blocks })
    }
}

fn feed(mut input: ChildStdin, blocks: usize) {
    for number in 0.. {
        let at = number % blocks;
        let flush = if at + 1 == blocks { "flush\n" } else { "" };
        let command = format!("write -P {} {} {BLOCK_BYTES}\n{flush}", fill(number, blocks), at * BLOCK_BYTES);
        if input.write_all(command.as_bytes()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn blocks_differ_within_a_round_and_between_rounds() {
        for (round, blocks) in (0..500).flat_map(|round| [4, 8, 12].map(|blocks| (round, blocks))) {
            let bytes: BTreeSet<u8> = (0..blocks).map(|block| fill(round * blocks + block, blocks)).collect();
            assert!(bytes.len() == blocks && !bytes.contains(&0), "round {round} of {blocks}");
            for block in 0..blocks {
                assert_ne!(fill(round * blocks + block, blocks), fill((round + 1) * blocks + block, blocks));
            }
        }
    }
}
