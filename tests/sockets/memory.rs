//! The memory that the buffers of all sessions of a socket share: what hoarders have taken, others do without, and they go on.

use kcp9::{KcpConfig, KcpConfigBuilder, KcpListener, KcpStream};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{
    accept_session, echo_payload, listen_with, ms, read_payload, until, within, write_payload,
};

const LIMIT: usize = 2 << 20;
const HOARDERS: usize = 60;
/// Receive window of a hoarder's client, in segments.
const CLIENTS_WINDOW: u32 = 16;

fn limited() -> KcpConfigBuilder {
    KcpConfig::builder().max_buffer_memory(LIMIT)
}

/// Readers of sessions whose clients send as much as they can, and whose servers do not read, or the other way round.
async fn hoard(listener: &KcpListener, servers_write: bool) -> Vec<KcpStream> {
    let addr = listener.local_addr().unwrap();
    let mut readers = Vec::new();
    for _ in 0..HOARDERS {
        let small = KcpConfig::builder().recv_window(CLIENTS_WINDOW).build().unwrap();
        let client = KcpStream::connect(addr, small).await.unwrap();
        let (client, server) = accept_session(listener, client).await;
        let (mut writer, reader) = if servers_write { (server, client) } else { (client, server) };
        readers.push(reader);
        spawn(async move { while writer.write_all(&[7; 10_000]).await.is_ok() {} });
    }
    let least = (LIMIT / 4 * 3) as u64 - (128 << 10);
    let taken = || listener.endpoint_stats().state.buffer_memory;
    until(20, "they have taken all", || taken() >= least).await;
    // What a reader has room for is given back by its writer, which takes it anew.
    let are_full = || readers.iter().all(|reader| reader.stats().queues.unread_segments >= CLIENTS_WINDOW);
    until(20, "all that the clients have room for has arrived", || !servers_write || are_full()).await;
    // On a busy machine they may not be through.
    let settled = async {
        let mut before = 0;
        while taken() != std::mem::replace(&mut before, taken()) {
            tokio::time::sleep(ms(200)).await;
        }
    };
    within(20, "they take no more", settled).await;
    readers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_beside_hoarders_is_echoed_whole_and_what_they_held_comes_back() {
    let listener = listen_with(limited().build().unwrap()).await;
    let hoarded = hoard(&listener, false).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let (client, server) = accept_session(&listener, client).await;
    let (mut reader, mut writer) = server.into_split();
    let echoing = spawn(async move { tokio::io::copy(&mut reader, &mut writer).await });
    within(30, "1 MB comes back", echo_payload(client, 1 << 20)).await.unwrap();
    within(10, "the echo ends", echoing).await.unwrap().unwrap();
    let stats = listener.endpoint_stats();
    assert!(stats.state.buffer_memory <= LIMIT as u64, "{stats:?}");
    assert!(stats.memory.refused_segments > 0, "{stats:?}");
    drop(hoarded);
    until(20, "all is given back", || listener.endpoint_stats().state.buffer_memory == 0).await;
}

/// A program in the middle, of whose memory others have taken all there is for what arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_whose_memory_is_used_up_goes_on() {
    let middle = listen_with(limited().build().unwrap()).await;
    let _hoarded = hoard(&middle, false).await;
    let behind = listen_with(KcpConfig::default()).await;
    let to_b = KcpStream::connect(behind.local_addr().unwrap(), limited().build().unwrap()).await.unwrap();
    let (mut to_b, mut b) = accept_session(&behind, to_b).await;
    let a = KcpStream::connect(middle.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let (mut a, mut from_a) = accept_session(&middle, a).await;
    spawn(async move {
        tokio::io::copy(&mut from_a, &mut to_b).await.unwrap();
        to_b.shutdown().await
    });
    let writing = spawn(async move {
        write_payload(&mut a, 1 << 20).await.unwrap();
        a.shutdown().await
    });
    // Slowly at first.
    tokio::time::sleep(ms(300)).await;
    within(30, "1 MB comes to B", read_payload(&mut b, 1 << 20)).await.unwrap();
    assert_eq!(within(10, "the end", b.read(&mut [0])).await.unwrap(), 0);
    within(10, "A is done", writing).await.unwrap().unwrap();
}

/// A message that is longer than what a session may hold without asking waits for memory, and is sent when others give some back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_message_waits_until_others_give_memory_back() {
    let listener = listen_with(limited().build().unwrap()).await;
    let hoarded = hoard(&listener, true).await;
    let client = KcpStream::connect(listener.local_addr().unwrap(), KcpConfig::default()).await.unwrap();
    let (client, server) = accept_session(&listener, client).await;
    server.send(&[1; 10_000]).await.unwrap();
    assert_eq!(within(10, "a short message", client.recv()).await.unwrap(), [1; 10_000][..]);
    let mut writer = server;
    let mut tries = 0;
    let sending = loop {
        let sending = spawn(async move { writer.send(&[2; 250_000]).await.map(|()| writer) });
        tokio::time::sleep(ms(300)).await;
        if !sending.is_finished() {
            break sending;
        }
        // ACKs that came late have given memory back, which it was faster to take. What it takes goes to the others next.
        writer = sending.await.unwrap().unwrap();
        assert_eq!(within(20, "a message that found memory", client.recv()).await.unwrap(), [2; 250_000][..]);
        tries += 1;
        assert!(tries < 20, "none waits: {:?}", listener.endpoint_stats());
    };
    assert!(listener.endpoint_stats().memory.refused_writes > 0);
    drop(hoarded);
    assert_eq!(within(20, "the long message", client.recv()).await.unwrap(), [2; 250_000][..]);
    within(5, "it is sent", sending).await.unwrap().unwrap();
}
