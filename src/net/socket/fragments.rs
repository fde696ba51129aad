//! Packets that may be fragmented on their way: those that were cut before the path was known to carry less.
//!
//! `quinn-udp` has every packet sent with *don't fragment* (DF), where the system can do that. It is an option of the socket, which is
//! turned off for a moment here. On Linux, what is longer than 1,280 bytes leaves an IPv6 socket in fragments that every path carries:
//! routers make none there.
//!
//! # `unsafe`
//!
//! This library has none here, but nix's macro `setsockopt_impl!` expands to a system call that is. It gives the kernel a pointer to an
//! `i32` and its length, which is what these options take, and the kernel keeps neither. Nothing without it does the same: `socket2`
//! and `quinn-udp` have no such option, nix itself has only [`Ipv6DontFrag`](nix::sys::socket::sockopt::Ipv6DontFrag), and `rustix` no
//! setter of `IPV6_MTU`, without which a packet that fits the interface leaves an IPv6 socket whole, into the black hole.
//!
//! # Other systems
//!
//! On other systems than Linux, Android and Apple's nothing safe turns it off. There such packets go as all others do. They are lost,
//! until the path carries them again.

use socket2::SockRef;

/// Packets may be fragmented for as long as this lives.
pub(super) struct Allowed<'a>(SockRef<'a>);

impl<'a> Allowed<'a> {
    pub(super) fn on(socket: SockRef<'a>) -> Self {
        system::set_df(&socket, false);
        Self(socket)
    }
}

impl Drop for Allowed<'_> {
    fn drop(&mut self) {
        system::set_df(&self.0, true);
    }
}

/// The options of the other family are refused by a socket of one; one of both needs both. What cannot be set stays.
#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use nix::{
        libc,
        sys::socket::{
            setsockopt,
            sockopt::{Ipv6DontFrag, SetStruct},
        },
    };
    use socket2::Socket;

    /// `IP_MTU_DISCOVER`, `IPV6_MTU_DISCOVER`, `IPV6_MTU`.
    #[derive(Clone)]
    struct MtuDiscover;
    #[derive(Clone)]
    struct MtuDiscoverV6;
    #[derive(Clone)]
    struct FragmentSizeV6;

    nix::setsockopt_impl!(MtuDiscover, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, i32, SetStruct<i32>);
    nix::setsockopt_impl!(MtuDiscoverV6, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, i32, SetStruct<i32>);
    nix::setsockopt_impl!(FragmentSizeV6, libc::IPPROTO_IPV6, libc::IPV6_MTU, i32, SetStruct<i32>);

    /// What every path of IPv6 carries.
    const MIN_MTU_V6: i32 = 1_280;

    pub(super) fn set_df(socket: &Socket, df: bool) {
        // What quinn-udp sets, too: DF whatever the system believes of the path.
        let discover = if df { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
        let _ = setsockopt(socket, MtuDiscover, &discover);
        let _ = setsockopt(socket, MtuDiscoverV6, &discover);
        let _ = setsockopt(socket, Ipv6DontFrag, &df);
        let _ = setsockopt(socket, FragmentSizeV6, &(if df { 0 } else { MIN_MTU_V6 }));
    }
}

#[cfg(target_vendor = "apple")]
mod system {
    use nix::sys::socket::{
        setsockopt,
        sockopt::{IpDontFrag, Ipv6DontFrag},
    };
    use socket2::Socket;

    pub(super) fn set_df(socket: &Socket, df: bool) {
        let _ = setsockopt(socket, IpDontFrag, &df);
        let _ = setsockopt(socket, Ipv6DontFrag, &df);
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
mod system {
    use socket2::Socket;

    pub(super) fn set_df(_: &Socket, _: bool) {}
}
