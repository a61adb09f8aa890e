//! A client's connection: its requests are read within their limits, given to the host, and answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{combinators::BoxBody, BodyExt, Full, Limited};
use hyper::body::Incoming;
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

/// Reads the body, and hands the request to the host; the client's leaving drops this future, and with it the call.
pub async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answered, Infallible> {
    let settings = &shared.settings;
    let (head, body) = request.into_parts();
    let large = || {
        let message = format!("the body is larger than {} bytes", settings.max_body);
        refusal(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", &message)
    };
    if hyper::body::Body::size_hint(&body).lower() > settings.max_body as u64 {
        return Ok(large());
    }
    let read = Limited::new(body, settings.max_body).collect();
    let body = match timeout(Duration::from_millis(settings.body_ms), read).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => return Ok(large()),
        Ok(Err(_)) => return Ok(refusal(StatusCode::BAD_REQUEST, "body_damaged", "the body could not be read")),
        Err(_) => return Ok(refusal(StatusCode::REQUEST_TIMEOUT, "body_slow", "the body did not come in time")),
    };
    let mut call = Call::new(shared.host, shared.calls.clone(), &head, &body);
    drop(body);
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
