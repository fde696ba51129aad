//! Chromium without a screen, told by its DevTools protocol what to do.

use std::{path::Path, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures_util::{SinkExt, StreamExt};
use kcp9_tests::within;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};

use crate::support::{LIMIT, Program};

/// Where Debian and others have it. The first is the smaller one; its namesake in `/usr/bin` is a script, and to kill that would leave
/// the browser alone.
const PROGRAMS: [&str; 3] =
    ["/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium", "/usr/bin/google-chrome"];

pub struct Browser(Program);

impl Browser {
    /// # Panics
    /// Without it: whoever asks for these tests wants them run.
    pub fn start(profile: &Path) -> Self {
        let program = PROGRAMS.iter().map(Path::new).find(|path| path.exists());
        let program = program.unwrap_or_else(|| panic!("there is none of {PROGRAMS:?}"));
        let profile = format!("--user-data-dir={}", profile.display());
        // Containers have no user namespaces for its sandbox, and little shared memory. It opens a page of this test only.
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--remote-debugging-port=0",
            &profile,
            "about:blank",
        ];
        Self(Program::start(program, &arguments))
    }

    /// Opens a page.
    pub async fn open(&self, url: &str) -> Tab {
        let address = format!("ws://{}", self.0.says("DevTools listening on ws://").await);
        let authority = address["ws://".len()..].split('/').next().unwrap();
        let stream = TcpStream::connect(authority).await.unwrap();
        // A screenshot is one message.
        let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
        let (socket, _) = client_async_with_config(&address, stream, Some(config)).await.unwrap();
        let mut tab = Tab { socket, session: None, calls: 0 };
        let target = tab.call("Target.createTarget", json!({ "url": url })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = tab.call("Target.attachToTarget", attach).await;
        tab.session = Some(attached["sessionId"].clone());
        tab
    }

    /// Ends it, with all of its processes.
    pub async fn close(mut self, mut tab: Tab) {
        tab.session = None;
        tab.call("Browser.close", json!({})).await;
        self.0.ended().await;
    }
}

pub struct Tab {
    socket: WebSocketStream<TcpStream>,
    session: Option<Value>,
    calls: u64,
}

impl Tab {
    async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = session.clone();
        }
        self.socket.send(Message::text(call.to_string())).await.unwrap();
        let (socket, id) = (&mut self.socket, self.calls);
        let answer = async {
            loop {
                let message = socket.next().await.expect("the browser runs").unwrap();
                let Message::Text(text) = message else { continue };
                let mut message: Value = serde_json::from_str(&text).unwrap();
                // The others tell what happens.
                if message["id"] == id {
                    assert!(message.get("error").is_none(), "{method}: {message}");
                    return message["result"].take();
                }
            }
        };
        within(LIMIT, method, answer).await
    }

    /// The value of an expression of JavaScript.
    pub async fn evaluate(&mut self, expression: &str) -> Value {
        let expression = json!({ "expression": expression, "returnByValue": true });
        let mut outcome = self.call("Runtime.evaluate", expression).await;
        assert!(outcome.get("exceptionDetails").is_none(), "{outcome}");
        outcome["result"]["value"].take()
    }

    /// Waits until the page shows `expected`, but for empty lines and spaces at their ends.
    pub async fn until_text(&mut self, expected: &str) {
        let lines = |text: &str| -> Vec<String> {
            text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
        };
        let expected = lines(expected);
        let mut shown = Vec::new();
        for _ in 0..LIMIT * 10 {
            let text = self.evaluate("document.body?.innerText").await;
            shown = lines(text.as_str().unwrap_or_default());
            if shown == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the page shows {shown:#?}, and not {expected:#?}");
    }

    /// What it looks like, as PNG.
    pub async fn screenshot(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" })).await;
        BASE64_STANDARD.decode(picture["data"].as_str().expect("a picture")).unwrap()
    }
}
