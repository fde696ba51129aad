//! Shares of the work while packets are lost because they come faster than they are received.
//!
//! The system keeps the packets of all sources in one buffer, and once that is full it drops without regard to who sent them. A
//! source that floods the port so takes the packets of all others with it. What can be done is to spend as little as possible on
//! such a source, so that the buffer is emptied sooner: its packets are dropped by their source address alone, before they are
//! decrypted and routed. That takes two hashes and a look-up, where a session's packet takes a microsecond, and more with a slow
//! cipher.
//!
//! **When.** The caller tells when packets are lost ([`Endpoint::note_overload`](super::Endpoint::note_overload)). Until then nothing is
//! counted. A driver that is always busy but keeps up drops nothing, nor does one that was only kept from its work for a moment.
//!
//! **Work** is counted in units: one a packet and one for each KiB. Small packets cost routing and a session's turn, which is the
//! same for all; long ones cost decryption besides.
//!
//! **Established sessions** have equal shares. An address with several of them has as many shares: many users may stand behind one
//! NAT, and what they have in common is no reason to take them for one. What a session may have worked on in a window of 25 ms shrinks
//! by a quarter with each window in which packets were lost, and grows by a sixteenth once none was lost for a second. So it settles
//! where the buffer no longer overflows (the way of *Approximate Fair Dropping*, Pan et al. 2003, steered by losses as *BLUE*, Feng
//! et al. 1999). Nobody loses anything as long as it sends no more than that, and it is never less than twice what the median
//! session sends: equal senders lose nothing, however busy they keep the driver.
//!
//! **Strangers** are all other addresses: anybody can forge as many as he likes, so all together have one share. It is steered the same
//! way, before that of the sessions, and is never less than a quarter of what is worked on, or a sixty-fourth of what comes: new sessions
//! can begin under a flood. One network (an IPv4 address, 64 bits of IPv6) has at most half of it, and no more than all others
//! together, but a sixty-fourth of what comes. Where no session is established, there is nobody to protect, and only that last rule holds.
//!
//! The memory is 32 KiB while it lasts, beside 16 bytes for each address with sessions (`sources`).

use alloc::{boxed::Box, vec};
use core::time::Duration;

use super::sources::Source;
use crate::proto::Instant;

/// A window: work is counted in it, and what may be worked on in the next follows from it. A flood is a thousand packets in it, and
/// a busy session a hundred.
const WINDOW: Duration = Duration::from_millis(25);
/// Without a loss for so long, more is taken on again.
const HOLD: Duration = Duration::from_secs(1);
/// What a session may always have worked on in a window: 1.6 MB/s.
const LEAST_OF_SESSION: u32 = 64;
/// The same for all strangers.
const LEAST_OF_STRANGERS: u32 = 64;
/// The least share of strangers in what comes, and of one network of them.
const STRANGERS_OF_ALL: u32 = 64;
/// And in what is worked on: one for so many of established sessions.
const STRANGERS_FOR_SESSIONS: u32 = 3;
/// Places for networks of strangers. Under a flood from all of them, a network shares its place with others.
const NETWORKS: usize = 4_096;

/// What each source may have worked on.
#[derive(Debug)]
pub(super) struct Rations {
    began_at: Instant,
    /// Packets were lost in this window.
    lost: bool,
    lost_at: Instant,
    /// What a session may have worked on in a window, and all strangers together. `None` for all that comes.
    of_session: Option<u32>,
    of_strangers: Option<u32>,
    /// What one network of strangers may have worked on.
    of_network: Option<u32>,
    /// What a session may have worked on in any case.
    least_of_session: u32,
    /// The number of the window.
    window: u32,
    sessions: Sessions,
    strangers: Strangers,
    thinning: Thinning,
    networks: Box<[Network]>,
}

/// What came of established sessions in this window.
#[derive(Debug, Default)]
struct Sessions {
    came: u32,
    taken: u32,
    /// The most that came of one.
    largest: u32,
    /// Sessions by the bits of the work that came of each.
    by_size: [u32; 32],
}

/// What came of strangers in this window.
#[derive(Debug, Default)]
struct Strangers {
    came: u32,
    taken: u32,
    /// What came, but for that of networks that had sent too much.
    within_networks: u32,
    /// Of that network of which most came.
    largest: u32,
}

