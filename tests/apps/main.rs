//! What people put on a stream: HTTP, gRPC, WebSocket, TLS, a proxy, requests and answers over a bad path; and processes that are killed
//! and started again. All of it as over TCP, between two peers that know the extensions.
#![cfg(feature = "tokio")]
#![allow(missing_docs, unreachable_pub, reason = "a test")]

#[cfg(feature = "metrics")]
#[path = "../../examples/plot/chart.rs"]
mod chart;
mod exchanges;
#[cfg(feature = "tonic")]
mod grpc;
#[cfg(feature = "axum")]
mod http;
#[cfg(feature = "noise")]
mod keys;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
mod pictures;
#[cfg(unix)]
mod processes;
#[cfg(target_os = "linux")]
mod proxy;
#[cfg(feature = "metrics")]
#[macro_use]
#[path = "../../examples/common/qlog.rs"]
mod qlog;
#[cfg(feature = "metrics")]
mod records;
#[cfg(feature = "password")]
mod scale;
mod support;
#[cfg(feature = "metrics")]
mod svg;
#[cfg(feature = "tls")]
mod tls;
#[cfg(all(unix, feature = "top"))]
mod tmux;
#[cfg(all(unix, feature = "top"))]
mod top;
#[cfg(all(unix, feature = "top"))]
mod top_live;
mod websocket;
#[cfg(feature = "websocket")]
mod websocket_example;
