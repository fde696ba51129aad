//! An open WebSocket: messages, pings, and the ways in which it ends.

use std::{fmt, future::poll_fn, io, pin::Pin, time::Duration};

use futures_util::{Sink, SinkExt};
use hyper::body::Bytes;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use yawc::{Frame, OpCode, Role, WebSocket, WebSocketError, close::CloseCode, streaming::Streaming};

use super::{
    extension::Agreed,
    link::{Back, Link},
    settings::Settings,
    transport::Stream,
};

/// Codes of close frames, RFC 6455, section 7.4.1.
pub(crate) mod code {
    pub(crate) const NORMAL: u16 = 1000;
    pub(crate) const GOING_AWAY: u16 = 1001;
    pub(crate) const PROTOCOL_ERROR: u16 = 1002;
    pub(crate) const INVALID_DATA: u16 = 1007;
    pub(crate) const MESSAGE_TOO_BIG: u16 = 1009;
    pub(crate) const INTERNAL: u16 = 1011;
}

/// A WebSocket of either role. Over `recv`, pings are answered and errors of the peer are told to it by a close frame.
///
/// It takes frames from yawc and puts messages together itself. So a message that is too long or has invalid text is known with
/// the frame that makes it so, and its length is limited as a whole, however it is split and compressed.
pub(crate) struct Socket {
    /// None when it has ended.
    frames: Option<Box<Streaming<Link>>>,
    back: Back,
    role: Role,
    /// The message that is being received, if the last one is complete.
    partial: Option<Box<Partial>>,
    max_message: usize,
    fragment: Option<usize>,
    agreed: Option<Agreed>,
    subprotocol: Option<Box<str>>,
}

/// What `recv` gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Valid UTF-8.
    Text(Bytes),
    Binary(Bytes),
    /// It has been answered.
    Ping(Bytes),
    Pong(Bytes),
    /// The last one: the peer closed, and was answered.
    Close(Close),
}

/// Why an end closes; a peer may give no code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Close {
    pub(crate) code: Option<u16>,
    pub(crate) reason: String,
}

#[derive(Debug)]
pub(crate) enum Error {
    /// There was no WebSocket.
    Handshake(String),
    /// The peer did what it must not, and was told so by this close frame.
    Failed(Close),
    /// The stream ended without a close frame.
    Gone,
    /// The stream failed.
    Stream(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(reason) => write!(f, "no WebSocket: {reason}"),
            Self::Failed(close) => write!(f, "closed for the peer's error: {close}"),
            Self::Gone => f.write_str("the peer ended without closing"),
            Self::Stream(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Close {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{code} {}", self.reason),
            None => f.write_str("no code"),
        }
    }
}

/// A message of which some frames have come.
struct Partial {
    text: bool,
    bytes: Vec<u8>,
    /// How many of them are known to be valid text.
    valid: usize,
}

impl Socket {
    pub(super) fn new(
        stream: Stream,
        early: Bytes,
        role: Role,
        agreed: Option<Agreed>,
        subprotocol: Option<String>,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let (link, back) = Link::new(stream, early);
        let extensions = agreed.map(|agreed| agreed.to_string());
        let socket =
            WebSocket::from_stream_with_extensions(link, role, extensions.as_deref(), settings.options());
        Ok(Self {
            frames: Some(Box::new(
                socket.map_err(|error| Error::Handshake(error.to_string()))?.into_streaming(),
            )),
            back,
            role,
            partial: None,
            max_message: settings.max_message,
            fragment: settings.fragment,
            agreed,
            subprotocol: subprotocol.map(String::into_boxed_str),
        })
    }

    /// The subprotocol that both ends speak, if they have one in common.
    pub(crate) fn subprotocol(&self) -> Option<&str> {
        self.subprotocol.as_deref()
    }

    /// How messages are compressed, if they are.
    pub(crate) const fn compression(&self) -> Option<Agreed> {
        self.agreed
    }

