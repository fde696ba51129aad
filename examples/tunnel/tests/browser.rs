//! A page in a real browser, which comes through the tunnel, and whose WebSocket goes through it.

mod devtools;

use std::{fs, path::Path};

use kcp9_relay::Relay;
use kcp9_tests::example;
use tempfile::TempDir;

use self::devtools::Browser;
use super::{
    start,
    support::{Program, unshared},
};

/// What drops a packet in twenty, each way.
const LOSS: f64 = 0.05;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Chromium: cargo build --example websocket --features websocket; cargo test --test tunnel -- --ignored browser"]
async fn a_page_and_its_websocket_come_through_the_tunnel() {
    let web = format!("server --tcp --addr {}:8000 --compress", unshared());
    let web: Vec<_> = web.split(' ').collect();
    let web = Program::start(&example("websocket"), &web);
    let page = web.says("listening on ").await;
    let page = page.strip_suffix(", over tcp").expect("it serves TCP");

    let server = start(&format!("server -l {}:4000 -t {page} -key of-this-test", unshared()));
    let relay = Relay::lossy(server.addr().await, LOSS).unwrap();
    let client = start(&format!("client -l 127.0.0.1:0 -r {} -key of-this-test", relay.addr()));
    let near = client.addr().await;

    let profile = TempDir::new().unwrap();
    let browser = Browser::start(profile.path());
    let mut tab = browser.open(&format!("http://{near}/")).await;
    let begun = "WebSocket echo\nopen\nSend\ntext: a text from this page\nbinary: 0 1 254 255";
    tab.until_text(begun).await;

    let picture = tab.screenshot().await;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.png");
    fs::write(&path, &picture).unwrap();
    println!("{}: {} bytes", path.display(), picture.len());
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n"));

    let text = "a longer text, 你好, ".repeat(1_000);
    tab.evaluate(&format!(
        "document.getElementById('text').value = {text:?}; document.querySelector('button').click()"
    ))
    .await;
    tab.until_text(&format!("{begun}\ntext: {text}")).await;

    // The server tells the page that it goes away.
    web.signal("INT").await;
    tab.until_text(&format!(
        "{}\ntext: {text}\nclosed: 1001 the server ends",
        begun.replace("open", "closed")
    ))
    .await;
    browser.close(tab).await;
}
