//! The defaults that `docs/migration.md` states, beside those that the crates have.

use std::time::Duration;

use kcp9::{KcpConfig, NoDelay};

const PAGE: &str = include_str!("../../docs/migration.md");

/// The cells of the row of a part of the page whose first cell begins with `name`, without what sets letters.
fn row(part: &str, name: &str) -> Vec<String> {
    let lines = PAGE.lines().skip_while(|line| *line != part).skip(1);
    let mut rows = lines.take_while(|line| !line.starts_with("## ")).filter_map(|line| {
        let cells = line.strip_prefix("| ")?.strip_suffix('|')?;
        Some(cells.split('|').map(|cell| cell.trim().replace(['`', '*'], "")).collect::<Vec<_>>())
    });
    rows.find(|cells| cells[0].starts_with(name)).unwrap_or_else(|| panic!("no row of {name} in {part}"))
}

/// Panics unless the page says `theirs` in the second cell, and `ours` in the fourth, of the row that begins with `name`.
fn says(part: &str, name: &str, theirs: &str, ours: &str) {
    let cells = row(part, name);
    assert_eq!((&*cells[1], &*cells[3]), (theirs, ours), "{name} in {part}");
}

/// As the page writes a number.
fn number(value: usize) -> String {
    match value {
        0..1_000 => value.to_string(),
        _ => format!("{},{:03}", value / 1_000, value % 1_000),
    }
}

fn seconds(duration: Duration) -> String {
    assert_eq!(duration.subsec_nanos(), 0);
    format!("{} s", duration.as_secs())
}

fn knobs(nodelay: bool, interval: u32, resend: u32, nc: bool) -> String {
    format!("{}, {interval}, {resend}, {}", u8::from(nodelay), u8::from(nc))
}

fn own_knobs(config: &KcpConfig) -> String {
    let NoDelay { nodelay, interval, resend, nc } = config.nodelay();
    knobs(nodelay, u32::try_from(interval.as_millis()).unwrap(), resend, nc)
}

/// `2,048 each`.
fn own_windows(config: &KcpConfig) -> String {
    assert_eq!(config.send_window(), config.recv_window());
    format!("{} each", number(config.send_window() as usize))
}

/// Either end of the detection of dead peers.
fn own_deadlines(config: &KcpConfig) -> String {
    assert_eq!(config.dead_link(), 0);
    format!("{}; off", seconds(config.dead_timeout()))
}

#[test]
fn the_defaults_of_tokio_kcp_are_as_the_page_says() {
    use tokio_kcp::KcpNoDelayConfig;

    const PART: &str = "## From tokio_kcp";
    let numbers = |config: KcpNoDelayConfig| {
        knobs(config.nodelay, config.interval as u32, config.resend as u32, config.nc)
    };
    let (theirs, ours) = (tokio_kcp::KcpConfig::default(), KcpConfig::default());
    let flag = |value: bool| value.to_string();
    says(PART, "mtu", &number(theirs.mtu), &number(ours.mtu()));
    let normal = numbers(KcpNoDelayConfig::normal());
    assert_eq!(numbers(theirs.nodelay), normal);
    says(PART, "nodelay of", &format!("KcpNoDelayConfig::normal(): {normal}"), &own_knobs(&ours));
    says(PART, "KcpNoDelayConfig::default()", &numbers(KcpNoDelayConfig::default()), "");
    says(PART, "KcpNoDelayConfig::fastest()", &numbers(KcpNoDelayConfig::fastest()), "");
    let (send, receive) = theirs.wnd_size;
    let windows = format!("({send}, {receive}); receive is at least 128");
    says(PART, "wnd_size", &windows, &own_windows(&ours));
    assert_eq!(ours.idle_timeout(), None);
    let expires = format!("{}, of accepted sessions", seconds(theirs.session_expire));
    says(PART, "session_expire", &expires, "none");
    says(PART, "flush_write", &flag(theirs.flush_write), &format!("write_delay({})", ours.write_delay()));
    says(PART, "flush_acks_input", &flag(theirs.flush_acks_input), &flag(ours.ack_no_delay()));
    says(PART, "stream", &flag(theirs.stream), &flag(ours.stream()));
    says(PART, "allow_recv_empty_packet", &flag(theirs.allow_recv_empty_packet), "");
    // Theirs is no setting.
    says(PART, "backlog of accept", "1,024", &number(ours.accept_backlog()));
}

