//! The deadlines of a driver's sessions: a heap with one entry for each session that has a deadline. A deadline can be moved.

use std::vec::Vec;

use crate::proto::Instant;

const ABSENT: u32 = u32::MAX;

/// A four-way heap of deadlines and keys. Keys are small numbers, as [`Handle::index`](crate::proto::Handle::index) is.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Vec<(Instant, u32)>,
    /// By key: where in the heap it is, or [`ABSENT`].
    position: Vec<u32>,
}

const ARITY: usize = 4;

impl Timers {
    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.first().map(|(at, _)| *at)
    }

    /// The deadline of `key`.
    #[cfg(test)]
    fn get(&self, key: u32) -> Option<Instant> {
        let position = *self.position.get(key as usize)?;
        self.heap.get(position as usize).map(|(at, _)| *at)
    }

    /// Gives `key` a deadline, or moves the one that it has.
    pub(super) fn set(&mut self, key: u32, at: Instant) {
        let index = key as usize;
        if self.position.len() <= index {
            self.position.resize(index + 1, ABSENT);
        }
        match self.position[index] {
            ABSENT => {
                self.heap.push((at, key));
                self.sift_up(self.heap.len() - 1);
            }
            position => {
                let position = position as usize;
                let before = self.heap[position].0;
                self.heap[position].0 = at;
                if at < before {
                    self.sift_up(position);
                } else {
                    self.sift_down(position);
                }
            }
        }
    }

    /// Removes the deadline of `key`, if it has one.
    pub(super) fn remove(&mut self, key: u32) {
        let Some(position) = self.position.get(key as usize).copied().filter(|at| *at != ABSENT) else {
            return;
        };
        let position = position as usize;
        self.position[key as usize] = ABSENT;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.sift_up(position);
            self.sift_down(position);
        }
    }

    /// Removes a key whose deadline has come, and returns it.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<u32> {
        let (at, key) = *self.heap.first()?;
        (at <= now).then(|| {
            self.remove(key);
            key
        })
    }

    fn place(&mut self, position: usize) {
        let (_, key) = self.heap[position];
        self.position[key as usize] = position as u32;
    }

    fn sift_up(&mut self, mut position: usize) {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.heap[parent] <= self.heap[position] {
                break;
            }
            self.heap.swap(parent, position);
            self.place(position);
            position = parent;
        }
        self.place(position);
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let first = position * ARITY + 1;
            let children = first..(first + ARITY).min(self.heap.len());
            match children.min_by_key(|child| self.heap[*child]) {
                Some(child) if self.heap[child] < self.heap[position] => {
                    self.heap.swap(child, position);
                    self.place(position);
                    position = child;
                }
                _ => break,
            }
        }
        self.place(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn deadlines_come_in_the_same_order_as_from_a_sorted_map() {
        let mut timers = Timers::default();
        let mut oracle = BTreeMap::new();
        let mut random = 1_u64;
        for step in 0..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = (random >> 33) as u32 % 64;
            let at = Instant::from_micros(step + (random >> 40) % 500);
            match random % 8 {
                0 => {
                    timers.remove(key);
                    oracle.remove(&key);
                }
                1 => {
                    let now = Instant::from_micros(step);
                    while let Some(key) = timers.pop_expired(now) {
                        let at: Instant = oracle.remove(&key).unwrap();
                        assert!(at <= now);
                    }
                    assert!(oracle.values().all(|at| *at > now));
                }
                _ => {
                    timers.set(key, at);
                    oracle.insert(key, at);
                }
            }
            assert_eq!(timers.next(), oracle.values().min().copied(), "step {step}");
            assert_eq!(timers.get(key), oracle.get(&key).copied(), "step {step}");
        }
    }
}
