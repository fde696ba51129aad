//! Every key of kcptun 20210922, and ours.

use clap::FromArgMatches;

use super::*;
use crate::options::{Arguments, Kdf, Mux};

fn role(name: &str) -> Role {
    let matches = <Arguments as clap::CommandFactory>::command().get_matches_from(["tunnel", name]);
    Arguments::from_arg_matches(&matches).unwrap().role
}

fn client(text: &str) -> Client {
    let mut role = role("client");
    assert_eq!(merge_text(text, &mut role).unwrap(), Vec::<String>::new());
    let Role::Client(client) = role else { panic!("not a client") };
    client
}

fn server(text: &str) -> Server {
    let mut role = role("server");
    assert_eq!(merge_text(text, &mut role).unwrap(), Vec::<String>::new());
    let Role::Server(server) = role else { panic!("not a server") };
    server
}

#[test]
fn each_key_of_a_client_is_taken() {
    let client = client(
        r#"{"localaddr": ":1", "remoteaddr": "host:2", "conn": 3, "autoexpire": 4, "scavengettl": 5, "key": "k",
            "crypt": "aes-128", "mode": "manual", "mtu": 6, "sndwnd": 7, "rcvwnd": 8, "datashard": 9, "parityshard": 10,
            "dscp": 11, "nocomp": true, "acknodelay": true, "nodelay": 12, "interval": 13, "resend": 14, "nc": 15,
            "sockbuf": 16, "smuxver": 17, "smuxbuf": 18, "streambuf": 19, "keepalive": 20, "log": "l", "snmplog": "s",
            "snmpperiod": 21, "quiet": true, "tcp": true, "mux": "none", "kdf": "argon2", "drain": 22}"#,
    );
    let Client { localaddr, remoteaddr, conn, autoexpire, scavengettl, common } = client;
    assert_eq!((&*localaddr, &*remoteaddr, conn, autoexpire, scavengettl), (":1", "host:2", 3, 4, 5));
    assert_common(&common);
}

#[test]
fn each_key_of_a_server_is_taken() {
    let server = server(
        r#"{"listen": ":1", "target": "host:2", "pprof": true, "oldkeyttl": 3, "key": "k",
            "crypt": "aes-128", "mode": "manual", "mtu": 6, "sndwnd": 7, "rcvwnd": 8, "datashard": 9, "parityshard": 10,
            "dscp": 11, "nocomp": true, "acknodelay": true, "nodelay": 12, "interval": 13, "resend": 14, "nc": 15,
            "sockbuf": 16, "smuxver": 17, "smuxbuf": 18, "streambuf": 19, "keepalive": 20, "log": "l", "snmplog": "s",
            "snmpperiod": 21, "quiet": true, "tcp": true, "mux": "none", "kdf": "argon2", "drain": 22}"#,
    );
    let Server { listen, target, pprof, oldkeyttl, common } = server;
    assert_eq!((&*listen, &*target, pprof, oldkeyttl), (":1", "host:2", true, 3));
    assert_common(&common);
}

fn assert_common(common: &Common) {
    assert_eq!((&*common.key, &*common.crypt, &*common.mode), ("k", "aes-128", "manual"));
    assert_eq!((common.mtu, common.sndwnd, common.rcvwnd), (6, Some(7), Some(8)));
    assert_eq!((common.datashard, common.parityshard, common.dscp), (Some(9), Some(10), 11));
    assert_eq!((common.nodelay, common.interval, common.resend, common.nc), (12, 13, 14, 15));
    assert_eq!((common.sockbuf, common.smuxver, common.smuxbuf, common.streambuf), (16, 17, 18, 19));
    assert_eq!((common.keepalive, &*common.log, &*common.snmplog, common.snmpperiod), (20, "l", "s", 21));
    assert!(common.nocomp && common.acknodelay && common.quiet && common.tcp);
    assert_eq!((common.mux, common.kdf, common.drain), (Mux::None, Kdf::Argon2, 22));
}

#[test]
fn the_files_override_the_flags_and_leave_the_rest() {
    let matches = <Arguments as clap::CommandFactory>::command().get_matches_from([
        "tunnel",
        "client",
        "--mtu=1200",
        "--conn=4",
        "--nocomp",
    ]);
    let mut role = Arguments::from_arg_matches(&matches).unwrap().role;
    merge_text(r#"{"MTU": 1400, "NoComp": false, "conn": null}"#, &mut role).unwrap();
    let Role::Client(client) = role else { panic!("not a client") };
    assert_eq!((client.common.mtu, client.common.nocomp, client.conn), (1_400, false, 4));
}

#[test]
fn keys_that_mean_nothing_are_named() {
    let mut role = role("client");
    let unknown =
        merge_text(r#"{"listen": ":1", "_comment": 5, "qpp": false, "closewait": 3}"#, &mut role).unwrap();
    assert_eq!(unknown, ["_comment", "closewait", "listen"]);
}

#[test]
fn what_is_wrong_is_said_by_its_key() {
    for (text, expected) in [
        (r#"{"mtu": "1400"}"#, "mtu must be a whole number"),
        (r#"{"mtu": 1.5}"#, "mtu must be a whole number"),
        (r#"{"Key": 5}"#, "key must be a string"),
        (r#"{"nocomp": 1}"#, "nocomp must be true or false"),
        (r#"{"mux": "yamux"}"#, "mux must be smux or none"),
        (r#"{"qpp": true}"#, "qpp is of a later kcptun, and not supported: turn it off at both ends"),
        ("[]", "the JSON is no object"),
    ] {
        assert_eq!(merge_text(text, &mut role("server")).unwrap_err().to_string(), expected, "{text}");
    }
    assert!(merge_text("{", &mut role("server")).unwrap_err().to_string().starts_with("not JSON: "));
}
