//! Peers that make their packets themselves, as costly ones as there are: what each takes the driver of a real socket, with the system
//! calls, the readers, and the answers that it draws. They come singly, or many at once, as a sender may hand them to the kernel.
//!
//! The packets that would begin a session are called openings: what these take is the least of what they cost, and is bounded otherwise.

mod bursts;
mod peer;

use std::{io, net::Ipv4Addr, sync::mpsc, thread};

use kcp9::{
    KcpConfig, KcpListener,
    proto::noise::{KeyPair, Responder},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::oneshot,
    task::JoinSet,
};

use self::{
    bursts::{PATTERNS, Pattern},
    peer::{Kind, Peer},
};
use crate::driver::{Measured, fall_behind, read_to_end};

const PEERS: u8 = 16;

fn flood(pattern: &Pattern, at_once: bool) {
    let (told, listens) = mpsc::channel();
    let (over, is_over) = oneshot::channel();
    let keys = KeyPair::from_secret_bytes(&[7; 32]);
    let public = *keys.public();
    let config = match pattern.kind {
        Kind::Sealed(_) => KcpConfig::builder().noise(Responder::nk(keys)).build().expect("settings"),
        _ => KcpConfig::default(),
    };
    let server = thread::spawn(move || {
        crate::driver::runtime().block_on(async {
            let listener = KcpListener::bind((Ipv4Addr::LOCALHOST, 0), config).await?;
            told.send(listener.local_addr()?).expect("somebody listens");
            let mut readers = JoinSet::new();
            for _ in 0..PEERS {
                let (mut stream, _) = listener.accept().await?;
                stream.read_exact(&mut [0]).await?;
                stream.write_all(&[0]).await?;
                stream.read_exact(&mut [0]).await?;
                readers.spawn(read_to_end(stream));
            }
            tokio::spawn(fall_behind());
            let measured = Measured::begin(listener.endpoint_stats());
            let mut others = Vec::new();
            let accepting = async {
                while let Ok(other) = listener.accept().await {
                    others.push(other);
                }
            };
            tokio::select! {
                () = accepting => panic!("it listens"),
                over = is_over => over.expect("it says so"),
            }
            io::Result::Ok(measured.end(listener.endpoint_stats()))
        })
    });
    let addr = listens.recv().expect("it listens");
    let connect = |number| Peer::connect(addr, pattern.kind, &public, number, at_once).expect("a session");
    let mut peers: Vec<_> = (1..=PEERS).map(connect).collect();
    for _ in 0..pattern.bursts {
        for peer in &mut peers {
            peer.send(pattern.make).expect("it is acknowledged");
        }
    }
    for peer in &mut peers {
        peer.wait(0).expect("it is acknowledged");
    }
    over.send(()).expect("it reads");
    let how = if at_once { "at once" } else { "singly" };
    server.join().expect("no panic").expect("a session").print(&format!("{}, {how}", pattern.name));
}

pub(crate) fn measure() {
    for pattern in PATTERNS {
        flood(pattern, false);
        flood(pattern, true);
    }
}
