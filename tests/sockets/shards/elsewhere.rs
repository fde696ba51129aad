//! Sessions whose packets arrive at another socket than the one that they began at: their clients have another address, or a socket
//! has joined the port or left it.

use std::{
    io::ErrorKind,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use kcp9::{KcpConfig, KcpEndpoint, KcpError, KcpListener, KcpStream};
use kcp9_tests::spawn;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{assert_all_alive, each, listen, sealed, sessions};
use crate::support::{ANY, accept_session, assert_alive, ms, read_payload, until, within, write_payload};

/// Another address of the loopback: another network of the client's.
const ELSEWHERE: &str = "127.0.0.2:0";

/// A socket whose port others have, too.
fn shared_socket(addr: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&addr.into()).unwrap();
    socket.into()
}

/// 4 MB each way, while the client takes other sockets until some packets have arrived at another shard, and then some more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_in_both_directions_goes_on_in_its_shard_while_the_client_rebinds() {
    const LEN: usize = 4_000_000;
    let (listener, config) = listen(sealed(2)).await;
    let (client, server) = sessions(&listener, &config, 1).await.remove(0);
    let shard = each(&listener, |shard| shard.state.sessions);
    let (handle, client_handle) = (server.handle(), client.handle());
    let (mut from_client, mut to_client) = server.into_split();
    let (mut from_server, mut to_server) = client.into_split();
    let handed_over = || listener.endpoint_stats().driver.handed_over;
    let rebinding = async {
        let (mut moves, mut elsewhere) = (0, 0);
        // Each has an even chance.
        while elsewhere < 2 && moves < 40 {
            tokio::time::sleep(ms(50)).await;
            let before = handed_over();
            client_handle.rebind(UdpSocket::bind(ELSEWHERE).unwrap())?;
            moves += 1;
            until(20, "the server follows", || handle.stats().extensions.moves == moves).await;
            assert_eq!(each(&listener, |shard| shard.state.sessions), shard, "it stays");
            elsewhere += u64::from(handed_over() > before);
        }
        assert_eq!(elsewhere, 2, "in {moves} moves");
        Ok(())
    };
    let transfer = async {
        tokio::try_join!(
            write_payload(&mut to_server, LEN),
            write_payload(&mut to_client, LEN),
            read_payload(&mut from_server, LEN),
            read_payload(&mut from_client, LEN),
            rebinding,
        )
    };
    within(60, "everything arrives", transfer).await.unwrap();
    // All of it over the other socket.
    let before = handed_over();
    let transfer = async {
        tokio::try_join!(
            write_payload(&mut to_server, LEN),
            write_payload(&mut to_client, LEN),
            read_payload(&mut from_server, LEN),
            read_payload(&mut from_client, LEN),
        )
    };
    within(60, "everything arrives", transfer).await.unwrap();
    assert!(handed_over() - before > 1_000);
    to_server.shutdown().await.unwrap();
    assert_eq!(within(10, "the end", from_client.read(&mut [0])).await.unwrap(), 0);
    assert_eq!(
        (listener.endpoint_stats().driver.accepted, each(&listener, |shard| shard.state.sessions)),
        (1, shard)
    );
}

/// Every session's packets arrive at the other socket from one moment to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_go_on_when_a_socket_leaves_the_port() {
    for config in [KcpConfig::builder(), sealed(1)] {
        let config = config.build().unwrap();
        let leaving = shared_socket(ANY.parse().unwrap());
        let addr = leaving.local_addr().unwrap();
        let listener =
            KcpListener::from_sockets([shared_socket(addr), shared_socket(addr)], config.clone()).unwrap();
        let mut live = Vec::new();
        while live.len() < 16 {
            let mut client = KcpStream::connect(addr, config.clone()).await.unwrap();
            client.write_u8(b'!').await.unwrap();
            // What arrives at the socket that leaves is read by nobody.
            let Ok(accepted) = tokio::time::timeout(ms(100), listener.accept()).await else { continue };
            let (mut server, _) = accepted.unwrap();
            assert_eq!(server.read_u8().await.unwrap(), b'!');
            live.push((client, server));
        }
        let before = each(&listener, |shard| shard.state.sessions);
        assert_eq!(listener.endpoint_stats().driver.handed_over, 0);
        drop(leaving);
        // The system gives about half of them to another socket, and each of these has a packet or more a time.
        for _ in 0..8 {
            assert_all_alive(&mut live).await;
        }
        assert!(listener.endpoint_stats().driver.handed_over >= 16, "{:?}", listener.shard_stats());
        // One that the socket took may come now.
        let after = each(&listener, |shard| shard.state.sessions);
        assert!(after.iter().zip(before).all(|(after, before)| *after >= before));
    }
}

