//! The bottleneck: two network namespaces, each with a TUN device, joined by the shaper.

mod namespace;
mod shaper;

use std::{
    ffi::OsStr,
    io,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use self::{
    namespace::Namespace,
    shaper::{Shaper, Shared},
};
pub(crate) use self::{
    namespace::Side,
    shaper::{Lateness, Shaped},
};
use crate::link::{Link, packet::Way};

/// What it did.
pub(crate) struct Outcome {
    pub(crate) forward: Shaped,
    pub(crate) back: Shaped,
    /// Packets that the devices dropped because the shaper was too slow to read them.
    pub(crate) device_drops: u64,
}

/// Gone when it is dropped, with its namespaces.
pub(crate) struct Bottleneck {
    shared: Shared,
    shapers: Option<(Shaper, Shaper)>,
    left: Namespace,
    right: Namespace,
}

impl Bottleneck {
    pub(crate) fn create(link: &Link, flows: usize, seed: u64) -> io::Result<Self> {
        let (left, left_device) = Namespace::create(Side::Left)?;
        let (right, right_device) = Namespace::create(Side::Right)?;
        let shared = Shared::default();
        let (left_device, right_device) = (Arc::new(left_device), Arc::new(right_device));
        let there = (left_device.clone(), right_device.clone());
        let forward = Shaper::start(&link.forward, Way::Forward, flows, seed, there, &shared);
        let back = Shaper::start(&link.back, Way::Back, flows, !seed, (right_device, left_device), &shared);
        Ok(Self { shared, shapers: Some((forward, back)), left, right })
    }

    /// What runs a program at one end.
    pub(crate) fn command(&self, side: Side, program: &OsStr) -> tokio::process::Command {
        match side {
            Side::Left => self.left.command(program),
            Side::Right => self.right.command(program),
        }
    }

    /// Packets pass from now on, and times are counted from `begin`.
    pub(crate) fn begin(&self, begin: Instant) {
        self.shared.begin.get_or_init(|| begin);
    }

    pub(crate) fn finish(mut self) -> io::Result<Outcome> {
        // The devices go away with the threads that hold them.
        let device_drops = self.left.device_drops()? + self.right.device_drops()?;
        self.shared.stop.store(true, Ordering::Relaxed);
        let (forward, back) = self.shapers.take().ok_or_else(|| io::Error::other("there is no shaper"))?;
        let (forward, back) = (forward.finish()?, back.finish()?);
        Ok(Outcome { forward, back, device_drops })
    }
}

impl Drop for Bottleneck {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some((forward, back)) = self.shapers.take() {
            // What they did is of no interest any more.
            let _ = (forward.finish(), back.finish());
        }
    }
}
