//! Socket options: the identity of the peer, and when a silent peer counts as gone.
//! Owns: [`Peer`], keepalive, send buffers. Not here: sockets themselves (`net`).
//! Invariant: an option that the system refuses leaves the socket as it was, and causes no failure.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// A TCP peer that sends nothing is probed after this many seconds ...
const KEEPALIVE_IDLE_SECONDS: libc::c_int = 60;
/// ... and then again at this interval, [`KEEPALIVE_PROBES`] times in all.
const KEEPALIVE_INTERVAL_SECONDS: libc::c_int = 15;
const KEEPALIVE_PROBES: libc::c_int = 4;
/// How long sent data may stay unacknowledged: as long as it takes to give up an idle peer.
const USER_TIMEOUT_MILLIS: libc::c_int =
    1000 * (KEEPALIVE_IDLE_SECONDS + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_SECONDS);

/// The peer of a connection, for counting connections.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Peer {
    /// A process of this user connected to the unix socket.
    User(u32),
    /// A host; for IPv6 its 64-bit network, which one host usually gets as a whole.
    Host(IpAddr),
    /// The connection is closed, or neither unix nor TCP.
    Unknown,
}

/// The process at the other end of a unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerProcess {
    /// Its number in this process's namespace; 0 if it has none there.
    pub pid: u32,
    /// Its user.
    pub user: u32,
}

impl PeerProcess {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Option<PeerProcess> {
        let peer = option::<libc::ucred>(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)?;
        // The system answers with no process and no user for other sockets.
        let pid = u32::try_from(peer.pid).ok()?;
        (peer.uid != u32::MAX).then_some(PeerProcess { pid, user: peer.uid })
    }
}

impl Peer {
    pub(super) fn of(socket: BorrowedFd<'_>) -> Peer {
        match option::<libc::c_int>(socket, libc::SOL_SOCKET, libc::SO_DOMAIN) {
            Some(libc::AF_UNIX) => option::<libc::ucred>(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)
                .map_or(Peer::Unknown, |peer| Peer::User(peer.uid)),
            Some(_) => socket
                .try_clone_to_owned()
                .and_then(|socket| TcpStream::from(socket).peer_addr())
                .map_or(Peer::Unknown, Peer::of_address),
            None => Peer::Unknown,
        }
    }

    fn of_address(address: SocketAddr) -> Peer {
        Peer::Host(match address.ip().to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        })
    }
}

/// Lets the system detect a TCP peer that has vanished silently: power loss, a pulled cable, a lost route.
pub(super) fn notice_lost_peer(socket: &impl AsFd) {
    for (level, name, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_SECONDS),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SECONDS),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, USER_TIMEOUT_MILLIS),
    ] {
        set_option(socket.as_fd(), level, name, value);
    }
}

/// Requests this send buffer in bytes; the system may give less. For unix sockets: TCP tunes its own.
pub(super) fn set_send_buffer(socket: &impl AsFd, bytes: libc::c_int) {
    set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
}

fn set_option(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option's value is an int, which lives during the call. An error leaves the socket as it is.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), length) };
}

/// Option types of plain integers: every bit pattern is valid.
trait Plain {}
impl Plain for libc::c_int {}
impl Plain for libc::ucred {}

fn option<T: Plain>(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> Option<T> {
    // SAFETY: all zeroes is a value of every `Plain`.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes into `value`, which lives during the call.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length) };
    (result == 0 && length as usize == size_of::<T>()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_host_and_mapped_ones_are_ipv4() {
        let of = |text: &str| Peer::of_address(text.parse().expect("an address"));
        assert_eq!(of("10.0.0.1:5"), of("10.0.0.1:6"));
        assert_ne!(of("10.0.0.1:5"), of("10.0.0.2:5"));
        assert_eq!(of("[::ffff:10.0.0.1]:5"), of("10.0.0.1:5"));
        assert_eq!(of("[2001:db8::1]:5"), of("[2001:db8::ffff:2]:5"));
        assert_ne!(of("[2001:db8::1]:5"), of("[2001:db8:0:1::1]:5"));
    }

    #[test]
    fn a_tcp_socket_gets_all_options_for_lost_peers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listening");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        notice_lost_peer(&stream);
        let found = |level, name| option::<libc::c_int>(stream.as_fd(), level, name);
        assert_eq!(found(libc::SOL_SOCKET, libc::SO_KEEPALIVE), Some(1));
        assert_eq!(found(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE), Some(60));
        assert_eq!(found(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL), Some(15));
        assert_eq!(found(libc::IPPROTO_TCP, libc::TCP_KEEPCNT), Some(4));
        assert_eq!(found(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT), Some(120_000));
    }
}
