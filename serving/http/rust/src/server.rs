//! The server's life: it listens, accepts up to its limit of connections, closes its listener to drain, and stops.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};
use tokio::time::{interval, timeout, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;

use crate::abi::Host;
use crate::call::Calls;
use crate::connection::converse;
use crate::impatient::Impatient;
use crate::listener::{Listener, Socket};
use crate::requests::Shared;
use crate::tls::{Files, Tls};

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

/// Why there is no server.
pub enum Failure {
    Listening(io::Error),
    Identity(io::Error),
}

/// What the thread is told.
#[derive(Clone, Copy, PartialEq)]
pub enum Phase {
    Listening,
    Draining,
    Stopped,
}

pub struct Server {
    port: u16,
    calls: Arc<Calls>,
    open: Arc<AtomicU64>,
    expires: Arc<AtomicI64>,
    phase: watch::Sender<Phase>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `files`: those of TLS; none: plain.
    pub fn start(settings: Settings, files: Option<Files>, host: Host) -> Result<Self, Failure> {
        let expires = Arc::new(AtomicI64::new(0));
        let tls = files.map(|files| Tls::new(files, expires.clone())).transpose().map_err(Failure::Identity)?;
        let (phase, watched) = watch::channel(Phase::Listening);
        let (ready, started) = oneshot::channel();
        let calls = Arc::new(Calls::default());
        let open = Arc::new(AtomicU64::new(0));
        let shared = Arc::new(Shared { settings, host, calls: calls.clone(), held: AtomicUsize::new(0) });
        let counted = open.clone();
        let thread = std::thread::Builder::new().name("plait-http".to_string()).spawn(move || {
            no_pipe_signals();
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(ready.send(Err(error))),
            };
            runtime.block_on(run(shared, tls, counted, watched, ready));
            // Calls end here, while the host is still there.
        });
        let thread = thread.map_err(|error| {
            let text = format!("the server's thread did not start: {error}; raise the limit of processes (ulimit -u)");
            Failure::Listening(io::Error::other(text))
        })?;
        match started.blocking_recv() {
            Ok(Ok(port)) => Ok(Self { port, calls, open, expires, phase, thread: Some(thread) }),
            Ok(Err(error)) => {
                let _ = thread.join();
                Err(Failure::Listening(error))
            }
            Err(_) => Err(Failure::Listening(io::Error::other("the server's thread ended"))),
        }
    }

    /// Whether the thread that serves is there: a fault outside of connections ends it.
    pub fn runs(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
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

    /// Seconds of Unix time until which the certificate is valid; 0 without TLS.
    pub fn expires(&self) -> i64 {
        self.expires.load(Ordering::Relaxed)
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

/// A write to a socket whose client has left is an error on this thread, and not the end of a host that does not ignore SIGPIPE.
fn no_pipe_signals() {
    // SAFETY: the set is initialised by sigemptyset; only this thread's mask changes.
    unsafe {
        let mut pipe = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, std::ptr::null_mut());
    }
}

type Ready = oneshot::Sender<io::Result<u16>>;

/// How often files of certificates are looked at.
const RENEWAL: Duration = Duration::from_secs(2);

async fn run(
    shared: Arc<Shared>,
    mut tls: Option<Tls>,
    open: Arc<AtomicU64>,
    mut phase: watch::Receiver<Phase>,
    ready: Ready,
) {
    let listener = match Listener::bind(&shared.settings.address).await {
        Ok(listener) => listener,
        Err(error) => return drop(ready.send(Err(error))),
    };
    let _ = ready.send(Ok(listener.port()));
    let mut renewal = interval(RENEWAL);
    renewal.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = phase.changed() => break,
            _ = renewal.tick() => if let Some(tls) = &mut tls { tls.renew() },
            accepted = listener.accept() => {
                let acceptor = tls.as_ref().map(Tls::acceptor);
                match accepted {
                    Ok(Socket::Tcp(socket)) => spawn(&shared, &open, &phase, acceptor, socket),
                    Ok(Socket::Unix(socket)) => spawn(&shared, &open, &phase, acceptor, socket),
                    // No file descriptor is free: other connections have to end first.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        }
    }
    drop(listener);
    let _ = phase.wait_for(|phase| *phase == Phase::Stopped).await;
}

/// Counts a connection as long as it lives.
struct Counted(Arc<AtomicU64>);
impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn spawn<S>(
    shared: &Arc<Shared>,
    open: &Arc<AtomicU64>,
    phase: &watch::Receiver<Phase>,
    acceptor: Option<TlsAcceptor>,
    socket: S,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let settings = &shared.settings;
    if open.fetch_add(1, Ordering::Relaxed) >= settings.max_connections as u64 {
        // Refused without an answer: to write one would hold what there is too much of.
        open.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let counted = Counted(open.clone());
    let (shared, phase) = (shared.clone(), phase.clone());
    let socket = Impatient::new(socket, settings.write_ms);
    tokio::spawn(async move {
        match acceptor {
            None => converse(shared, phase, socket).await,
            Some(acceptor) => {
                // A handshake is a part of the head.
                let limit = Duration::from_millis(shared.settings.head_ms);
                if let Ok(Ok(secret)) = timeout(limit, acceptor.accept(socket)).await {
                    converse(shared, phase, secret).await;
                }
            }
        }
        drop(counted);
    });
}
