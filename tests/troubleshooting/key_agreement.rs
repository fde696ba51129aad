//! Key agreement at one end only, and with keys that differ.

use std::io::ErrorKind;

use kcp9::{
    DropStats, KcpConfig, KcpError,
    proto::{
        CloseReason, HandshakeError,
        noise::{Initiator, KeyPair, Noise, NoiseFailure, Psk, Refusal, Responder, Trust},
    },
};

use crate::{
    keys::{assert_not_understood, clear},
    support::{connect, failure, impatient, listen, ms},
};

pub(super) fn agreeing(noise: impl Into<Option<Noise>>) -> KcpConfig {
    impatient().noise(noise).build().unwrap()
}

pub(super) fn psk(byte: u8) -> Psk {
    Psk::from_bytes(&[byte; 32])
}

#[tokio::test]
async fn only_the_server_agrees_on_keys() {
    let dropped = assert_not_understood(agreeing(Responder::nn_psk0(psk(1))), clear()).await;
    assert!(dropped.no_session >= 3 && dropped.bad_tag == 0 && dropped.no_agreement == 0, "{dropped:?}");
}

#[tokio::test]
async fn only_the_client_agrees_on_keys() {
    let dropped = assert_not_understood(clear(), agreeing(Initiator::nn_psk0(psk(1)))).await;
    assert!(dropped.no_session >= 3 && dropped.bad_tag == 0 && dropped.no_agreement == 0, "{dropped:?}");
}

/// A session that fails since `error` is what there is against the keys of its peer. Returns what the server dropped.
async fn assert_no_agreement(server: Responder, client: Initiator, error: NoiseFailure) -> DropStats {
    let listener = listen(agreeing(server)).await;
    let config = KcpConfig::builder().noise(client).build().unwrap();
    let stream = connect(&listener, config).await;
    let (kind, reason, took) = failure(5, "there are no keys", stream.connected(ms(4_000))).await;
    let failed = CloseReason::HandshakeFailed(HandshakeError::Noise(error));
    assert_eq!((kind, reason), (ErrorKind::InvalidData, Some(KcpError::Closed(failed))));
    assert!(took >= ms(1_900), "after {took:?}: a refusal alone ends nothing");
    let stats = listener.endpoint_stats();
    assert!(stats.socket.packets_received >= 3, "{stats:?}");
    assert_eq!((stats.driver.accepted, stats.state.sessions), (0, 0), "{stats:?}");
    stats.dropped
}

#[tokio::test]
async fn keys_that_differ_in_an_agreement() {
    let keys = KeyPair::from_secret_bytes(&[3; 32]);
    let (other, psks, patterns) = tokio::join!(
        assert_no_agreement(
            Responder::nk(KeyPair::from_secret_bytes(&[4; 32])),
            Initiator::nk(*keys.public()),
            NoiseFailure::Refused(Refusal::UnknownServerKey),
        ),
        assert_no_agreement(
            Responder::nn_psk0(psk(1)),
            Initiator::nn_psk0(psk(2)),
            NoiseFailure::Refused(Refusal::WrongPsk),
        ),
        assert_no_agreement(
            Responder::nk(keys.clone()),
            Initiator::nn_psk0(psk(1)),
            NoiseFailure::Refused(Refusal::Pattern),
        ),
    );
    for dropped in [other, psks, patterns] {
        assert!(dropped.no_agreement >= 3, "{dropped:?}");
        assert_eq!((dropped.bad_tag, dropped.bad_checksum, dropped.no_session), (0, 0, 0), "{dropped:?}");
    }
}

#[tokio::test]
async fn a_key_of_the_server_that_the_client_does_not_trust() {
    let [server, client, other] = [5, 6, 7].map(|byte| KeyPair::from_secret_bytes(&[byte; 32]));
    let error = NoiseFailure::UntrustedKey;
    let initiator = Initiator::xx(client, Trust::pinned([*other.public()]));
    let dropped = assert_no_agreement(Responder::xx(server, Trust::any()), initiator, error).await;
    assert_eq!(dropped, DropStats::default());
}
