//! What streams of one session take, while they are open and when they are gone.

use kcp9::mux::{MuxConfig, MuxSession, MuxVersion};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    runtime::Builder,
};

const STREAMS: usize = 10_000;
/// Heap bytes of one end of an idle stream, with its handle and its place in the tables.
const MAX_PER_STREAM: usize = 400;

#[test]
fn an_idle_stream_takes_little() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let config = MuxConfig::builder().version(MuxVersion::V2).build().unwrap();
    let (client, server) = runtime.block_on(async {
        let (one, other) = duplex(64 << 10);
        (MuxSession::client(one, config.clone()), MuxSession::server(other, config))
    });
    let mut streams = Vec::with_capacity(STREAMS);
    let info = allocation_counter::measure(|| {
        runtime.block_on(async {
            for _ in 0..STREAMS {
                let mut one = client.open().await.unwrap();
                let mut other = server.accept().await.unwrap();
                one.write_all(&[1; 100]).await.unwrap();
                other.read_exact(&mut [0; 100]).await.unwrap();
                streams.push((one, other));
            }
        });
    });
    let of_one = usize::try_from(info.bytes_current).unwrap() / (2 * STREAMS);
    println!("{of_one} bytes a stream and end");
    assert!(of_one < MAX_PER_STREAM, "{of_one} bytes");
}

/// What nobody reads is bounded by the receive buffer, in the least convenient frames: of one byte, of streams in turn.
#[test]
fn small_frames_take_no_more_than_the_buffer() {
    use kcp9::{
        mux::{MuxCore, MuxRole},
        proto::Instant,
    };
    const BUFFER: usize = 1 << 20;
    let config = MuxConfig::builder().receive_buffer(BUFFER).build().unwrap();
    let mut core = MuxCore::new(config, MuxRole::Server, Instant::ZERO);
    let mut frames = Vec::new();
    let info = allocation_counter::measure(|| {
        for id in 0..100_u8 {
            core.receive(Instant::ZERO, vec![1, 0, 0, 0, 3 + 2 * id, 0, 0, 0].into());
        }
        while core.wants_input() {
            frames.clear();
            for id in 0..100 {
                frames.extend([1, 2, 1, 0, 3 + 2 * id, 0, 0, 0, 7]);
            }
            core.receive(Instant::ZERO, frames.clone().into());
        }
        frames = Vec::new();
    });
    let bytes = usize::try_from(info.bytes_current).unwrap();
    println!("{bytes} bytes for {BUFFER}");
    assert!(bytes < 2 * BUFFER + 100 * MAX_PER_STREAM, "{bytes} bytes for {BUFFER}");
}
