//! An issuer's public keys, read from a JSON key set or from PEM.
//!
//! A key is parsed once for each algorithm it may be used with. A key set may hold keys of kinds
//! that are not for signatures, or that are not known here: these are passed over, since an issuer
//! adds them without asking. A set without a usable key is a fault.

use aws_lc_rs::signature::{ParsedPublicKey, RsaPublicKeyComponents};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use serde::Deserialize;
use serde_json::Value;
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo, X509Certificate};
use x509_parser::public_key::PublicKey;

use super::algorithm::{Algorithm, RSA};

/// Keys of one issuer: the largest public issuers have a dozen, of which a few are in use.
const KEYS_MAX: usize = 64;

/// Keys tried on one token where names do not tell which; each costs some ten microseconds.
const TRIES_MAX: usize = 16;

/// Shorter RSA keys are breakable.
const RSA_BITS_MIN: usize = 2048;

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysFault {
    /// Neither a key set nor PEM.
    #[error("it is neither a JSON key set nor PEM: {0}")]
    Unreadable(String),
    /// It can be read, and there is nothing to use in it.
    #[error(
        "it holds no public key that signs tokens; give RSA keys of 2048 bits or more, or keys on P-256, P-384 or P-521"
    )]
    NoKey,
}

/// Public keys of one issuer.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Clone)]
struct Key {
    id: Option<String>,
    uses: Vec<(Algorithm, ParsedPublicKey)>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:?})", self.id)
    }
}

/// What a key set says of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signature {
    Good,
    Bad,
    /// The key that the token names is not among them.
    UnknownKey,
}

impl KeySet {
    /// Reads a JSON key set, or PEM public keys and certificates.
    ///
    /// # Errors
    /// When it is neither, or holds no key that can be used.
    pub fn read(text: &[u8]) -> Result<Self, KeysFault> {
        let keys = if text.trim_ascii_start().starts_with(b"{") {
            read_json(text)?
        } else {
            read_pem(text)?
        };
        if keys.is_empty() {
            return Err(KeysFault::NoKey);
        }
        Ok(KeySet { keys })
    }

    /// Reads several texts into one set.
    ///
    /// # Errors
    /// As [`KeySet::read`], with the place of the text at fault.
    pub fn read_all<T: AsRef<[u8]>>(texts: &[T]) -> Result<Self, (usize, KeysFault)> {
        let mut all = KeySet { keys: Vec::new() };
        for (at, text) in texts.iter().enumerate() {
            let read = KeySet::read(text.as_ref()).map_err(|fault| (at, fault))?;
            all.keys.extend(read.keys);
        }
        all.keys.truncate(KEYS_MAX);
        Ok(all)
    }

    /// Judges a signature by the key that the token names, or by all where it names none.
    pub(super) fn verify(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
        signed: &[u8],
        signature: &[u8],
    ) -> Signature {
        let mut is_known = id.is_none();
        let mut tries = 0;
        for key in &self.keys {
            // A key without a name may be meant; a named one is or is not.
            if let (Some(wanted), Some(name)) = (id, &key.id) {
                if wanted != name {
                    continue;
                }
                is_known = true;
            }
            let mut uses = key.uses.iter();
            let Some((_, parsed)) = uses.find(|(known, _)| *known == algorithm) else {
                continue;
            };
            if tries == TRIES_MAX {
                break;
            }
            tries += 1;
            if parsed.verify_sig(signed, signature).is_ok() {
                return Signature::Good;
            }
        }
        if is_known {
            Signature::Bad
        } else {
            Signature::UnknownKey
        }
    }
}

#[derive(Deserialize)]
struct JsonSet {
    keys: Vec<Value>,
}

/// RFC 7517, the members that public keys for signatures have.
#[derive(Deserialize)]
struct JsonKey {
    kty: String,
    kid: Option<String>,
    r#use: Option<String>,
    alg: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

fn read_json(text: &[u8]) -> Result<Vec<Key>, KeysFault> {
    let set: JsonSet =
        serde_json::from_slice(text).map_err(|error| KeysFault::Unreadable(error.to_string()))?;
    let keys = set.keys.into_iter().filter_map(|key| {
        let key: JsonKey = serde_json::from_value(key).ok()?;
        json_key(&key)
    });
    Ok(keys.take(KEYS_MAX).collect())
}

fn json_key(key: &JsonKey) -> Option<Key> {
    if key.r#use.as_deref().is_some_and(|of| of != "sig") {
        return None;
    }
    let only = match &key.alg {
        Some(name) => Some(Algorithm::named(name)?),
        None => None,
    };
    let number = |text: &Option<String>| {
        let bytes = URL_SAFE_NO_PAD.decode(text.as_deref()?).ok()?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        bytes.get(zeros..).map(<[u8]>::to_vec)
    };
    let uses = match key.kty.as_str() {
        "RSA" => {
            let components = RsaPublicKeyComponents {
                n: number(&key.n).filter(|n| n.len() * 8 >= RSA_BITS_MIN)?,
                e: number(&key.e)?,
            };
            let parse = |algorithm: Algorithm| {
                let parsed = components.to_parsed_public_key(algorithm.rsa()?).ok()?;
                Some((algorithm, parsed))
            };
            RSA.into_iter().filter_map(parse).collect()
        }
        "EC" => {
            let (algorithm, length) = Algorithm::of_curve(key.crv.as_deref()?)?;
            let mut point = vec![4];
            for coordinate in [number(&key.x)?, number(&key.y)?] {
                let padding = length.checked_sub(coordinate.len())?;
                point.resize(point.len() + padding, 0);
                point.extend(coordinate);
            }
            let parsed = ParsedPublicKey::new(algorithm.verification(), point).ok()?;
            vec![(algorithm, parsed)]
        }
        _ => return None,
    };
    usable(key.kid.clone().filter(|kid| !kid.is_empty()), uses, only)
}

fn read_pem(text: &[u8]) -> Result<Vec<Key>, KeysFault> {
    let unreadable = |reason: String| KeysFault::Unreadable(reason);
    let mut keys = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
        let (kind, der) = section.map_err(|error| unreadable(error.to_string()))?;
        match kind {
            SectionKind::PublicKey => keys.extend(spki_key(&der)),
            SectionKind::Certificate => {
                let (_, certificate) = X509Certificate::from_der(&der)
                    .map_err(|error| unreadable(error.to_string()))?;
                keys.extend(spki_key(certificate.public_key().raw));
            }
            _ => {}
        }
    }
    keys.truncate(KEYS_MAX);
    Ok(keys)
}

/// A key in the form of certificates, which has no name.
fn spki_key(der: &[u8]) -> Option<Key> {
    let (_, read) = SubjectPublicKeyInfo::from_der(der).ok()?;
    if let Ok(PublicKey::RSA(rsa)) = read.parsed()
        && rsa.key_size() < RSA_BITS_MIN
    {
        return None;
    }
    let curves = [Algorithm::Es256, Algorithm::Es384, Algorithm::Es512];
    let parse = |algorithm: Algorithm| {
        let parsed = ParsedPublicKey::new(algorithm.verification(), der).ok()?;
        Some((algorithm, parsed))
    };
    let uses = curves.into_iter().chain(RSA).filter_map(parse).collect();
    usable(None, uses, None)
}

fn usable(
    id: Option<String>,
    mut uses: Vec<(Algorithm, ParsedPublicKey)>,
    only: Option<Algorithm>,
) -> Option<Key> {
    uses.retain(|(algorithm, _)| only.is_none_or(|only| only == *algorithm));
    (!uses.is_empty()).then_some(Key { id, uses })
}
