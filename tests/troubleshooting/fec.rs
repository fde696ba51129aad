//! Forward error correction on one side only, or with other numbers.

use std::io;

use kcp9::{KcpConfig, KcpStream};
use kcp9_relay::Relay;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::support::{accept, listen, within};

const LOSS: f64 = 0.08;
const BYTES: usize = 600_000;

pub(super) fn with_fec(data: usize, parity: usize) -> KcpConfig {
    KcpConfig::builder().send_window(256).recv_window(256).fec(data, parity).build().unwrap()
}

/// Two ends that have sent each other [`BYTES`] through losses.
pub(super) struct Exchange {
    client: KcpStream,
    server: KcpStream,
}

pub(super) async fn exchange(client: KcpConfig, server: KcpConfig) -> Exchange {
    let listener = listen(server).await;
    let relay = Relay::lossy(listener.local_addr().unwrap(), LOSS).unwrap();
    let client = KcpStream::connect(relay.addr(), client).await.unwrap();
    let (client, server) = accept(&listener, client).await;
    let (mut from_client, mut to_client) = tokio::io::split(server);
    let (mut from_server, mut to_server) = tokio::io::split(client);
    let both = async {
        tokio::try_join!(
            send(&mut to_server),
            receive(&mut from_client),
            send(&mut to_client),
            receive(&mut from_server)
        )
    };
    within(30, "both directions", both).await.unwrap();
    Exchange { client: from_server.unsplit(to_server), server: from_client.unsplit(to_client) }
}

async fn send(writer: &mut WriteHalf<KcpStream>) -> io::Result<()> {
    writer.write_all(&vec![7; BYTES]).await
}

async fn receive(reader: &mut ReadHalf<KcpStream>) -> io::Result<()> {
    reader.read_exact(&mut vec![0; BYTES]).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fec_on_one_side_only() {
    let ends = exchange(with_fec(10, 3), with_fec(0, 0)).await;
    // The direction of the client is protected, and the server says that its peer differs.
    let server = ends.server.stats();
    assert!(server.fec.recovered > 0 && server.fec.parity_received > 0, "{server:?}");
    assert_eq!(server.fec.peer_changes, 1, "{server:?}");
    assert_eq!((server.fec_state.peer_data_shards, server.fec_state.peer_parity_shards), (10, 3));
    // The other direction is not: parity is sent, and none comes.
    let client = ends.client.stats();
    assert!(client.fec.parity_sent > 0, "{client:?}");
    assert_eq!((client.fec.parity_received, client.fec.recovered), (0, 0), "{client:?}");
    assert_eq!(client.fec_state.peer_data_shards, 0, "{client:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fec_with_other_numbers() {
    let ends = exchange(with_fec(10, 3), with_fec(5, 2)).await;
    for (end, peer) in [(ends.client.stats(), (5, 2)), (ends.server.stats(), (10, 3))] {
        assert!(end.fec.recovered > 0, "both directions are protected: {end:?}");
        assert_eq!(end.fec.peer_changes, 1, "{end:?}");
        assert_eq!((end.fec_state.peer_data_shards, end.fec_state.peer_parity_shards), peer, "{end:?}");
        assert!(!end.fec_state.undecodable, "{end:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fec_with_the_same_numbers() {
    let ends = exchange(with_fec(10, 3), with_fec(10, 3)).await;
    for end in [ends.client.stats(), ends.server.stats()] {
        assert!(end.fec.recovered > 0, "{end:?}");
        assert_eq!((end.fec.peer_changes, end.fec.mismatches), (0, 0), "{end:?}");
    }
}
