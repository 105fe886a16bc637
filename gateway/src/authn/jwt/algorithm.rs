//! The signature algorithms that tokens may be signed with: asymmetric ones only. `none` and the
//! `HS` family are not in the table, so a public key can never be taken for a shared secret.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512,
    RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters,
    VerificationAlgorithm,
};

/// A signature algorithm of RFC 7518.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    Es512,
}

/// What RSA keys are good for, unless they say that it is one of these only.
pub(super) const RSA: [Algorithm; 6] = [
    Algorithm::Rs256,
    Algorithm::Rs384,
    Algorithm::Rs512,
    Algorithm::Ps256,
    Algorithm::Ps384,
    Algorithm::Ps512,
];

impl Algorithm {
    /// By the name in a token's header or a key's `alg`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Algorithm::Rs256,
            "RS384" => Algorithm::Rs384,
            "RS512" => Algorithm::Rs512,
            "PS256" => Algorithm::Ps256,
            "PS384" => Algorithm::Ps384,
            "PS512" => Algorithm::Ps512,
            "ES256" => Algorithm::Es256,
            "ES384" => Algorithm::Es384,
            "ES512" => Algorithm::Es512,
            _ => return None,
        })
    }

    /// Of keys on a curve by its name in a key set, with the bytes of one coordinate.
    pub(super) fn of_curve(name: &str) -> Option<(Self, usize)> {
        Some(match name {
            "P-256" => (Algorithm::Es256, 32),
            "P-384" => (Algorithm::Es384, 48),
            "P-521" => (Algorithm::Es512, 66),
            _ => return None,
        })
    }

    /// Its parameters where it is one of RSA's.
    pub(super) fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
            Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 => return None,
        })
    }

    pub(super) fn verification(self) -> &'static dyn VerificationAlgorithm {
        match self {
            Algorithm::Es256 => &ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => &ECDSA_P521_SHA512_FIXED,
            Algorithm::Rs256 => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &RSA_PSS_2048_8192_SHA512,
        }
    }
}
