use alloc::vec::Vec;

use super::*;
use crate::proto::extension::seed::tests::seed;

const RTO: Duration = Duration::from_millis(200);
/// Three RTO.
const WAIT: Duration = Duration::from_millis(600);
/// The token of the peer's PINGs.
const TOKEN: Token = 99;
/// A session's path that is silent.
const SILENT: Instant = Instant::ZERO;

fn at(millis: u64) -> Instant {
    Instant::from_millis(10_000 + millis)
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], port))
}

fn follower() -> Follower {
    Follower::new(seed(1).secret)
}

/// A follower that has just begun an attempt to move to port 1, and the tokens of the old path and of the new one.
fn attempt() -> (Follower, Token, Token) {
    let mut follower = follower();
    follower.on_ping_from(at(0), address(1), TOKEN, RTO);
    let old = follower.take_old().unwrap();
    let (to, new) = follower.take_new().unwrap();
    assert_eq!(to, address(1));
    assert_ne!(old, new);
    (follower, old, new)
}

/// Runs the follower's timers until it moves, waits for nothing, or the time has come. Returns where it moves, when, and how
/// often the old address was asked.
fn run_until(follower: &mut Follower, end: Instant) -> (Option<Move>, Instant, u32) {
    let (mut now, mut asked) = (at(0), 0);
    while let Some(deadline) = follower.deadline().filter(|at| *at < end) {
        now = now.max(deadline);
        let moved = follower.on_timeout(now, now, SILENT);
        asked += u32::from(follower.take_old().is_some());
        if moved.is_some() {
            return (moved, now, asked);
        }
    }
    (None, now, asked)
}

fn run(follower: &mut Follower) -> (Option<Move>, Instant, u32) {
    run_until(follower, Instant::NEVER)
}

#[test]
fn a_peer_that_answers_elsewhere_and_no_longer_here_is_followed() {
    let (mut follower, _, new) = attempt();
    follower.on_pong_from(at(50), address(1), new);
    let (moved, when, asked) = run(&mut follower);
    assert_eq!(moved, Some(Move { to: address(1), pong: TOKEN }));
    assert_eq!((when, asked), (at(0) + WAIT, QUESTIONS - 1), "one was asked at once");
    assert_eq!(follower.deadline(), None);
}

#[test]
fn an_answer_that_comes_late_moves_at_once() {
    let (mut follower, _, new) = attempt();
    assert_eq!(run_until(&mut follower, at(2_900)).0, None);
    follower.on_pong_from(at(2_950), address(1), new);
    assert!(follower.deadline().unwrap() <= at(2_950));
    assert!(follower.on_timeout(at(2_950), at(2_950), SILENT).is_some());
}

#[test]
fn without_an_answer_the_attempt_ends_and_another_may_begin() {
    let (mut follower, ..) = attempt();
    assert_eq!(run(&mut follower), (None, at(3_000), QUESTIONS - 1));
    follower.on_ping_from(at(3_001), address(2), TOKEN, RTO);
    assert_eq!(follower.take_new().map(|asked| asked.0), Some(address(2)));
}

#[test]
fn a_live_old_path_wins() {
    // What shows that the old path lives, and when.
    type Sign = fn(&mut Follower, Token, Token);
    let signs: [(&str, Sign); 6] = [
        ("its token, over it", |follower, old, _| {
            assert!(follower.on_pong(at(100), old));
        }),
        ("its token, from the new address", |follower, old, _| {
            follower.on_pong_from(at(100), address(1), old);
        }),
        ("its token, from a third address", |follower, old, _| {
            follower.on_pong_from(at(100), address(3), old);
        }),
        ("the new address's token, over it", |follower, _, new| {
            assert!(follower.on_pong(at(100), new));
        }),
        ("the PING that was copied, over it", |follower, _, _| {
            follower.on_ping(at(100), TOKEN);
        }),
        ("anything, late enough", |follower, _, _| {
            follower.on_timeout(at(210), at(210), at(200));
        }),
    ];
    for (name, sign) in signs {
        for answered_first in [false, true] {
            let (mut follower, old, new) = attempt();
            if answered_first {
                follower.on_pong_from(at(50), address(1), new);
            }
            sign(&mut follower, old, new);
            follower.on_pong_from(at(300), address(1), new);
            assert_eq!(run(&mut follower).0, None, "{name}, {answered_first}");
        }
    }
}

/// A program that stands still can ask nobody, and has not read what came.
#[test]
fn a_pause_shortens_nobodys_time_to_answer() {
    let (mut follower, old, new) = attempt();
    follower.on_pong_from(at(50), address(1), new);
    let mut now = at(20_000);
    for question in 1..QUESTIONS {
        assert_eq!(follower.on_timeout(now, now, SILENT), None);
        assert_eq!(follower.take_old(), Some(old), "question {question}");
        assert_eq!(follower.deadline(), Some(now + WAIT / 8));
        now += WAIT / 8;
    }
    let later = now + Duration::from_secs(60);
    let just_before = Instant::from_micros(now.as_micros() - 1);
    assert_eq!(follower.on_timeout(later, just_before, SILENT), None, "an answer may wait to be read");
    assert!(follower.on_timeout(later, later, SILENT).is_some());
}

