//! A client's connection: its requests are read within their limits, given to the host, and answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{combinators::BoxBody, BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep, timeout, Sleep};

use crate::abi::Host;
use crate::call::{Call, Calls};
use crate::server::Settings;

/// What all connections share.
pub struct Shared {
    pub settings: Settings,
    pub host: Host,
    pub calls: Arc<Calls>,
    /// Bytes of bodies that are held.
    pub held: AtomicUsize,
}

/// A body's share of what may be held.
struct Share {
    shared: Arc<Shared>,
    bytes: usize,
}

impl Share {
    fn grow(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.shared.held.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.shared.settings.max_held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shared.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

type Answered = Response<BoxBody<Bytes, Infallible>>;

/// A refusal in the form that OpenAI's clients read.
fn refusal(status: StatusCode, code: &str, message: &str) -> Answered {
    let text = format!(r#"{{"error":{{"message":"{message}","type":"invalid_request_error","param":null,"code":"{code}"}}}}"#);
    let mut out = Response::new(Full::new(Bytes::from(text)).boxed());
    *out.status_mut() = status;
    out.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    // The rest of the body is not read.
    out.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    out
}

/// All of a body, or why not.
async fn read(body: &mut Incoming, share: &mut Share) -> Result<Vec<u8>, Answered> {
    let most = share.shared.settings.max_body;
    let large = || {
        let message = format!("the body is larger than {most} bytes");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", &message)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(large());
    }
    let mut out = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            return Err(refusal(StatusCode::BAD_REQUEST, "body_damaged", "the body could not be read"));
        };
        let Some(data) = frame.data_ref() else { continue };
        if out.len() + data.len() > most {
            return Err(large());
        }
        if !share.grow(data.len()) {
            let mut full = refusal(StatusCode::TOO_MANY_REQUESTS, "overloaded", "the server holds too many bodies");
            full.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
            return Err(full);
        }
        out.extend_from_slice(data);
    }
    Ok(out)
}

/// Reads the body, and hands the request to the host; the client's leaving drops this future, and with it the call.
pub async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answered, Infallible> {
    let (head, mut body) = request.into_parts();
    let mut share = Share { shared: shared.clone(), bytes: 0 };
    let limit = Duration::from_millis(shared.settings.body_ms);
    let text = match timeout(limit, read(&mut body, &mut share)).await {
        Ok(Ok(text)) => text,
        Ok(Err(refused)) => return Ok(refused),
        Err(_) => return Ok(refusal(StatusCode::REQUEST_TIMEOUT, "body_slow", "the body did not come in time")),
    };
    // The host copies the body, and holds it as long as the call lives.
    let mut call = Call::new(shared.host, shared.calls.clone(), &head, &text, Box::new(share));
    drop(text);
    let first = poll_fn(|context| call.poll_part(context)).await;
    Ok(match first {
        Some(part) => call.respond(part),
        None => refusal(StatusCode::INTERNAL_SERVER_ERROR, "no_answer", "the server has no answer"),
    })
}

/// A socket whose writes fail when it has taken nothing for a while.
pub struct Impatient<Socket> {
    socket: Socket,
    limit: Duration,
    since: Option<Pin<Box<Sleep>>>,
}

impl<Socket> Impatient<Socket> {
    pub fn new(socket: Socket, limit_ms: u64) -> Self {
        Self { socket, limit: Duration::from_millis(limit_ms), since: None }
    }

    fn timed<T>(&mut self, context: &mut Context<'_>, done: Poll<std::io::Result<T>>) -> Poll<std::io::Result<T>> {
        if done.is_ready() {
            self.since = None;
            return done;
        }
        let limit = self.limit;
        let since = self.since.get_or_insert_with(|| Box::pin(sleep(limit)));
        match std::future::Future::poll(since.as_mut(), context) {
            Poll::Ready(()) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<Socket: AsyncRead + Unpin> AsyncRead for Impatient<Socket> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, to)
    }
}

impl<Socket: AsyncWrite + Unpin> AsyncWrite for Impatient<Socket> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write(context, from);
        self.timed(context, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let done = Pin::new(&mut self.socket).poll_write_vectored(context, from);
        self.timed(context, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let done = Pin::new(&mut self.socket).poll_flush(context);
        self.timed(context, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let done = Pin::new(&mut self.socket).poll_shutdown(context);
        self.timed(context, done)
    }
}
