//! The client: it sends what it is given, and prints what comes.

use kcp9::KcpConfig;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{
    options::{ClientOptions, Hex, transport},
    ws::{self, Close, Error, Event, Socket, Stream},
};

pub(crate) async fn run(options: &ClientOptions) -> Result<(), Error> {
    let url = &options.url;
    let stream = Stream::connect(transport(options.tcp), &url.host, KcpConfig::default()).await;
    let stream = stream.map_err(Error::Stream)?;
    let mut socket = ws::connect(stream, &url.host, &url.path, &options.common.settings()).await?;
    if let Some(name) = socket.subprotocol() {
        eprintln!("subprotocol {name}");
    }
    if let Some(agreed) = socket.compression() {
        eprintln!("{agreed}");
    }
    let closed = if options.ping || !options.text.is_empty() || !options.binary.is_empty() {
        once(&mut socket, options).await?
    } else {
        interactive(&mut socket).await?
    };
    let close = match closed {
        Some(close) => close,
        None => socket.close(options.close_code, &options.close_reason).await?,
    };
    eprintln!("closed: {close}");
    Ok(())
}

/// Sends what the command line says, and waits for an answer to each. The server's close frame, if one comes before.
async fn once(socket: &mut Socket, options: &ClientOptions) -> Result<Option<Close>, Error> {
    let pings = usize::from(options.ping);
    for number in 0..pings + options.text.len() + options.binary.len() {
        if number < pings {
            socket.ping("ping").await?;
        } else if let Some(text) = options.text.get(number - pings) {
            socket.send_text(text.clone()).await?;
        } else if let Some(Hex(bytes)) = options.binary.get(number - pings - options.text.len()) {
            socket.send_binary(bytes.clone()).await?;
        }
        // A ping of the server is no answer.
        let mut event = socket.recv().await?;
        while let Event::Ping(_) = event {
            event = socket.recv().await?;
        }
        if let Some(close) = show(event) {
            return Ok(Some(close));
        }
    }
    Ok(None)
}

/// Sends each line of the input as a text, until it ends. The server's close frame, if one comes before.
async fn interactive(socket: &mut Socket) -> Result<Option<Close>, Error> {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => match line.map_err(Error::Stream)? {
                Some(line) => socket.send_text(line).await?,
                None => return Ok(None),
            },
            event = socket.recv() => {
                if let Some(close) = show(event?) {
                    return Ok(Some(close));
                }
            }
        }
    }
}

fn show(event: Event) -> Option<Close> {
    match event {
        Event::Text(text) => println!("{}", String::from_utf8_lossy(&text)),
        Event::Binary(bytes) => {
            println!("{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        }
        Event::Ping(_) => {}
        Event::Pong(_) => println!("pong"),
        Event::Close(close) => return Some(close),
    }
    None
}