#[test]
fn what_was_under_way_when_the_peer_left_does_not_hold_it() {
    let (mut follower, _, new) = attempt();
    follower.on_timeout(at(210), at(210), at(199));
    follower.on_pong_from(at(250), address(1), new);
    assert!(run(&mut follower).0.is_some());
}

#[test]
fn only_the_new_address_can_answer_for_itself() {
    let (mut follower, _, new) = attempt();
    follower.on_pong_from(at(50), address(2), new);
    follower.on_pong_from(at(50), address(1), new ^ 1);
    assert_eq!(run(&mut follower).0, None);
}

#[test]
fn tokens_of_one_attempt_are_worth_nothing_in_the_next() {
    let (mut follower, old, new) = attempt();
    run(&mut follower);
    follower.on_ping_from(at(5_000), address(1), TOKEN, RTO);
    follower.on_pong_from(at(5_050), address(1), new);
    assert!(!follower.on_pong(at(5_060), old), "it ends nothing");
    assert_ne!(follower.take_old(), Some(old));
    assert_eq!(run(&mut follower).0, None);
}

#[test]
fn an_address_gets_no_more_than_it_sent() {
    let (mut follower, ..) = attempt();
    let mut sent = 0;
    for ts in 6..20 {
        follower.on_ping_from(at(ts), address(1), TOKEN, RTO);
        // Others are not asked meanwhile.
        follower.on_ping_from(at(ts), address(2), TOKEN, RTO);
        let asked: Vec<_> = core::iter::from_fn(|| follower.take_new()).collect();
        assert!(asked.iter().all(|(to, _)| *to == address(1)));
        sent += asked.len();
    }
    assert_eq!(sent, 14);
    run(&mut follower);
    assert_eq!(follower.take_new(), None, "none by a timer");
}

#[test]
fn who_tries_in_vain_again_and_again_makes_few_packets() {
    let mut follower = follower();
    let (mut attempts, mut asked) = (0, 0);
    // A PING from elsewhere each millisecond of a minute, and a peer that answers where it is.
    for millis in 0..60_000 {
        let now = at(millis);
        follower.on_ping_from(now, address(1), TOKEN, RTO);
        assert_eq!(follower.on_timeout(now, now, SILENT), None);
        if let Some(token) = follower.take_old() {
            asked += 1;
            // The answer is lost for every second attempt but for the last question.
            if attempts % 2 == 0 || asked % 8 == 7 {
                attempts += 1;
                assert!(follower.on_pong(now, token));
            }
        }
        if let Some((_, token)) = follower.take_new() {
            follower.on_pong_from(now, address(1), token);
        }
    }
    assert!((5..=12).contains(&attempts), "{attempts} attempts");
    assert!(asked <= attempts * 8, "{asked} questions");
}

#[test]
fn a_move_ends_the_pauses() {
    let (mut follower, old, _) = attempt();
    follower.on_pong(at(10), old);
    assert_eq!(follower.pause, FIRST_PAUSE * 2);
    follower.on_ping_from(at(1_009), address(1), TOKEN, RTO);
    assert_eq!(follower.take_new(), None, "too early");
    follower.on_ping_from(at(1_010), address(1), TOKEN, RTO);
    let (_, new) = follower.take_new().unwrap();
    follower.on_pong_from(at(1_050), address(1), new);
    assert!(run(&mut follower).0.is_some());
    assert_eq!((follower.pause, follower.paused_until), (FIRST_PAUSE, None));
}

#[test]
fn a_moving_end_asks_until_it_is_answered() {
    let mut rebind = Rebind::new(seed(1).secret, 0);
    let (mut now, mut waits) = (at(0), Vec::new());
    for _ in 0..6 {
        assert!(rebind.asks());
        let token = rebind.take(now, RTO).unwrap();
        assert!(rebind.is_done_by(token) && !rebind.is_done_by(token ^ 1));
        assert!(!rebind.asks() && rebind.take(now, RTO).is_none());
        let deadline = rebind.deadline().unwrap();
        rebind.on_timeout(now);
        assert!(!rebind.asks(), "early");
        waits.push((deadline - now).as_millis());
        now = deadline;
        rebind.on_timeout(now);
    }
    assert_eq!(waits, [200, 400, 800, 1_600, 2_000, 2_000]);
    assert!(!Rebind::new(seed(1).secret, 1).is_done_by(rebind.token), "each has its own");
}
