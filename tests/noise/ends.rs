//! Two ends that fit each other, for each pattern.

use kcp9::proto::{
    Instant,
    noise::{
        AnswerNext, HEADER_LEN, Initiator, KeyPair, OpenPacketError, Pattern, Psk, Responder, SessionKeys,
        TAG_LEN, Trust,
    },
};
use kcp9_simulator::Rng;

pub(crate) const NOW: Instant = Instant::from_millis(5);

/// The keys of both ends. They differ by `number`.
pub(crate) struct Keys {
    pub(crate) initiator: KeyPair,
    pub(crate) responder: KeyPair,
    pub(crate) psk: Psk,
}

impl Keys {
    pub(crate) fn new(number: u8) -> Self {
        let mut rng = Rng::new(number.into());
        let initiator = KeyPair::generate(&mut rng);
        let responder = KeyPair::generate(&mut rng);
        Self { initiator, responder, psk: Psk::from_bytes(&[number; 32]) }
    }

    pub(crate) fn initiator(&self, pattern: Pattern) -> Initiator {
        let (server, pinned) = (*self.responder.public(), Trust::pinned([*self.responder.public()]));
        match pattern {
            Pattern::NnPsk0 => Initiator::nn_psk0(self.psk.clone()),
            Pattern::NkPsk0 => Initiator::nk_psk0(server, self.psk.clone()),
            Pattern::Nk => Initiator::nk(server),
            Pattern::Xx => Initiator::xx(self.initiator.clone(), pinned),
            Pattern::XxPsk3 => Initiator::xx_psk3(self.initiator.clone(), pinned, self.psk.clone()),
            other => panic!("{other} is not tested"),
        }
    }

    pub(crate) fn responder(&self, pattern: Pattern) -> Responder {
        let pinned = Trust::pinned([*self.initiator.public()]);
        match pattern {
            Pattern::NnPsk0 => Responder::nn_psk0(self.psk.clone()),
            Pattern::NkPsk0 => Responder::nk_psk0(self.responder.clone(), self.psk.clone()),
            Pattern::Nk => Responder::nk(self.responder.clone()),
            Pattern::Xx => Responder::xx(self.responder.clone(), pinned),
            Pattern::XxPsk3 => Responder::xx_psk3(self.responder.clone(), pinned, self.psk.clone()),
            other => panic!("{other} is not tested"),
        }
    }

    /// A packet of this route that nobody has sealed.
    pub(crate) fn forged(&self, pattern: Pattern, route: u32) -> Vec<u8> {
        let mut packet = [&route.to_le_bytes()[..], &[9; 60]].concat();
        // What shows a hidden route hides one that is shown.
        let masked = self.responder(pattern).route_key().route(&packet).unwrap();
        packet[..4].copy_from_slice(&masked.to_le_bytes());
        packet
    }

    /// Both ends of a session, without a network.
    pub(crate) fn session(&self, pattern: Pattern, rng: &mut Rng) -> [SessionKeys; 2] {
        let mut handshake = self.initiator(pattern).begin(b"", rng).unwrap();
        let answer = self.responder(pattern).answer(handshake.message(), b"", b"", rng).unwrap();
        let established = handshake.read_answer(&answer.message, b"").unwrap();
        let responder = match answer.next {
            AnswerNext::Session(session) => session,
            AnswerNext::Last(mut handshake) => {
                handshake.read_last(&established.last_message.unwrap()).unwrap()
            }
        };
        [established.session, responder]
    }
}

/// A sealed packet.
pub(crate) fn sealed(keys: &mut SessionKeys, now: Instant, route: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&[0; HEADER_LEN], payload, &[0; TAG_LEN]].concat();
    keys.seal(now, route, &mut packet).unwrap();
    packet
}

/// The payload of a packet.
pub(crate) fn opened(
    keys: &mut SessionKeys,
    now: Instant,
    packet: &[u8],
) -> Result<Vec<u8>, OpenPacketError> {
    let route = keys.route_key().route(packet).ok_or(OpenPacketError::TooShort)?;
    keys.open(now, route, &mut packet.to_vec()).map(|payload| payload.to_vec())
}
