//! Where metrics are served or written.
//! Owns: [`Address`] and its text, [`write_textfile`], what is refused of both. Not here: the server (`server`).
//! Invariant: other machines reach the server only with --insecure; a file that is not one of metrics is never replaced.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The longest path that the system takes for a socket.
const SOCKET_BYTES_MAX: usize = 107;

/// What a file of metrics begins with.
const BEGIN: &[u8] = b"# HELP ";

/// A place to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Address {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `tcp:ADDRESS:PORT`
    Tcp(SocketAddr),
}

/// Why metrics are not served, or not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    /// The system refuses.
    #[error("--listen {address}")]
    Listen {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Another process has the socket.
    #[error("--listen unix:{}: another process listens there, or it is no socket: name another path", path.display())]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Longer than the path of a socket can be.
    #[error(
        "--listen unix:{}: the path has {} bytes, more than the 107 of a socket: name a shorter one",
        path.display(),
        path.as_os_str().len()
    )]
    Long {
        /// The path.
        path: PathBuf,
    },
    /// Everybody could read them.
    #[error("--listen tcp:{address}: other machines could read it there: use 127.0.0.1 or [::1], or add --insecure")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// Not a name that node_exporter reads.
    #[error("--textfile {}: node_exporter reads only names that end in .prom", path.display())]
    NotProm {
        /// The path.
        path: PathBuf,
    },
    /// The file has something else.
    #[error("--textfile {}: exists and is not a file of metrics: it does not begin with \"# HELP\"; name a new file", path.display())]
    NotMetrics {
        /// The path.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("--textfile {}", path.display())]
    Textfile {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Address {
    /// From the word of --listen.
    pub(super) fn parse(word: &str) -> Result<Address, String> {
        match word.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(PathBuf::from(path))),
            Some(("tcp", address)) => {
                let parsed = address.parse().map(Address::Tcp);
                parsed.map_err(|_| {
                    format!("{address} is not an address and a port, such as 127.0.0.1:9634 or [::1]:9634")
                })
            }
            Some(_) | None => Err("expected unix:PATH or tcp:ADDRESS:PORT".to_owned()),
        }
    }

    /// Refuses an address that other machines reach, or that cannot be one.
    pub(super) fn check(&self, is_insecure: bool) -> Result<(), ListenError> {
        match self {
            Address::Tcp(address) if !address.ip().is_loopback() && !is_insecure => {
                Err(ListenError::NotLoopback { address: *address })
            }
            Address::Unix(path) if path.as_os_str().len() > SOCKET_BYTES_MAX => {
                Err(ListenError::Long { path: path.clone() })
            }
            Address::Tcp(_) | Address::Unix(_) => Ok(()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
            Address::Tcp(address) => write!(out, "tcp:{address}"),
        }
    }
}

/// Refuses a path that node_exporter would not read, or that has something else.
pub(super) fn check_textfile(path: &Path) -> Result<(), ListenError> {
    let failed = |source| ListenError::Textfile { path: path.to_owned(), source };
    if path.extension().is_none_or(|extension| extension != "prom") {
        return Err(ListenError::NotProm { path: path.to_owned() });
    }
    let status = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        outcome => outcome.map_err(failed)?,
    };
    let mut begin = Vec::new();
    if status.is_file() {
        File::open(path).and_then(|file| file.take(BEGIN.len() as u64).read_to_end(&mut begin)).map_err(failed)?;
    }
    let is_metrics = status.is_file() && (status.len() == 0 || begin == BEGIN);
    if is_metrics { Ok(()) } else { Err(ListenError::NotMetrics { path: path.to_owned() }) }
}

/// Replaces the file as a whole: a reader has the old text or the new one.
pub(super) fn write_textfile(path: &Path, text: &str) -> Result<(), ListenError> {
    check_textfile(path)?;
    let failed = |source| ListenError::Textfile { path: path.to_owned(), source };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // node_exporter does not read it: it does not end in .prom.
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = File::create(&new).and_then(|mut file| file.write_all(text.as_bytes()));
    written.and_then(|()| fs::rename(&new, path)).map_err(|error| {
        let _ = fs::remove_file(&new);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_reaches_an_address_without_insecure() {
        let of = |word: &str| Address::parse(word).expect("an address");
        for (word, is_safe) in [
            ("unix:/run/uraid/metrics.sock", true),
            ("tcp:127.0.0.1:9634", true),
            ("tcp:[::1]:0", true),
            ("tcp:0.0.0.0:9634", false),
            ("tcp:[::]:9634", false),
        ] {
            assert_eq!((of(word).check(false).is_ok(), of(word).check(true).is_ok()), (is_safe, true), "{word}");
            assert_eq!(of(word).to_string(), word);
        }
        for word in ["", "9634", "unix:", "tcp:localhost:9634", "tcp:127.0.0.1", "http://127.0.0.1:9634"] {
            assert!(Address::parse(word).is_err(), "{word}");
        }
        let path = |bytes| of(&format!("unix:/{}", "a".repeat(bytes - 1)));
        assert!(path(SOCKET_BYTES_MAX).check(false).is_ok());
        assert!(matches!(path(SOCKET_BYTES_MAX + 1).check(true), Err(ListenError::Long { .. })));
    }

    #[test]
    fn a_file_of_metrics_is_replaced_and_no_other_one() {
        let folder = std::env::temp_dir().join(format!("uraid-textfile-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let path = folder.join("uraid.prom");
        for text in ["# HELP a b\n", "# HELP c d\n"] {
            write_textfile(&path, text).expect("a new file, or one of metrics");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), text);
        }
        fs::write(&path, "member data").expect("our file");
        assert!(matches!(write_textfile(&path, "# HELP"), Err(ListenError::NotMetrics { .. })));
        assert!(matches!(write_textfile(&folder.join("a.img"), "# HELP"), Err(ListenError::NotProm { .. })));
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1, "nothing else is left");
        fs::remove_dir_all(&folder).expect("our folder");
    }
}