    /// The next message, or ping, or the peer's close frame, behind which nothing comes.
    ///
    /// # Errors
    /// Whatever ends the WebSocket but a close frame. There is nothing to be done with it after that but to drop it.
    pub(crate) async fn recv(&mut self) -> Result<Event, Error> {
        loop {
            let frame = match self.frames()?.next_frame().await {
                Ok(frame) => frame,
                Err(error) => return Err(self.failed(error).await),
            };
            let (opcode, fin, payload) = frame.into_parts();
            if opcode.is_control() && payload.len() > MAX_CONTROL {
                return Err(self.fail(code::PROTOCOL_ERROR, "a control frame is too long").await);
            }
            match opcode {
                OpCode::Ping => {
                    // The answer leaves before more is read: else a peer that pings and does not read could pile them up.
                    self.ready().await?;
                    return Ok(Event::Ping(payload));
                }
                OpCode::Pong => return Ok(Event::Pong(payload)),
                OpCode::Close => {
                    // yawc has looked at it already: its code is allowed and its reason is text. The answer is its own, too.
                    let close = Close::of(&payload);
                    drop(timeout(CLOSE, self.ready()).await);
                    self.finish(self.role).await;
                    return Ok(Event::Close(close));
                }
                OpCode::Text | OpCode::Binary | OpCode::Continuation => {
                    match self.assemble(opcode, fin, payload) {
                        Ok(None) => {}
                        Ok(Some(message)) => return Ok(message),
                        Err((code, reason)) => return Err(self.fail(code, reason).await),
                    }
                }
            }
        }
    }

    /// Adds a frame to its message; the message, if that completes it, or the code and reason to close with.
    fn assemble(
        &mut self,
        opcode: OpCode,
        fin: bool,
        payload: Bytes,
    ) -> Result<Option<Event>, (u16, &'static str)> {
        let begun = self.partial.as_ref().map_or(0, |partial| partial.bytes.len());
        if begun + payload.len() > self.max_message {
            return Err((code::MESSAGE_TOO_BIG, "the message is too long"));
        }
        let text = opcode == OpCode::Text;
        match (&mut self.partial, opcode) {
            (None, OpCode::Continuation) => {
                return Err((code::PROTOCOL_ERROR, "a message goes on that has not begun"));
            }
            (Some(_), OpCode::Text | OpCode::Binary) => {
                return Err((code::PROTOCOL_ERROR, "a message begins inside another"));
            }
            // Most messages are one frame, and not copied.
            (None, _) if fin => {
                if text && std::str::from_utf8(&payload).is_err() {
                    return Err(NOT_TEXT);
                }
                return Ok(Some(if text { Event::Text(payload) } else { Event::Binary(payload) }));
            }
            (None, _) => {
                let mut partial = Partial { text, bytes: payload.to_vec(), valid: 0 };
                partial.check(false)?;
                self.partial = Some(Box::new(partial));
            }
            (Some(partial), _) => {
                partial.bytes.extend_from_slice(&payload);
                partial.check(fin)?;
            }
        }
        if !fin {
            return Ok(None);
        }
        let message = self.partial.take().map(|partial| {
            let bytes = Bytes::from(partial.bytes);
            if partial.text { Event::Text(bytes) } else { Event::Binary(bytes) }
        });
        Ok(message)
    }

    /// # Errors
    /// Those of the stream, or the WebSocket is closed.
    pub(crate) async fn send_text(&mut self, text: impl Into<Bytes>) -> Result<(), Error> {
        self.send_message(Frame::text(text)).await
    }

    /// # Errors
    /// As of [`send_text`](Self::send_text).
    pub(crate) async fn send_binary(&mut self, bytes: impl Into<Bytes>) -> Result<(), Error> {
        self.send_message(Frame::binary(bytes)).await
    }

    /// At most 125 bytes, which the peer sends back.
    ///
    /// # Errors
    /// As of [`send_text`](Self::send_text).
    pub(crate) async fn ping(&mut self, payload: impl Into<Bytes>) -> Result<(), Error> {
        self.send(Frame::ping(payload)).await
    }

    /// Closes, and waits for the answer; what comes before that is lost.
    ///
    /// # Errors
    /// As of [`recv`](Self::recv); `Gone` if there was no answer within five seconds.
    pub(crate) async fn close(mut self, code: u16, reason: &str) -> Result<Close, Error> {
        self.send(Frame::close(CloseCode::from(code), reason)).await?;
        let answer = timeout(CLOSE, self.answer_to_close()).await;
        self.finish(self.role).await;
        answer.unwrap_or(Err(Error::Gone))
    }

    async fn answer_to_close(&mut self) -> Result<Close, Error> {
        loop {
            let frame = self.frames()?.next_frame().await?;
            if frame.opcode() == OpCode::Close {
                return Ok(Close::of(frame.payload()));
            }
        }
    }

