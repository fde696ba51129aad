//! Sessions that have ended at this end, and whose peers still send because the last ACK was lost.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kcp9::{
    KcpConfig, KcpStream,
    proto::{Command, Extensions, SegmentHeader, Segments},
};
use kcp9_tests::spawn;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
};

use crate::support::{ANY, listen, listen_with, ms, until, within, without_extensions};

/// The first packet of the conversation 7.
fn request(payload: &[u8]) -> Vec<u8> {
    let len = payload.len() as u32;
    let header = SegmentHeader { conv: 7, cmd: Command::Push, frg: 0, wnd: 128, ts: 99, sn: 0, una: 0, len };
    [&header.to_bytes()[..], payload].concat()
}

/// Sends `packet` and returns the header of the first segment that is answered.
async fn answer_to(socket: &UdpSocket, packet: &[u8]) -> SegmentHeader {
    // What came before is no answer to it.
    while socket.try_recv(&mut [0; 2_048]).is_ok() {}
    socket.send(packet).await.unwrap();
    let mut answer = vec![0; 2_048];
    let len = within(2, "an answer", socket.recv(&mut answer)).await.unwrap();
    assert!(len <= packet.len(), "{len} bytes for {}", packet.len());
    Segments::new(&answer[..len]).next().unwrap().unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_is_processed_once() {
    let listener = listen().await;
    let socket = UdpSocket::bind(ANY).await.unwrap();
    socket.connect(listener.local_addr().unwrap()).await.unwrap();
    assert_eq!(answer_to(&socket, &request(b"pay 100")).await.una, 1);
    let (mut server, _) = within(2, "a session", listener.accept()).await.unwrap();
    let mut bytes = [0; 7];
    within(2, "the request", server.read_exact(&mut bytes)).await.unwrap();
    drop(server);
    until(2, "it is over", || listener.endpoint_stats().state.sessions == 0).await;

    // The client has not heard that it arrived. It asks again, also after the time in which nothing begins anew.
    for pause in [0, 200, 3_500] {
        tokio::time::sleep(ms(pause)).await;
        let ack = answer_to(&socket, &request(b"pay 100")).await;
        assert_eq!((ack.cmd, ack.sn, ack.ts, ack.una), (Command::Ack, 0, 99, 1), "{pause} ms later");
    }
    let stats = listener.endpoint_stats();
    assert_eq!((stats.driver.accepted, stats.driver.replies, stats.state.sessions), (1, 3, 0), "{stats:?}");
    assert_eq!(stats.dropped.recently_closed, 3, "{stats:?}");

    // Another request from the same port, with the same conv, is another session.
    socket.send(&request(b"pay 200")).await.unwrap();
    let (mut server, _) = within(2, "a second session", listener.accept()).await.unwrap();
    within(2, "its request", server.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(&bytes, b"pay 200");
}

/// A path that can be told to carry nothing back.
struct Path {
    addr: SocketAddr,
    silent: Arc<AtomicBool>,
}

impl Path {
    async fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind(ANY).await.unwrap();
        let back = UdpSocket::bind(ANY).await.unwrap();
        back.connect(server).await.unwrap();
        let addr = front.local_addr().unwrap();
        let silent = Arc::new(AtomicBool::new(false));
        let is_silent = Arc::clone(&silent);
        spawn(async move {
            let (mut there, mut here) = (vec![0; 2_048], vec![0; 2_048]);
            let mut client = addr;
            loop {
                tokio::select! {
                    Ok((len, from)) = front.recv_from(&mut there) => {
                        client = from;
                        let _ = back.send(&there[..len]).await;
                    }
                    Ok(len) = back.recv(&mut here) => {
                        if !is_silent.load(Ordering::Relaxed) {
                            let _ = front.send_to(&here[..len], client).await;
                        }
                    }
                }
            }
        });
        Self { addr, silent }
    }
}

/// Without extensions. With them the server waits for its own end to be heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_last_ack_is_no_error_of_the_peers_shutdown() {
    let listener = listen_with(without_extensions().build().unwrap()).await;
    let path = Path::to(listener.local_addr().unwrap()).await;
    path.silent.store(true, Ordering::Relaxed);
    let config = without_extensions().linger(Duration::from_secs(8)).build().unwrap();
    let mut client = KcpStream::connect(path.addr, config).await.unwrap();
    client.write_all(b"log this").await.unwrap();
    let shutdown = spawn(async move { client.shutdown().await });
    let (mut server, _) = within(2, "a session", listener.accept()).await.unwrap();
    within(2, "the line", server.read_exact(&mut [0; 8])).await.unwrap();
    drop(server);
    until(2, "it is over", || listener.endpoint_stats().state.sessions == 0).await;
    until(5, "it is sent again", || listener.endpoint_stats().driver.replies > 0).await;
    path.silent.store(false, Ordering::Relaxed);
    within(8, "the shutdown", shutdown).await.unwrap().unwrap();
    assert_eq!(listener.endpoint_stats().driver.accepted, 1);
}

/// The peer of a stream that was shut down and dropped has not heard that its own end was heard. It says it again, and is
/// answered, although the socket has no stream any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_socket_of_a_finished_stream_answers_its_peer_for_a_while() {
    let config = KcpConfig::builder().extensions(Extensions::Preferred).build().unwrap();
    let listener = listen_with(config.clone()).await;
    let front = UdpSocket::bind(ANY).await.unwrap();
    let back = UdpSocket::bind(ANY).await.unwrap();
    back.connect(listener.local_addr().unwrap()).await.unwrap();
    let addr = front.local_addr().unwrap();
    let exchange = spawn(async move {
        let mut client = KcpStream::connect(addr, config).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        client.shutdown().await.unwrap();
        assert_eq!(client.read(&mut [0; 9]).await.unwrap(), 0);
    });
    let serve = spawn(async move {
        let (mut server, _) = listener.accept().await.unwrap();
        let mut hello = Vec::new();
        server.read_to_end(&mut hello).await.unwrap();
        server.shutdown().await.unwrap();
        (listener, server, hello)
    });
    // Between them, until both are done.
    let (mut there, mut here) = (vec![0; 2_048], vec![0; 2_048]);
    let (mut client, mut fin) = (addr, Vec::new());
    let relay = async {
        while !(exchange.is_finished() && serve.is_finished()) {
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut there) => {
                    client = from;
                    back.send(&there[..len]).await.unwrap();
                }
                Ok(len) = back.recv(&mut here) => {
                    // The last segment of a packet, if it is a FIN.
                    let last = &here[len.saturating_sub(32)..len];
                    if last.get(4..6) == Some(&[0x60, 4]) {
                        fin = last.to_vec();
                    }
                    front.send_to(&here[..len], client).await.unwrap();
                }
                () = tokio::time::sleep(ms(5)) => {}
            }
        }
    };
    within(10, "both ends are done", relay).await;
    exchange.await.unwrap();
    assert_eq!(fin.len(), 32, "the server has said that it is done");
    while front.try_recv(&mut there).is_ok() {}

    front.send_to(&fin, client).await.unwrap();
    let answered = async {
        loop {
            let (len, _) = front.recv_from(&mut there).await.unwrap();
            if len == 32 && there[4..6] == [0x60, 5] {
                break;
            }
        }
    };
    within(2, "FIN is answered", answered).await;
    // Not for ever.
    tokio::time::sleep(ms(3_500)).await;
    assert!(std::net::UdpSocket::bind(client).is_ok(), "the socket is closed");
}
