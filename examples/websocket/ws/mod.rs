//! WebSockets over any transport: what the programs here and the tests share.
//!
//! [`connect`] and [`accept`] are the opening handshakes of a client and of a server; both make a [`Socket`].

mod extension;
mod handshake;
mod link;
mod settings;
mod socket;
mod transport;

pub(crate) use self::{
    extension::Deflate,
    handshake::{accept, connect},
    settings::Settings,
    socket::{Close, Error, Event, Socket, code},
    transport::{Listener, Stream, Transport},
};
