//! Addresses and certificates of an etcd, read the way etcdctl reads them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::MigrateError;

/// Where an etcd is and how to be let in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// `https://HOST:PORT` or `http://HOST:PORT`, several with commas between them.
    pub endpoints: String,
    /// Certificates, for https.
    pub tls: TlsFiles,
}

/// Files of a TLS client; each may be missing.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// CAs that sign the server.
    pub cacert: Option<PathBuf>,
    /// The client's chain.
    pub cert: Option<PathBuf>,
    /// The key of that chain.
    pub key: Option<PathBuf>,
}

/// One address of an etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// As it is written.
    pub(super) url: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_tls: bool,
}

impl Access {
    /// Reads the addresses.
    pub(super) fn addresses(&self) -> Result<Vec<Address>, MigrateError> {
        let given = self.endpoints.split(',').map(str::trim);
        let addresses: Vec<Address> = given
            .filter(|url| !url.is_empty())
            .map(address)
            .collect::<Result<_, _>>()?;
        if addresses.is_empty() {
            return Err(MigrateError::Usage(
                "no endpoint is given: write https://HOST:PORT".to_owned(),
            ));
        }
        Ok(addresses)
    }
}

fn address(url: &str) -> Result<Address, MigrateError> {
    let fault = || {
        MigrateError::Usage(format!(
            "{url} is not an endpoint: write https://HOST:PORT or http://HOST:PORT"
        ))
    };
    let uri: http::Uri = url.parse().map_err(|_| fault())?;
    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(fault()),
    };
    if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
        return Err(fault());
    }
    let host = uri.host().ok_or_else(fault)?;
    Ok(Address {
        url: url.trim_end_matches('/').to_owned(),
        host: host.trim_matches(['[', ']']).to_owned(),
        port: uri.port_u16().ok_or_else(fault)?,
        is_tls,
    })
}

impl TlsFiles {
    /// Builds the client's side; `None` when no address asks for TLS.
    pub(super) fn client(
        &self,
        addresses: &[Address],
    ) -> Result<Option<Arc<ClientConfig>>, MigrateError> {
        if addresses.iter().all(|address| !address.is_tls) {
            if self.cacert.is_some() || self.cert.is_some() || self.key.is_some() {
                return Err(MigrateError::Usage(
                    "certificates are given, yet no endpoint is https://".to_owned(),
                ));
            }
            return Ok(None);
        }
        let cacert = self.cacert.as_deref().ok_or_else(|| {
            MigrateError::Usage(
                "an https:// endpoint needs --cacert, the CA that signs it".to_owned(),
            )
        })?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(cacert)? {
            roots
                .add(certificate)
                .map_err(|error| unusable(cacert, &error))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(cacert, &error))?
            .with_root_certificates(roots);
        let mut config = match (&self.cert, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = certificates(cert)?;
                let key_der =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                builder
                    .with_client_auth_cert(chain, key_der)
                    .map_err(|error| unusable(key, &error))?
            }
            _ => {
                return Err(MigrateError::Usage(
                    "--cert and --key are given together or not at all".to_owned(),
                ));
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Arc::new(config)))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, MigrateError> {
    let read = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(path, &error))?;
    if read.is_empty() {
        return Err(unusable(path, &"it holds no certificate"));
    }
    Ok(read)
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> MigrateError {
    MigrateError::Certificate {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(endpoints: &str) -> Access {
        Access {
            endpoints: endpoints.to_owned(),
            tls: TlsFiles::default(),
        }
    }

    #[test]
    fn endpoints_are_read_or_refused_with_what_to_write() {
        let read = access("https://a:2379, http://[::1]:1/")
            .addresses()
            .unwrap();
        assert_eq!(read[0].host, "a");
        assert!(read[0].is_tls);
        assert_eq!((read[1].host.as_str(), read[1].port), ("::1", 1));
        for wrong in [
            "",
            "a:2379",
            "https://a",
            "ftp://a:1",
            "http://a:1/x",
            "http://a:99999",
        ] {
            let error = access(wrong).addresses().unwrap_err().to_string();
            assert!(error.contains("https://HOST:PORT"), "{wrong}: {error}");
        }
    }

    #[test]
    fn certificates_that_do_not_fit_the_endpoints_are_refused() {
        let plain = access("http://a:1").addresses().unwrap();
        let mut files = TlsFiles::default();
        assert!(files.client(&plain).unwrap().is_none());
        let tls = access("https://a:1").addresses().unwrap();
        let error = files.client(&tls).unwrap_err().to_string();
        assert!(error.contains("--cacert"), "{error}");
        files.cacert = Some(PathBuf::from("/nothing/here.pem"));
        let error = files.client(&plain).unwrap_err().to_string();
        assert!(error.contains("https://"), "{error}");
        let error = files.client(&tls).unwrap_err().to_string();
        assert!(error.contains("/nothing/here.pem"), "{error}");
    }
}
