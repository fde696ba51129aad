use super::*;

const RTO: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_millis(500);

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

const fn fin(end: u32) -> Fin {
    Fin { end, no_reader: false }
}

const fn no_reader(end: u32) -> Fin {
    Fin { end, no_reader: true }
}

/// An end that has shut down and sent everything before `end`, but no FIN.
fn ended(end: u32) -> Ends {
    let mut ends = Ends::default();
    ends.shutdown();
    ends.on_all_sent(end);
    ends
}

/// The FIN that is sent at this time.
fn take_fin(ends: &mut Ends, millis: u64) -> Option<Fin> {
    ends.on_timeout(at(millis), false);
    ends.take_fin(at(millis), RTO, MAX_WAIT)
}

#[test]
fn fin_waits_for_the_last_data_and_is_resent_with_growing_waits() {
    let mut ends = Ends::default();
    ends.on_all_sent(7);
    assert_eq!((take_fin(&mut ends, 0), ends.deadline()), (None, None), "not shut down");
    ends.shutdown();
    assert!(ends.is_ending() && !ends.is_write_over());
    assert_eq!((take_fin(&mut ends, 0), ends.deadline()), (None, None), "data is unsent");
    ends.on_all_sent(7);
    let mut now = 5;
    for wait in [100, 200, 300, 400, 500, 500] {
        assert_eq!(take_fin(&mut ends, now), Some(fin(7)));
        assert!(!ends.has_due());
        assert_eq!((take_fin(&mut ends, now + wait - 1), ends.deadline()), (None, Some(at(now + wait))));
        now += wait;
    }
    assert!(ends.on_fin_ack(fin(7)));
    assert!(ends.is_write_over() && !ends.on_fin_ack(fin(7)), "a second answer says nothing new");
    assert_eq!((take_fin(&mut ends, now), ends.deadline()), (None, None));
}

#[test]
fn only_an_answer_to_the_same_fin_counts() {
    for end in [0, 7, u32::MAX] {
        let mut ends = ended(end);
        take_fin(&mut ends, 0);
        assert!(!ends.on_fin_ack(fin(end.wrapping_add(1))) && !ends.is_write_over());
        ends.drop_reader();
        assert!(!ends.on_fin_ack(fin(end)), "the answer to the FIN before");
        assert_eq!(take_fin(&mut ends, 10), Some(no_reader(end)));
        assert!(ends.on_fin_ack(no_reader(end)) && ends.is_write_over());
    }
}

#[test]
fn an_end_before_what_arrived_or_another_one_is_refused() {
    for newest in [0, 7, u32::MAX - 1, 1 << 31] {
        let mut ends = Ends::default();
        assert_eq!(ends.on_fin(fin(newest.wrapping_sub(1)), newest), FinOutcome::Refused);
        assert_eq!(ends.on_fin(fin(newest.wrapping_add(1 << 31)), newest), FinOutcome::Refused);
        assert_eq!((ends.peer_end(), ends.take_answer()), (None, None));
        let end = newest.wrapping_add(3);
        assert_eq!(ends.on_fin(fin(end), newest), FinOutcome::New);
        assert_eq!(ends.take_answer(), Some(fin(end)));
        assert_eq!(ends.on_fin(fin(end.wrapping_add(1)), newest), FinOutcome::Refused);
        assert_eq!((ends.peer_end(), ends.take_answer()), (Some(end), None));
        assert_eq!(ends.on_fin(fin(end), end), FinOutcome::Known, "its answer was lost");
        assert_eq!(ends.take_answer(), Some(fin(end)));
    }
}

#[test]
fn the_stream_ends_when_everything_before_its_end_arrived() {
    let mut ends = Ends::default();
    assert!(!ends.on_arrival(2));
    ends.on_fin(fin(3), 2);
    assert!(!ends.on_arrival(2) && !ends.is_eof());
    assert!(ends.on_arrival(3) && ends.is_eof());
    assert!(!ends.on_arrival(3), "once");
    assert_eq!(ends.on_fin(fin(3), 3), FinOutcome::Known);
    assert!(ends.is_eof());
    assert_eq!(ends.on_fin(fin(4), 3), FinOutcome::Refused);
}

#[test]
fn a_peer_without_reader_is_owed_no_fin() {
    let mut ends = Ends::default();
    ends.on_fin(no_reader(0), 0);
    assert!(ends.has_peer_no_reader() && ends.is_write_over());
    ends.shutdown();
    ends.on_all_sent(9);
    assert_eq!(take_fin(&mut ends, 0), None);
    assert_eq!(ends.take_answer(), Some(no_reader(0)));
    // The FIN that was sent before comes late. Its answer must not be taken for one that knows less.
    assert_eq!(ends.on_fin(fin(0), 0), FinOutcome::Known);
    assert_eq!(ends.take_answer(), Some(no_reader(0)));
}

/// Else it would send on what nobody takes, until it is answered by ABORT.
#[test]
fn a_peer_without_reader_that_still_sends_is_told_that_nobody_reads_here_either() {
    let dropped_before = |acked: bool| {
        let mut ends = ended(4);
        ends.drop_reader();
        take_fin(&mut ends, 0);
        if acked {
            ends.on_fin_ack(no_reader(4));
        }
        ends.on_fin(no_reader(9), 5);
        ends
    };
    let dropped_after = || {
        let mut ends = Ends::default();
        ends.on_fin(no_reader(9), 5);
        assert!(ends.is_write_over());
        ends.drop_reader();
        ends.on_all_sent(4);
        ends
    };
    assert!(dropped_before(true).is_write_over(), "it was told");
    for mut ends in [dropped_before(false), dropped_after()] {
        assert!(!ends.is_write_over());
        assert_eq!(take_fin(&mut ends, 100), Some(no_reader(4)));
        assert!(ends.on_fin_ack(no_reader(4)) && ends.is_write_over());
    }
    for mut ends in [dropped_before(false), dropped_after()] {
        ends.on_arrival(9);
        assert!(ends.is_write_over(), "all has arrived: there is nothing to refuse");
        assert_eq!(take_fin(&mut ends, 100), None);
    }
}

