//! A port that gets more than its driver can receive.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use kcp9::{KcpConfig, KcpListener, KcpStream};
use kcp9_tests::spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{ANY, within};

/// Ends the flood, whatever becomes of the test.
struct Flood {
    over: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Flood {
    /// Packets of strangers, as fast as two threads can send them.
    fn start(listener: &KcpListener) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let to = listener.local_addr().unwrap();
        let flood = |_| {
            let (over, socket) = (Arc::clone(&over), UdpSocket::bind(ANY).unwrap());
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = socket.send_to(&[0x55; 1_400], to);
                }
            })
        };
        let threads = (0..2).map(flood).collect();
        Self { over, threads }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// A slow cipher, so that a driver on any machine has more to do than it can.
fn slow() -> KcpConfig {
    use kcp9::crypto::{CipherKind, Framing, Key, PacketCrypto};

    let cipher = CipherKind::Cast5.build(&Key::from_bytes(&[7; 16]), Framing::KcpGo).unwrap();
    KcpConfig::builder().crypto(PacketCrypto::with_os_nonces(cipher).unwrap()).build().unwrap()
}

/// How many packets of the flood are dropped unseen depends on the machine, but all that a session says arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_pings_of_an_established_session_are_answered_beside_a_flood_that_is_dropped_unseen() {
    let listener = KcpListener::bind(ANY, slow()).await.unwrap();
    let mut client = KcpStream::connect(listener.local_addr().unwrap(), slow()).await.unwrap();
    client.write_all(&[0]).await.unwrap();
    let (mut server, _) = within(10, "it is accepted", listener.accept()).await.unwrap();
    let echo = spawn(async move {
        while let Ok(byte) = server.read_u8().await {
            server.write_u8(byte).await.unwrap();
        }
    });
    assert_eq!(within(10, "the first echo", client.read_u8()).await.unwrap(), 0);
    let flood = Flood::start(&listener);
    let mut pings = 0_u32;
    while pings < 50 || listener.endpoint_stats().dropped.over_share < 1_000 {
        client.write_u8(pings as u8).await.unwrap();
        assert_eq!(within(30, "an echo", client.read_u8()).await.unwrap(), pings as u8);
        pings += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(pings < 4_000, "nothing is dropped: {:?}", listener.endpoint_stats());
    }
    drop(flood);
    drop(client);
    within(10, "the end", echo).await.unwrap();
}
