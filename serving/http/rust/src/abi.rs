//! The C ABI: see serving/http/http_abi.h, which documents it.

use std::ffi::c_void;
use std::panic::{catch_unwind, AssertUnwindSafe};

use crate::server::{Failure, Server, Settings};
use crate::tls::Files;

/// `plait_http_view`: memory of the side that passes it, valid for the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct View {
    data: *const u8,
    size: usize,
}

impl View {
    pub fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// # Safety
    /// The memory must be readable for as long as the result is used.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }

    unsafe fn text(self) -> String {
        // SAFETY: the caller's promise.
        String::from_utf8_lossy(unsafe { self.bytes() }).into_owned()
    }
}

/// `plait_http_field`: a header.
#[repr(C)]
pub struct Field {
    pub name: View,
    pub value: View,
}

/// `plait_http_request`
#[repr(C)]
pub struct Request {
    pub method: View,
    pub path: View,
    pub query: View,
    pub body: View,
    pub fields: *const Field,
    pub field_count: usize,
}

/// `plait_http_answer`
#[repr(C)]
pub struct Answer {
    pub status: i32,
    pub content_type: View,
    /// "name: value" lines.
    pub fields: View,
    pub data: View,
}

/// What `take` returns.
pub const WAIT: i32 = 0;
pub const MORE: i32 = 1;

/// `plait_http_host`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Host {
    pub own: *mut c_void,
    pub arrived: unsafe extern "C" fn(*mut c_void, u64, *const Request),
    pub take: unsafe extern "C" fn(*mut c_void, u64, *mut Answer) -> i32,
    pub dropped: unsafe extern "C" fn(*mut c_void, u64),
}

// SAFETY: the functions are called on the server's thread, and `own` is valid until `stop` has returned.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// `plait_http_settings`
#[repr(C)]
pub struct RawSettings {
    address: View,
    max_body: u64,
    max_head: u64,
    max_held: u64,
    max_connections: u64,
    head_ms: u64,
    body_ms: u64,
    write_ms: u64,
    certificate: View,
    key: View,
}

/// What `plait_http_start` returns.
const STARTED: i32 = 0;
const NOT_LISTENING: i32 = 1;
const NO_IDENTITY: i32 = 2;

/// `plait_http_text`: ours, given back with `plait_http_text_release`.
#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
}

impl Text {
    fn new(text: String) -> Self {
        let bytes = Box::leak(text.into_bytes().into_boxed_slice());
        Self { data: bytes.as_mut_ptr(), size: bytes.len() }
    }
}

/// # Safety
/// `settings` and `host` must be readable, `out` and `failure` writable; the host's functions as in the header.
#[no_mangle]
pub unsafe extern "C" fn plait_http_start(
    settings: *const RawSettings,
    host: *const Host,
    out: *mut *mut Server,
    failure: *mut Text,
) -> i32 {
    // This library's own copy of the standard library: a fault of a connection ends it, and prints nothing.
    let has_reserve = plait_reserve::hold();
    std::panic::set_hook(Box::new(|_| {}));
    let started = catch_unwind(AssertUnwindSafe(|| {
        if !has_reserve {
            return Err(Failure::Listening(std::io::Error::other("the machine has no memory left")));
        }
        // SAFETY: the caller's promise.
        let (given, host) = unsafe { (&*settings, *host) };
        let settings = Settings {
            // SAFETY: the caller's promise.
            address: unsafe { given.address.text() },
            max_body: usize::try_from(given.max_body).unwrap_or(usize::MAX),
            max_head: usize::try_from(given.max_head).unwrap_or(usize::MAX),
            max_held: usize::try_from(given.max_held).unwrap_or(usize::MAX),
            max_connections: usize::try_from(given.max_connections).unwrap_or(usize::MAX),
            head_ms: given.head_ms,
            body_ms: given.body_ms,
            write_ms: given.write_ms,
        };
        // SAFETY: the caller's promise.
        let (certificate, key) = unsafe { (given.certificate.text(), given.key.text()) };
        let files = Files { certificate: certificate.into(), key: key.into() };
        Server::start(settings, (given.certificate.size > 0).then_some(files), host)
    }));
    let (code, text) = match started {
        Ok(Ok(server)) => {
            // SAFETY: the caller's promise.
            unsafe { *out = Box::into_raw(Box::new(server)) };
            return STARTED;
        }
        Ok(Err(Failure::Identity(error))) => (NO_IDENTITY, error.to_string()),
        Ok(Err(Failure::Listening(error))) => (NOT_LISTENING, error.to_string()),
        Err(_) => (NOT_LISTENING, "a fault in the HTTP library".to_string()),
    };
    // SAFETY: the caller's promise.
    unsafe { *failure = Text::new(text) };
    code
}

/// # Safety
/// `text` must come from `plait_http_start`, once.
#[no_mangle]
pub unsafe extern "C" fn plait_http_text_release(text: Text) {
    if !text.data.is_null() {
        // SAFETY: `Text::new` leaked a boxed slice of this place and size.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(text.data, text.size)) });
    }
}

/// # Safety
/// `server` must be one that was started and not stopped; so for all that follow.
#[no_mangle]
pub unsafe extern "C" fn plait_http_port(server: *const Server) -> u16 {
    // SAFETY: the caller's promise.
    unsafe { &*server }.port()
}

/// # Safety
/// See `plait_http_port`.
#[no_mangle]
pub unsafe extern "C" fn plait_http_wake(server: *const Server, call: u64) {
    // The call is due before the runtime's waker is written to, which panics if that fails: the next tick then takes it up.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        unsafe { &*server }.wake(call);
    }));
}

/// # Safety
/// See `plait_http_port`.
#[no_mangle]
pub unsafe extern "C" fn plait_http_runs(server: *const Server) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*server }.runs()
}

/// # Safety
/// See `plait_http_port`.
#[no_mangle]
pub unsafe extern "C" fn plait_http_connections(server: *const Server) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*server }.connections()
}

/// # Safety
/// See `plait_http_port`.
#[no_mangle]
pub unsafe extern "C" fn plait_http_expires(server: *const Server) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { &*server }.expires()
}

/// # Safety
/// See `plait_http_port`.
#[no_mangle]
pub unsafe extern "C" fn plait_http_close(server: *const Server) {
    // SAFETY: the caller's promise.
    unsafe { &*server }.close();
}

/// # Safety
/// See `plait_http_port`; it must not be used afterwards.
#[no_mangle]
pub unsafe extern "C" fn plait_http_stop(server: *mut Server) {
    if !server.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(server) });
    }
}