#[test]
fn fin_is_sent_again_when_the_reader_goes_unless_there_is_nothing_to_refuse() {
    for acked in [false, true] {
        let mut ends = ended(4);
        take_fin(&mut ends, 0);
        if acked {
            ends.on_fin_ack(fin(4));
        }
        ends.drop_reader();
        assert!(!ends.is_write_over());
        assert_eq!(take_fin(&mut ends, 50), Some(no_reader(4)));
        assert_eq!(ends.deadline(), Some(at(150)), "the waits begin anew");

        let mut ends = ended(4);
        take_fin(&mut ends, 0);
        ends.on_fin(fin(2), 2);
        ends.on_arrival(2);
        if acked {
            ends.on_fin_ack(fin(4));
        }
        ends.drop_reader();
        assert_eq!(ends.is_write_over(), acked);
        assert_eq!(take_fin(&mut ends, 100), (!acked).then_some(fin(4)));
    }
}

#[test]
fn the_end_of_data_that_nobody_reads_is_not_checked() {
    let mut ends = ended(4);
    ends.drop_reader();
    assert_eq!(ends.on_fin(fin(1_000), 2_000), FinOutcome::New);
    assert_eq!(ends.take_answer(), Some(fin(1_000)));
}

#[test]
fn a_refused_push_brings_the_next_fin_forward_to_an_rto_after_the_last() {
    let mut ends = ended(4);
    ends.drop_reader();
    ends.on_refused(1, RTO);
    assert_eq!(take_fin(&mut ends, 0), Some(no_reader(4)));
    assert!(take_fin(&mut ends, 100).is_some());
    assert_eq!(ends.deadline(), Some(at(300)));
    ends.on_refused(1, RTO);
    assert_eq!(ends.deadline(), Some(at(300)), "it is not news");
    ends.on_refused(2, RTO);
    ends.on_refused(3, RTO);
    assert_eq!(ends.deadline(), Some(at(200)));
}

/// Sends FIN at each deadline; returns when it is given up.
fn given_up(ends: &mut Ends, all_acked: bool, until: u64) -> Option<Instant> {
    let mut now = at(0);
    while now <= at(until) {
        ends.on_timeout(now, all_acked);
        if ends.is_write_over() {
            return Some(now);
        }
        ends.take_fin(now, Duration::from_millis(10), MAX_WAIT);
        now = ends.deadline().unwrap();
    }
    None
}

#[test]
fn a_peer_that_was_done_and_is_silent_needs_no_answer_to_the_last_fin() {
    let with_fin = || {
        let mut ends = ended(4);
        ends.on_fin(fin(9), 5);
        ends
    };
    let mut ends = with_fin();
    // The waits are 10 ms, 20 ms and so on.
    assert_eq!(given_up(&mut ends, true, 10_000), Some(at(31 * 32 / 2 * 10 + 320)));
    assert!(ends.is_write_over());
    assert_eq!(given_up(&mut with_fin(), false, 10_000), None, "data is missing");
    assert_eq!(given_up(&mut ended(4), true, 10_000), None, "the peer was not done");
    let mut ends = with_fin();
    assert_eq!(given_up(&mut ends, true, 4_900), None);
    ends.on_heard();
    assert_eq!(given_up(&mut ends, true, 4_900), None, "it lives");
}

#[test]
fn a_peer_that_was_done_and_cannot_be_reached_needs_no_answer() {
    let mut ends = ended(4);
    ends.on_fin(fin(9), 5);
    assert!(!ends.on_unreachable(true), "nothing was sent");
    take_fin(&mut ends, 0);
    assert!(!ends.on_unreachable(false) && !ends.is_write_over());
    assert!(ends.on_unreachable(true) && ends.is_write_over());
    let mut ends = ended(4);
    take_fin(&mut ends, 0);
    assert!(!ends.on_unreachable(true), "it may come back: it has not said that it is done");
}

#[test]
fn what_a_forged_hello_brought_is_forgotten() {
    let mut ends = ended(4);
    take_fin(&mut ends, 0);
    ends.on_fin(no_reader(9), 5);
    ends.forget_peer();
    assert!(ends.is_ending() && !ends.is_write_over() && !ends.has_peer_no_reader());
    assert_eq!((ends.peer_end(), ends.take_answer(), ends.deadline()), (None, None, None));
}

#[test]
fn an_abort_is_repeated_for_who_goes_on_but_not_more_often_than_once_an_rto() {
    let mut ends = ended(4);
    ends.on_fin(fin(9), 5);
    ends.abort(AbortReason::Application);
    assert!(ends.has_due());
    assert_eq!((ends.take_abort(at(5)), ends.take_answer()), (Some(AbortReason::Application), None));
    assert_eq!((take_fin(&mut ends, 5), ends.deadline(), ends.has_due()), (None, None, false));
    ends.repeat_abort(at(104), RTO);
    assert_eq!(ends.take_abort(at(104)), None);
    ends.repeat_abort(at(105), RTO);
    assert_eq!(ends.take_abort(at(105)), Some(AbortReason::Application));
    let mut ends = Ends::default();
    ends.repeat_abort(at(0), RTO);
    assert_eq!(ends.take_abort(at(0)), None, "it was not aborted");
}