    async fn send_message(&mut self, message: Frame) -> Result<(), Error> {
        let Some(most) = self.fragment.filter(|most| message.payload().len() > *most) else {
            return self.send(message).await;
        };
        let (mut opcode, _, mut rest) = message.into_parts();
        loop {
            let payload = rest.split_to(rest.len().min(most.max(1)));
            let frame = match opcode {
                OpCode::Text => Frame::text(payload),
                OpCode::Binary => Frame::binary(payload),
                _ => Frame::continuation(payload),
            };
            self.send(frame.with_fin(rest.is_empty())).await?;
            if rest.is_empty() {
                return Ok(());
            }
            opcode = OpCode::Continuation;
        }
    }

    async fn send(&mut self, frame: Frame) -> Result<(), Error> {
        self.frames()?.send(frame).await.map_err(Error::from)
    }

    /// Waits until yawc's own frames have left: pongs, and the answers to close frames.
    async fn ready(&mut self) -> Result<(), Error> {
        let frames = self.frames()?;
        poll_fn(|cx| Pin::new(&mut *frames).poll_ready(cx)).await.map_err(Error::from)
    }

    fn frames(&mut self) -> Result<&mut Streaming<Link>, Error> {
        self.frames.as_deref_mut().ok_or(Error::Gone)
    }

    /// Ends after an error that yawc found. It has prepared a close frame, which leaves when it is asked for one frame more.
    async fn failed(&mut self, error: WebSocketError) -> Error {
        let error = Error::from(error);
        if let (Error::Failed(_), Ok(frames)) = (&error, self.frames()) {
            drop(timeout(CLOSE, frames.next_frame()).await);
            self.finish(Role::Server).await;
        }
        // A stream that failed or ended has nothing to be waited for.
        self.frames = None;
        error
    }

    /// Ends after an error that was found here.
    async fn fail(&mut self, code: u16, reason: &str) -> Error {
        drop(timeout(CLOSE, self.send(Frame::close(CloseCode::from(code), reason))).await);
        self.finish(Role::Server).await;
        Error::Failed(Close { code: Some(code), reason: reason.to_owned() })
    }

    /// Ends the stream when all close frames are sent. Who closes first as a server does, who waits for that as a client.
    async fn finish(&mut self, role: Role) {
        let Some(mut frames) = self.frames.take() else { return };
        if role == Role::Server {
            drop(timeout(CLOSE, frames.close()).await);
        }
        drop(frames);
        let Some(mut stream) = self.back.take() else { return };
        let rest = async {
            let mut buffer = vec![0; 4_096];
            while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
        };
        drop(timeout(DRAIN, rest).await);
        if role == Role::Client {
            drop(timeout(CLOSE, stream.shutdown()).await);
        }
    }
}

impl Partial {
    /// Whether the text is valid as far as it has come. A character may be split between two frames.
    fn check(&mut self, complete: bool) -> Result<(), (u16, &'static str)> {
        if !self.text {
            return Ok(());
        }
        match std::str::from_utf8(&self.bytes[self.valid..]) {
            Ok(_) => self.valid = self.bytes.len(),
            Err(error) if error.error_len().is_none() && !complete => self.valid += error.valid_up_to(),
            Err(_) => return Err(NOT_TEXT),
        }
        Ok(())
    }
}

impl Close {
    fn of(payload: &[u8]) -> Self {
        let Some((code, reason)) = payload.split_first_chunk() else { return Self::default() };
        let reason = String::from_utf8_lossy(reason).into_owned();
        Self { code: Some(u16::from_be_bytes(*code)), reason }
    }
}

impl From<WebSocketError> for Error {
    fn from(error: WebSocketError) -> Self {
        let code = match &error {
            WebSocketError::ConnectionClosed => return Self::Gone,
            // What cannot be decompressed.
            WebSocketError::IoError(inner) if inner.kind() == io::ErrorKind::InvalidInput => code::INTERNAL,
            WebSocketError::IoError(inner) => return Self::Stream(io::Error::new(inner.kind(), error)),
            WebSocketError::FrameTooLarge => code::MESSAGE_TOO_BIG,
            WebSocketError::InvalidUTF8 => code::INVALID_DATA,
            _ => code::PROTOCOL_ERROR,
        };
        Self::Failed(Close { code: Some(code), reason: error.to_string() })
    }
}

const NOT_TEXT: (u16, &str) = (code::INVALID_DATA, "the text is not valid UTF-8");
/// Bytes in a ping, a pong or a close frame: RFC 6455, section 5.5.
const MAX_CONTROL: usize = 125;
/// How long a peer has to take a close frame, and to answer one.
const CLOSE: Duration = Duration::from_secs(5);
/// How long the end of the peer's stream is waited for.
const DRAIN: Duration = Duration::from_secs(2);
