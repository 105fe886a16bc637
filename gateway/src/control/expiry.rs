//! Certificates of the process's own that are out of date.
//!
//! They are told, by a start and by `sluice check`, and hold nothing up: a process that serves with
//! an expired certificate can still be mended by a reload, and one that did not start can not.
//! Files that cannot be read or parsed are the business of whoever uses them.

use std::path::Path;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sluice_config::GatewayConfig;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

/// A sentence for each certificate that clients refuse at `wall`, time since the Unix epoch.
#[must_use]
pub fn expired(process: &GatewayConfig, wall: Duration) -> Vec<String> {
    let mut files = vec![("listen", process.listen.tls.cert_file.as_path())];
    let admin = process.admin.as_ref();
    files.extend(admin.map(|admin| ("admin", admin.tls.cert_file.as_path())));
    let etcd = process.metastore.as_ref().and_then(|store| {
        let etcd = store.value.etcd.as_ref()?;
        let tls = etcd.value.tls.as_ref()?;
        Some(("metastore.etcd", tls.cert_file.as_path()))
    });
    files.extend(etcd);
    files
        .into_iter()
        .filter_map(|(whose, file)| {
            let until = ended(file, wall)?;
            Some(format!(
                "{whose}.tls.certFile: the certificate in {} has expired at {until}; clients refuse it until it is renewed",
                file.display()
            ))
        })
        .collect()
}

/// When the leaf in this file ended, if that is past.
fn ended(file: &Path, wall: Duration) -> Option<String> {
    let leaf = CertificateDer::from_pem_file(file).ok()?;
    let (_, leaf) = X509Certificate::from_der(&leaf).ok()?;
    let until = leaf.validity().not_after;
    let seconds = u64::try_from(until.timestamp()).unwrap_or(0);
    (Duration::from_secs(seconds) < wall).then(|| until.to_string())
}
