//! WebSocket by tungstenite.

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::{
    accept_async, client_async,
    tungstenite::{
        Message,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use crate::support::{connect, listen, spawn, until, within};

/// The close handshake ends with the end of the stream: the server closes first, the client waits for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_handshake_comes_to_its_end_on_both_sides() {
    let (listener, addr) = listen().await;
    for client_closes in [true, false] {
        let connecting = async {
            let stream = connect(addr).await;
            client_async("ws://kcp9/", stream).await.unwrap().0
        };
        let accepting = async {
            let (stream, _) = listener.accept().await.unwrap();
            accept_async(stream).await.unwrap()
        };
        let handshake = async { tokio::join!(connecting, accepting) };
        let (mut client, mut server) = within(10, "the handshake", handshake).await;
        for number in 0..20_u32 {
            let message = Message::binary(vec![number as u8; 3_000]);
            client.send(message.clone()).await.unwrap();
            assert_eq!(within(10, "a message", server.next()).await.unwrap().unwrap(), message);
            server.send(message.clone()).await.unwrap();
            assert_eq!(within(10, "a message", client.next()).await.unwrap().unwrap(), message);
        }
        let frame = CloseFrame { code: CloseCode::Normal, reason: "done".into() };
        let closer = if client_closes { &mut client } else { &mut server };
        closer.close(Some(frame.clone())).await.unwrap();
        let (mut first, mut second) = if client_closes { (client, server) } else { (server, client) };
        let answering = spawn(async move {
            let close = second.next().await.unwrap().unwrap();
            // Its answer leaves, and then the stream of messages ends: for the client, when the server has gone.
            assert!(second.next().await.is_none());
            close
        });
        let answer = within(10, "the answer to the close", first.next()).await.unwrap().unwrap();
        assert!(answer.is_close());
        // The client waits for the end of the stream, the server does not.
        assert!(within(10, "the end", first.next()).await.is_none());
        drop(first);
        let close = within(10, "the other end", answering).await.unwrap();
        assert_eq!(close, Message::Close(Some(frame)));
        until(10, "no session is left", || listener.endpoint_stats().state.sessions == 0).await;
    }
}
