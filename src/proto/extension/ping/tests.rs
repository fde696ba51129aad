//! Questions, their answers, and RESETs.

use super::{super::seed::tests::seed, *};

const RTO: Duration = Duration::from_millis(300);

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ping() -> Ping {
    Ping::new()
}

/// The token of the PING that is due.
fn take_due(ping: &mut Ping, now: Instant) -> Option<Token> {
    ping.take_due(now, now.as_ts(), seed(7).secret)
}

/// Sends a PING, and returns its token.
fn asked(ping: &mut Ping, now: Instant) -> Token {
    ping.ask();
    assert!(ping.has_urgent());
    let token = take_due(ping, now).unwrap();
    assert_eq!(take_due(ping, now), None, "one for each question");
    token
}

#[test]
fn tokens_differ_by_number_and_by_key() {
    let mut tokens = alloc::collections::BTreeSet::new();
    for key in 0..8 {
        let (mut ping, secret) = (ping(), seed(key).secret);
        for second in 0..100 {
            ping.ask();
            assert!(tokens.insert(ping.take_due(at(second), 0, secret).unwrap()), "a token twice");
            ping.probe_mtu(1_400);
            assert!(tokens.insert(ping.take_mtu_probe(secret).unwrap().1), "a token twice");
        }
    }
}

#[test]
fn a_pong_counts_once_and_only_with_its_token() {
    let mut ping = ping();
    let token = asked(&mut ping, at(1_000));
    assert_eq!(ping.on_pong(at(1_050), token ^ 1), None);
    assert_eq!(ping.on_pong(at(1_070), token), Some(Some(ms(70))));
    assert_eq!(ping.on_pong(at(1_071), token), None, "doubled");
    let late = asked(&mut ping, at(2_000));
    assert_eq!(ping.on_pong(at(62_000), late), Some(None), "an answer, but no sample");
}

#[test]
fn the_last_four_questions_are_outstanding() {
    let mut ping = ping();
    let tokens: alloc::vec::Vec<_> = (0..6).map(|second| asked(&mut ping, at(second * 1_000))).collect();
    for (number, token) in tokens.iter().enumerate() {
        assert_eq!(ping.on_pong(at(6_000), *token).is_some(), number >= 2, "PING {number}");
    }
}

#[test]
fn a_question_may_have_to_wait_for_the_one_before() {
    let mut ping = ping();
    ping.ask_unless_asked(at(0), ms(1_000));
    take_due(&mut ping, at(0)).unwrap();
    ping.ask_unless_asked(at(999), ms(1_000));
    assert!(!ping.has_urgent());
    ping.ask_unless_asked(at(1_000), ms(1_000));
    assert!(ping.has_urgent());
}

#[test]
fn two_resets_and_silence_end_the_session() {
    let mut ping = ping();
    let first = asked(&mut ping, at(20_000));
    assert!(ping.on_reset(at(20_100), first, 20_000, RTO));
    assert_eq!(ping.deadline(), None);
    // The second question follows at once.
    let second = take_due(&mut ping, at(20_100)).unwrap();
    assert!(ping.on_reset(at(20_200), second, 20_100, RTO));
    assert_eq!(ping.deadline(), Some(at(20_400)));
    assert!(!ping.is_reset(at(20_399)));
    assert!(ping.is_reset(at(20_400)));
}

#[test]
fn resets_count_once_and_only_with_token_and_ts() {
    let mut ping = ping();
    let token = asked(&mut ping, at(500));
    assert!(!ping.on_reset(at(600), token, 501, RTO));
    assert!(!ping.on_reset(at(600), token ^ 1, 500, RTO));
    assert!(!ping.has_urgent());
    assert!(ping.on_reset(at(600), token, 500, RTO));
    assert!(!ping.on_reset(at(601), token, 500, RTO), "doubled");
    assert_eq!(ping.on_pong(at(700), token), None, "answered already");
}

/// Two PINGs were under way before the first RESET came: both may have been carried elsewhere in the same way.
#[test]
fn the_second_question_is_asked_after_the_first_reset() {
    let mut ping = ping();
    let one = asked(&mut ping, at(0));
    let other = asked(&mut ping, at(300));
    assert!(ping.on_reset(at(400), one, 0, RTO));
    assert!(ping.on_reset(at(401), other, 300, RTO));
    assert_eq!(ping.deadline(), None);
    let second = take_due(&mut ping, at(401)).unwrap();
    assert!(ping.on_reset(at(500), second, 401, RTO));
    assert_eq!(ping.deadline(), Some(at(701)));
}

/// A server that shares the key sits next door and answers in 10 ms, the true one answers in 250 ms.
#[test]
fn resets_of_a_nearer_server_do_not_end_a_session_whose_peer_lives() {
    let mut ping = ping();
    let first = asked(&mut ping, at(0));
    assert!(ping.on_reset(at(10), first, 0, RTO));
    let second = take_due(&mut ping, at(10)).unwrap();
    assert!(ping.on_reset(at(20), second, 10, RTO));
    assert!(!ping.is_reset(at(259)));
    // The true server's PONG has a token that is answered already. Its tag is right, and that is what counts.
    assert_eq!(ping.on_pong(at(250), first), None);
    ping.on_vouched();
    assert_eq!(ping.deadline(), None);
    assert!(!ping.is_reset(at(1_000_000)));
}

