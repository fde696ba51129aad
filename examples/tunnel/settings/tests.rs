//! Defaults, what becomes of values, and what is refused.

use clap::FromArgMatches;
use kcp9::CongestionControl;

use super::*;
use crate::{
    go_flags::normalise,
    options::{Arguments, Role},
};

fn role(line: &str) -> Role {
    let command = <Arguments as clap::CommandFactory>::command();
    let arguments = normalise(&command, line.split(' ').map(str::to_owned));
    Arguments::from_arg_matches(&command.try_get_matches_from(arguments).unwrap()).unwrap().role
}

fn client(flags: &str) -> Result<ClientSettings, SettingsError> {
    let Role::Client(client) = role(format!("tunnel client {flags}").trim_end()) else { panic!() };
    ClientSettings::new(&client)
}

fn server(flags: &str) -> Result<ServerSettings, SettingsError> {
    let Role::Server(server) = role(format!("tunnel server {flags}").trim_end()) else { panic!() };
    ServerSettings::new(&server)
}

#[test]
fn the_defaults_of_a_client_are_kcptuns() {
    let ClientSettings { local, remote, conn, autoexpire, scavengettl, common } = client("").unwrap();
    assert_eq!((local.to_string(), remote.to_string()), (":12948".into(), "vps:29900".into()));
    assert_eq!((conn, autoexpire, scavengettl.as_secs()), (1, None, 600));
    let Settings { kcp, mux, compress, dscp, sockbuf, quiet, drain } = common;
    assert_eq!((kcp.mtu(), kcp.send_window(), kcp.recv_window(), kcp.fec()), (1_350, 128, 512, (10, 3)));
    assert_eq!(
        (kcp.nodelay(), kcp.ack_no_delay(), kcp.stream(), kcp.write_delay()),
        (NoDelay::FAST, false, true, false)
    );
    assert!(kcp.crypto().is_some());
    let mux = mux.unwrap();
    assert_eq!(
        (mux.version(), mux.receive_buffer(), mux.stream_buffer()),
        (MuxVersion::V1, 4 << 20, 2 << 20)
    );
    assert_eq!(
        (mux.keep_alive(), mux.dead_timeout()),
        (Some(Duration::from_secs(10)), Some(Duration::from_secs(30)))
    );
    assert_eq!((compress, dscp, sockbuf, quiet, drain.as_secs()), (true, 0, 4_194_304, false, 30));
}

#[test]
fn the_defaults_of_a_server_are_kcptuns() {
    let ServerSettings { listen, target, oldkeyttl, common } = server("").unwrap();
    assert_eq!((listen.to_string(), target.to_string()), (":29900".into(), "127.0.0.1:12948".into()));
    assert_eq!(
        (common.kcp.send_window(), common.kcp.recv_window(), oldkeyttl.as_secs()),
        (1_024, 1_024, 600)
    );
}

#[test]
fn every_cipher_of_kcptun_has_its_name_here() {
    for name in "aes aes-128 aes-192 salsa20 blowfish twofish cast5 3des tea xtea xor sm4 none aes-128-gcm aes-192-gcm \
                 aes-256-gcm chacha20-poly1305 xchacha20-poly1305"
        .split_whitespace()
    {
        assert!(client(&format!("-crypt {name}")).unwrap().common.kcp.crypto().is_some(), "{name}");
    }
    assert!(client("-crypt null").unwrap().common.kcp.crypto().is_none());
    // kcptun takes AES for what it does not know.
    assert!(client("-crypt rot13").err().unwrap().to_string().starts_with("crypt: rot13: "));
}

