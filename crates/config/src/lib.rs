//! mdadm.conf: which file is read, its grammar, and what its lines say about devices, arrays and their owner's wishes.
//! Owns: the places of the file, words and lines, each keyword. Not here: which members exist (`uraid`), what runs
//! (`control`).
//! Invariant: a line that is not understood is told once, and costs nothing but itself.
