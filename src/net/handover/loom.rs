//! The hand-over under loom, which runs each test in every order that the steps of its threads can come in.
//!
//! Each test lets tasks of the application act while a driver runs, and looks at the result when all are at rest. See
//! [`model`] for what stands in for sockets and connections.

mod model;

use std::sync::{Arc, atomic::Ordering};

use self::model::{Bytes, Driver, Session, at, fail, in_every_order, queue, run, tasks, with};

#[test]
fn bytes_written_while_the_driver_sends_are_sent_in_order() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { written: 1, ..Bytes::default() });
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| driver.receive(&received),
            tasks![
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 1)),
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 2)),
            ],
        );
        assert_eq!(session.sent(), 4);
        assert_eq!(driver.timers[0], None);
    });
}

#[test]
fn less_than_a_batch_is_sent_by_the_driver() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        run(
            &queue,
            Driver::poll,
            tasks![
                with(&session, &queue, |session, queue| session.act(queue, true, |bytes| bytes.written += 1)),
                with(&session, &queue, |session, queue| session.act(queue, true, |bytes| bytes.written += 2)),
            ],
        );
        assert_eq!(session.sent(), 3);
    });
}

#[test]
fn a_batch_that_finds_the_socket_full_is_sent_by_the_driver_and_first() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        session.full.store(true, Ordering::Relaxed);
        run(
            &queue,
            Driver::poll,
            tasks![
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 1)),
                with(&session, &queue, |session, queue| session
                    .act(queue, false, |bytes| bytes.written += 1)),
            ],
        );
        assert_eq!(session.sent(), 2);
    });
}

#[test]
fn sessions_scheduled_while_the_driver_starts_and_goes_to_sleep_are_served() {
    in_every_order(|| {
        let queue = queue();
        let sessions = [Session::new(0, Bytes::default()), Session::new(1, Bytes::default())];
        let driver = run(
            &queue,
            Driver::poll,
            tasks![
                with(&sessions[0], &queue, |session, queue| session.act(queue, false, |it| it.need(at(7)))),
                with(&sessions[1], &queue, |session, queue| session.act(queue, false, |it| it.need(at(8)))),
            ],
        );
        assert_eq!(driver.timers, [Some(at(7)), Some(at(8))]);
        assert!(!queue.has_any());
    });
}

#[test]
fn a_deadline_moved_earlier_is_kept_while_the_driver_arms_another() {
    in_every_order(|| {
        let queue = queue();
        let session =
            Session::new(0, Bytes { written: 1, deadlines: std::vec![at(100)], ..Bytes::default() });
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| driver.receive(&received),
            tasks![
                with(&session, &queue, |session, queue| session.act(queue, false, |it| it.need(at(50)))),
                with(&session, &queue, |session, queue| session.act(queue, false, |it| it.need(at(20)))),
            ],
        );
        assert_eq!(driver.timers[0], Some(at(20)));
    });
}

#[test]
fn a_deadline_is_kept_when_a_writer_sends_as_the_driver_looks() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| {
                driver.receive(&received);
                // Another packet.
                driver.receive(&received);
            },
            tasks![with(&session, &queue, |session, queue| session.act(queue, false, |bytes| {
                bytes.written += 1;
                bytes.need(at(30));
            }))],
        );
        assert_eq!((session.sent(), driver.timers[0]), (1, Some(at(30))));
    });
}

#[test]
fn a_deadline_is_kept_that_is_set_while_another_comes() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { deadlines: std::vec![at(10)], ..Bytes::default() });
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| {
                driver.receive(&received);
                assert!(driver.timers[0].is_some());
                driver.now = at(20);
                driver.receive(&received);
            },
            tasks![with(&session, &queue, |session, queue| session.act(queue, false, |it| it.need(at(30))))],
        );
        assert_eq!(driver.timers[0], Some(at(30)));
    });
}

#[test]
fn a_deadline_is_kept_that_is_set_while_the_driver_waits_for_room_in_the_socket() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { deadlines: std::vec![at(10)], ..Bytes::default() });
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| {
                driver.receive(&received);
                driver.now = at(20);
                driver.retry = Some(at(70));
                received.full.store(true, Ordering::Relaxed);
                driver.receive(&received);
            },
            tasks![with(&session, &queue, |session, queue| {
                // The driver is to send this byte, and may find the socket full.
                session.act(queue, true, |bytes| bytes.written += 1);
                session.act(queue, false, |bytes| {
                    bytes.written += 1;
                    bytes.need(at(30));
                });
            })],
        );
        // If the writer came while the driver's attempt failed, both bytes wait for the driver's next one.
        let timer = if session.sent() == 2 { at(30) } else { at(70) };
        assert_eq!(driver.timers[0], Some(timer));
    });
}

