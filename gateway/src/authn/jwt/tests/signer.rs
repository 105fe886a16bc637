//! Makes keys and signs with them.

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    self, ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RsaEncoding,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, SubjectPublicKeyInfo};
use x509_parser::public_key::PublicKey;

enum Pair {
    Rsa(rsa::KeyPair, &'static dyn RsaEncoding),
    Ec(EcdsaKeyPair),
}

/// An issuer's key.
pub(in crate::authn) struct Signer {
    pair: Pair,
    name: &'static str,
    id: &'static str,
    der: Vec<u8>,
}

impl Signer {
    /// A new key for the algorithm of that name; `id` may be empty.
    pub(in crate::authn) fn new(name: &'static str, id: &'static str) -> Self {
        let pair = match name {
            "ES256" => Pair::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap()),
            "ES384" => Pair::Ec(EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap()),
            "ES512" => Pair::Ec(EcdsaKeyPair::generate(&ECDSA_P521_SHA512_FIXED_SIGNING).unwrap()),
            _ => {
                let encoding: &'static dyn RsaEncoding = match name {
                    "RS256" => &signature::RSA_PKCS1_SHA256,
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    _ => &signature::RSA_PSS_SHA512,
                };
                Pair::Rsa(rsa::KeyPair::generate(KeySize::Rsa2048).unwrap(), encoding)
            }
        };
        let der: PublicKeyX509Der<'_> = match &pair {
            Pair::Rsa(pair, _) => pair.public_key().as_der().unwrap(),
            Pair::Ec(pair) => pair.public_key().as_der().unwrap(),
        };
        let der = der.as_ref().to_vec();
        Signer {
            pair,
            name,
            id,
            der,
        }
    }

    pub(in crate::authn) fn sign(&self, claims: &Value) -> String {
        let mut header = json!({"alg": self.name});
        if !self.id.is_empty() {
            header["kid"] = json!(self.id);
        }
        self.sign_as(&header, claims)
    }

    pub(in crate::authn) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Ec(pair) => {
                let signature = pair.sign(&random, signed.as_bytes()).unwrap();
                signature.as_ref().to_vec()
            }
            Pair::Rsa(pair, encoding) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*encoding, &random, signed.as_bytes(), &mut signature)
                    .unwrap();
                signature
            }
        };
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// The public key in a key set of its own.
    pub(in crate::authn) fn json_set(&self) -> String {
        json!({"keys": [self.json()]}).to_string()
    }

    pub(in crate::authn) fn json(&self) -> Value {
        let (_, read) = SubjectPublicKeyInfo::from_der(&self.der).unwrap();
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut key = match read.parsed().unwrap() {
            PublicKey::RSA(rsa) => json!({
                "kty": "RSA", "n": text(rsa.modulus), "e": text(rsa.exponent),
            }),
            PublicKey::EC(point) => {
                let (x, y) = point.data()[1..].split_at(point.data().len() / 2);
                let curve = match x.len() {
                    32 => "P-256",
                    48 => "P-384",
                    _ => "P-521",
                };
                json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y)})
            }
            other => panic!("{other:?}"),
        };
        key["use"] = json!("sig");
        key["alg"] = json!(self.name);
        if !self.id.is_empty() {
            key["kid"] = json!(self.id);
        }
        key
    }

    pub(in crate::authn) fn pem(&self) -> String {
        let body = STANDARD.encode(&self.der);
        let lines: Vec<&str> = (0..body.len())
            .step_by(64)
            .map(|at| &body[at..body.len().min(at + 64)])
            .collect();
        let lines = lines.join("\n");
        format!("-----BEGIN PUBLIC KEY-----\n{lines}\n-----END PUBLIC KEY-----\n")
    }
}
