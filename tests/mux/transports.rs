//! Sessions over real sockets: TCP, and KCP through a path that loses packets.

use kcp9::{
    KcpConfig, KcpListener, KcpStream,
    mux::{MuxConfig, MuxSession, MuxVersion},
};
use kcp9_relay::Relay;
use kcp9_simulator::payload::Payload;
use kcp9_tests::{spawn, within};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpStream},
};

fn config(version: MuxVersion) -> MuxConfig {
    MuxConfig::builder().version(version).build().unwrap()
}

/// Echoes every stream, until the session ends.
async fn serve<T: AsyncRead + AsyncWrite + Send + 'static>(transport: T, version: MuxVersion) {
    let session = MuxSession::server(transport, config(version));
    while let Ok(stream) = session.accept().await {
        spawn(async move {
            let (mut reader, mut writer) = split(stream);
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.shutdown().await.unwrap();
        });
    }
}

/// 20 streams at once, each with bytes of its own that come back.
async fn drive<T: AsyncRead + AsyncWrite + Send + 'static>(transport: T, version: MuxVersion, len: usize) {
    let session = MuxSession::client(transport, config(version));
    let mut runs = Vec::new();
    for at in 0..20 {
        let (mut reader, mut writer) = split(session.open().await.unwrap());
        runs.push(spawn(async move {
            let sent = Payload::new(at).bytes(0, len);
            let writing = async {
                writer.write_all(sent).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut back = Vec::new();
            let (_, read) = tokio::join!(writing, reader.read_to_end(&mut back));
            read.unwrap();
            assert!(back == sent, "stream {at}: {} of {len} bytes", back.len());
        }));
    }
    for run in runs {
        within(60, "a stream", run).await.unwrap();
    }
    within(10, "closing", session.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_tcp() {
    for version in [MuxVersion::V1, MuxVersion::V2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = spawn(async move { serve(listener.accept().await.unwrap().0, version).await });
        drive(TcpStream::connect(addr).await.unwrap(), version, 250_000).await;
        within(10, "the server's end", serving).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_kcp_through_a_path_that_loses_packets() {
    for version in [MuxVersion::V1, MuxVersion::V2] {
        let listener = KcpListener::bind("127.0.0.1:0", KcpConfig::default()).await.unwrap();
        let relay = Relay::lossy(listener.local_addr().unwrap(), 0.05).unwrap();
        let serving = spawn(async move { serve(listener.accept().await.unwrap().0, version).await });
        let stream = KcpStream::connect(relay.addr(), KcpConfig::default()).await.unwrap();
        drive(stream, version, 50_000).await;
        within(10, "the server's end", serving).await.unwrap();
        assert!(relay.counts().dropped() > 20);
    }
}
