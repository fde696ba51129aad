use std::{collections::HashSet, format, string::String, vec::Vec};

use super::{
    CAUSES, CONNECTED, ENDED, MOST, RTT_GREATEST, RTT_LEAST, RTT_MEAN, SESSION, SESSION_GAUGES, SOCKET,
    SOCKET_GAUGES, SUMMED_GAUGES,
    figures::{Figure, cause},
};
use crate::{
    crypto::SealError,
    net::{error::KcpError, stats::EndpointStats},
    proto::{AbortReason, CloseReason, HandshakeError, Stats},
};

/// How many numbers the groups of a `Debug` output have whose types end in `suffix`.
fn numbers(debug: &str, suffix: &str) -> usize {
    let mut count = 0;
    for group in debug.split_inclusive(" }") {
        let Some((head, fields)) = group.rsplit_once(" { ") else { continue };
        if head.ends_with(suffix) {
            count += fields.split(", ").count();
        }
    }
    count
}

#[test]
fn every_counter_has_a_figure() {
    let stats = format!("{:?}", Stats::default());
    assert_eq!(
        SESSION.len(),
        numbers(&stats, "Stats"),
        "a counter of `Stats` has no line in `SESSION`, or two"
    );
    let stats = format!("{:?}", EndpointStats::default());
    assert_eq!(
        SOCKET.len(),
        numbers(&stats, "Stats"),
        "a counter of `EndpointStats` has no line in `SOCKET`"
    );
    assert_eq!(SOCKET_GAUGES.len(), numbers(&stats, "State"), "a gauge of `EndpointStats` has no line");
}

fn names<S, T>(figures: &[Figure<S, T>]) -> Vec<(String, Option<&'static str>)> {
    figures.iter().map(|figure| (figure.name.into(), figure.label.map(|(_, value)| value))).collect()
}

fn unique(names: &[(String, Option<&'static str>)]) -> bool {
    names.iter().collect::<HashSet<_>>().len() == names.len()
}

#[test]
fn no_figure_hides_another() {
    let registered = [&CONNECTED, &ENDED, &MOST, &RTT_LEAST, &RTT_MEAN, &RTT_GREATEST];
    let mut endpoint = names(SESSION);
    endpoint.extend([names(SOCKET), names(SOCKET_GAUGES), names(SUMMED_GAUGES)].concat());
    endpoint.extend(registered.map(|figure| (figure.name.into(), None)));
    assert!(unique(&endpoint));
    let mut session = names(SESSION);
    session.extend([names(SUMMED_GAUGES), names(SESSION_GAUGES)].concat());
    assert!(unique(&session));
    for (name, _) in &session {
        let of_session = format!("session_{name}");
        assert!(endpoint.iter().all(|(name, _)| *name != of_session), "{of_session} is two figures");
    }
}

/// As Prometheus wants them: <https://prometheus.io/docs/practices/naming/>.
#[test]
fn names_say_what_they_count() {
    for (name, _) in [names(SESSION), names(SOCKET)].concat() {
        assert!(name.ends_with("_total"), "{name} is a counter");
    }
    for (name, _) in [names(SOCKET_GAUGES), names(SUMMED_GAUGES), names(SESSION_GAUGES)].concat() {
        assert!(!name.ends_with("_total"), "{name} is a gauge");
    }
}

/// Together with their number, this says that each counter has one figure and each figure one counter.
#[test]
fn no_two_figures_read_the_same_counter() {
    let source = include_str!("figures.rs");
    let tables = source.split("\npub(super) const fn cause").next().unwrap();
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let paths = tables.split("stats.").skip(1).map(|rest| rest.split(|c| !is_of_path(c)).next().unwrap());
    let mut seen = HashSet::new();
    for path in paths {
        // Conversions stand behind the path.
        let field: Vec<_> = path.split('.').take(2).collect();
        assert!(seen.insert(field.clone()), "{field:?} is read by two figures");
    }
    let all = SESSION.len() + SOCKET.len() + SOCKET_GAUGES.len() + SUMMED_GAUGES.len() + SESSION_GAUGES.len();
    assert_eq!(seen.len(), all);
}

/// Each of the label's values is that of one reason, in the order of [`CAUSES`]. A reason that is new does not build: see [`cause`].
#[test]
fn every_end_has_a_cause() {
    let ends = [
        KcpError::Closed(CloseReason::Finished),
        KcpError::Closed(CloseReason::DeadLink),
        KcpError::Closed(CloseReason::LingerTimeout),
        KcpError::Closed(CloseReason::IdleTimeout),
        KcpError::Closed(CloseReason::Aborted),
        KcpError::Closed(CloseReason::AbortedByPeer(AbortReason::Application)),
        KcpError::Closed(CloseReason::Reset),
        KcpError::Closed(CloseReason::Refused),
        KcpError::Closed(CloseReason::PeerLacksExtensions),
        KcpError::Closed(CloseReason::HandshakeFailed(HandshakeError::Version)),
        KcpError::Closed(CloseReason::NonceLimit),
        KcpError::Closed(CloseReason::SealFailed(SealError::TooShort)),
        KcpError::EndpointClosed,
        KcpError::KeyRetired,
        KcpError::Replaced,
        KcpError::Evicted,
        KcpError::ConvInUse,
        KcpError::OtherCipher,
        KcpError::RuntimeGone,
        KcpError::Network { kind: std::io::ErrorKind::NetworkDown, os_code: None },
        KcpError::NotFollowed,
        KcpError::NoPort,
    ];
    assert_eq!(ends.map(|reason| cause(&reason)), CAUSES);
}
