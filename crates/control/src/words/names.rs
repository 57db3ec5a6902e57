//! Array names, and the paths of their sockets.
//! Owns: which names `create` accepts, the homehost, names in mdadm.conf, names as files, the NBD URI. Not here: the 32
//! bytes of a set name (`format`), the runtime directory (`runtime`). Invariant: a name from a superblock never leaves the
//! runtime directory: it is outside input and becomes one plain file name. Spec: docs/md/formats.md#version-1-superblock.

use std::fmt::Write as _;
use std::path::Path;
use uraid_format::uuid;

/// The most bytes of a name with its host prefix: one less than the field, which mdadm ends with a zero.
pub const SET_NAME_BYTES_MAX: usize = 31;

/// Checks a name for `create`: a superblock and a file name must be able to hold it.
pub fn valid_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > SET_NAME_BYTES_MAX {
        return Err(format!("a name has 1 to {SET_NAME_BYTES_MAX} bytes, found {}", text.len()));
    }
    if text.contains('/') || text.chars().any(is_order) || text.starts_with('.') {
        return Err("a name has no slash, no control character, and does not start with a dot".to_owned());
    }
    Ok(text.to_owned())
}

/// Checks a host for `create`: a superblock and one line must be able to hold it.
pub fn valid_host(text: &str) -> Result<String, String> {
    if text.contains(['/', ':']) || text.chars().any(is_order) {
        return Err("a host has no slash, no colon and no control character".to_owned());
    }
    Ok(text.to_owned())
}

/// 32 hex digits, grouped as you like.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    uuid::parse(text).ok_or_else(|| format!("{text:?} is not a UUID, expected 32 hex digits"))
}

/// The host that `create` puts before the name, if it fits; empty for none. `option` is `--homehost`; `none`, `<none>`
/// and `<ignore>` mean no host, `<system>` means this host.
pub fn homehost(option: Option<&str>) -> String {
    match option {
        Some("<ignore>" | "none" | "<none>") => String::new(),
        None | Some("<system>") => this_host().unwrap_or_default(),
        Some(host) => host.to_owned(),
    }
}

/// Text from a superblock or a file name, safe for a terminal: characters that [`is_order`] finds become `_`.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_order(c) { '_' } else { c }).collect()
}

/// The same for text of several lines.
pub fn printable_lines(text: &str) -> String {
    text.chars().map(|c| if c != '\n' && is_order(c) { '_' } else { c }).collect()
}

/// One value in text of several lines, whose line ends are those of the text: a line end in a value is written as the
/// kernel writes one in a path, `\\012`. All else is left to [`printable_lines`].
pub fn one_line(value: &str) -> String {
    value.replace('\n', "\\012")
}

/// Whether a character is invisible but has an effect: control characters, which could be commands to a terminal, and
/// Unicode's line ends, joiners and direction marks, which make one name look like another.
fn is_order(c: char) -> bool {
    let is_invisible = matches!(
        c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
    );
    c.is_control() || is_invisible
}

/// `host:name`, printable, with a note if the host is this one.
pub fn with_locality(set_name: &str) -> String {
    let set_name = printable(set_name);
    match (set_name.split_once(':'), this_host()) {
        (Some((host, _)), Some(here)) if host == here => format!("{set_name}  (local to host {here})"),
        (Some(_) | None, _) => set_name,
    }
}

fn this_host() -> Option<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(host.trim().to_owned())
}

/// An array's name without its host.
pub fn without_host(set_name: &str) -> &str {
    set_name.split_once(':').map_or(set_name, |(_, name)| name)
}

/// An array's short name: its set name without the host, printable; the start of its UUID if it has none.
pub fn short_name(set_name: &str, uuid: &[u8; 16]) -> String {
    let name = without_host(set_name);
    if name.is_empty() { uuid::text(uuid)[..8].to_owned() } else { printable(name) }
}

/// What mdadm calls the array's file below /dev/md: its name without the host, as one file.
pub fn conf_file(name: &str) -> String {
    without_host(name).replace('/', "-").replace(' ', "_")
}

/// A word of mdadm's configuration file: quoted where it holds a blank or a quote.
pub fn conf_word(word: &str) -> String {
    match (word.contains(' '), word.contains('"'), word.contains('\'')) {
        (false, false, false) => word.to_owned(),
        (_, false, _) => format!("\"{word}\""),
        (_, true, false) => format!("'{word}'"),
        // The configuration file joins quoted parts: the double quotes go inside single ones.
        (_, true, true) => {
            let parts: Vec<String> = word.split('"').map(|part| format!("\"{part}\"")).collect();
            parts.join("'\"'")
        }
    }
}

/// A name as one plain, visible file name.
pub fn file_name(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    if plain.starts_with('.') { format!("_{plain}") } else { plain }
}

/// `nbd+unix:///NAME?socket=PATH`
pub fn unix_uri(export: &str, socket: &Path) -> String {
    format!("nbd+unix:///{}?socket={}", percent(export, b"/"), percent(&socket.to_string_lossy(), b"/"))
}

/// `nbd://HOST:PORT/NAME`
pub fn tcp_uri(export: &str, address: std::net::SocketAddr) -> String {
    format!("nbd://{address}/{}", percent(export, b"/"))
}

fn percent(text: &str, plain: &[u8]) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a string takes all");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_one_file_in_the_runtime_directory() {
        assert_eq!(file_name("../../etc/passwd"), "_.._.._etc_passwd");
        assert_eq!(file_name("home"), "home");
        assert_eq!(short_name("host:home", &[0; 16]), "home");
        assert_eq!(short_name("", &[0xab; 16]), "abababab");
        assert_eq!(short_name("host:", &[0xab; 16]), "abababab");
    }

    #[test]
    fn a_hostile_name_gives_no_orders_to_a_terminal() {
        assert_eq!(with_locality("nowhere:\x1b[2Ja\nb\u{9b}c"), "nowhere:_[2Ja_b_c");
        assert_eq!(short_name("h:a\x1b\r\nb", &[0; 16]), "a___b");
        assert_eq!(printable("cod\u{202e}gpj.exe\u{2066}\u{200b}\u{feff}"), "cod_gpj.exe___");
        assert_eq!(printable("señor 名前 é"), "señor 名前 é");
        assert_eq!(printable_lines("a\nb\x1b[2J\t"), "a\nb_[2J_");
        assert!(valid_name("a\u{202e}b").is_err());
        for host in ["a\nb", "a/b", "../x", "a:b", "\x1b[2J", "a\u{2069}"] {
            assert!(valid_host(host).is_err(), "{host:?}");
        }
        assert_eq!(valid_host("<none>"), Ok("<none>".to_owned()));
    }

    #[test]
    fn uris_escape_what_a_uri_cannot_hold() {
        let uri = unix_uri("my array", Path::new("/run/u raid/a&b.nbd"));
        assert_eq!(uri, "nbd+unix:///my%20array?socket=/run/u%20raid/a%26b.nbd");
        assert_eq!(tcp_uri("a", "[::1]:10809".parse().expect("an address")), "nbd://[::1]:10809/a");
    }
}
