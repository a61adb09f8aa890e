//! A socket whose client has to take what it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{sleep, Sleep};

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
