//! Who may come in to a cluster, and how they are known.

use serde::Deserialize;

use crate::located::Located;
use crate::path::FilePath;
use crate::units::{Count, TimeSpan};

/// Who may come in; at least one way must be open.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Clients {
    /// CAs of client certificates, PEM.
    #[serde(rename = "clientCAFile")]
    pub client_ca_file: Option<FilePath>,
    /// Front proxies that say who calls, in the headers of `identity.requestHeaders`.
    pub front_proxy: Option<FrontProxy>,
    /// Bearer tokens, judged by the cluster's TokenReview, unless one of the issuers below has
    /// signed them.
    pub token_review: Option<TokenReview>,
    /// The cluster's own service-account tokens, judged by their signature.
    pub service_accounts: Option<Located<ServiceAccounts>>,
    /// Issuers of OpenID Connect tokens, judged by their signature; an empty list means none.
    #[serde(default)]
    pub oidc: Vec<Located<Oidc>>,
    /// Whether callers who show nothing go on as `system:anonymous`.
    #[serde(default)]
    pub anonymous: bool,
}

/// Front proxies before the gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FrontProxy {
    /// CAs of their client certificates, PEM.
    pub ca_file: FilePath,
    /// Common names of certificates that may speak for others. Exact text: no `*`, no negation; an
    /// empty list lets every certificate of the CAs do so.
    pub allowed_names: Vec<String>,
}

/// Which tokens the cluster is asked about, how often, and how long its verdicts are kept.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TokenReview {
    /// For tokens that held.
    #[serde(rename = "cacheTTL", default = "default_cache_ttl")]
    pub cache_ttl: TimeSpan,
    /// For tokens that did not.
    #[serde(rename = "negativeTTL", default = "default_negative_ttl")]
    pub negative_ttl: TimeSpan,
    /// How much longer than `cacheTTL` a token that held is good while nobody can be asked; never
    /// beyond its own end.
    #[serde(rename = "staleTTL", default = "default_stale_ttl")]
    pub stale_ttl: TimeSpan,
    /// Whether tokens are asked about that are not signed ones (JWT).
    #[serde(default = "default_opaque_tokens")]
    pub opaque_tokens: bool,
    /// Issuers whose signed tokens are asked about. Exact text: no `*`, no negation; an empty list
    /// means any.
    #[serde(default)]
    pub issuers: Vec<String>,
    /// Questions a second about tokens that were not accepted before.
    #[serde(default = "default_max_per_second")]
    pub max_per_second: Count,
    /// Refused tokens a second of one client address.
    #[serde(default = "default_max_failures_per_second")]
    pub max_failures_per_second: Count,
}

/// Service-account tokens, judged by their signature.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ServiceAccounts {
    /// What the tokens say in `iss`: each `--service-account-issuer` of the apiservers. Exact text.
    pub issuers: Vec<Located<String>>,
    /// Tokens must be meant for one of these: the apiservers' `--api-audiences`. Empty: the
    /// issuers, as there.
    #[serde(default)]
    pub audiences: Vec<String>,
    /// Public keys, as PEM or JSON key sets. Empty: the cluster's own `/openid/v1/jwks`.
    #[serde(default)]
    pub key_files: Vec<FilePath>,
    /// Whether a TokenReview confirms each token once in `tokenReview.cacheTTL`. Without this a
    /// token of a deleted pod holds until it runs out.
    #[serde(default = "default_confirm")]
    pub confirm: Located<bool>,
    /// How long the cluster's keys stay good while they cannot be fetched again.
    #[serde(default = "default_keys_stale_for")]
    pub keys_stale_for: Located<TimeSpan>,
}

/// An issuer of OpenID Connect tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Oidc {
    /// What the tokens say in `iss`, and where `/.well-known/openid-configuration` is below.
    pub issuer: Located<String>,
    /// Tokens must be meant for one of these.
    pub audiences: Located<Vec<String>>,
    /// CAs of the issuer's certificate, PEM; its keys are found by discovery then.
    pub ca_file: Option<FilePath>,
    /// Its public keys, as PEM or a JSON key set, instead of discovery.
    pub key_file: Option<FilePath>,
    /// How long the issuer's keys stay good while they cannot be fetched again.
    #[serde(default = "default_keys_stale_for")]
    pub keys_stale_for: Located<TimeSpan>,
    /// Where the user's name is.
    pub username: ClaimName,
    /// Where the user's groups are; without it there are none.
    pub groups: Option<ClaimName>,
    /// Claims that must be there with their values; an empty list asks for none.
    #[serde(default)]
    pub required_claims: Vec<RequiredClaim>,
}

/// A claim that becomes a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ClaimName {
    /// The claim.
    pub claim: Located<String>,
    /// Put before its value; may be empty, and has to be written.
    pub prefix: String,
}

/// A claim that must be there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RequiredClaim {
    /// The claim.
    pub claim: String,
    /// Its value, text. Exact: no `*`, no negation.
    pub value: String,
}

impl Default for TokenReview {
    fn default() -> Self {
        TokenReview {
            cache_ttl: default_cache_ttl(),
            negative_ttl: default_negative_ttl(),
            stale_ttl: default_stale_ttl(),
            opaque_tokens: default_opaque_tokens(),
            issuers: Vec::new(),
            max_per_second: default_max_per_second(),
            max_failures_per_second: default_max_failures_per_second(),
        }
    }
}

/// As long as kube-apiserver's own default for webhook token verdicts.
fn default_cache_ttl() -> TimeSpan {
    TimeSpan::from_secs(120)
}

fn default_negative_ttl() -> TimeSpan {
    TimeSpan::from_secs(10)
}

/// Longer than a restart of the apiservers, shorter than somebody's anger at a revoked token.
fn default_stale_ttl() -> TimeSpan {
    TimeSpan::from_secs(300)
}

fn default_opaque_tokens() -> bool {
    true
}

/// As many pods as start anew in a second on a large cluster.
fn default_max_per_second() -> Count {
    const { Count::of(200) }
}

/// Many clients may be behind one address, and some of them have tokens that ran out.
fn default_max_failures_per_second() -> Count {
    const { Count::of(10) }
}

fn default_confirm() -> Located<bool> {
    Located::unwritten(true)
}

/// Longer than an issuer's outage, shorter than a night.
fn default_keys_stale_for() -> Located<TimeSpan> {
    Located::unwritten(TimeSpan::from_secs(3600))
}

impl Clients {
    /// Every path with its key; all of them must be there already.
    pub(crate) fn each_path(&mut self, visit: &mut dyn FnMut(&str, &mut FilePath, bool)) {
        if let Some(path) = &mut self.client_ca_file {
            visit("spec.clients.clientCAFile", path, true);
        }
        if let Some(proxy) = &mut self.front_proxy {
            visit("spec.clients.frontProxy.caFile", &mut proxy.ca_file, true);
        }
        if let Some(accounts) = &mut self.service_accounts {
            for (at, path) in accounts.value.key_files.iter_mut().enumerate() {
                let key = format!("spec.clients.serviceAccounts.keyFiles[{at}]");
                visit(&key, path, true);
            }
        }
        for (at, issuer) in self.oidc.iter_mut().enumerate() {
            let issuer = &mut issuer.value;
            for (key, path) in [
                ("caFile", &mut issuer.ca_file),
                ("keyFile", &mut issuer.key_file),
            ] {
                if let Some(path) = path {
                    visit(&format!("spec.clients.oidc[{at}].{key}"), path, true);
                }
            }
        }
    }
}