#[test]
fn what_the_peer_says_between_two_resets_clears_it() {
    let mut ping = ping();
    let first = asked(&mut ping, at(0));
    assert!(ping.on_reset(at(100), first, 0, RTO));
    ping.on_vouched();
    let second = take_due(&mut ping, at(100)).unwrap();
    assert!(ping.on_reset(at(200), second, 100, RTO));
    assert_eq!(ping.deadline(), None, "the first of two again");
}

#[cfg(feature = "noise")]
#[test]
fn two_resets_under_a_key_with_a_question_between_them_and_silence_end_the_session() {
    let mut ping = ping();
    ping.on_keyed_reset(at(1_000), RTO);
    // Answers to what was sent before.
    ping.on_keyed_reset(at(1_001), RTO);
    assert_eq!((ping.ends_at(), ping.deadline()), (None, Some(at(1_300))));
    take_due(&mut ping, at(1_001)).unwrap();
    ping.on_keyed_reset(at(1_100), RTO);
    ping.on_keyed_reset(at(1_150), RTO);
    assert_eq!(ping.ends_at(), Some(at(4_100)));
    assert!(!ping.is_reset(at(4_099)) && ping.is_reset(at(4_100)));
    ping.wait_until(at(4_000));
    assert_eq!(ping.ends_at(), Some(at(4_100)));
    ping.wait_until(at(5_000));
    assert_eq!(ping.ends_at(), Some(at(5_000)));
    ping.on_opened();
    assert_eq!((ping.ends_at(), ping.deadline()), (None, None));
    // The first of two again: what was asked before says nothing. On a long path it takes longer.
    ping.on_keyed_reset(at(9_000), ms(1_000));
    ping.on_keyed_reset(at(9_001), ms(1_000));
    take_due(&mut ping, at(9_002)).unwrap();
    ping.on_keyed_reset(at(10_000), ms(1_000));
    assert_eq!(ping.ends_at(), Some(at(18_000)));
}

#[cfg(feature = "noise")]
#[test]
fn a_peer_that_a_key_says_to_have_lost_the_session_is_asked_once_in_an_rto() {
    for (rto, pause) in [(RTO, RTO), (ms(20), LEAST_PAUSE)] {
        let (mut ping, mut questions) = (ping(), 0);
        ping.on_keyed_reset(at(0), rto);
        for now in (0..3_000).map(at) {
            ping.on_timeout(now);
            questions += u128::from(take_due(&mut ping, now).is_some());
        }
        assert_eq!(questions, 3_000 / pause.as_millis(), "{rto:?}");
        ping.on_opened();
        ping.on_timeout(at(10_000));
        assert!(!ping.has_urgent());
    }
}

/// Those of a peer that has the keys are in packets that open.
#[cfg(feature = "noise")]
#[test]
fn what_opens_clears_only_what_a_key_has_told() {
    let mut ping = ping();
    let first = asked(&mut ping, at(0));
    assert!(ping.on_reset(at(100), first, 0, RTO));
    ping.on_opened();
    let second = take_due(&mut ping, at(100)).unwrap();
    assert!(ping.on_reset(at(200), second, 100, RTO));
    assert_eq!(ping.deadline(), Some(at(400)));
    ping.on_timeout(at(399));
    assert!(!ping.has_urgent(), "one question is enough for those that are answered one by one");
}

#[test]
fn every_ping_is_answered_and_of_too_many_the_newest() {
    let mut ping = ping();
    for token in 0..3 {
        ping.answer(token);
    }
    assert_eq!(core::iter::from_fn(|| ping.take_answer()).collect::<alloc::vec::Vec<_>>(), [0, 1, 2]);
    assert!(!ping.has_urgent());
    for token in 0..100 {
        ping.answer(token);
    }
    let answers: alloc::vec::Vec<_> = core::iter::from_fn(|| ping.take_answer()).collect();
    assert_eq!(answers, [96, 97, 98, 99]);
}

#[test]
fn one_reset_waits_at_most() {
    let mut ping = ping();
    for token in 0..100 {
        ping.refuse(ResetEcho { tag: 5, ts: 6, token });
    }
    assert_eq!(ping.take_reset(), Some(ResetEcho { tag: 5, ts: 6, token: 99 }));
    assert_eq!(ping.take_reset(), None);
}

#[test]
fn answers_to_probes_of_the_mtu_count_until_the_path_changes_or_all_is_quiet() {
    let (mut ping, secret) = (ping(), seed(7).secret);
    let probe = |ping: &mut Ping| {
        ping.probe_mtu(1_400);
        assert!(ping.has_mtu_probe());
        ping.take_mtu_probe(secret).unwrap()
    };
    let (size, token) = probe(&mut ping);
    assert_eq!((size, ping.on_mtu_pong(token ^ 1)), (1_400, None));
    assert_eq!((ping.on_mtu_pong(token), ping.on_mtu_pong(token)), (Some(1_400), None));
    let before = probe(&mut ping).1;
    ping.forget_mtu_probes();
    let token = probe(&mut ping).1;
    assert_eq!((ping.on_mtu_pong(before), ping.on_mtu_pong(token)), (None, Some(1_400)));
    probe(&mut ping);
    ping.trim();
    assert!(ping.under_way.is_none());
}
