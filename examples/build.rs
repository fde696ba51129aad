//! Writes the client and the server of the example `grpc`, as tonic's compiler does from a `.proto` file: without one it needs no
//! `protoc`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "tonic")]
    grpc();
}

/// ```proto
/// package kcp9.example;
/// message Line { string text = 1; }
/// message Peer { string address = 1; uint32 conv = 2; uint64 bytes_read = 3; }
/// service Echo {
///   rpc Say(Line) returns (Line);
///   rpc Chat(stream Line) returns (stream Line);
///   rpc WhoAmI(Line) returns (Peer);
/// }
/// ```
#[cfg(feature = "tonic")]
fn grpc() {
    use tonic_build::manual::{Builder, Method, Service};

    let method = |name, route, output| {
        Method::builder()
            .name(name)
            .route_name(route)
            .input_type("crate::Line")
            .output_type(output)
            .codec_path("tonic_prost::ProstCodec")
    };
    let echo = Service::builder()
        .name("Echo")
        .package("kcp9.example")
        .method(method("say", "Say", "crate::Line").build())
        .method(method("chat", "Chat", "crate::Line").client_streaming().server_streaming().build())
        .method(method("who_am_i", "WhoAmI", "crate::Peer").build())
        .build();
    Builder::new().compile(&[echo]);
}
