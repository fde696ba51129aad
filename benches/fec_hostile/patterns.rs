//! Packets that cost a receiver of FEC more than others: each of a pattern is made from its number alone.

use kcp9::fec::ReedSolomon;

pub(crate) const CONV: u32 = 7;
/// Bytes of a long shard.
pub(crate) const LONG: usize = 1_400;
/// Bytes of the shortest shard that names its conversation.
pub(crate) const SHORT: usize = 6;

/// What the number of a packet makes of it.
pub(crate) struct Shape {
    seqid: u32,
    is_data: bool,
    len: usize,
}

type Make = Box<dyn FnMut(u32) -> Shape>;

/// A pattern of packets without end.
pub(crate) struct Pattern {
    pub(crate) name: &'static str,
    /// Packets before the pattern begins: by them the receiver learns the shards.
    pub(crate) lead: u32,
    make: Make,
    count: u32,
    /// The bytes of shards behind the conv, by whether they are data and their place in the group.
    shards: Vec<Vec<u8>>,
    packet: Vec<u8>,
}

impl Pattern {
    fn new(name: &'static str, lead: u32, make: impl FnMut(u32) -> Shape + 'static) -> Self {
        let packet = (0..70_000).map(|at: usize| (at * 13) as u8).collect();
        Self { name, lead, make: Box::new(make), count: 0, shards: Vec::new(), packet }
    }

    /// The next packet.
    pub(crate) fn next(&mut self) -> &[u8] {
        let Shape { seqid, is_data, len } = (self.make)(self.count);
        self.count = self.count.wrapping_add(1);
        let packet = &mut self.packet[..6 + len];
        packet[..4].copy_from_slice(&seqid.to_le_bytes());
        packet[4..6].copy_from_slice(&if is_data { [0xf1, 0] } else { [0xf2, 0] });
        if self.shards.is_empty() {
            packet[6..8].copy_from_slice(&(len as u16).to_le_bytes());
            packet[8..12].copy_from_slice(&CONV.to_le_bytes());
        } else {
            let shard = &self.shards[seqid as usize % self.shards.len()];
            packet[6..].fill(0);
            packet[6..6 + shard.len()].copy_from_slice(shard);
        }
        packet
    }
}

/// A packet where it belongs in groups of `data` and `parity`.
fn honest(data: u32, parity: u32, seqid: u32, len: usize) -> Shape {
    Shape { seqid, is_data: seqid % (data + parity) < data, len }
}

/// Groups of `data` and `parity` without losses, until they are known; then what `then` makes of later ones, from 0 on. The seqid
/// that it gets is the first one free.
fn known(
    name: &'static str,
    (data, parity): (u32, u32),
    mut then: impl FnMut(u32, u32) -> Shape + 'static,
) -> Pattern {
    let lead = 6 * (data + parity);
    Pattern::new(
        name,
        lead,
        move |n| {
            if n < lead { honest(data, parity, n, LONG) } else { then(n - lead, lead) }
        },
    )
}

/// Only the parity of each group comes, as much as is needed. Begins with other packets each time.
fn parity_only(name: &'static str, (data, parity): (u32, u32), len: usize) -> Pattern {
    let needed = data.min(parity);
    known(name, (data, parity), move |n, first| {
        let (group, at) = (n / data, n % data);
        let begin = group % (parity - needed + 1);
        // Where there is less parity than data, the rest of the group is data.
        let index = if at < needed { data + begin + at } else { at - needed };
        honest(data, parity, first + group * (data + parity) + index, len)
    })
}

/// Valid packets of 26 bytes, that only parity brings: as long as the group's longest packet, and mostly padding.
fn padded() -> Pattern {
    let (data, parity) = (16, 16);
    let code = ReedSolomon::new(data as usize, parity as usize).expect("a code");
    let mut shards: Vec<Vec<u8>> = (0..data)
        .map(|sn| {
            let len = if sn == 0 { LONG - 26 } else { 0 };
            let fields = [CONV, 81, 0, sn, 0, len as u32];
            let header: Vec<u8> = fields.iter().flat_map(|field: &u32| field.to_le_bytes()).collect();
            let size = ((2 + header.len() + len) as u16).to_le_bytes();
            [&size[..], &header, &vec![9; len]].concat()
        })
        .collect();
    let mut rows = vec![vec![0; LONG]; parity as usize];
    code.encode(&shards, &mut rows).expect("parity");
    shards.extend(rows);
    let mut pattern = parity_only("complete: parity only, valid and padded, 16/16", (data, parity), LONG);
    pattern.shards = shards;
    pattern
}

