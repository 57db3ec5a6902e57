//! The name of an array in its superblocks.
//! Owns: the 32 bytes, the rule that adds the host. Not here: names of sockets or files (`uraid`).
//! Spec: docs/md/formats.md#version-1-superblock.

use std::borrow::Cow;

/// `host:name` or `name`, at most 32 bytes, NUL padded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct SetName([u8; 32]);

/// A name that does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the array's name has {found} bytes, at most {maximum} fit: choose a shorter one")]
pub struct NameTooLong {
    /// Bytes given.
    pub found: usize,
    /// Bytes that fit.
    pub maximum: usize,
}

impl SetName {
    /// Bytes of the field.
    pub const BYTES: usize = 32;

    /// The name for a new array. The host is added, with a colon, by mdadm's rule: only if there is one, the name has
    /// no colon of its own, and the whole stays below 32 bytes.
    pub fn new(host: &str, name: &str) -> Result<SetName, NameTooLong> {
        let with_host = !host.is_empty() && !name.contains(':') && host.len() + 1 + name.len() < SetName::BYTES;
        let text = if with_host { format!("{host}:{name}") } else { name.to_owned() };
        if text.len() > SetName::BYTES {
            return Err(NameTooLong { found: text.len(), maximum: SetName::BYTES });
        }
        let mut bytes = [0; SetName::BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(SetName(bytes))
    }

    /// The field as it stands on disk.
    pub const fn from_bytes(bytes: [u8; SetName::BYTES]) -> SetName {
        SetName(bytes)
    }

    /// The field as it is written to disk.
    pub const fn as_bytes(&self) -> &[u8; SetName::BYTES] {
        &self.0
    }

    /// The text up to the first NUL; bytes that are no UTF-8 are replaced.
    pub fn as_str(&self) -> Cow<'_, str> {
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(SetName::BYTES);
        String::from_utf8_lossy(&self.0[..length])
    }

    /// The host before the first colon, if there is one.
    pub fn host(&self) -> Option<String> {
        self.as_str().split_once(':').map(|(host, _)| host.to_owned())
    }

    /// The name without the host.
    pub fn name(&self) -> String {
        let text = self.as_str();
        text.split_once(':').map_or(text.as_ref(), |(_, name)| name).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_added_by_mdadms_rule() {
        let text = |host: &str, name: &str| SetName::new(host, name).map(|name| name.as_str().into_owned());
        assert_eq!(text("vector", "one").as_deref(), Ok("vector:one"));
        assert_eq!(text("", "one").as_deref(), Ok("one"));
        assert_eq!(text("host", "other:one").as_deref(), Ok("other:one"));
        // 31 bytes with the host are added, 32 are not.
        assert_eq!(text("h", &"n".repeat(29)), Ok(format!("h:{}", "n".repeat(29))));
        assert_eq!(text("h", &"n".repeat(30)), Ok("n".repeat(30)));
        assert_eq!(text("", &"n".repeat(32)), Ok("n".repeat(32)));
        assert_eq!(text("", &"n".repeat(33)), Err(NameTooLong { found: 33, maximum: 32 }));
    }

    #[test]
    fn a_name_of_arbitrary_bytes_can_still_be_shown() {
        let mut bytes = [0xff; 32];
        bytes[1] = 0;
        assert_eq!(SetName::from_bytes(bytes).as_str(), "\u{fffd}");
        assert_eq!(SetName::new("lab", "r6").unwrap().host().as_deref(), Some("lab"));
        assert_eq!(SetName::new("lab", "r6").unwrap().name(), "r6");
    }
}
