//! Every address computation of every level: sector to members, plans as few runs as possible
