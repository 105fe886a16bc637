//! An issuer of OpenID Connect tokens: keys, a discovery document and a key set over HTTPS.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use rcgen::{KeyPair, SigningKey as _};
use serde_json::{Value, json};
use sluice_e2e::fake::{self, Fake};
use sluice_e2e::pki::Leaf;
use sluice_e2e::ports;

/// A key that signs tokens, under a name.
pub(crate) struct Key {
    pair: KeyPair,
    id: &'static str,
}

impl Key {
    pub(crate) fn new(id: &'static str) -> Key {
        let pair = KeyPair::generate().unwrap(); // on P-256
        Key { pair, id }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.id});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(claims));
        let signature = fixed(&self.pair.sign(signed.as_bytes()).unwrap());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn public(&self) -> Value {
        // A point: its form, then both coordinates.
        let (x, y) = self.pair.public_key_raw()[1..].split_at(32);
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": text(x), "y": text(y),
        })
    }
}

/// Both numbers of a signature at their full length, out of their DER form.
fn fixed(der: &[u8]) -> Vec<u8> {
    let mut rest = &der[2..];
    let mut all = Vec::new();
    for _ in 0..2 {
        let length = usize::from(rest[1]);
        let (number, after) = rest[2..].split_at(length);
        let number = &number[number.len().saturating_sub(32)..];
        all.extend(std::iter::repeat_n(0, 32 - number.len()));
        all.extend_from_slice(number);
        rest = after;
    }
    all
}

/// A running issuer.
pub(crate) struct Issuer {
    /// Its name, and where it is.
    pub(crate) url: String,
    published: Arc<Mutex<Vec<Value>>>,
    asked: Arc<AtomicUsize>,
    serving: Option<Fake>,
}

impl Issuer {
    pub(crate) async fn start(leaf: &Leaf) -> Issuer {
        let port = ports::free();
        let url = format!("https://127.0.0.1:{port}");
        let published = Arc::<Mutex<Vec<Value>>>::default();
        let asked = Arc::<AtomicUsize>::default();
        let (name, keys, count) = (url.clone(), Arc::clone(&published), Arc::clone(&asked));
        let script = move |request: http::Request<hyper::body::Incoming>| {
            let text = match request.uri().path() {
                "/.well-known/openid-configuration" => {
                    Some(json!({"issuer": name, "jwks_uri": format!("{name}/keys")}))
                }
                "/keys" => {
                    count.fetch_add(1, Ordering::SeqCst);
                    Some(json!({"keys": *keys.lock()}))
                }
                _ => None,
            };
            async move {
                match text {
                    Some(text) => fake::answer(200, text.to_string()),
                    None => fake::answer(404, ""),
                }
            }
        };
        Issuer {
            url,
            published,
            asked,
            serving: Some(Fake::start(port, leaf, script).await),
        }
    }

    /// Publishes these keys and no others.
    pub(crate) fn publish(&self, keys: &[&Key]) {
        *self.published.lock() = keys.iter().map(|key| key.public()).collect();
    }

    /// How often its keys were asked for.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop().await;
        }
    }

    /// Claims of jane's that hold for an hour.
    pub(crate) fn claims(&self) -> Value {
        json!({
            "iss": self.url, "aud": "sluice", "sub": "jane", "exp": now() + 3600,
            "groups": ["dev", "ops"], "jti": "one",
        })
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_secs()
}
