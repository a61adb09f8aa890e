//! What a connection is doing, so that one that does nothing, or takes nothing, ends: over HTTP/2 a client that reads its socket may
//! still leave an answer untaken, and a connection without streams open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

struct State {
    /// Requests that are read or answered.
    busy: usize,
    quiet_since: Instant,
    /// By call: since when a part of its answer waits to be taken.
    offered: HashMap<u64, Instant>,
}

pub struct Life(Mutex<State>);

impl Life {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(State { busy: 0, quiet_since: Instant::now(), offered: HashMap::new() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A request, until the result is dropped.
    pub fn begin(self: &Arc<Self>) -> Busy {
        self.state().busy += 1;
        Busy(self.clone())
    }

    /// The client has a part to take.
    pub fn offer(&self, call: u64) {
        self.state().offered.insert(call, Instant::now());
    }

    /// It was taken, or will not be.
    pub fn taken(&self, call: u64) {
        self.state().offered.remove(&call);
    }

    /// For how long there has been no request.
    pub fn quiet(&self) -> Option<Duration> {
        let state = self.state();
        (state.busy == 0).then(|| state.quiet_since.elapsed())
    }

    /// For how long a part has waited to be taken.
    pub fn untaken(&self) -> Duration {
        self.state().offered.values().map(Instant::elapsed).max().unwrap_or_default()
    }
}

pub struct Busy(Arc<Life>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.busy -= 1;
        state.quiet_since = Instant::now();
    }
}
