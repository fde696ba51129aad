//! Paths and peers of all kinds.

use super::*;

const RTO: Duration = Duration::from_millis(200);

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A sender whose segments are packets, and what becomes of them.
struct Sender {
    ecn: EcnValidation,
    now: u64,
    nxt: u32,
    una: u32,
    unanswered: u32,
    counts: EcnCounts,
}

impl Sender {
    /// Nothing has been sent yet.
    fn new() -> Self {
        let mut ecn = EcnValidation::default();
        ecn.enable(at(0));
        ecn.unmarked = UNMARKED_PACKETS;
        Self { ecn, now: 0, nxt: 0, una: 0, unanswered: 0, counts: EcnCounts::default() }
    }

    /// The path carries the marks, and that is known. All that was sent is reported.
    fn capable() -> Self {
        let mut sender = Self::new();
        let sent = sender.send(10);
        sender.report(sent, 0);
        assert_eq!(sender.ecn.state(), EcnState::Capable);
        sender
    }

    /// Sends `packets`, and returns how many of them went with ECT.
    fn send(&mut self, packets: u32) -> u32 {
        self.now += 10;
        self.nxt += packets;
        let progress = Progress { una: self.una, nxt: self.nxt, rto: RTO, unanswered: self.unanswered };
        match self.ecn.on_send(at(self.now), packets.into(), &progress) {
            EcnCodepoint::NotEct => 0,
            codepoint => {
                assert_eq!(codepoint, EcnCodepoint::Ect0);
                packets
            }
        }
    }

    /// The peer acknowledges everything.
    fn ack(&mut self) {
        self.una = self.nxt;
    }

    /// The peer acknowledges everything, and reports so many more packets. Returns the marks that this tells.
    fn report(&mut self, ect0: u32, ce: u32) -> u32 {
        self.ack();
        self.counts.ect0 = self.counts.ect0.wrapping_add(ect0);
        self.counts.ce = self.counts.ce.wrapping_add(ce);
        self.say(self.now, self.counts)
    }

    fn say(&mut self, ts: u64, counts: EcnCounts) -> u32 {
        self.now += 10;
        self.ecn.on_report(at(self.now), &Report { ts: ts as u32, una: self.una, counts })
    }

    fn state(&self) -> EcnState {
        self.ecn.state()
    }
}

/// Sessions of a few packets do not pay for it.
#[test]
fn the_first_packets_go_without() {
    let mut sender = Sender::new();
    sender.ecn.unmarked = 0;
    for _ in 0..UNMARKED_PACKETS / 4 {
        assert_eq!(sender.send(4), 0);
    }
    assert_eq!((sender.send(4), sender.state()), (4, EcnState::Testing));
}

#[test]
fn nothing_is_sent_with_ect_before_the_peer_takes_part() {
    let mut sender = Sender { ecn: EcnValidation::default(), ..Sender::new() };
    assert_eq!((sender.send(5), sender.report(5, 1)), (0, 0));
    assert_eq!(sender.state(), EcnState::Off);
    sender.ecn.begin_anew(at(10));
    assert_eq!((sender.send(5), sender.state()), (0, EcnState::Off));
}

#[test]
fn ten_packets_test_the_path() {
    let mut sender = Sender::new();
    assert_eq!([sender.send(4), sender.send(5), sender.send(20), sender.send(1)], [4, 5, 20, 0]);
    assert_eq!(sender.report(2, 0), 0);
    assert_eq!(sender.state(), EcnState::Failed, "two of ten");
    let mut sender = Sender::new();
    sender.send(10);
    // Those that came so far are enough, though not all are acknowledged.
    sender.una = 2;
    sender.say(0, EcnCounts { ect0: 3, ..EcnCounts::default() });
    assert_eq!((sender.state(), sender.send(50)), (EcnState::Capable, 50));
}

#[test]
fn a_mark_in_the_test_is_one() {
    let mut sender = Sender::new();
    sender.send(10);
    assert_eq!(sender.report(7, 3), 3);
    assert_eq!(sender.state(), EcnState::Capable);
}

/// One more run a second, and the end after three seconds and three RTOs.
#[test]
fn a_path_that_clears_the_marks_gets_no_more() {
    let mut sender = Sender::new();
    let mut sent = 0;
    while sender.state() == EcnState::Testing {
        sent += sender.send(1);
        sender.ack();
        assert!(sender.now < 10_000);
    }
    // The first of the ten was found acknowledged with the second.
    assert!((3_600..3_700).contains(&sender.now), "{} ms", sender.now);
    assert_eq!(sent, 10 + 3);
    assert_eq!(sender.send(1_000), 0);
    // On another path all begins anew.
    sender.ecn.begin_anew(at(sender.now));
    assert_eq!(sender.send(10), 10);
    sender.report(10, 0);
    assert_eq!(sender.state(), EcnState::Capable);
}

