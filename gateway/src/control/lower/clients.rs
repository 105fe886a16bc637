//! `spec.clients`: who may come in to a cluster, and how they are known.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use sluice_config as config;

use super::cluster::material;
use crate::authn::TokenReviewsOptions;
use crate::authn::jwt::ClaimMapping;
use crate::identity::RequestHeaders;
use crate::material::Material;
use crate::upstream::IdentityMode;

/// Who may come in to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::control) struct AuthnPlan {
    pub(in crate::control) client_ca_file: Option<Material>,
    pub(in crate::control) front_proxies: Option<FrontProxiesPlan>,
    pub(in crate::control) tokens: Option<TokenReviewsOptions>,
    pub(in crate::control) issuers: Vec<IssuerPlan>,
    /// Whether the gateway judges `--as` itself; else the headers go on to whoever serves.
    pub(in crate::control) judges_impersonation: bool,
    pub(in crate::control) anonymous: bool,
}

/// Front proxies before the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::control) struct FrontProxiesPlan {
    pub(in crate::control) ca_file: Material,
    pub(in crate::control) allowed_names: Vec<String>,
    pub(in crate::control) headers: Arc<RequestHeaders>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::control) struct IssuerPlan {
    pub(in crate::control) names: Vec<String>,
    pub(in crate::control) audiences: Vec<String>,
    pub(in crate::control) keys: KeysPlan,
    pub(in crate::control) tokens: TokensPlan,
}

/// Where an issuer's keys come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::control) enum KeysPlan {
    Files(Vec<PathBuf>),
    /// The cluster itself.
    Cluster {
        stale_for: Duration,
    },
    /// Discovery below the issuer's own URL.
    Discovery {
        url: String,
        ca_file: PathBuf,
        stale_for: Duration,
    },
}

/// Whose tokens they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::control) enum TokensPlan {
    ServiceAccounts { confirm: bool },
    Oidc(ClaimMapping),
}

impl AuthnPlan {
    /// Every file that it is made of.
    pub(in crate::control) fn files(&self) -> impl Iterator<Item = &Path> {
        let of_issuers = self.issuers.iter().flat_map(|issuer| match &issuer.keys {
            KeysPlan::Files(files) => files.as_slice(),
            KeysPlan::Cluster { .. } => &[],
            KeysPlan::Discovery { ca_file, .. } => std::slice::from_ref(ca_file),
        });
        let of_certificates = self.authorities().filter_map(Material::file);
        of_certificates.chain(of_issuers.map(PathBuf::as_path))
    }

    /// The authorities of client certificates.
    pub(in crate::control) fn authorities(&self) -> impl Iterator<Item = &Material> {
        let of_proxies = self.front_proxies.iter().map(|proxies| &proxies.ca_file);
        self.client_ca_file.iter().chain(of_proxies)
    }
}

/// The headers of front proxies; the names were found to be such.
pub(super) fn request_headers(headers: &config::RequestHeaders) -> RequestHeaders {
    let config::RequestHeaders {
        username,
        uid,
        group,
        extra_prefixes,
    } = headers;
    let names = |list: &[config::Located<String>]| {
        let name = |text: &config::Located<String>| HeaderName::try_from(text.as_str()).ok();
        list.iter().filter_map(name).collect()
    };
    let prefixes = extra_prefixes.iter().map(|it| it.to_ascii_lowercase());
    RequestHeaders::new(
        names(username),
        names(uid),
        names(group),
        prefixes.collect(),
    )
}

pub(super) fn authn(
    clients: &config::Clients,
    identity: IdentityMode,
    headers: &Arc<RequestHeaders>,
) -> AuthnPlan {
    let config::Clients {
        client_ca_file,
        front_proxy,
        token_review,
        service_accounts,
        oidc,
        anonymous,
    } = clients;
    let tokens = token_review.as_ref().map(token_reviews);
    let accounts = service_accounts.as_ref().map(|it| service_accounts_of(it));
    let front_proxies = front_proxy.as_ref().map(|proxy| {
        let config::FrontProxy {
            ca_file,
            allowed_names,
        } = proxy;
        FrontProxiesPlan {
            ca_file: material(ca_file),
            allowed_names: allowed_names.clone(),
            headers: Arc::clone(headers),
        }
    });
    AuthnPlan {
        client_ca_file: client_ca_file.as_ref().map(material),
        front_proxies,
        tokens,
        issuers: accounts
            .into_iter()
            .chain(oidc.iter().map(|issuer| oidc_issuer(issuer)))
            .collect(),
        // A caller's own token carries the caller's own `--as`: the apiserver judges it.
        judges_impersonation: identity != IdentityMode::PassThrough,
        anonymous: *anonymous,
    }
}

fn token_reviews(review: &config::TokenReview) -> TokenReviewsOptions {
    let config::TokenReview {
        cache_ttl,
        negative_ttl,
        stale_ttl,
        opaque_tokens,
        issuers,
        max_per_second,
        max_failures_per_second,
    } = review;
    TokenReviewsOptions {
        accepted_for: cache_ttl.get(),
        refused_for: negative_ttl.get(),
        stale_for: stale_ttl.get(),
        opaque: *opaque_tokens,
        issuers: issuers.clone(),
        per_second: max_per_second.get(),
        failures_per_second: max_failures_per_second.get(),
    }
}

fn service_accounts_of(accounts: &config::ServiceAccounts) -> IssuerPlan {
    let config::ServiceAccounts {
        issuers,
        audiences,
        key_files,
        confirm,
        keys_stale_for,
    } = accounts;
    let names: Vec<String> = issuers.iter().map(|issuer| issuer.value.clone()).collect();
    IssuerPlan {
        audiences: if audiences.is_empty() {
            names.clone()
        } else {
            audiences.clone()
        },
        names,
        keys: if key_files.is_empty() {
            KeysPlan::Cluster {
                stale_for: keys_stale_for.get(),
            }
        } else {
            KeysPlan::Files(key_files.iter().map(path).collect())
        },
        tokens: TokensPlan::ServiceAccounts { confirm: **confirm },
    }
}

fn oidc_issuer(oidc: &config::Oidc) -> IssuerPlan {
    let config::Oidc {
        issuer,
        audiences,
        ca_file,
        key_file,
        keys_stale_for,
        username,
        groups,
        required_claims,
    } = oidc;
    let keys = match (ca_file, key_file) {
        (Some(ca_file), None) => KeysPlan::Discovery {
            url: issuer.value.clone(),
            ca_file: path(ca_file),
            stale_for: keys_stale_for.get(),
        },
        // Exactly one of the two is given.
        (_, file) => KeysPlan::Files(file.iter().map(path).collect()),
    };
    let config::ClaimName { claim, prefix } = username;
    let required = required_claims.iter().map(|required| {
        let config::RequiredClaim { claim, value } = required;
        (claim.clone(), value.clone())
    });
    IssuerPlan {
        names: vec![issuer.value.clone()],
        audiences: audiences.value.clone(),
        keys,
        tokens: TokensPlan::Oidc(ClaimMapping {
            username_claim: claim.value.clone(),
            username_prefix: prefix.clone(),
            groups_claim: groups.as_ref().map(|groups| groups.claim.value.clone()),
            groups_prefix: groups
                .as_ref()
                .map(|groups| groups.prefix.clone())
                .unwrap_or_default(),
            required: required.collect(),
        }),
    }
}

fn path(file: &config::FilePath) -> PathBuf {
    file.as_path().to_owned()
}
