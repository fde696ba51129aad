//! Key agreement at one end only, and with keys that differ.

use std::io::ErrorKind;

use kcp9::{
    KcpConfig, KcpError,
    proto::{
        CloseReason, HandshakeError,
        noise::{Initiator, Noise, NoiseFailure, Psk, Refusal, Responder},
    },
};

use crate::{
    keys::{assert_not_understood, clear},
    support::{connect, failure, impatient, listen, ms},
};

fn agreeing(noise: impl Into<Option<Noise>>) -> KcpConfig {
    impatient().noise(noise).build().unwrap()
}

fn psk(byte: u8) -> Psk {
    Psk::from_bytes(&[byte; 32])
}

#[tokio::test]
async fn only_the_server_agrees_on_keys() {
    let dropped = assert_not_understood(agreeing(Responder::nn_psk0(psk(1))), clear()).await;
    assert!(dropped.no_session >= 3 && dropped.bad_tag == 0, "{dropped:?}");
}

#[tokio::test]
async fn only_the_client_agrees_on_keys() {
    let dropped = assert_not_understood(clear(), agreeing(Initiator::nn_psk0(psk(1)))).await;
    assert!(dropped.no_session >= 3 && dropped.bad_tag == 0, "{dropped:?}");
}

#[tokio::test]
async fn keys_that_differ_in_an_agreement() {
    let listener = listen(agreeing(Responder::nn_psk0(psk(1)))).await;
    let config = KcpConfig::builder().noise(Initiator::nn_psk0(psk(2))).build().unwrap();
    let stream = connect(&listener, config).await;
    let (kind, reason, took) = failure(5, "the keys differ", stream.connected(ms(4_000))).await;
    let failed =
        CloseReason::HandshakeFailed(HandshakeError::Noise(NoiseFailure::Refused(Refusal::WrongPsk)));
    assert_eq!((kind, reason), (ErrorKind::InvalidData, Some(KcpError::Closed(failed))));
    assert!(took >= ms(1_900), "after {took:?}: a refusal alone ends nothing");
}
