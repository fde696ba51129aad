//! Congestion control over simulated paths, for each controller that a rule is meant for.

mod bars;
mod delay;
mod ecn;
mod idle;
mod links;
mod lossy;
mod own;
mod pacing;
mod path_change;
mod sharing;
mod short_path;
mod startup;

use std::time::Duration;

use kcp9::{CongestionControl, KcpConfig, NoDelay};

use kcp9_simulator::{CLIENT, Simulation};

const SECOND: Duration = Duration::from_secs(1);

/// The default settings with each controller of the library, and its name.
fn controllers() -> [(&'static str, KcpConfig); 5] {
    [
        CongestionControl::BbrLike,
        CongestionControl::Bbr3,
        CongestionControl::Cubic,
        CongestionControl::DelayBased,
        CongestionControl::Kcp,
    ]
    .map(|control| (control.name(), with(control)))
}

/// The default settings with a controller.
fn with(control: CongestionControl) -> KcpConfig {
    KcpConfig::builder().congestion_control(control).build().unwrap()
}

/// KCP's own congestion control.
fn kcp() -> KcpConfig {
    with(CongestionControl::Kcp)
}

/// No controller: only the windows, of 2,048 segments, limit what is in flight.
fn none() -> KcpConfig {
    KcpConfig::builder().nodelay(NoDelay::FAST3).build().unwrap()
}

/// Bytes a second that the server reads over `time`.
fn rate(simulation: &mut Simulation, time: Duration) -> f64 {
    let before = simulation.flows[CLIENT].read;
    simulation.run_for(time);
    (simulation.flows[CLIENT].read - before) as f64 / time.as_secs_f64()
}
