//! As much of HTTP as a scrape needs.
//! Owns: reading the head of a request, what is refused and how, the bytes of an answer. Not here: connections (`server`),
//! what is served (`scrape`).
//! Invariant: a head is at most [`HEAD_BYTES_MAX`] long, and read within a time limit, however slowly it comes.
//! Spec: RFC 9112.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// Longer than any scraper's.
pub(super) const HEAD_BYTES_MAX: usize = 8 << 10;

/// What is taken of a refused request.
const LEFT_BYTES_MAX: usize = 64 << 10;

/// A connection whose waits can be limited.
pub(super) trait Connection: Read + Write {
    /// How long the next read and the next write may take.
    fn limit(&self, time: Duration) -> io::Result<()>;
    /// Sends no more.
    fn end(&self) -> io::Result<()>;
}

/// The form of the text that the client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    OpenMetrics,
    Plain,
}

impl Form {
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Form::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A request that is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// It is not HTTP.
    Malformed,
    /// Another path.
    NoSuchPath,
    /// Another method than GET.
    NotGet,
    /// The head did not come in time.
    Slow,
    /// The head is too long.
    Long,
    /// Too many are served at this moment.
    Busy,
    /// The arrays could not be asked.
    Unasked,
}

impl Refusal {
    /// The status line's number and text, and one sentence for people.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Refusal::Malformed => ("400 Bad Request", "this is not a request of HTTP/1.1"),
            Refusal::NoSuchPath => ("404 Not Found", "there is only /metrics here"),
            Refusal::NotGet => ("405 Method Not Allowed", "metrics are only read: GET /metrics"),
            Refusal::Slow => ("408 Request Timeout", "the head of the request did not come in time"),
            Refusal::Long => ("431 Request Header Fields Too Large", "the head of the request is too long"),
            Refusal::Busy => ("503 Service Unavailable", "too many scrapes at once"),
            Refusal::Unasked => {
                ("500 Internal Server Error", "the arrays cannot be asked: see the log of uraid metrics")
            }
        }
    }

    /// The whole answer.
    pub(super) fn answer(self) -> Vec<u8> {
        let (status, sentence) = self.words();
        let allow = if self == Refusal::NotGet { "Allow: GET\r\n" } else { "" };
        answer(status, "text/plain; charset=utf-8", allow, &format!("{sentence}\n"))
    }
}

/// The whole answer with metrics.
pub(super) fn metrics(form: Form, text: &str) -> Vec<u8> {
    answer("200 OK", form.content_type(), "", text)
}

fn answer(status: &str, content_type: &str, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
    );
    (head + body).into_bytes()
}

/// Reads a request, within `time_max`. `Err(None)`: the client has left.
pub(super) fn read(connection: &mut impl Connection, time_max: Duration) -> Result<Form, Option<Refusal>> {
    let (begun, mut head, mut part) = (Instant::now(), Vec::new(), [0; 1024]);
    loop {
        let left = time_max.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(Some(Refusal::Slow));
        }
        connection.limit(left).map_err(|_| None)?;
        match connection.read(&mut part) {
            Ok(0) if head.is_empty() => return Err(None),
            Ok(0) => return Err(Some(Refusal::Malformed)),
            Ok(count) => head.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(Some(Refusal::Slow));
            }
            Err(_) => return Err(None),
        }
        match end(&head) {
            Some(end) if end <= HEAD_BYTES_MAX => return parse(&head[..end]).map_err(Some),
            None if head.len() <= HEAD_BYTES_MAX => {}
            Some(_) | None => return Err(Some(Refusal::Long)),
        }
    }
}

