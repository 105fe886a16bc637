//! Lets any client certificate through a handshake whose owner proves to hold its key.
//!
//! The chain is not judged: `authn` does that, by the authority of the cluster that a request is
//! for. Until then it is bytes of a stranger's, and bounded, since a connection keeps them.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

/// Certificates beside the leaf: twice what a private authority has.
const INTERMEDIATES_MAX: usize = 6;

/// Bytes of a chain: a leaf has one to two KiB. What is kept of each connection.
const CHAIN_BYTES_MAX: usize = 12 * 1024;

/// Hands everything but the verdict on the chain to a verifier that would judge it.
#[derive(Debug)]
pub(super) struct Unjudged {
    strict: Arc<dyn ClientCertVerifier>,
}

impl Unjudged {
    pub(super) fn new(strict: Arc<dyn ClientCertVerifier>) -> Self {
        Unjudged { strict }
    }
}

impl ClientCertVerifier for Unjudged {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.strict.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let bytes: usize = intermediates.iter().map(|each| each.len()).sum();
        if intermediates.len() > INTERMEDIATES_MAX || leaf.len() + bytes > CHAIN_BYTES_MAX {
            return Err(Error::General("the client's chain is too long".to_owned()));
        }
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}
