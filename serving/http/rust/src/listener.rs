//! Where clients connect: an address of TCP, or a path of a Unix socket.

use std::io;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A client's socket.
pub enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

pub enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

const UNIX: &str = "unix:";

impl Listener {
    /// "HOST:PORT", port 0: any free one; or "unix:PATH", which must not be there unless it is a socket that no one listens on.
    pub async fn bind(address: &str) -> io::Result<Self> {
        let Some(path) = address.strip_prefix(UNIX) else {
            return TcpListener::bind(address).await.map(Self::Tcp);
        };
        let left = Path::new(path);
        if is_socket(left) && UnixStream::connect(left).await.is_err() {
            std::fs::remove_file(left)?;
        }
        UnixListener::bind(left).map(|listener| Self::Unix(listener, left.to_path_buf()))
    }

    /// 0 of a Unix socket.
    pub fn port(&self) -> u16 {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or(0, |address| address.port()),
            Self::Unix(..) => 0,
        }
    }

    pub async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (socket, _) = listener.accept().await?;
                // Tokens are small, and each is waited for.
                let _ = socket.set_nodelay(true);
                Ok(Socket::Tcp(socket))
            }
            Self::Unix(listener, _) => listener.accept().await.map(|(socket, _)| Socket::Unix(socket)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}