/// Takes what may be worked on evenly out of a window. At its beginning all at once, it would fill the buffer.
#[derive(Debug, Default)]
struct Thinning {
    /// What is expected to come.
    expected: u32,
    /// What may be worked on, as a multiple of `1 / expected`.
    credit: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Network {
    window: u32,
    work: u32,
}

/// The work that packets are.
pub(super) fn work_of(packets: usize, bytes: usize) -> u32 {
    u32::try_from(packets.saturating_add(bytes / 1_024)).unwrap_or(u32::MAX)
}

impl Rations {
    /// Begins with a loss.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            began_at: now,
            lost: true,
            lost_at: now,
            of_session: None,
            of_strangers: None,
            of_network: None,
            least_of_session: u32::MAX,
            // Sources begin with 0.
            window: 1,
            sessions: Sessions::default(),
            strangers: Strangers::default(),
            thinning: Thinning::default(),
            networks: vec![Network::default(); NETWORKS].into_boxed_slice(),
        }
    }

    /// Packets were lost.
    pub(super) const fn note_loss(&mut self, now: Instant) {
        self.lost = true;
        self.lost_at = now;
    }

    /// Whether packets of an address with sessions are worked on.
    pub(super) fn take_of_session(&mut self, source: &mut Source, work: u32) -> bool {
        if source.window != self.window {
            (source.window, source.work) = (self.window, 0);
        }
        let sessions = source.sessions.max(1);
        let before = (source.work > 0).then_some(source.work / sessions);
        source.work = source.work.saturating_add(work);
        self.sessions.count(sessions, before, source.work / sessions, work);
        let taken = self.of_session.is_none_or(|most| before.unwrap_or(0) < most);
        if taken {
            self.sessions.taken = self.sessions.taken.saturating_add(work);
        }
        taken
    }

    /// Whether packets of another address are worked on; `network` is a hash of its network.
    pub(super) fn take_of_stranger(&mut self, network: u64, work: u32) -> bool {
        let network = &mut self.networks[network as usize % NETWORKS];
        if network.window != self.window {
            *network = Network { window: self.window, work: 0 };
        }
        let before = network.work;
        network.work = before.saturating_add(work);
        let strangers = &mut self.strangers;
        strangers.largest = strangers.largest.max(network.work);
        strangers.came = strangers.came.saturating_add(work);
        if self.of_network.is_some_and(|most| before >= most) {
            return false;
        }
        strangers.within_networks = strangers.within_networks.saturating_add(work);
        let taken =
            self.of_strangers.is_none_or(|most| strangers.taken < most && self.thinning.takes(most, work));
        if taken {
            strangers.taken = strangers.taken.saturating_add(work);
        }
        taken
    }

    /// Begins another window once this one is over. `any_established`: whether there are established sessions. Returns whether
    /// the rations go on.
    pub(super) fn go_on(&mut self, now: Instant, any_established: bool) -> bool {
        if now - self.began_at < WINDOW {
            return true;
        }
        if self.is_over(now) {
            return false;
        }
        let (sessions, strangers) =
            (core::mem::take(&mut self.sessions), core::mem::take(&mut self.strangers));
        let came = sessions.came.saturating_add(strangers.came);
        let grow = now - self.lost_at >= HOLD;
        let least =
            (came / STRANGERS_OF_ALL).max(sessions.taken / STRANGERS_FOR_SESSIONS).max(LEAST_OF_STRANGERS);
        let lost = core::mem::take(&mut self.lost);
        let reduce_strangers = lost && any_established && strangers.taken > least;
        let reduce_sessions = lost && !reduce_strangers && sessions.came > came / 2;
        let limit = self.of_strangers.filter(|_| any_established);
        self.of_strangers = steer(limit, reduce_strangers, grow, least, strangers.came);
        self.least_of_session = sessions.least(self.least_of_session);
        self.of_session =
            steer(self.of_session, reduce_sessions, grow, self.least_of_session, sessions.largest);
        let others = strangers.came - strangers.largest.min(strangers.came);
        let most = others.max(came / STRANGERS_OF_ALL).max(LEAST_OF_STRANGERS / 2);
        self.of_network = match self.of_strangers {
            Some(all) => Some(most.min(all / 2)),
            None => Some(most).filter(|_| others > 0 && !grow),
        };
        self.thinning.expected = strangers.within_networks;
        self.began_at = now;
        self.window = self.window.wrapping_add(1);
        !grow || self.of_session.is_some() || self.of_strangers.is_some()
    }

    /// Whether nothing came for so long that they are of no use any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.ends_at()
    }

    /// When they are over, if nothing comes.
    pub(super) fn ends_at(&self) -> Instant {
        self.began_at + HOLD
    }
}

/// What may be worked on in the next window, if as much as `came` came in this one.
fn steer(limit: Option<u32>, reduce: bool, grow: bool, least: u32, came: u32) -> Option<u32> {
    let limit = match (limit, reduce) {
        (limit, true) => Some(limit.unwrap_or(came).min(came) / 4 * 3),
        (Some(limit), false) if grow => {
            Some(limit.saturating_add(limit / 16 + 1)).filter(|limit| *limit < came)
        }
        (limit, false) => limit,
    };
    limit.map(|limit| limit.max(least))
}

impl Thinning {
    /// Whether to work on this, if it is within `most` in a window.
    fn takes(&mut self, most: u32, work: u32) -> bool {
        let expected = u64::from(self.expected);
        self.credit += u64::from(most.min(self.expected)) * u64::from(work);
        let takes = self.credit >= expected;
        if takes {
            self.credit = self.credit.saturating_sub(expected * u64::from(work));
        }
        takes
    }
}

impl Sessions {
    /// Counts `work` of an address, which makes the work of each of its sessions `after` where it was `before`.
    fn count(&mut self, sessions: u32, before: Option<u32>, after: u32, work: u32) {
        self.came = self.came.saturating_add(work);
        self.largest = self.largest.max(after);
        let (size_before, size) = (before.map(bits), bits(after));
        if size_before == Some(size) {
            return;
        }
        if let Some(size) = size_before {
            self.by_size[size] = self.by_size[size].saturating_sub(sessions);
        }
        self.by_size[size] = self.by_size[size].saturating_add(sessions);
    }

    /// Twice what the median session sent, if that is not much more than it was in the windows `before`: sessions that send little do
    /// not send in each.
    fn least(&self, before: u32) -> u32 {
        let all: u64 = self.by_size.iter().map(|count| u64::from(*count)).sum();
        let mut upto = 0;
        let median = self.by_size.iter().position(|count| {
            upto += u64::from(*count);
            upto > 0 && upto * 2 >= all
        });
        let Some(bits) = median else { return before };
        let twice = 2_u32.checked_shl(bits as u32).unwrap_or(u32::MAX).max(LEAST_OF_SESSION);
        twice.min(before.saturating_add(before / 16))
    }
}

/// The bits of a number, of which the highest counts for nothing.
fn bits(number: u32) -> usize {
    (u32::BITS - number.leading_zeros()).min(u32::BITS - 1) as usize
}
