//! What a run is to do, and the settings of its ends.

use std::time::Duration;

use arbitrary::Arbitrary;
use kcp9::{CongestionControl, KcpConfig, NoDelay, fec::AdaptiveFec, proto::noise::Noise};
use kcp9_simulator::LinkSettings;

/// A handshake needs packets of so many bytes.
const MIN_MTU_OF_NOISE: usize = 256;

#[derive(Debug, Arbitrary)]
pub(crate) struct Plan {
    pub(crate) seed: u32,
    /// Which pattern the two agree on keys by, if they do.
    pub(crate) noise: Option<u8>,
    /// Whole messages (`send`, `recv`) rather than bytes (either kind of call).
    pub(crate) messages: bool,
    /// First sn, counted back from the wrap.
    pub(crate) before_wrap: u8,
    /// The link goes dead in the end, rather than sound.
    pub(crate) dead: bool,
    pub(crate) configs: [Settings; 2],
    pub(crate) operations: Vec<Operation>,
}

#[derive(Debug, Arbitrary)]
pub(crate) enum Control {
    BbrLike,
    Bbr3,
    Cubic,
    DelayBased,
    Kcp,
}

#[derive(Debug, Arbitrary)]
pub(crate) struct Settings {
    pub(crate) mtu: u8,
    pub(crate) send_window: u8,
    pub(crate) recv_window: u8,
    pub(crate) nodelay: Knobs,
    pub(crate) control: Control,
    pub(crate) stream: bool,
    pub(crate) ack_no_delay: bool,
    pub(crate) write_delay: bool,
    pub(crate) dead_timeout: u8,
    pub(crate) dead_link: u8,
    pub(crate) linger: u8,
    pub(crate) idle_timeout: u8,
    pub(crate) fec: u8,
    pub(crate) fec_adaptive: bool,
    pub(crate) fec_flush: u8,
}

#[derive(Debug, Arbitrary, Clone, Copy)]
pub(crate) struct Knobs {
    pub(crate) nodelay: bool,
    pub(crate) interval: u8,
    pub(crate) resend: u8,
    pub(crate) nc: bool,
}

#[derive(Debug, Arbitrary)]
pub(crate) struct Operation {
    pub(crate) second: bool,
    pub(crate) action: Action,
}

#[derive(Debug, Arbitrary)]
pub(crate) enum Action {
    Write(u16),
    Send(u16),
    SendDatagram(u16),
    Read(u16),
    Recv,
    RecvDatagrams,
    /// Runs the link and both sessions for this many milliseconds.
    Run(u16),
    /// Runs for longer than a key is used.
    RunPastKeys,
    /// Runs to the next thing that happens.
    Step,
    /// Input without output: an application that is slow to transmit.
    Wait(u8),
    Link {
        loss: u8,
        duplicate: u8,
        delay: u8,
        jitter: u8,
    },
    DropNext(u8),
    Reads(bool),
    Shutdown,
    Windows(u8, u8),
    NoDelay(Knobs),
    Mtu(u8),
    Fec(u8),
    FecAdaptive(bool),
    FecFlush(u8),
    Stream(bool),
    AckNoDelay(bool),
    WriteDelay(bool),
    Flush,
    Trim,
}

impl Settings {
    /// Of an end that agrees on keys, or not.
    pub(crate) fn config(&self, noise: Option<Noise>) -> KcpConfig {
        let seconds = |choice: u8| Duration::from_secs([1, 5, 30, 300][usize::from(choice) % 4]);
        let least = if noise.is_some() { MIN_MTU_OF_NOISE } else { 0 };
        KcpConfig::builder()
            .mtu(mtu(self.mtu).max(least))
            .send_window(window(self.send_window))
            .recv_window(window(self.recv_window))
            .nodelay(self.nodelay.build())
            .congestion_control(match self.control {
                Control::BbrLike => CongestionControl::BbrLike,
                Control::Bbr3 => CongestionControl::Bbr3,
                Control::Cubic => CongestionControl::Cubic,
                Control::DelayBased => CongestionControl::DelayBased,
                Control::Kcp => CongestionControl::Kcp,
            })
            .stream(self.stream)
            .ack_no_delay(self.ack_no_delay)
            .write_delay(self.write_delay)
            .dead_timeout(seconds(self.dead_timeout))
            .dead_link(if self.dead_link < 192 { 0 } else { u32::from(self.dead_link) - 190 })
            .linger(seconds(self.linger))
            .idle_timeout((self.idle_timeout >= 192).then(|| seconds(self.idle_timeout)))
            .fec(fec(self.fec).0, fec(self.fec).1)
            .datagram_queue(if self.fec < 128 { 20_000 } else { 0 })
            .fec_adaptive(self.fec_adaptive.then(AdaptiveFec::default))
            .fec_flush(fec_flush(self.fec_flush))
            .noise(noise)
            .build()
            .expect("settings in range")
    }
}

/// Data and parity shards: none as often as some.
pub(crate) fn fec(choice: u8) -> (usize, usize) {
    [(0, 0), (10, 3), (0, 0), (1, 1), (0, 0), (3, 2), (0, 0), (2, 5)][usize::from(choice) % 8]
}

/// No copies as often as some.
pub(crate) fn fec_flush(choice: u8) -> Option<Duration> {
    (choice >= 128).then(|| Duration::from_millis(u64::from(choice) - 127))
}

impl Knobs {
    pub(crate) fn build(self) -> NoDelay {
        NoDelay {
            nodelay: self.nodelay,
            interval: Duration::from_millis(1 + u64::from(self.interval) % 120),
            resend: u32::from(self.resend) % 5,
            nc: self.nc,
        }
    }
}

/// From the smallest there is past a jumbo frame.
pub(crate) fn mtu(choice: u8) -> usize {
    match choice {
        0..128 => 64 + usize::from(choice),
        128..192 => 1_400,
        192..240 => 1_500,
        _ => 9_000,
    }
}

pub(crate) fn window(choice: u8) -> u32 {
    match choice {
        0..64 => 1 + u32::from(choice) % 8,
        64..160 => 32,
        _ => u32::from(choice) * 4,
    }
}

/// Of 256 packets, `choice` and one more, if it is not 0.
pub(crate) fn probability(choice: u8) -> f64 {
    if choice == 0 { 0.0 } else { (f64::from(choice) + 1.0) / 256.0 }
}

/// What becomes of packets. Each is late by a time of its own, so the later one often overtakes.
pub(crate) fn path(loss: u8, duplicate: u8, delay: u8, jitter: u8) -> LinkSettings {
    LinkSettings {
        loss: probability(loss),
        duplicate: probability(duplicate),
        delay: Duration::from_millis(delay.into()),
        reorder: if jitter == 0 { 0.0 } else { 1.0 },
        reorder_delay: Duration::from_millis(jitter.into()),
        ..LinkSettings::default()
    }
}

pub(crate) fn sound_path() -> LinkSettings {
    path(0, 0, 10, 0)
}
