//! The limits of settings, for new sessions and for live ones.

use alloc::sync::Arc;
use core::time::Duration;

#[cfg(feature = "noise")]
use crate::proto::{extension::Extensions, noise::Noise};
use crate::{
    crypto::PacketCrypto,
    proto::{
        error::ConfigError,
        fec::{AdaptiveFec, ReedSolomon},
        wire::HEADER_LEN,
    },
};

/// Largest UDP payload over IPv4.
const MAX_MTU: usize = 65_507;
/// A segment header, an FEC header, the largest crypto header and a little payload.
const MIN_MTU: usize = 64;
/// Seconds of datagrams at the highest rates, and as much memory as a hostile peer can make a session keep.
pub(crate) const MAX_DATAGRAM_QUEUE: u64 = 64 << 20;
/// Largest number that fits a segment's `wnd` field.
const MAX_WINDOW: u32 = u16::MAX as u32;

/// Checks that a packet of `mtu` bytes holds `overhead` bytes of encryption and FEC, a segment's header and at least a byte of
/// payload, and that the cipher takes it.
pub(crate) fn check_mtu(
    mtu: usize,
    overhead: usize,
    crypto: Option<&PacketCrypto>,
) -> Result<(), ConfigError> {
    let min = (overhead + HEADER_LEN + 1).max(MIN_MTU);
    let max = crypto.map_or(MAX_MTU, |crypto| crypto.cipher().max_packet_len()).min(MAX_MTU);
    check("mtu", mtu as u64, min as u64, max as u64)
}

/// The code of so many data and parity packets, `None` for 0 and 0. The numbers are checked already.
pub(crate) fn fec_code((data, parity): (usize, usize)) -> Option<Arc<ReedSolomon>> {
    ReedSolomon::new(data, parity).ok().map(Arc::new)
}

pub(crate) fn check_adaptive(limits: Option<AdaptiveFec>) -> Result<(), ConfigError> {
    let Some(AdaptiveFec { min_parity, budget }) = limits else { return Ok(()) };
    check("fec min_parity", min_parity as u64, 0, 255)?;
    check("fec budget", budget.into(), 1, 1_000)
}

pub(crate) fn check_flush(after: Option<Duration>) -> Result<(), ConfigError> {
    let limits = (Duration::from_millis(1), Duration::from_secs(1));
    after.map_or(Ok(()), |after| check_duration("fec_flush", after, limits.0, limits.1))
}

pub(crate) fn check_window(field: &'static str, segments: u32) -> Result<(), ConfigError> {
    check(field, segments.into(), 1, MAX_WINDOW.into())
}

pub(crate) fn check_duration(
    field: &'static str,
    value: Duration,
    min: Duration,
    max: Duration,
) -> Result<(), ConfigError> {
    if value >= min && value <= max {
        return Ok(());
    }
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Err(ConfigError { field, value: millis(value), min: millis(min), max: millis(max) })
}

pub(crate) fn check(field: &'static str, value: u64, min: u64, max: u64) -> Result<(), ConfigError> {
    if value >= min && value <= max {
        return Ok(());
    }
    Err(ConfigError { field, value, min, max })
}

/// HELLO with the longest first message and a cookie, and ANSWER with the longest answer, fit such packets.
#[cfg(feature = "noise")]
const MIN_NOISE_MTU: u64 = 256;

/// What else is said must make sense for sessions that agree on keys.
#[cfg(feature = "noise")]
pub(crate) fn check_noise(
    noise: &Noise,
    has_crypto: bool,
    extensions: Extensions,
    mtu: usize,
) -> Result<(), ConfigError> {
    let refuse = |conflict, refused| check(conflict, u64::from(refused), 0, 0);
    check("mtu", mtu as u64, MIN_NOISE_MTU, u64::MAX)?;
    // A cipher that is never used is a mistake: it would be taken for what protects the sessions.
    let serves_static = noise.accepts() && noise.serves_static_peers();
    refuse("noise with crypto", has_crypto && !serves_static)?;
    // Nor does anybody mean to serve peers in the clear beside those that agree on keys.
    refuse("noise serving static peers without crypto", !has_crypto && serves_static)?;
    // The peer learns by them that there is a session.
    refuse("noise without extensions", extensions == Extensions::Off)
}
