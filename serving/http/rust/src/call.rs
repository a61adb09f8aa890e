//! A request that the host is answering, and its answer as a body that is pulled.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, CONTENT_TYPE};
use http::{Response, StatusCode};
use http_body_util::{combinators::BoxBody, BodyExt};
use hyper::body::{Body, Frame, SizeHint};

use crate::abi::{Answer, Field, Host, Request, View, MORE, WAIT};
use crate::life::Life;

/// Calls that wait for their host, by number.
#[derive(Default)]
pub struct Calls {
    wakers: Mutex<HashMap<u64, Option<Waker>>>,
    last: AtomicU64,
}

impl Calls {
    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Option<Waker>>> {
        self.wakers.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Of a call that is gone nothing comes.
    pub fn wake(&self, call: u64) {
        let waker = self.table().get_mut(&call).and_then(Option::take);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wait(&self, call: u64, context: &Context<'_>) {
        if let Some(place) = self.table().get_mut(&call) {
            *place = Some(context.waker().clone());
        }
    }
}

/// One call. When it is dropped, answered or not, the host hears of it.
pub struct Call {
    number: u64,
    host: Host,
    calls: Arc<Calls>,
    ended: bool,
    /// What ends with the call.
    _held: Box<dyn Send + Sync>,
}

/// The part of an answer that is there.
pub struct Part {
    pub status: i32,
    pub content_type: Vec<u8>,
    pub fields: Vec<u8>,
    pub data: Bytes,
}

impl Call {
    pub fn new(host: Host, calls: Arc<Calls>, head: &http::request::Parts, body: &[u8], held: Box<dyn Send + Sync>) -> Self {
        let number = calls.last.fetch_add(1, Ordering::Relaxed) + 1;
        calls.table().insert(number, None);
        // HTTP/2 has the host in the address, which stands for a header of that name.
        let host_name = head.uri.authority().map(|authority| authority.as_str());
        let fields: Vec<Field> = head
            .headers
            .iter()
            .filter(|(name, _)| host_name.is_none() || **name != http::header::HOST)
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .chain(host_name.map(|name| ("host", name.as_bytes())))
            .map(|(name, value)| Field { name: View::of(name.as_bytes()), value: View::of(value) })
            .collect();
        let request = Request {
            method: View::of(head.method.as_str().as_bytes()),
            path: View::of(head.uri.path().as_bytes()),
            query: View::of(head.uri.query().unwrap_or("").as_bytes()),
            body: View::of(body),
            fields: fields.as_ptr(),
            field_count: fields.len(),
        };
        let call = Self { number, host, calls, ended: false, _held: held };
        // SAFETY: what the views point to lives until the call returns.
        unsafe { (host.arrived)(host.own, number, &request) };
        call
    }

    /// What the host has to send next; None at the end.
    pub fn poll_part(&mut self, context: &Context<'_>) -> Poll<Option<Part>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // Before the host is asked: what comes in between wakes us again.
        self.calls.wait(self.number, context);
        let nothing = View::of(&[]);
        let mut answer = Answer { status: 0, content_type: nothing, fields: nothing, data: nothing };
        // SAFETY: the answer's views are valid until the host is asked again; they are copied here.
        let state = unsafe { (self.host.take)(self.host.own, self.number, &mut answer) };
        if state == WAIT {
            return Poll::Pending;
        }
        self.ended = state != MORE;
        // SAFETY: as above.
        let (content_type, fields, data) =
            unsafe { (answer.content_type.bytes(), answer.fields.bytes(), answer.data.bytes()) };
        Poll::Ready(Some(Part {
            status: answer.status,
            content_type: content_type.to_vec(),
            fields: fields.to_vec(),
            data: Bytes::copy_from_slice(data),
        }))
    }

    /// The response whose first part this is; later ones are pulled as the socket takes them.
    pub fn respond(self, first: Part, life: Arc<Life>) -> Response<BoxBody<Bytes, std::convert::Infallible>> {
        let status = u16::try_from(first.status).ok().and_then(|code| StatusCode::from_u16(code).ok());
        life.offer(self.number);
        let mut out = Response::new(Pulled { data: first.data, call: self, life }.boxed());
        *out.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if let Ok(kind) = HeaderValue::from_bytes(&first.content_type) {
            out.headers_mut().insert(CONTENT_TYPE, kind);
        }
        for line in first.fields.split(|&byte| byte == b'\n') {
            let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
            let name = HeaderName::from_bytes(&line[..colon]);
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
                out.headers_mut().append(name, value);
            }
        }
        out
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.calls.table().remove(&self.number);
        // SAFETY: the host's promise; once a call.
        unsafe { (self.host.dropped)(self.host.own, self.number) };
    }
}

/// An answer as hyper's body: asked for a frame only when there is room for one. Frames are small, so that what a client does not
/// take stays here, and is not in the buffers of its connection.
struct Pulled {
    data: Bytes,
    call: Call,
    life: Arc<Life>,
}

const FRAME: usize = 16 << 10;

impl Body for Pulled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.life.taken(self.call.number);
        while self.data.is_empty() {
            match self.call.poll_part(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Ready(Some(part)) => self.data = part.data,
            }
        }
        self.life.offer(self.call.number);
        let size = self.data.len().min(FRAME);
        Poll::Ready(Some(Ok(Frame::data(self.data.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.call.ended && self.data.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.data.len() as u64;
        let mut out = SizeHint::new();
        out.set_lower(left);
        if self.call.ended {
            out.set_upper(left);
        }
        out
    }
}

impl Drop for Pulled {
    fn drop(&mut self) {
        self.life.taken(self.call.number);
    }
}