/// Nor later, when the path changes unnoticed.
#[test]
fn a_path_that_begins_to_clear_the_marks_is_found_out() {
    let mut sender = Sender::capable();
    let mut sent = 0;
    while sender.state() == EcnState::Capable {
        sent += sender.send(10);
        sender.ack();
        assert!(sender.now < 10_000);
    }
    assert!(sent > 3_000 && sender.now > 3_600, "{sent} in {} ms", sender.now);
    // Where reports come, it takes one check.
    let mut sender = Sender::capable();
    sender.send(64);
    sender.report(31, 0);
    assert_eq!(sender.state(), EcnState::Failed);
}

#[test]
fn losses_do_not_end_it() {
    let mut sender = Sender::capable();
    for round in 0..1_000 {
        assert_eq!(sender.send(100), 100, "round {round}");
        // 40 % are lost.
        sender.report(60, 0);
    }
    assert_eq!(sender.state(), EcnState::Capable);
}

#[test]
fn packets_go_without_ect_while_nothing_is_answered() {
    let mut sender = Sender::capable();
    sender.unanswered = 2;
    assert_eq!(sender.send(3), 3);
    sender.unanswered = 3;
    assert_eq!(sender.send(3), 0);
    sender.unanswered = 1;
    assert_eq!((sender.send(3), sender.state()), (3, EcnState::Capable));
}

#[test]
fn reports_that_were_overtaken_tell_nothing() {
    let mut sender = Sender::capable();
    sender.send(60);
    assert_eq!(sender.report(20, 5), 5);
    let (last, counts) = (sender.now - 10, sender.counts);
    let less = EcnCounts { ce: counts.ce - 3, ect0: counts.ect0 - 9, ..counts };
    for ts in [last, last - 1, 0] {
        assert_eq!((sender.say(ts, less), sender.state()), (0, EcnState::Capable));
    }
    // The same time with more is later.
    assert_eq!(sender.say(last, EcnCounts { ce: counts.ce + 1, ..counts }), 1);
    assert_eq!(sender.say(last, EcnCounts { ce: counts.ce + 1, ..counts }), 0, "a copy");
}

#[test]
fn counts_that_cannot_be_end_it() {
    type Lie = fn(EcnCounts) -> EcnCounts;
    let lies: [(&str, Lie); 5] = [
        ("fewer ECT(0)", |counts| EcnCounts { ect0: counts.ect0 - 1, ..counts }),
        ("fewer CE", |counts| EcnCounts { ce: counts.ce - 1, ..counts }),
        ("ECT(1)", |counts| EcnCounts { ect1: 1, ..counts }),
        ("too many", |counts| EcnCounts { ect0: counts.ect0 + 200, ..counts }),
        ("too many CE", |counts| EcnCounts { ce: counts.ce + 200, ..counts }),
    ];
    for (what, lie) in lies {
        let mut sender = Sender::capable();
        sender.send(50);
        assert_eq!(sender.report(30, 2), 2);
        let counts = lie(sender.counts);
        assert_eq!((sender.say(sender.now, counts), sender.state()), (0, EcnState::Failed), "{what}");
        assert_eq!(sender.send(10), 0, "{what}");
        assert_eq!(sender.say(sender.now, counts), 0, "{what}");
    }
}

/// A path that duplicates, where no cipher tells copies.
#[test]
fn every_packet_may_arrive_twice() {
    let mut sender = Sender::capable();
    for _ in 0..100 {
        sender.send(20);
        assert_eq!(sender.report(38, 2), 2);
    }
    assert_eq!(sender.state(), EcnState::Capable);
}

#[test]
fn counts_and_numbers_wrap_around() {
    let mut sender = Sender { nxt: u32::MAX - 100, una: u32::MAX - 100, ..Sender::new() };
    sender.ecn.reported.ect0 = u32::MAX - 50;
    sender.counts.ect0 = u32::MAX - 50;
    for _ in 0..20 {
        sender.now += 10;
        sender.nxt = sender.nxt.wrapping_add(10);
        let progress = Progress { una: sender.una, nxt: sender.nxt, rto: RTO, unanswered: 1 };
        assert_eq!(sender.ecn.on_send(at(sender.now), 10, &progress), EcnCodepoint::Ect0);
        sender.report(9, 1);
    }
    assert_eq!(sender.state(), EcnState::Capable);
    // The clock of the peer, too.
    let mut sender = Sender::capable();
    sender.send(10);
    sender.now += 1 << 31;
    assert_eq!(sender.report(5, 5), 5);
    assert_eq!(sender.state(), EcnState::Capable);
}
