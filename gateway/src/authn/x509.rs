//! Client certificates: the chain is judged against one cluster's authority, and the verdict is
//! kept with the connection, so that a request costs a pointer comparison.
//!
//! As in kube-apiserver: CN is the name, every O a group, an attribute of its own the UID
//! (kubernetes-semantics 2.2). Nothing of the subject alternative names is read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::context::KnownCaller;
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::material::Material;

/// How long a certificate that does not hold is not looked at again.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The subject attribute that carries a UID.
const UID_ATTRIBUTE: &str = "1.3.6.1.4.1.57683.2";

/// Tells one loaded authority from another: a reload must not trust verdicts of the one before.
static NEXT_GENERATION: AtomicU64 = AtomicU64::new(1);

/// Why an authority could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ClientAuthorityError {
    /// The file cannot be read or holds no PEM certificates.
    #[error("cannot read client CA certificates from {path}: {reason}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Why a client certificate does not hold.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotACaller {
    #[error("the client certificate is not one of this cluster's: {0}")]
    Untrusted(rustls::Error),
    #[error("the client certificate cannot be read: {0}")]
    Unreadable(String),
    #[error("the client certificate names nobody: its subject has no common name")]
    Nameless,
}

/// The authorities whose client certificates count for one cluster.
#[derive(Debug)]
pub struct ClientAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
    roots: Vec<CertificateDer<'static>>,
    generation: u64,
}

impl ClientAuthority {
    /// Loads the PEM certificates of a file, or of text that stands for one. Blocking.
    ///
    /// # Errors
    /// When it cannot be read, holds none, or holds one that cannot be a root.
    pub fn load(from: &Material) -> Result<Self, ClientAuthorityError> {
        let fault = |reason: String| ClientAuthorityError::Unreadable {
            path: from.place().to_owned(),
            reason,
        };
        let pem = from.read().map_err(|e| fault(e.to_string()))?;
        let mut roots = Vec::new();
        for cert in CertificateDer::pem_slice_iter(&pem) {
            roots.push(cert.map_err(|e| fault(e.to_string()))?);
        }
        Self::new(roots).map_err(fault)
    }

    /// Takes certificates as roots.
    fn new(roots: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        for root in &roots {
            store.add(root.clone()).map_err(|e| e.to_string())?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|e| e.to_string())?;
        let generation = NEXT_GENERATION.fetch_add(1, Ordering::Relaxed);
        Ok(ClientAuthority {
            verifier,
            roots,
            generation,
        })
    }

    /// The roots, for a listener's request for certificates.
    #[must_use]
    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// Who a chain stands for, or why for nobody; judged once a connection, which keeps the verdict
    /// in `slot`, and authority, and again once the leaf has run out.
    pub(super) fn judge_once(
        &self,
        slot: &ArcSwapOption<KnownCaller>,
        chain: &[CertificateDer<'static>],
        wall: Duration,
    ) -> Result<Arc<UserInfo>, Arc<str>> {
        if let Some(known) = slot.load().as_ref()
            && known.authority == self.generation
            && wall < known.until
        {
            return known.verdict.clone();
        }
        let (verdict, until) = match self.judge(chain, wall) {
            Ok((user, until)) => (Ok(Arc::new(user)), until),
            // It may hold later: a clock that was wrong, a certificate that begins.
            Err(why) => (
                Err(Arc::from(why.to_string())),
                wall.saturating_add(REFUSED_FOR),
            ),
        };
        let known = KnownCaller {
            authority: self.generation,
            until,
            verdict: verdict.clone(),
        };
        slot.store(Some(Arc::new(known)));
        verdict
    }

    /// Judges a chain, leaf first: who it stands for, and until when.
    fn judge(
        &self,
        chain: &[CertificateDer<'static>],
        wall: Duration,
    ) -> Result<(UserInfo, Duration), NotACaller> {
        let Some((leaf, intermediates)) = chain.split_first() else {
            return Err(NotACaller::Unreadable("the chain is empty".to_owned()));
        };
        self.verifier
            .verify_client_cert(leaf, intermediates, UnixTime::since_unix_epoch(wall))
            .map_err(NotACaller::Untrusted)?;
        let (_, parsed) =
            X509Certificate::from_der(leaf).map_err(|e| NotACaller::Unreadable(e.to_string()))?;
        let until = parsed.validity().not_after.timestamp();
        let until = Duration::from_secs(u64::try_from(until).unwrap_or(0));
        Ok((read_subject(&parsed, leaf)?, until))
    }
}

fn read_subject(
    parsed: &X509Certificate<'_>,
    leaf: &CertificateDer<'_>,
) -> Result<UserInfo, NotACaller> {
    let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        attribute
            .as_str()
            .map(str::to_owned)
            .map_err(|e| NotACaller::Unreadable(e.to_string()))
    };
    let subject = parsed.subject();
    // The last common name wins where there are several, as in Go.
    let name = match subject.iter_common_name().last() {
        Some(attribute) => text(attribute)?,
        None => String::new(),
    };
    if name.is_empty() {
        return Err(NotACaller::Nameless);
    }
    let mut groups = subject
        .iter_organization()
        .map(text)
        .collect::<Result<Vec<_>, _>>()?;
    if !groups.iter().any(|g| g == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let mut uids = subject
        .iter_attributes()
        .filter(|a| a.attr_type().to_id_string() == UID_ATTRIBUTE);
    let uid = match (uids.next(), uids.next()) {
        (None, _) => String::new(),
        (Some(attribute), None) => text(attribute)?,
        (Some(_), Some(_)) => {
            return Err(NotACaller::Unreadable(
                "its subject has several UIDs".to_owned(),
            ));
        }
    };
    let digest: String = Sha256::digest(leaf)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let credential = (
        "authentication.kubernetes.io/credential-id".to_owned(),
        vec![format!("X509SHA256={digest}")],
    );
    Ok(UserInfo {
        name,
        uid,
        groups,
        extra: vec![credential],
    })
}