/// All patterns, the honest ones first.
pub(crate) fn all() -> Vec<Pattern> {
    let search = |name, make: fn(u32) -> Shape| Pattern::new(name, 0, make);
    vec![
        known("honest: 10/3", (10, 3), |n, first| honest(10, 3, first + n, LONG)),
        known("honest: 10/3, three of 13 lost", (10, 3), |n, first| {
            let (group, at) = (n / 10, n % 10);
            // Which three is another choice each time, as far as three of a row go.
            let index = if at < group % 11 { at } else { at + 3 };
            honest(10, 3, first + group * 13 + index, LONG)
        }),
        search("search: one number, data", |_| Shape { seqid: 70_000, is_data: true, len: LONG }),
        search("search: one number, data, short", |_| Shape { seqid: 70_000, is_data: true, len: SHORT }),
        search("search: data and parity by turns", |n| Shape { seqid: 9, is_data: n % 2 == 0, len: LONG }),
        search("search: the same, short", |n| Shape { seqid: 9, is_data: n % 2 == 0, len: SHORT }),
        search("search: numbers jump", |n| Shape { seqid: n.wrapping_mul(5_000), is_data: true, len: LONG }),
        search("search: the same, short", |n| Shape {
            seqid: n.wrapping_mul(5_000),
            is_data: true,
            len: SHORT,
        }),
        search("search: other shards each 40 packets", |n| {
            let data = 1 + n / 40 % 7;
            honest(data, 1, n, LONG)
        }),
        search("search: other shards each 1,000 packets", |n| {
            let data = 255 - n / 1_000 % 8;
            honest(data, 256 - data, n, SHORT)
        }),
        search("search: other shards each 1,000 packets, half parity", |n| {
            let data = 128 - n / 1_000 % 8;
            honest(data, 256 - data, n, SHORT)
        }),
        known("known: a packet of each group, 200/55", (200, 55), |n, first| {
            honest(200, 55, first + n * 255, LONG)
        }),
        known("known: the same, short", (200, 55), |n, first| honest(200, 55, first + n * 255, SHORT)),
        known("known: a packet of each group, 2/1", (2, 1), |n, first| honest(2, 1, first + n * 3, SHORT)),
        known("known: every other group first, 2/1", (2, 1), |n, first| {
            honest(2, 1, first + (n ^ 63) * 3, SHORT)
        }),
        known("known: duplicates, 10/3", (10, 3), |_, first| honest(10, 3, first, LONG)),
        known("known: numbers of old groups, 10/3", (10, 3), |n, first| honest(10, 3, first - n % 13, LONG)),
        known("known: lengths that differ, 200/55", (200, 55), |n, first| {
            honest(200, 55, first + n % 200 + n / 200 * 255, if n % 2 == 0 { SHORT } else { LONG })
        }),
        known("known: much longer ones, 60,000 bytes, 200/55", (200, 55), |n, first| {
            honest(200, 55, first + n * 255, if n % 8 == 0 { 60_000 } else { SHORT })
        }),
        parity_only("complete: parity only, 3/3", (3, 3), LONG),
        parity_only("complete: parity first, 10/3", (10, 3), LONG),
        parity_only("complete: parity only, 16/16", (16, 16), LONG),
        parity_only("complete: parity only, short, 16/16", (16, 16), SHORT),
        parity_only("complete: parity first, 30/15", (30, 15), LONG),
        parity_only("complete: parity only, 64/64", (64, 64), LONG),
        parity_only("complete: parity only, 128/128", (128, 128), LONG),
        parity_only("complete: parity only, others each time, 120/136", (120, 136), LONG),
        parity_only("complete: the same, short", (120, 136), SHORT),
        parity_only("complete: parity first, 192/64", (192, 64), LONG),
        parity_only("complete: each packet, 1/255", (1, 255), LONG),
        padded(),
    ]
}
