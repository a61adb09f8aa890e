//! A client's connection, from its first byte on: HTTP/1.1 or HTTP/2, until its client leaves, does nothing, or takes nothing.

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{interval, MissedTickBehavior};

use crate::life::Life;
use crate::requests::{serve, Shared};
use crate::server::{Phase, Settings};

/// Requests that a client may have open at once on a connection of HTTP/2.
const MAX_STREAMS: u32 = 128;

fn builder(settings: &Settings) -> Builder<TokioExecutor> {
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
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(Duration::from_millis(settings.write_ms / 2))
        .keep_alive_timeout(Duration::from_millis(settings.write_ms / 2));
    builder
}

/// Serves a client until its connection ends.
pub async fn converse<S>(shared: Arc<Shared>, mut phase: watch::Receiver<Phase>, socket: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let idle = Duration::from_millis(shared.settings.head_ms);
    let patience = Duration::from_millis(shared.settings.write_ms);
    let builder = builder(&shared.settings);
    let life = Life::new();
    let own = life.clone();
    let service = service_fn(move |request| serve(shared.clone(), own.clone(), request));
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(socket), service));
    let mut tick = interval(patience.min(idle).max(Duration::from_millis(100)) / 4);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ending = false;
    loop {
        let end = tokio::select! {
            // What a client does wrong ends its connection.
            _ = &mut connection => return,
            _ = phase.changed(), if !ending => true,
            _ = tick.tick() => {
                let quiet = life.quiet().unwrap_or_default();
                if life.untaken() > patience || quiet > idle + patience {
                    return;
                }
                quiet > idle
            }
        };
        if end && !ending {
            ending = true;
            connection.as_mut().graceful_shutdown();
        }
    }
}
