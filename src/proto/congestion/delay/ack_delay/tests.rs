use super::*;

const BASE: Duration = Duration::from_millis(50);

#[test]
fn what_acks_of_few_segments_wait_at_least_is_no_queue() {
    let ms = Duration::from_millis;
    let (mut delay, mut now) = (AckDelay::default(), Instant::from_millis(10_000));
    // A batch is told at once.
    assert_eq!(delay.correct(now, BASE, ms(70), 8), ms(70));
    // The shortest waited for 7 ms. Others waited for a queue, too.
    assert_eq!(delay.correct(now, BASE, ms(57), 7), BASE);
    assert_eq!(delay.correct(now, BASE, ms(60), 7), ms(53));
    assert_eq!(delay.correct(now, BASE, ms(54), 1), BASE);
    assert_eq!(delay.correct(now, BASE, ms(60), 7), ms(56));
    // It is forgotten with the second window. No wait is longer than 10 ms.
    for (after, found) in [(WINDOW, 66), (WINDOW, 60)] {
        now += after;
        assert_eq!(delay.correct(now, BASE, ms(70), 1), ms(found));
    }
}
