//! The server's life: it listens, accepts up to its limit of connections, closes its listener to drain, and stops.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};

use crate::abi::Host;
use crate::call::Calls;
use crate::connection::{serve, Impatient, Shared};
use crate::listener::{Listener, Socket};

pub struct Settings {
    pub address: String,
    pub max_body: usize,
    pub max_head: usize,
    /// Bytes of all bodies at once.
    pub max_held: usize,
    pub max_connections: usize,
    pub head_ms: u64,
    pub body_ms: u64,
    pub write_ms: u64,
}

/// What the thread is told.
#[derive(Clone, Copy, PartialEq)]
enum Phase {
    Listening,
    Draining,
    Stopped,
}

pub struct Server {
    port: u16,
    calls: Arc<Calls>,
    open: Arc<AtomicU64>,
    phase: watch::Sender<Phase>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(settings: Settings, host: Host) -> io::Result<Self> {
        let (phase, watched) = watch::channel(Phase::Listening);
        let (ready, started) = oneshot::channel();
        let calls = Arc::new(Calls::default());
        let open = Arc::new(AtomicU64::new(0));
        let shared = Arc::new(Shared { settings, host, calls: calls.clone(), held: AtomicUsize::new(0) });
        let counted = open.clone();
        let thread = std::thread::Builder::new().name("plait-http".to_string()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(run(shared, counted, watched, ready));
            // Calls end here, while the host is still there.
        })?;
        match started.blocking_recv() {
            Ok(Ok(port)) => Ok(Self { port, calls, open, phase, thread: Some(thread) }),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(error)
            }
            Err(_) => Err(io::Error::other("the server's thread ended")),
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn wake(&self, call: u64) {
        self.calls.wake(call);
    }

    pub fn connections(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// No more connections; those that are idle end, the others after their answer.
    pub fn close(&self) {
        self.phase.send_if_modified(|phase| {
            let change = *phase == Phase::Listening;
            if change {
                *phase = Phase::Draining;
            }
            change
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.phase.send(Phase::Stopped);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

type Ready = oneshot::Sender<io::Result<u16>>;

async fn run(shared: Arc<Shared>, open: Arc<AtomicU64>, mut phase: watch::Receiver<Phase>, ready: Ready) {
    let listener = match Listener::bind(&shared.settings.address).await {
        Ok(listener) => listener,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(listener.port()));
    let graceful = GracefulShutdown::new();
    loop {
        tokio::select! {
            _ = phase.changed() => break,
            accepted = listener.accept() => match accepted {
                Ok(Socket::Tcp(socket)) => spawn(&shared, &open, &graceful, socket),
                Ok(Socket::Unix(socket)) => spawn(&shared, &open, &graceful, socket),
                // No file descriptor is free: other connections have to end first.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
    drop(listener);
    let mut stopped = std::pin::pin!(phase.wait_for(|phase| *phase == Phase::Stopped));
    tokio::select! {
        _ = &mut stopped => return,
        () = graceful.shutdown() => {}
    }
    let _ = stopped.await;
}

/// Counts a connection as long as it lives.
struct Counted(Arc<AtomicU64>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn spawn<S>(shared: &Arc<Shared>, open: &Arc<AtomicU64>, graceful: &GracefulShutdown, socket: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = &shared.settings;
    if open.fetch_add(1, Ordering::Relaxed) >= settings.max_connections as u64 {
        // Refused without an answer: to write one would hold what there is too much of.
        open.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let counted = Counted(open.clone());
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(settings.head_ms))
        .max_buf_size(settings.max_head.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(settings.max_head).unwrap_or(u32::MAX))
        .max_concurrent_streams(128)
        .keep_alive_interval(Duration::from_millis(settings.write_ms / 2))
        .keep_alive_timeout(Duration::from_millis(settings.write_ms / 2));
    let own = shared.clone();
    let service = service_fn(move |request| serve(own.clone(), request));
    let io = TokioIo::new(Impatient::new(socket, settings.write_ms));
    let connection = graceful.watch(builder.serve_connection(io, service).into_owned());
    tokio::spawn(async move {
        // What a client does wrong ends its connection.
        let _ = connection.await;
        drop(counted);
    });
}
