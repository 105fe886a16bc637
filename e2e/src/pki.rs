//! Certificate authorities and leaves for one test, in files.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};

/// A certificate authority whose files live in one directory.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    dir: PathBuf,
    /// The authority's certificate.
    pub ca: PathBuf,
}

/// A leaf's two files.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// Certificate, PEM.
    pub cert: PathBuf,
    /// Private key, PEM.
    pub key: PathBuf,
    /// Public key, PEM.
    pub public_key: PathBuf,
}

impl Authority {
    /// Makes an authority called `name`; its files begin with that name.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn new(dir: &Path, name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("a self-signed certificate");
        let ca = dir.join(format!("{name}.crt"));
        std::fs::write(&ca, issuer.pem()).expect("the directory is writable");
        Authority {
            issuer,
            dir: dir.to_owned(),
            ca,
        }
    }

    /// Issues a leaf for a client (`common_name` is the user, `groups` are its organisations) that
    /// also serves 127.0.0.1, localhost and `dns_names`.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn issue(&self, common_name: &str, groups: &[&str], dns_names: &[&str]) -> Leaf {
        self.issue_with(common_name, groups, dns_names, |_| ())
    }

    /// As [`Authority::issue`], with a last word on the parameters (an expired validity, say).
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn issue_with(
        &self,
        common_name: &str,
        groups: &[&str],
        dns_names: &[&str],
        adjust: impl FnOnce(&mut CertificateParams),
    ) -> Leaf {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, common_name);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params
            .subject_alt_names
            .push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        for name in ["localhost"].iter().chain(dns_names) {
            let name = (*name).try_into().expect("a DNS name");
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        adjust(&mut params);
        let key = KeyPair::generate().expect("a key");
        let cert = params
            .signed_by(&key, &self.issuer)
            .expect("a signed certificate");
        let stem = common_name.replace(':', "-");
        let leaf = Leaf {
            cert: self.dir.join(format!("{stem}.crt")),
            key: self.dir.join(format!("{stem}.key")),
            public_key: self.dir.join(format!("{stem}.pub")),
        };
        std::fs::write(&leaf.cert, cert.pem()).expect("the directory is writable");
        std::fs::write(&leaf.key, key.serialize_pem()).expect("the directory is writable");
        std::fs::write(&leaf.public_key, key.public_key_pem()).expect("the directory is writable");
        leaf
    }
}
