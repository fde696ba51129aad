//! What idle sessions cost that are asked whether they are there: `cargo bench --bench keep_alive`, about two minutes.
//!
//! 100,000 sessions of the default settings lie between two sockets of this process. Each end has a thread of its own, whose
//! processor time is that end's alone. Nothing is written any more, so all that is sent are questions and their answers: each
//! session is asked once in about 20 s. Two kinds of peers are measured: those that know the extensions (PING and PONG), and those
//! that do not (WASK and WINS).
//!
//! It is no test. What else the machine does decides how many packets one turn of a driver finds, and so what each costs.

#[cfg(target_os = "linux")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    linux::run().await
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the processor time of a thread is read as Linux tells it");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        fs, io,
        net::{Ipv4Addr, SocketAddr},
        thread,
        time::{Duration, Instant},
    };

    use kcp9::{Extensions, KcpConfig, KcpEndpoint, KcpListener};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        runtime, select,
        sync::oneshot,
        time::sleep,
    };

    const SESSIONS: usize = 100_000;
    /// Sessions that begin at the same time: fewer than may wait to be accepted.
    const AT_ONCE: usize = 500;
    /// The longest silence before the end that connects asks. Behind it all take turns.
    const SETTLE: Duration = Duration::from_secs(25);
    const MEASURE: Duration = Duration::from_secs(30);
    const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    /// What one end did while nobody wrote anything.
    struct Cost {
        /// Of a core.
        share: f64,
        packets_sent: u64,
        sessions: u64,
    }

    pub(super) async fn run() -> io::Result<()> {
        for extensions in [Extensions::Preferred, Extensions::Off] {
            let config = KcpConfig::builder().extensions(extensions).build().map_err(io::Error::other)?;
            let (told, listens) = oneshot::channel();
            let (finish, finished) = oneshot::channel();
            let server = on_a_thread(serve(config.clone(), told, finished))?;
            let addr = listens.await.map_err(io::Error::other)?;
            let client = on_a_thread(connect(config, addr))?;
            let client = join(client).await?;
            let _ = finish.send(());
            let server = join(server).await?;
            println!(
                "{extensions:?}: {} idle sessions; connecting end {:.1} % of a core for {} packets a second, accepting end \
                 {:.1} % for {}",
                client.sessions.min(server.sessions),
                client.share * 100.0,
                client.packets_sent / MEASURE.as_secs(),
                server.share * 100.0,
                server.packets_sent / MEASURE.as_secs(),
            );
        }
        println!("memory of this process, both ends of both: {}", memory()?);
        Ok(())
    }

    async fn connect(config: KcpConfig, addr: SocketAddr) -> io::Result<Cost> {
        let endpoint = KcpEndpoint::bind(ANY).await?;
        let mut streams = Vec::with_capacity(SESSIONS);
        while streams.len() < SESSIONS {
            let mut begun = Vec::with_capacity(AT_ONCE);
            for _ in 0..AT_ONCE {
                let mut stream = endpoint.connect(addr, config.clone())?;
                // Without extensions, the server knows of a session by its first byte.
                stream.write_all(b"x").await?;
                begun.push(stream);
            }
            for stream in &mut begun {
                stream.read_u8().await?;
            }
            streams.append(&mut begun);
        }
        sleep(SETTLE).await;
        measure(|| endpoint.endpoint_stats()).await
    }

    async fn serve(
        config: KcpConfig,
        told: oneshot::Sender<SocketAddr>,
        mut finished: oneshot::Receiver<()>,
    ) -> io::Result<Cost> {
        let listener = KcpListener::bind(ANY, config).await?;
        let _ = told.send(listener.local_addr()?);
        let mut streams = Vec::with_capacity(SESSIONS);
        while streams.len() < SESSIONS {
            let (mut stream, _) = listener.accept().await?;
            stream.read_u8().await?;
            stream.write_all(b"y").await?;
            streams.push(stream);
        }
        sleep(SETTLE).await;
        let cost = measure(|| listener.endpoint_stats()).await?;
        select! {
            _ = &mut finished => {}
            () = sleep(MEASURE) => {}
        }
        Ok(cost)
    }

    async fn measure(stats: impl Fn() -> kcp9::EndpointStats) -> io::Result<Cost> {
        let (time, begun, before) = (processor_time()?, Instant::now(), stats());
        sleep(MEASURE).await;
        let after = stats();
        Ok(Cost {
            share: (processor_time()? - time).as_secs_f64() / begun.elapsed().as_secs_f64(),
            packets_sent: after.socket.packets_sent - before.socket.packets_sent,
            sessions: after.state.sessions,
        })
    }

    /// One end, on a thread and a runtime of its own.
    fn on_a_thread<F>(end: F) -> io::Result<thread::JoinHandle<io::Result<Cost>>>
    where
        F: Future<Output = io::Result<Cost>> + Send + 'static,
    {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(thread::spawn(move || runtime.block_on(end)))
    }

    async fn join(end: thread::JoinHandle<io::Result<Cost>>) -> io::Result<Cost> {
        let joined = tokio::task::spawn_blocking(move || end.join()).await.map_err(io::Error::other)?;
        joined.map_err(|_| io::Error::other("an end panicked"))?
    }

    /// How long this thread has run, in the kernel and outside of it.
    fn processor_time() -> io::Result<Duration> {
        let text = fs::read_to_string("/proc/thread-self/schedstat")?;
        let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other("schedstat has another form"))
    }

    /// The most memory that this process had.
    fn memory() -> io::Result<String> {
        let status = fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        Ok(line.unwrap_or("unknown").trim().to_owned())
    }
}