/// A process that listens on the same port, as in an upgrade: it gets packets of sessions that it does not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_listener_on_the_port_resets_no_session_of_the_first() {
    let config = KcpConfig::builder().shards(2).keep_alive(Some(ms(200)));
    let (old, config) = listen(config).await;
    let mut live = sessions(&old, &config, 24).await;
    let new = KcpListener::bind(old.local_addr().unwrap(), config.clone()).await.unwrap();
    // Both ends ask and write, and half of what the clients send arrives at the new listener.
    for (client, _) in &mut live {
        client.write_u8(7).await.unwrap();
    }
    until(10, "it gets some of it", || new.endpoint_stats().dropped.no_session > 50).await;
    tokio::time::sleep(ms(500)).await;
    let stats = new.endpoint_stats();
    assert_eq!((stats.driver.accepted, stats.driver.replies), (0, 0));
    for (client, server) in &live {
        assert_eq!((client.handle().close_reason(), server.handle().close_reason()), (None, None));
    }
    // The new one was a mistake. All sessions go on.
    drop(new);
    for (client, server) in &mut live {
        assert_eq!(within(5, "what was written", server.read_u8()).await.unwrap(), 7);
        assert_alive(client, server).await;
    }
}

/// A client of an upgrade: its session ends well, and it tries for another one until it has it.
async fn comes_back(
    mut client: KcpStream,
    addr: SocketAddr,
    config: KcpConfig,
) -> std::io::Result<KcpStream> {
    let mut said = Vec::new();
    client.read_to_end(&mut said).await?;
    assert_eq!(said.len(), 10_000, "all that the old server had written, and then its end");
    client.shutdown().await?;
    let mut client = loop {
        match KcpStream::connect_timeout(addr, config.clone(), Duration::from_secs(10)).await {
            Ok(client) => break client,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => tokio::time::sleep(ms(20)).await,
            Err(error) => return Err(error),
        }
    };
    client.write_u8(7).await?;
    assert_eq!(client.read_u8().await?, 8);
    Ok(client)
}

/// The order that `docs/security.md` advises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_ends_the_old_listener_first_brings_every_client_back_and_resets_nobody() {
    const CLIENTS: usize = 24;
    for shards in [1, 2] {
        let (old, config) = listen(KcpConfig::builder().shards(shards).keep_alive(Some(ms(200)))).await;
        let addr = old.local_addr().unwrap();
        let (mut clients, mut servers) = (Vec::new(), Vec::new());
        for (client, mut server) in sessions(&old, &config, CLIENTS).await {
            server.write_all(&[7; 10_000]).await.unwrap();
            servers.push(server);
            clients.push(spawn(comes_back(client, addr, config.clone())));
        }
        within(10, "the old one has told all", old.shutdown(Duration::from_secs(8))).await.unwrap();
        drop((servers, old));
        // A socket of its own is not there for two at a time. The old one answers for a moment what its peers have not heard.
        let new = within(10, "the port is free", async {
            loop {
                match KcpListener::bind(addr, config.clone()).await {
                    Ok(new) => break new,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
                }
                tokio::time::sleep(ms(10)).await;
            }
        })
        .await;
        let new = Arc::new(new);
        let serving = spawn({
            let new = Arc::clone(&new);
            async move {
                while let Ok((mut server, _)) = new.accept().await {
                    spawn(async move {
                        // One that was refused may have begun a session here before it heard of that. It comes again.
                        let Ok(7) = server.read_u8().await else { return };
                        server.write_u8(8).await.unwrap();
                        let _ = server.read_u8().await;
                    });
                }
            }
        });
        let mut back = Vec::new();
        for client in clients {
            back.push(within(15, "it is back and has its answer", client).await.unwrap().unwrap());
        }
        let stats = new.endpoint_stats();
        // Nothing is answered without a session, but for the last words of those that had been refused.
        let refused = stats.driver.accepted - CLIENTS as u64;
        assert!(stats.driver.replies <= 2 * refused, "{stats:?}");
        serving.abort();
    }
}