#[test]
fn modes_are_kcptuns() {
    let nodelay = |flags: &str| client(flags).unwrap().common.kcp.nodelay();
    assert_eq!(nodelay("-mode normal"), NoDelay::NORMAL);
    assert_eq!(nodelay("-mode fast2"), NoDelay::FAST2);
    assert_eq!(nodelay("-mode fast3 -nodelay 0 -interval 100"), NoDelay::FAST3);
    let manual = NoDelay { nodelay: true, interval: Duration::from_millis(25), resend: 3, nc: false };
    assert_eq!(nodelay("-mode manual -nodelay 1 -interval 25 -resend 3"), manual);
    assert_eq!(nodelay("-mode manual -interval 1").interval.as_millis(), 10);
    assert_eq!(nodelay("-mode manual").interval.as_millis(), 50);
    assert_eq!(client("").unwrap().common.kcp.congestion_control(), &CongestionControl::BbrLike);
}

#[test]
fn fec_is_off_unless_both_numbers_are_given() {
    for (flags, fec) in
        [("-ds 4 -ps 2", (4, 2)), ("-ps 0", (0, 0)), ("-ds 0", (0, 0)), ("-ds 0 -ps 0", (0, 0))]
    {
        assert_eq!(client(flags).unwrap().common.kcp.fec(), fec, "{flags}");
    }
}

#[test]
fn mode_auto_is_what_the_library_has_by_default() {
    let library = KcpConfig::default();
    for (flags, windows, fec) in [
        ("-mode auto", (library.send_window(), library.recv_window()), library.fec()),
        ("-mode auto -sndwnd 100 -ds 4 -ps 2", (100, library.recv_window()), (4, 2)),
    ] {
        for kcp in [client(flags).unwrap().common.kcp, server(flags).unwrap().common.kcp] {
            assert_eq!(((kcp.send_window(), kcp.recv_window()), kcp.fec()), (windows, fec), "{flags}");
            assert_eq!(kcp.nodelay(), library.nodelay());
        }
    }
}

#[test]
fn without_smux_peers_must_be_ours() {
    let settings = client("--mux none").unwrap().common;
    assert!(settings.mux.is_none());
    assert_eq!(settings.kcp.extensions(), Extensions::Required);
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    for (flags, expected) in [
        ("-mtu 1501", "mtu: is 1501, outside 64..=1500"),
        ("-mtu 64 -crypt xchacha20-poly1305", "mtu: is 64, outside 73..="),
        ("-sndwnd 0", "sndwnd: is 0, outside 1..=65535"),
        ("-rcvwnd 65536", "rcvwnd: is 65536, outside 1..=65535"),
        ("-ds 250 -ps 10", "parityshard: is 10, outside 1..=6"),
        ("-dscp 64", "dscp: is 64, outside 0..=63"),
        ("-mode fast4", "mode: is fast4: not one of fast3, fast2, fast, normal, manual, auto"),
        ("-mode manual -resend -1", "resend: is -1, outside 0..=255"),
        ("-mode manual -nc -1", "nc: is -1, less than 0"),
        ("-sockbuf 0", "sockbuf: is 0, outside 1..=2147483647"),
        ("-smuxver 3", "smuxver: is 3: there are versions 1 and 2"),
        ("-smuxbuf 0", "smuxbuf: is 0, outside 1..=2147483647"),
        ("-smuxbuf 1000", "streambuf: is 2097152, outside 1..=1000, which is smuxbuf"),
        ("-keepalive 0", "keepalive: is 0, outside 1..=30"),
        ("-keepalive 31", "keepalive: is 31, outside 1..=30"),
        ("-conn 0", "conn: is 0, outside 1..=65535"),
        ("-scavengettl -1", "scavengettl: is -1, outside 0..=31622400"),
        ("-l a:b", "localaddr: `b` is no port: a number from 0 to 65535"),
        ("-r vps", "remoteaddr: no port: write HOST:PORT, or :PORT for every address of this machine"),
        (
            "-tcp",
            "tcp: would send TCP packets from a raw socket, which is not supported: leave it out at both ends",
        ),
    ] {
        let error = client(flags).err().unwrap().to_string();
        assert!(error.starts_with(expected), "{flags}: {error}");
    }
    let error = server("-pprof").err().unwrap().to_string();
    assert_eq!(error, "pprof: is Go's profiler, which this program has not: leave it out");
}
