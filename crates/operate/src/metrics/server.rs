//! The server of metrics: its socket, its connections.
//! Owns: listening, a thread for each connection, how many there are. Not here: HTTP (`http`), what is served (`scrape`).
//! Invariant: one client's slowness is no other's; arrays are asked by one thread at a time, however many clients there are.

use super::http::{self, Connection, Form, Refusal};
use super::listen::{Address, ListenError};
use super::scrape::Scrape;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use uraid_control::client::ClientError;
use uraid_control::log::{complain, warn};

/// Connections at once; a further one is told to come again.
const CONNECTIONS_MAX: usize = 16;
/// How long a client may take to send its request, and to take the answer.
const CLIENT_TIME_MAX: Duration = Duration::from_secs(5);
/// After an error of `accept`, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

impl Connection for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Connection for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// A socket that is listened on.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(into),
            Stream::Tcp(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(from),
            Stream::Tcp(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Connection for Stream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.limit(time),
            Stream::Tcp(stream) => stream.limit(time),
        }
    }

    fn end(&self) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.end(),
            Stream::Tcp(stream) => stream.end(),
        }
    }
}

impl Listener {
    /// Listens there. A socket file that no process listens on any more is replaced.
    pub(super) fn open(address: &Address) -> Result<Listener, ListenError> {
        let failed = |source| ListenError::Listen { address: address.to_string(), source };
        let path = match address {
            Address::Tcp(address) => return TcpListener::bind(address).map(Listener::Tcp).map_err(failed),
            Address::Unix(path) => path,
        };
        match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            outcome => return outcome.map(Listener::Unix).map_err(failed),
        }
        // Of a file that is no socket, too, the system says that the connection is refused.
        let is_socket = std::fs::symlink_metadata(path).is_ok_and(|status| status.file_type().is_socket());
        match UnixStream::connect(path) {
            Err(error) if is_socket && error.kind() == io::ErrorKind::ConnectionRefused => {}
            Ok(_) | Err(_) => return Err(ListenError::Taken { path: path.clone() }),
        }
        std::fs::remove_file(path).map_err(failed)?;
        UnixListener::bind(path).map(Listener::Unix).map_err(failed)
    }

    /// `http://127.0.0.1:9634/metrics`, with the port that the system chose for port 0.
    pub(super) fn place(&self, address: &Address) -> String {
        match self {
            Listener::Unix(_) => address.to_string(),
            Listener::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| address.to_string(), |own| format!("http://{own}/metrics"))
            }
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => listener.accept().map(|(stream, _)| Stream::Unix(stream)),
            Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Stream::Tcp(stream)),
        }
    }

    /// Serves for ever.
    pub(super) fn serve(self) -> ! {
        let (shared, open) = (Arc::new(Shared::default()), Arc::new(AtomicUsize::new(0)));
        loop {
            let mut stream = match self.accept() {
                Ok(stream) => stream,
                Err(error) => {
                    warn(&format!("cannot take a connection: {}", uraid_host::io_text(&error)));
                    thread::sleep(PAUSE);
                    continue;
                }
            };
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                // The answer fits into the socket's buffer.
                http::write(&mut stream, &Refusal::Busy.answer(), PAUSE);
                continue;
            }
            let (shared, own) = (shared.clone(), open.clone());
            let body = move || {
                shared.answer(&mut stream);
                own.fetch_sub(1, Ordering::Relaxed);
            };
            if thread::Builder::new().name("uraid-metrics".to_owned()).spawn(body).is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// What the connections share: the last scrape.
#[derive(Default)]
struct Shared(Mutex<Option<(Instant, Arc<Scrape>)>>);

impl Shared {
    fn answer(&self, stream: &mut Stream) {
        let answer = match http::read(stream, CLIENT_TIME_MAX) {
            Ok(form) => match self.scrape() {
                Ok(scrape) => http::metrics(form, &text(&scrape, form)),
                Err(error) => {
                    complain(&error);
                    Refusal::Unasked.answer()
                }
            },
            Err(Some(refusal)) => {
                http::write(stream, &refusal.answer(), CLIENT_TIME_MAX);
                return http::leave(stream, PAUSE);
            }
            Err(None) => return,
        };
        http::write(stream, &answer, CLIENT_TIME_MAX);
    }

    /// A scrape that began after this call: that of another connection, if this one had to wait for it.
    fn scrape(&self) -> Result<Arc<Scrape>, ClientError> {
        let arrived = Instant::now();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, scrape)) = last.as_ref().filter(|(begun, _)| *begun >= arrived) {
            return Ok(scrape.clone());
        }
        let (begun, scrape) = (Instant::now(), Arc::new(Scrape::take()?));
        *last = Some((begun, scrape.clone()));
        Ok(scrape)
    }
}

/// In the form that was asked for.
pub(super) fn text(scrape: &Scrape, form: Form) -> String {
    let families = scrape.families();
    match form {
        Form::OpenMetrics => families.open_metrics(),
        Form::Plain => families.plain(),
    }
}
