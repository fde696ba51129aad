//! Sessions that begin with a HELLO of the extensions.

use kcp9::{KcpConfig, KcpStream, proto::Extensions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{assert_alive, listen_with, within};

fn config(extensions: Extensions) -> KcpConfig {
    KcpConfig::builder().extensions(extensions).build().unwrap()
}

/// As with mail servers: the client connects and waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_only_reads_hears_a_server_that_speaks_first() {
    for extensions in [Extensions::Preferred, Extensions::Required] {
        let listener = listen_with(config(extensions)).await;
        let addr = listener.local_addr().unwrap();
        let mut client = KcpStream::connect(addr, config(extensions)).await.unwrap();
        let (mut server, _) = within(2, "it is accepted", listener.accept()).await.unwrap();
        server.write_all(b"220 ready").await.unwrap();
        let mut greeting = [0; 9];
        within(2, "the greeting", client.read_exact(&mut greeting)).await.unwrap();
        assert_eq!(&greeting, b"220 ready");
        assert_alive(&mut client, &mut server).await;
        assert_eq!(listener.endpoint_stats().driver.accepted, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_may_leave_with_the_hello() {
    let listener = listen_with(config(Extensions::Preferred)).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        let addr = listener.local_addr().unwrap();
        let mut client = KcpStream::connect(addr, config(Extensions::Preferred)).await.unwrap();
        client.write_all(b"request").await.unwrap();
        let (mut server, _) = within(2, "it is accepted", listener.accept()).await.unwrap();
        let mut request = [0; 7];
        within(2, "the request", server.read_exact(&mut request)).await.unwrap();
        assert_eq!(&request, b"request");
        clients.push((client, server));
    }
    for (client, server) in &mut clients {
        assert_alive(client, server).await;
    }
    let stats = listener.endpoint_stats();
    assert_eq!((stats.driver.accepted, stats.state.sessions), (50, 50), "{stats:?}");
}

/// One end has the extensions and the other has them off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_without_extensions_are_served_as_ever() {
    for (ours, theirs) in [(Extensions::Preferred, Extensions::Off), (Extensions::Off, Extensions::Preferred)]
    {
        let listener = listen_with(config(theirs)).await;
        let mut client = KcpStream::connect(listener.local_addr().unwrap(), config(ours)).await.unwrap();
        client.write_all(b"request").await.unwrap();
        let (mut server, _) = within(2, "it is accepted", listener.accept()).await.unwrap();
        within(2, "the request", server.read_exact(&mut [0; 7])).await.unwrap();
        assert_alive(&mut client, &mut server).await;
        assert_alive(&mut server, &mut client).await;
        within(5, "the shutdown", client.shutdown()).await.unwrap();
        assert_eq!(listener.endpoint_stats().driver.accepted, 1);
    }
}
