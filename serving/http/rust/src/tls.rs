//! TLS: the server's certificate and key, from files of PEM that are read again when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;
use std::time::SystemTime;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::certificate::not_after;

/// Where certificate and key are.
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

pub struct Tls {
    files: Files,
    read: [Option<SystemTime>; 2],
    acceptor: TlsAcceptor,
    /// Seconds of Unix time until which the certificate is valid.
    expires: Arc<AtomicI64>,
}

impl Tls {
    /// The error has the file, and what is wrong with it.
    pub fn new(files: Files, expires: Arc<AtomicI64>) -> io::Result<Self> {
        let read = changed(&files);
        let acceptor = load(&files, &expires)?;
        Ok(Self { files, read, acceptor, expires })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Takes files that were replaced. What cannot be used yet, as a certificate whose key is still to come, is tried again.
    pub fn renew(&mut self) {
        let now = changed(&self.files);
        if now == self.read {
            return;
        }
        if let Ok(acceptor) = load(&self.files, &self.expires) {
            self.acceptor = acceptor;
            self.read = now;
        }
    }
}

fn changed(files: &Files) -> [Option<SystemTime>; 2] {
    [&files.certificate, &files.key].map(|path| std::fs::metadata(path).and_then(|found| found.modified()).ok())
}

fn wrong(path: &Path, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()))
}

fn load(files: &Files, expires: &AtomicI64) -> io::Result<TlsAcceptor> {
    let chain = certificates(&files.certificate)?;
    let until = chain.first().and_then(|first| not_after(first));
    let until = until.ok_or_else(|| wrong(&files.certificate, "the first certificate is damaged"))?;
    let key = PrivateKeyDer::from_pem_slice(&text_of(&files.key)?)
        .map_err(|_| wrong(&files.key, "there is no private key (PEM: PKCS #8, PKCS #1 or SEC1, without a password)"))?;
    let provider = Arc::new(ring::default_provider());
    let pair = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            wrong(&files.key, format!("the key is not that of the certificate in {}", files.certificate.display()))
        }
        rustls::Error::InvalidCertificate(why) => wrong(&files.certificate, format!("the first certificate is damaged: {why}")),
        other => wrong(&files.key, format!("the key cannot be used: {other}")),
    })?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(pair)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    expires.store(until, Ordering::Relaxed);
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn text_of(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 1 << 20;
    let size = std::fs::metadata(path).map_err(|error| wrong(path, error))?.len();
    if size > MOST {
        return Err(wrong(path, "the file is too large for a certificate or a key"));
    }
    std::fs::read(path).map_err(|error| wrong(path, error))
}

/// Of the server first, then those that vouch for it.
fn certificates(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let text = text_of(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|error| wrong(path, format!("the PEM text is damaged: {error}")))?;
    if chain.is_empty() {
        return Err(wrong(path, "there is no certificate (PEM: BEGIN CERTIFICATE)"));
    }
    Ok(chain)
}