/// Sends all of an answer, within `time_max`. A client that has left, or takes too long, gets no more.
pub(super) fn write(connection: &mut impl Connection, answer: &[u8], time_max: Duration) {
    let (begun, mut rest) = (Instant::now(), answer);
    while !rest.is_empty() {
        let left = time_max.saturating_sub(begun.elapsed());
        if left.is_zero() || connection.limit(left).is_err() {
            return;
        }
        match connection.write(rest) {
            Ok(0) => return,
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Takes what a refused client still sends: a connection that is closed before it was read is reset, and the client may
/// lose the answer.
pub(super) fn leave(connection: &mut impl Connection, time_max: Duration) {
    let (begun, mut part, mut taken) = (Instant::now(), [0; 1024], 0);
    let _ = connection.end();
    while taken < LEFT_BYTES_MAX {
        let left = time_max.saturating_sub(begun.elapsed());
        if left.is_zero() || connection.limit(left).is_err() {
            return;
        }
        match connection.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => taken += count,
        }
    }
}

/// Where the head ends, behind its empty line.
fn end(head: &[u8]) -> Option<usize> {
    let crlf = head.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
    crlf.or_else(|| head.windows(2).position(|two| two == b"\n\n").map(|at| at + 2))
}

fn parse(head: &[u8]) -> Result<Form, Refusal> {
    let head = std::str::from_utf8(head).map_err(|_| Refusal::Malformed)?;
    let mut lines = head.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return Err(Refusal::Malformed) };
    let is_token = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic());
    if !is_token || !target.starts_with('/') {
        return Err(Refusal::Malformed);
    }
    let mut fields = Vec::new();
    for line in lines.filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or(Refusal::Malformed)?;
        if name.is_empty() || name.contains([' ', '\t']) {
            return Err(Refusal::Malformed);
        }
        fields.push((name, value));
    }
    if target.split('?').next() != Some("/metrics") {
        return Err(Refusal::NoSuchPath);
    }
    if method != "GET" {
        return Err(Refusal::NotGet);
    }
    let takes_open = |(name, value): &(&str, &str)| {
        name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    };
    Ok(if fields.iter().any(takes_open) { Form::OpenMetrics } else { Form::Plain })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that sends these parts, one for each read, and then nothing more.
    struct Parts(Vec<&'static [u8]>);

    impl Read for Parts {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some(part) = self.0.first().copied() else { return Ok(0) };
            let count = part.len().min(into.len());
            into[..count].copy_from_slice(&part[..count]);
            if count == part.len() {
                self.0.remove(0);
            } else {
                self.0[0] = &part[count..];
            }
            Ok(count)
        }
    }

    impl Write for Parts {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Ok(0)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Connection for Parts {
        fn limit(&self, time: Duration) -> io::Result<()> {
            assert!(!time.is_zero(), "the system takes no limit of zero");
            Ok(())
        }

        fn end(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn read_all(parts: &[&'static [u8]]) -> Result<Form, Option<Refusal>> {
        read(&mut Parts(parts.to_vec()), Duration::from_secs(60))
    }

    #[test]
    fn a_get_of_metrics_is_served_and_what_else_comes_is_refused_by_its_status() {
        let long: &'static [u8] = Box::leak(vec![b'a'; HEAD_BYTES_MAX + 1].into_boxed_slice());
        type Case<'a> = (&'a [&'static [u8]], Result<Form, Option<Refusal>>);
        let cases: [Case<'_>; 14] = [
            (&[b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"], Ok(Form::Plain)),
            (&[b"GET /met", b"rics HTTP/1.0\r", b"\n\r", b"\n"], Ok(Form::Plain)),
            (&[b"GET /metrics?a=b HTTP/1.1\n\n"], Ok(Form::Plain)),
            (
                &[b"GET /metrics HTTP/1.1\r\naccept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n\r\n"],
                Ok(Form::OpenMetrics),
            ),
            (&[b"GET / HTTP/1.1\r\n\r\n"], Err(Some(Refusal::NoSuchPath))),
            (&[b"GET /metrics/ HTTP/1.1\r\n\r\n"], Err(Some(Refusal::NoSuchPath))),
            (&[b"POST /metrics HTTP/1.1\r\n\r\n"], Err(Some(Refusal::NotGet))),
            (&[b"GET /metrics\r\n\r\n"], Err(Some(Refusal::Malformed))),
            (&[b"GET  /metrics HTTP/1.1\r\n\r\n"], Err(Some(Refusal::Malformed))),
            (&[b"GET /metrics HTTP/1.1\r\nno field\r\n\r\n"], Err(Some(Refusal::Malformed))),
            (&[b"\x16\x03\x01\xff\xff\r\n\r\n"], Err(Some(Refusal::Malformed))),
            (&[b"GET /metrics HTTP/1.1\r\nHost"], Err(Some(Refusal::Malformed))),
            (&[], Err(None)),
            (&[long], Err(Some(Refusal::Long))),
        ];
        for (parts, expected) in cases {
            assert_eq!(read_all(parts), expected, "{parts:?}");
        }
        let slow = read(&mut Parts(vec![b"GET"]), Duration::ZERO);
        assert_eq!(slow, Err(Some(Refusal::Slow)));
    }

    #[test]
    fn an_answer_says_its_length_and_what_is_allowed() {
        let answer = String::from_utf8(Refusal::NotGet.answer()).expect("text");
        assert!(answer.starts_with("HTTP/1.1 405 Method Not Allowed\r\n") && answer.contains("\r\nAllow: GET\r\n"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("an empty line");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
    }
}
