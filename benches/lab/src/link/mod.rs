//! The links that flows share, and what they do to packets. None of this needs root: the clock and the packets are given.

pub(crate) mod packet;
pub(crate) mod queue;
mod random;
mod service;
pub(crate) mod tally;

pub(crate) use self::service::{Service, Shape};

/// Bytes a second: 100 Mbit/s.
const RATE: f64 = 12.5e6;
/// One way, seconds.
pub(crate) const DELAY: f64 = 0.025;
/// Lengths of queues that are measured, BDP, and shares of packets lost.
pub(crate) const QUEUES: [f64; 3] = [0.25, 1.0, 4.0];
pub(crate) const LOSSES: [f64; 3] = [0.01, 0.05, 0.1];
/// Bytes that a round trip holds at the full rate: 625,000.
const BDP: f64 = RATE * 2.0 * DELAY;

/// One direction of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Direction {
    pub(crate) shape: Shape,
    /// Bytes a second; of a cellular link, the highest.
    pub(crate) rate: f64,
    /// Bytes that may wait.
    pub(crate) queue: u64,
    /// Share of packets that are lost at random.
    pub(crate) loss: f64,
}

impl Direction {
    fn limit(&self) -> Option<u64> {
        (!matches!(self.shape, Shape::Policer { .. })).then_some(self.queue)
    }
}

/// Both directions; the delay is the same on all links.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Link {
    /// As it is part of a scenario's name.
    pub(crate) name: String,
    /// Where the payload goes.
    pub(crate) forward: Direction,
    /// Where acknowledgements go.
    pub(crate) back: Direction,
}

impl Link {
    /// A fixed rate, a queue of so many BDP, and a share of packets lost at random on their way forward.
    pub(crate) fn fixed(queue: f64, loss: f64) -> Self {
        let way = |loss| Direction { shape: Shape::Fixed, rate: RATE, queue: (BDP * queue) as u64, loss };
        let length = if queue == 0.25 { "1/4".to_owned() } else { queue.to_string() };
        let name = if loss > 0.0 {
            format!("loss {} %, {length} BDP", loss * 100.0)
        } else {
            format!("{length} BDP")
        };
        Self { name, forward: way(loss), back: way(0.0) }
    }

    /// The link of this name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let queues = QUEUES.map(|queue| Self::fixed(queue, 0.0));
        let losses = LOSSES.map(|loss| Self::fixed(1.0, loss));
        let all: Vec<_> = queues.into_iter().chain(losses).chain(Self::special()).collect();
        let names: Vec<_> = all.iter().map(|link| link.name.clone()).collect();
        all.into_iter()
            .find(|link| link.name == name)
            .ok_or_else(|| format!("no link is called {name}: there are {}", names.join("; ")))
    }

    /// The links that are no plain wire.
    pub(crate) fn special() -> [Self; 5] {
        let Self { forward, back, .. } = Self::fixed(1.0, 0.0);
        let link = |name: &str, forward, back| Self { name: name.to_owned(), forward, back };
        let shaped = |shape| Direction { shape, ..forward };
        [
            link("cellular", shaped(Shape::Cellular), back),
            link("wifi", shaped(Shape::Wifi), shaped(Shape::Wifi)),
            link("asymmetric", forward, Direction { rate: RATE / 10.0, queue: (BDP / 10.0) as u64, ..back }),
            link("policer", shaped(Shape::Policer { burst: (BDP / 8.0) as u64 }), back),
            link("bufferbloat", Direction { queue: (BDP * 10.0) as u64, ..forward }, back),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_in_bdps() {
        assert_eq!(Link::fixed(1.0, 0.0).forward.queue, 625_000);
        assert_eq!(Link::fixed(0.25, 0.0).forward.queue, 156_250);
    }

    #[test]
    fn links_are_found_by_their_names() {
        for name in ["1/4 BDP", "loss 5 %, 1 BDP", "wifi"] {
            assert_eq!(Link::named(name).unwrap().name, name);
        }
        assert!(Link::named("dsl").unwrap_err().contains("4 BDP; loss 1 %, 1 BDP;"));
    }

    #[test]
    fn names_tell_the_queue_and_the_loss() {
        assert_eq!(Link::fixed(0.25, 0.0).name, "1/4 BDP");
        assert_eq!(Link::fixed(1.0, 0.05).name, "loss 5 %, 1 BDP");
    }
}
