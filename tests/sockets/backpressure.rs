//! A reader that stops holds the writer back, with bounded memory, and nothing is lost.

use kcp9::{KcpConfig, KcpStream};
use kcp9_tests::spawn;

use crate::support::{PAYLOAD, Pair, ms, pair_with, read_payload, within, write_until_stalled};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_stops_stalls_the_writer() {
    let config = KcpConfig::builder().send_window(64).recv_window(64).build().unwrap();
    let Pair { mut client, mut server, listener: _listener } = pair_with(config).await;
    let mut at = 0;
    for _ in 0..3 {
        let from = at;
        at = within(20, "the writer is held back", write_until_stalled(&mut client, from)).await;
        let (sender, receiver) = (client.stats(), server.stats());
        // One window is queued, one in flight, one in the receiver's queue and one out of order: 64 x 1,376 B each.
        assert!(at - from <= 4 * 64 * 1_376, "{} bytes were taken", at - from);
        assert!(sender.queues.unsent_bytes <= 64 * 1_376, "{sender:?}");
        assert!(receiver.queues.unread_segments <= 64 && receiver.queues.out_of_order <= 64, "{receiver:?}");

        let mut left = vec![0; at - from];
        within(20, "what was written arrives", tokio::io::AsyncReadExt::read_exact(&mut server, &mut left))
            .await
            .unwrap();
        assert_eq!(PAYLOAD.first_difference(from as u64, &left), None);
    }
}

/// The reader alone wakes the writer's task, which does not try again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_resumes_wakes_the_writer() {
    const LEN: usize = 4 << 20;
    let Pair { client, mut server, listener: _listener } = pair_with(KcpConfig::default()).await;
    let writing = spawn(write_all_of_it(client, LEN));
    tokio::time::sleep(ms(500)).await;
    within(10, "4 MB after a pause", read_payload(&mut server, LEN)).await.unwrap();
    within(5, "the writer is done", writing).await.unwrap();
}

async fn write_all_of_it(mut client: KcpStream, len: usize) -> KcpStream {
    crate::support::write_payload(&mut client, len).await.unwrap();
    client
}

/// Several tasks write to one stream: each is woken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_waiting_sender_is_woken() {
    const SENDERS: usize = 8;
    const MESSAGES: usize = 200;
    let config = KcpConfig::builder().send_window(16).recv_window(16).stream(false).build().unwrap();
    let Pair { client, server, listener: _listener } = pair_with(config).await;
    let client = std::sync::Arc::new(client);
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..SENDERS {
        let client = std::sync::Arc::clone(&client);
        senders.spawn(async move {
            for message in 0..MESSAGES {
                let mut bytes = vec![sender as u8; 1_000];
                bytes[1] = message as u8;
                client.send(&bytes).await.unwrap();
            }
        });
    }
    let mut next = [0; SENDERS];
    let receiving = async {
        for _ in 0..SENDERS * MESSAGES {
            let message = server.recv().await.unwrap();
            assert_eq!(message.len(), 1_000);
            let sender = usize::from(message[0]);
            assert_eq!(message[1], next[sender] as u8, "sender {sender}");
            next[sender] += 1;
        }
    };
    within(20, "every sender's messages", receiving).await;
    assert_eq!(next, [MESSAGES; SENDERS]);
    while senders.join_next().await.transpose().unwrap().is_some() {}
}
