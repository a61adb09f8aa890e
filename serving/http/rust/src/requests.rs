//! A client's requests: read within their limits, given to the host, and answered.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{combinators::BoxBody, BodyExt, Full};
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use crate::abi::Host;
use crate::call::{Call, Calls};
use crate::life::Life;
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

/// Whether the client wrote a body that breaks the protocol; otherwise reading it failed.
fn is_damaged(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    let of_socket = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    of_socket.is_none_or(|cause| matches!(cause.kind(), InvalidData | InvalidInput | UnexpectedEof))
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
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) if is_damaged(&error) => {
                return Err(refusal(StatusCode::BAD_REQUEST, "body_damaged", "the body could not be read"));
            }
            Err(_) => return Err(refusal(StatusCode::SERVICE_UNAVAILABLE, "body_lost", "the connection failed in the body")),
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
pub async fn serve(shared: Arc<Shared>, life: Arc<Life>, request: Request<Incoming>) -> Result<Answered, Infallible> {
    let busy = life.begin();
    let (head, mut body) = request.into_parts();
    let mut share = Share { shared: shared.clone(), bytes: 0 };
    let limit = Duration::from_millis(shared.settings.body_ms);
    let text = match timeout(limit, read(&mut body, &mut share)).await {
        Ok(Ok(text)) => text,
        Ok(Err(refused)) => return Ok(refused),
        Err(_) => return Ok(refusal(StatusCode::REQUEST_TIMEOUT, "body_slow", "the body did not come in time")),
    };
    // The host copies the body, and holds it as long as the call lives.
    let mut call = Call::new(shared.host, shared.calls.clone(), &head, &text, Box::new((share, busy)));
    drop(text);
    let first = poll_fn(|context| call.poll_part(context)).await;
    Ok(match first {
        Some(part) => call.respond(part, life),
        None => refusal(StatusCode::INTERNAL_SERVER_ERROR, "no_answer", "the server has no answer"),
    })
}
