//! Events as JSON to a web server.
//! Owns: which addresses there are, one request of HTTP/1.1, what its status means. Not here: the JSON (`print`), when it is
//! tried again (`outbox`).
//! Invariant: whatever the server sends or does not send, a request ends. `https://` is refused by name: this program has no
//! TLS, and an event on the way in the clear is for this machine or a trusted network.
//! Spec: RFC 9112.

use super::print::json;
use super::{Channel, Job, NotTold, Told};
use crate::monitor::event::Event;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// How long each step may take.
const TIME_MAX: Duration = Duration::from_secs(10);
/// As much of the answer as is read: its first line is in it.
const ANSWER_MAX: u64 = 1024;

/// Where events are sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    /// `host:80`, with the brackets of IPv6.
    authority: String,
    /// As a name and a port.
    host: String,
    port: u16,
    path: String,
}

impl FromStr for Webhook {
    type Err = String;

    fn from_str(text: &str) -> Result<Webhook, String> {
        if text.starts_with("https://") {
            return Err(
                "https is not spoken here: give the http:// address of a relay on this machine, or --program with \
                        a program that sends it"
                    .to_owned(),
            );
        }
        let expected = || format!("{text:?} is no address of a web server, expected http://HOST[:PORT]/PATH");
        let rest = text.strip_prefix("http://").ok_or_else(expected)?;
        let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        let is_plain = |c: char| c.is_ascii_graphic();
        if authority.is_empty() || authority.contains('@') || !text.chars().all(is_plain) || path.contains('#') {
            return Err(expected());
        }
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().map_err(|_| expected())?),
            None => (authority, 80),
        };
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() || port == 0 {
            return Err(expected());
        }
        Ok(Webhook { authority: authority.to_owned(), host: host.to_owned(), port, path: path.to_owned() })
    }
}

impl fmt::Display for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

impl Channel for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn tell(&mut self, job: &Job) -> Result<Told, NotTold> {
        let name = job.event.kind.name();
        let status = self.post(job).map_err(|error| {
            // The server may have taken it before the connection broke.
            NotTold::perhaps(format!("{name} is not sent to {}: {}", self.authority, uraid_host::io_text(&error)))
        })?;
        match status {
            200..=299 => Ok(Told::Done),
            // It would answer the same again.
            400..=499 if ![408, 425, 429].contains(&status) => {
                Ok(Told::DoneSaying(format!("{name}: {} refused it with status {status}", self.authority)))
            }
            _ => Err(NotTold::new(format!("{name} is not sent to {}: status {status}", self.authority))),
        }
    }
}

impl Webhook {
    /// The status of the answer.
    fn post(&self, job: &Job) -> io::Result<u16> {
        let body = json(job).to_string();
        let Event { id, .. } = &job.event;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: uraid-monitor\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {id}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.authority,
            body.len()
        );
        let mut stream = self.connect()?;
        stream.set_read_timeout(Some(TIME_MAX))?;
        stream.set_write_timeout(Some(TIME_MAX))?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        status_of(stream)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        let addresses: Vec<SocketAddr> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        for address in addresses {
            match TcpStream::connect_timeout(&address, TIME_MAX) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// `HTTP/1.1 204 No Content`
fn status_of(stream: impl Read) -> io::Result<u16> {
    let mut line = Vec::new();
    BufReader::new(stream.take(ANSWER_MAX)).read_until(b'\n', &mut line)?;
    let text = String::from_utf8_lossy(&line);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.trim().parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::event::EventKind;
    use crate::monitor::event::tests::event;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_taken_apart_and_https_is_refused_by_name() {
        let webhook = |text: &str| text.parse::<Webhook>();
        let parts = |text| webhook(text).map(|hook| (hook.host, hook.port, hook.path));
        assert_eq!(parts("http://a"), Ok(("a".into(), 80, "/".into())));
        assert_eq!(parts("http://a:8080/b?c=d"), Ok(("a".into(), 8080, "/b?c=d".into())));
        assert_eq!(parts("http://[::1]:99/b"), Ok(("::1".into(), 99, "/b".into())));
        assert_eq!(parts("http://[::1]"), Ok(("::1".into(), 80, "/".into())));
        assert_eq!(webhook("http://[::1]:99/b").map(|hook| hook.to_string()), Ok("http://[::1]:99/b".to_owned()));
        assert!(webhook("https://a/b").is_err_and(|text| text.starts_with("https is not spoken here")));
        for wrong in [
            "",
            "a",
            "ftp://a",
            "http://",
            "http:///b",
            "http://u@a/",
            "http://a:x/",
            "http://a:0/",
            "http://a/ b",
            "http://a/#b",
        ] {
            assert!(webhook(wrong).is_err_and(|text| text.contains("no address of a web server")), "{wrong}");
        }
    }

    #[test]
    fn what_the_server_answers_decides_whether_it_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let port = listener.local_addr().expect("it is bound").port();
        let mut hook: Webhook = format!("http://127.0.0.1:{port}/md").parse().expect("an address");
        let job = Job { event: event(EventKind::Fail, Some("/dev/sdb")), is_again: true, mdstat: String::new() };
        let answers = [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 410 Gone\r\n\r\n",
            "HTTP/1.0 503 x\r\n\r\n",
            "SSH-2.0\r\n",
            "",
        ];
        let server = std::thread::spawn(move || {
            answers.map(|answer| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut block = [0; 512];
                    let length = stream.read(&mut block).expect("it sends");
                    request.extend_from_slice(&block[..length]);
                }
                stream.write_all(answer.as_bytes()).expect("it reads");
                String::from_utf8(request).expect("text")
            })
        });
        assert!(matches!(hook.tell(&job), Ok(Told::Done)));
        assert!(matches!(hook.tell(&job), Ok(Told::DoneSaying(text)) if text.ends_with("refused it with status 410")));
        assert!(hook.tell(&job).is_err_and(|error| error.text.ends_with("status 503") && !error.may_have_arrived));
        assert!(hook.tell(&job).is_err_and(|error| error.text.ends_with("not HTTP") && error.may_have_arrived));
        assert!(hook.tell(&job).is_err());
        let requests = server.join().expect("it does not panic");
        assert!(requests[0].starts_with("POST /md HTTP/1.1\r\nHost: 127.0.0.1:"), "{}", requests[0]);
        let (_, body) = requests[0].split_once("\r\n\r\n").expect("a body");
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(
            (&body["kind"], &body["again"], &body["severity"]),
            (&"Fail".into(), &true.into(), &"critical".into())
        );
    }
}
