//! HTTP for Plait's server: sockets, TLS, HTTP/1.1 and HTTP/2, limits and timeouts, and which of its clients are still there.
//! It knows nothing of what is served: requests go to the host through three functions (`abi.rs`), which answer at once;
//! bytes of an answer are taken from the host only when the socket has room for them.
//!
//! The system's refusal of memory ends no host: `plait_reserve` lends what a connection needs until memory is there again.
//!
//! Everything runs on one thread of its own. The host may wake a call from any thread.

#[global_allocator]
static ALLOCATOR: plait_reserve::Reserved = plait_reserve::Reserved;

mod abi;
mod call;
mod certificate;
mod connection;
mod impatient;
mod life;
mod listener;
mod requests;
mod server;
mod tls;
