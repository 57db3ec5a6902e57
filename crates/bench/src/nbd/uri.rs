//! An NBD URI, as far as the load generator reaches: unix sockets and TCP, without TLS.
//! Owns: [`Address`], taking it apart. Not here: connecting (`connection`). Spec: the NBD project's doc/uri.md.

use std::path::PathBuf;

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP port, as `HOST:PORT`.
    Tcp(String),
}

/// The parts of an NBD URI.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Address {
    /// Where the server listens.
    pub endpoint: Endpoint,
    /// Which export; empty: the default one.
    pub export: String,
}

/// Why a URI is invalid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{uri}: {why}, expected nbd+unix:///EXPORT?socket=PATH or nbd://HOST[:PORT]/EXPORT")]
pub struct UriError {
    uri: String,
    why: &'static str,
}

impl Address {
    /// Takes a URI apart.
    pub fn parse(uri: &str) -> Result<Address, UriError> {
        let error = |why| UriError { uri: uri.to_owned(), why };
        let (scheme, rest) = uri.split_once("://").ok_or(error("no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export).ok_or(error("the export's name is no UTF-8 behind its % signs"))?;
        let endpoint = match scheme {
            "nbd+unix" => {
                let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
                let path = decoded(socket.ok_or(error("no socket="))?).ok_or(error("the socket is no UTF-8"))?;
                Endpoint::Unix(path.into())
            }
            "nbd" if host.is_empty() => return Err(error("no host")),
            "nbd" if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => {
                Endpoint::Tcp(host.to_owned())
            }
            "nbd" => Endpoint::Tcp(format!("{host}:10809")),
            "nbds" | "nbds+unix" => return Err(error("TLS is not there")),
            _ => return Err(error("the scheme is none of ours")),
        };
        Ok(Address { endpoint, export })
    }
}

/// `%41` is A; `None` where the percent signs do not make up UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push((digit(rest.next())? * 16 + digit(rest.next())?) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(path: &str, export: &str) -> Address {
        Address { endpoint: Endpoint::Unix(path.into()), export: export.into() }
    }

    #[test]
    fn uris_are_taken_apart() {
        assert_eq!(Address::parse("nbd+unix:///backup?socket=/run/b.nbd"), Ok(unix("/run/b.nbd", "backup")));
        assert_eq!(Address::parse("nbd+unix://?socket=/a%20b"), Ok(unix("/a b", "")));
        let tcp = |to: &str| Address { endpoint: Endpoint::Tcp(to.into()), export: "x".into() };
        assert_eq!(Address::parse("nbd://localhost/x"), Ok(tcp("localhost:10809")));
        assert_eq!(Address::parse("nbd://[::1]:99/x"), Ok(tcp("[::1]:99")));
    }

    #[test]
    fn what_is_no_uri_says_what_is_missing() {
        for (uri, why) in [
            ("/run/socket", "no scheme"),
            ("nbd+unix:///x", "no socket="),
            ("nbd:///x", "no host"),
            ("nbds://h/x", "TLS"),
            ("http://h/x", "none of ours"),
            ("nbd+unix:///%ff?socket=s", "no UTF-8"),
            ("nbd+unix:///%4?socket=s", "no UTF-8"),
        ] {
            let error = Address::parse(uri).expect_err(uri).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