#[test]
fn the_defaults_of_kcp_tokio_are_as_the_page_says() {
    const PART: &str = "## From kcp-tokio";
    let (theirs, ours) = (kcp_tokio::KcpConfig::default(), KcpConfig::default());
    says(PART, "mtu", &number(theirs.mtu as usize), &number(ours.mtu()));
    let windows = format!("{}, {}", theirs.snd_wnd, theirs.rcv_wnd);
    says(PART, "window_size", &windows, &own_windows(&ours));
    let mode = theirs.nodelay;
    let normal = knobs(mode.nodelay, mode.interval, mode.resend, mode.no_congestion_control);
    says(PART, "normal_mode()", &format!("normal: {normal}"), &own_knobs(&ours));
    says(PART, "stream_mode", &theirs.stream_mode.to_string(), &ours.stream().to_string());
    says(PART, "max_retries", &format!("{} transmissions", theirs.max_retries), &own_deadlines(&ours));
    let [theirs_alive, ours_alive] =
        [theirs.keep_alive, ours.keep_alive()].map(|after| seconds(after.unwrap()));
    says(PART, "keep_alive", &theirs_alive, &ours_alive);
    says(PART, "connect_timeout", &seconds(theirs.connect_timeout), "");
    says(PART, "cleanup_interval", &seconds(theirs.cleanup_interval), "");
    let backlog = number(theirs.max_pending_connections);
    says(PART, "max_pending_connections", &backlog, &number(ours.accept_backlog()));
    assert_eq!((theirs.socket_buffer_size, theirs.simulate_packet_loss), (None, None));
    says(PART, "simulate_packet_loss", "none", "");
}

/// Theirs are constants of Go's sources: 32, 32; 0, 100, 0, 0; 1,400; 128.
#[test]
fn our_defaults_are_as_the_page_says_beside_those_of_kcp_go() {
    const PART: &str = "## From kcp-go";
    let ours = KcpConfig::default();
    let says = |name: &str, wanted: &str| assert_eq!(row(PART, name)[3], wanted, "{name}");
    says("SetNoDelay", &own_knobs(&ours));
    says("SetWindowSize", &own_windows(&ours));
    says("SetMtu", &format!("{}; at most 65,507", number(ours.mtu())));
    KcpConfig::builder().mtu(65_507).build().unwrap();
    KcpConfig::builder().mtu(65_508).build().unwrap_err();
    says("SetStreamMode", &ours.stream().to_string());
    says("SetWriteDelay", &ours.write_delay().to_string());
    says("SetACKNoDelay", &ours.ack_no_delay().to_string());
    says("dataShards", &format!("{}, {}", ours.fec().0, ours.fec().1));
    says("Accept", ".accept_backlog(1_024)");
    assert_eq!(ours.accept_backlog(), 1_024);
    says("Close", &format!(".linger({})", seconds(ours.linger())));
    says("dead link", &own_deadlines(&ours));
    assert_eq!(ours.idle_timeout(), None);
    says("keep-alive", &format!("{}, none", seconds(ours.keep_alive().unwrap())));
    says("SendOOB", &format!("{}: off", ours.datagram_queue()));
    assert!(ours.crypto().is_none());
    says("block", "none");
}

#[cfg(feature = "mux")]
#[test]
fn our_defaults_are_as_the_page_says_beside_those_of_kcptun() {
    let ours = kcp9::mux::MuxConfig::default();
    let (session, stream) = (ours.receive_buffer() >> 20, ours.stream_buffer() >> 10);
    let buffers = &row("## From kcptun", "--smuxbuf")[2];
    assert!(buffers.ends_with(&format!("(default {session} MiB, {stream} KiB)")), "{buffers}");
    assert_eq!(row("## From kcptun", "--keepalive")[1], seconds(ours.keep_alive().unwrap()));
}

#[test]
fn what_differs_everywhere_is_as_the_page_says() {
    const PART: &str = "## What differs everywhere";
    let (one, other, ours) =
        (tokio_kcp::KcpConfig::default(), kcp_tokio::KcpConfig::default(), KcpConfig::default());
    let windows = row(PART, "windows");
    let (send, receive) = one.wnd_size;
    for part in [
        format!("{send} / {receive} (tokio_kcp)"),
        format!("{} / {} (kcp-tokio)", other.snd_wnd, other.rcv_wnd),
    ] {
        assert!(windows[1].contains(&part), "{windows:?}");
    }
    let own = number(ours.send_window() as usize);
    assert_eq!(windows[2], format!("{own} / {own}"));
    assert_eq!(row(PART, "knobs")[2], own_knobs(&ours).replace(' ', ""));
    let dead = &row(PART, "a dead peer")[2];
    for part in [
        format!("dead_timeout ({})", seconds(ours.dead_timeout())),
        format!("keep_alive, {}", seconds(ours.keep_alive().unwrap())),
    ] {
        assert!(dead.contains(&part), "{dead}");
    }
}
