//! The client that the Autobahn test suite tests: `wstest -m fuzzingserver` says how many cases there are, and judges what it does.

use std::sync::Arc;

use kcp9::KcpConfig;

use crate::{
    options::AutobahnOptions,
    server::echo,
    ws::{self, Deflate, Error, Event, Settings, Socket, Stream, Transport},
};

pub(crate) async fn run(options: &AutobahnOptions) -> Result<(), Error> {
    // As long as the suite's longest messages.
    let settings =
        Settings { max_message: 16 << 20, deflate: Some(Deflate::default()), ..Settings::default() };
    let settings = Arc::new(settings);
    let mut counting = open(&options.server, "/getCaseCount", &settings).await?;
    let Event::Text(count) = counting.recv().await? else {
        return Err(Error::Handshake("the server does not tell how many cases there are".to_owned()));
    };
    let count = std::str::from_utf8(&count).ok().and_then(|count| count.parse().ok()).unwrap_or(0);
    for case in options.first..=options.last.unwrap_or(count).min(count) {
        let path = format!("/runCase?case={case}&agent=kcp9");
        let outcome = async {
            let mut socket = open(&options.server, &path, &settings).await?;
            echo(&mut socket).await
        };
        // Many cases end in an error on purpose.
        match outcome.await {
            Ok(close) => println!("case {case} of {count}: {close}"),
            Err(error) => println!("case {case} of {count}: {error}"),
        }
    }
    let mut updating = open(&options.server, "/updateReports?agent=kcp9", &settings).await?;
    // The server closes when it has written them.
    echo(&mut updating).await.map(drop)
}

async fn open(server: &str, path: &str, settings: &Settings) -> Result<Socket, Error> {
    let stream =
        Stream::connect(Transport::Tcp, server, KcpConfig::default()).await.map_err(Error::Stream)?;
    ws::connect(stream, server, path, settings).await
}
