//! The congestion window, by KCP's own rules.
//!
//! KCP's own control is a Reno: slow start to `ssthresh`, then additive growth; half of what is in flight after a fast
//! resend, one segment after a timeout. It grows by what an ACK newly confirms rather than by the number of packets
//! that carry ACKs, so that a receiver may batch them.

/// Least value of `ssthresh`, in segments.
const MIN_SSTHRESH: u32 = 2;
/// Window of a new session: RFC 6928's.
const INITIAL_WINDOW: u32 = 10;
/// Unit of the fraction of a segment that the window has earned.
const ONE: u32 = 1 << 16;

/// KCP's own congestion control, in segments.
#[derive(Debug)]
pub(super) struct Reno {
    window: u32,
    ssthresh: u32,
    /// Fraction of a segment earned towards the next, in [`ONE`]ths.
    credit: u32,
}

impl Reno {
    pub(super) const fn new() -> Self {
        Self { window: INITIAL_WINDOW, ssthresh: u32::MAX, credit: 0 }
    }

    /// Segments that may be in flight.
    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    /// `confirmed` segments were newly acknowledged. The window does not outgrow `limit`, the smaller of the two
    /// peers' windows.
    pub(super) fn on_ack(&mut self, confirmed: u32, limit: u32) {
        for _ in 0..confirmed {
            if self.window >= limit {
                break;
            }
            // Past ssthresh, a window's worth of ACKs earns one segment and a sixteenth of the window, as in ikcp.
            self.credit += if self.window < self.ssthresh { ONE } else { ONE / self.window + ONE / 16 };
            self.window += self.credit / ONE;
            self.credit %= ONE;
        }
    }

    /// Segments were resent because later ones were acknowledged.
    pub(super) fn on_fast_resend(&mut self, in_flight: u32, resend: u32) {
        self.ssthresh = (in_flight / 2).max(MIN_SSTHRESH);
        self.window = self.ssthresh.saturating_add(resend);
        self.credit = 0;
    }

    /// Segments were resent because their RTO passed, with `window` segments allowed in flight.
    pub(super) fn on_timeout(&mut self, window: u32) {
        self.ssthresh = (window / 2).max(MIN_SSTHRESH);
        self.window = 1;
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let mut reno = Reno::new();
        reno.on_ack(6, 128);
        assert_eq!(reno.window(), 16);
        reno.on_fast_resend(16, 2);
        assert_eq!((reno.ssthresh, reno.window()), (8, 10));
        // Ten ACKs of 1/10 + 1/16 each (rounded down) earn one segment.
        reno.on_ack(6, 128);
        assert_eq!(reno.window(), 10);
        reno.on_ack(1, 128);
        assert_eq!(reno.window(), 11);
        reno.on_timeout(11);
        assert_eq!((reno.ssthresh, reno.window()), (5, 1));
        reno.on_ack(1_000_000, 32);
        assert_eq!(reno.window(), 32);
    }
}
