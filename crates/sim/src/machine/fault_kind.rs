//! What can go wrong with a member.
//! Owns: [`FaultKind`]. Not here: performing a fault (`member`), which kinds a seed uses (`setup::kinds`), when one happens
//! and how many may (`scenario::plan`).

/// What can go wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultKind {
    /// A read fails.
    ReadError,
    /// A write of data fails, with or without an effect.
    WriteError,
    /// A write of a superblock fails.
    SuperError,
    /// A flush fails, and part of what it covers is lost.
    FlushError,
    /// The member is gone.
    Vanish,
    /// The member becomes smaller.
    Shrink,
    /// A sector cannot be read until it is written.
    Unreadable,
    /// There is no space for a write.
    NoSpace,
    /// The member comes back as it was several rounds ago.
    OldImage,
    /// Flushes are answered without effect, and power fails.
    LyingFlush,
    /// Power fails in the middle of a superblock.
    TornSuper,
    /// A bit of a superblock flips.
    SuperRot,
    /// A bit of the data flips.
    BitRot,
    /// A write is answered and performed at another place.
    Misdirected,
    /// A write is answered and not performed.
    LostWrite,
    /// The member is missing at a start.
    Away,
    /// The operator fails the member.
    ByHand,
    /// An operation takes seconds. Never counted: it changes no result.
    Hang,
    /// The member stops answering. Its requests fail when they time out or when the member is failed, and may be
    /// performed much later.
    NeverAnswers,
    /// A shared bus fails: several members, more than the level survives, fail every request from then on. None of them
    /// may be left out because of it.
    Bus,
}

impl FaultKind {
    /// The length of [`FaultKind::ALL`].
    pub const COUNT: usize = 20;
    /// All of them.
    pub const ALL: [FaultKind; FaultKind::COUNT] = [
        FaultKind::ReadError,
        FaultKind::WriteError,
        FaultKind::SuperError,
        FaultKind::FlushError,
        FaultKind::Vanish,
        FaultKind::Shrink,
        FaultKind::Unreadable,
        FaultKind::NoSpace,
        FaultKind::OldImage,
        FaultKind::LyingFlush,
        FaultKind::TornSuper,
        FaultKind::SuperRot,
        FaultKind::BitRot,
        FaultKind::Misdirected,
        FaultKind::LostWrite,
        FaultKind::Away,
        FaultKind::ByHand,
        FaultKind::Hang,
        FaultKind::NeverAnswers,
        FaultKind::Bus,
    ];
}