/// What arrives at the old one is dropped, and comes to the new one as soon as the old one leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_accepts_no_more_turns_nobody_away_from_another_process_on_its_port() {
    const CLIENTS: usize = 24;
    let config = KcpConfig::default();
    let socket = shared_socket(ANY.parse().unwrap());
    let addr = socket.local_addr().unwrap();
    let old = KcpListener::from_socket(socket, config.clone()).unwrap();
    let new = KcpListener::from_socket(shared_socket(addr), config.clone()).unwrap();
    old.stop_accepting();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let config = config.clone();
            spawn(async move {
                let mut client = KcpStream::connect_timeout(addr, config, Duration::from_secs(20)).await?;
                client.write_u8(7).await?;
                client.read_u8().await
            })
        })
        .collect();
    until(10, "all have come, to either", || {
        old.endpoint_stats().dropped.no_session > 10 && new.endpoint_stats().state.sessions > 3
    })
    .await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(old.endpoint_stats().driver.replies, 0);
    assert!(new.endpoint_stats().state.sessions < CLIENTS as u64, "the old one has some of them");
    drop(old);
    for _ in 0..CLIENTS {
        let (mut server, _) = within(20, "a client", new.accept()).await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), 7);
        server.write_u8(8).await.unwrap();
        spawn(async move { server.read_u8().await });
    }
    for client in clients {
        assert_eq!(within(5, "its answer", client).await.unwrap().unwrap(), 8);
    }
}

/// After a restart nobody is answered: another process may have the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_was_restarted_sends_no_resets() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = KcpConfig::builder().shards(2).keep_alive(Some(ms(200))).build().unwrap();
    let (addr, listener) = runtime.block_on_elsewhere({
        let config = config.clone();
        async move {
            let listener = KcpListener::bind(ANY, config).await.unwrap();
            (listener.local_addr().unwrap(), listener)
        }
    });
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for (client, server) in sessions(&listener, &config, 24).await {
        clients.push(client);
        servers.push(server);
    }
    tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(5))).await.unwrap();
    // Nobody waits for drivers that are gone.
    within(5, "no session is left", listener.wait_idle()).await;
    drop((servers, listener));
    let new = KcpListener::bind(addr, config.clone()).await.unwrap();
    for client in &mut clients {
        client.write_u8(7).await.unwrap();
    }
    until(10, "they ask", || new.endpoint_stats().dropped.no_session > 50).await;
    assert_eq!(new.endpoint_stats().driver.replies, 0);
    // New sessions begin meanwhile.
    let mut fresh = sessions(&new, &config, 4).await;
    assert_all_alive(&mut fresh).await;
}

trait BlockOnElsewhere {
    fn block_on_elsewhere<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T;
}

impl BlockOnElsewhere for tokio::runtime::Runtime {
    /// Runs a future in this runtime, from a task of another one.
    fn block_on_elsewhere<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.spawn(async move { sender.send(future.await) });
        tokio::task::block_in_place(|| receiver.recv()).unwrap()
    }
}

/// The client's second session arrives at another shard than the first, which has moved to its address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_has_moved_has_one_session_where_one_is_allowed() {
    let (listener, config) = listen(sealed(2).one_session_per_address(true)).await;
    let addr = listener.local_addr().unwrap();
    let endpoint = KcpEndpoint::bind(ANY).await.unwrap();
    let client = endpoint.connect(addr, config.clone()).unwrap();
    let (mut first, mut server) = accept_session(&listener, client).await;
    first.connected(Duration::from_secs(5)).await.unwrap();
    for moves in 1..=40 {
        endpoint.rebind(UdpSocket::bind(ELSEWHERE).unwrap()).unwrap();
        until(20, "the server follows", || server.stats().extensions.moves == moves).await;
        if listener.endpoint_stats().driver.handed_over > 0 {
            break;
        }
    }
    assert_alive(&mut first, &mut server).await;
    assert!(listener.endpoint_stats().driver.handed_over > 0);
    let client = endpoint.connect(addr, config).unwrap();
    let (mut second, mut second_server) = accept_session(&listener, client).await;
    let error = within(5, "the first ends", server.read_u8()).await.unwrap_err();
    assert_eq!(
        (KcpError::find(&error), error.kind()),
        (Some(KcpError::Replaced), ErrorKind::ConnectionReset)
    );
    assert_alive(&mut second, &mut second_server).await;
    assert_eq!(listener.endpoint_stats().state.sessions, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lone_writer_is_heard_wherever_its_packets_arrive() {
    let (listener, config) = listen(sealed(8)).await;
    let mut live = sessions(&listener, &config, 8).await;
    let shards = each(&listener, |shard| shard.state.sessions);
    for (client, server) in &mut live {
        client.rebind(UdpSocket::bind(ELSEWHERE).unwrap()).unwrap();
        until(20, "the server follows", || server.stats().extensions.moves == 1).await;
    }
    assert_all_alive(&mut live).await;
    assert_eq!(each(&listener, |shard| shard.state.sessions), shards);
    assert!(listener.endpoint_stats().driver.handed_over > 0);
}