#[test]
fn a_stream_dropped_while_the_driver_sends_sends_its_rest_and_is_forgotten() {
    in_every_order(|| {
        let queue = queue();
        let bytes = Bytes { written: 3, held_back: 1, deadlines: std::vec![at(100)], ..Bytes::default() };
        let session = Session::new(0, bytes);
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| driver.receive(&received),
            tasks![with(&session, &queue, |session, queue| session.release(queue))],
        );
        assert_eq!(session.sent(), 4);
        assert!(session.is_over() && driver.removed[0]);
        assert_eq!(driver.timers[0], None);
    });
}

#[test]
fn a_stream_dropped_behind_a_write_sends_it_although_the_driver_was_called() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let driver = run(
            &queue,
            Driver::poll,
            tasks![with(&session, &queue, |session, queue| {
                // The driver is to send the byte, and comes while the stream is dropped.
                session.act(queue, true, |bytes| bytes.written += 1);
                session.release(queue);
            })],
        );
        assert_eq!(session.sent(), 1);
        assert!(session.is_over() && driver.removed[0]);
    });
}

#[test]
fn a_dropped_stream_is_served_until_its_peer_has_everything() {
    in_every_order(|| {
        let queue = queue();
        let bytes = Bytes { unacknowledged: true, ..Bytes::default() };
        let session = Session::new(0, bytes);
        let mut driver = run(
            &queue,
            Driver::poll,
            tasks![with(&session, &queue, |session, queue| {
                session.act(queue, false, |bytes| {
                    bytes.written += 1;
                    bytes.need(at(30));
                });
                session.release(queue);
            })],
        );
        assert_eq!((session.sent(), driver.timers[0]), (1, Some(at(30))));
        assert!(!session.is_over() && driver.known[0].is_some());
        session.acknowledge();
        driver.receive(&session);
        assert!(session.is_over() && driver.removed[0]);
        assert_eq!(driver.timers[0], None);
    });
}

/// A handle of the datagrams may send while the stream is dropped.
#[test]
fn a_stream_dropped_while_another_task_sends_is_forgotten() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let driver = run(
            &queue,
            Driver::poll,
            tasks![
                with(&session, &queue, |session, queue| session.act(queue, false, |bytes| {
                    // Behind the drop nothing is taken any more.
                    bytes.written += u32::from(!bytes.let_go);
                })),
                with(&session, &queue, |session, queue| session.release(queue)),
            ],
        );
        assert_eq!(session.sent(), session.written());
        assert!(session.is_over() && driver.removed[0]);
    });
}

#[test]
fn a_driver_does_not_end_before_it_knows_the_session_of_an_owner_that_went() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes { written: 1, ..Bytes::default() });
        let driver = run(
            &queue,
            Driver::poll,
            tasks![with(&session, &queue, |session, queue| {
                queue.schedule(session).unwrap();
                queue.remove_owner();
            })],
        );
        assert!(!driver.ended && driver.known[0].is_some());
        assert_eq!(session.sent(), 1);
    });
}

#[test]
fn a_driver_ends_when_the_last_stream_and_the_owner_went() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        let received = Arc::clone(&session);
        let driver = run(
            &queue,
            move |driver| {
                driver.receive(&received);
                driver.poll();
            },
            tasks![
                with(&session, &queue, |session, queue| session.release(queue)),
                with(&session, &queue, |_, queue| queue.remove_owner()),
            ],
        );
        assert!(driver.removed[0]);
        assert!(driver.ended, "it sleeps for ever");
    });
}

#[test]
fn a_session_scheduled_as_the_driver_is_dropped_fails_and_is_not_kept() {
    in_every_order(|| {
        let queue = queue();
        let session = Session::new(0, Bytes::default());
        run(
            &queue,
            |driver| driver.end(),
            tasks![with(&session, &queue, |session, queue| {
                if queue.schedule(session).is_err() {
                    fail(session);
                }
            })],
        );
        assert!(session.is_over());
        assert_eq!(Arc::strong_count(&session), 1, "it would keep its socket open");
    });
}
