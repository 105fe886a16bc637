//! Makes the authenticator of a cluster from its plan: reads authorities and key files, and puts
//! those questions that need somebody to the cluster or to an issuer.
//!
//! Blocking: it reads files. They are read again when a reload finds them changed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::issuer::{ClusterKeys, DiscoveredKeys, DiscoveryFault};
use super::lower::{AuthnPlan, FrontProxiesPlan, IssuerPlan, KeysPlan, TokensPlan};
use super::reviewer::ClusterReviewer;
use crate::authn::jwt::{Issuer, KeyRing, KeySet, KeysFault, LocalTokens, Tokens};
use crate::authn::{
    Authenticator, AuthenticatorOptions, ClientAuthority, ClientAuthorityError, FrontProxies,
    Impersonation, TokenReviews,
};
use crate::upstream::Cluster;

/// Why nobody could be known by the files that a cluster names.
#[derive(Debug, thiserror::Error)]
pub enum ClientsFault {
    /// The authorities of client certificates.
    #[error(transparent)]
    Authority(#[from] ClientAuthorityError),
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Keys that tokens are judged by.
    #[error("{}: {source}", path.display())]
    Keys {
        /// Which file.
        path: PathBuf,
        /// What does not fit.
        source: KeysFault,
    },
    /// An issuer that is asked for its keys.
    #[error("issuer {url}: {source}")]
    Discovery {
        /// The issuer.
        url: String,
        /// What does not fit.
        source: DiscoveryFault,
    },
}

/// Makes it. Without a cluster nobody can be asked, and whatever needs somebody is left out.
pub(super) fn authenticator(
    plan: &AuthnPlan,
    cluster: Option<&Arc<Cluster>>,
) -> Result<Authenticator, ClientsFault> {
    let authority = match &plan.client_ca_file {
        Some(file) => Some(Arc::new(ClientAuthority::load(file)?)),
        None => None,
    };
    let front_proxies = match &plan.front_proxies {
        Some(FrontProxiesPlan {
            ca_file,
            allowed_names,
            headers,
        }) => Some(FrontProxies {
            authority: ClientAuthority::load(ca_file)?,
            allowed_names: allowed_names.clone(),
            headers: Arc::clone(headers),
        }),
        None => None,
    };
    let mut issuers = Vec::new();
    for issuer in &plan.issuers {
        issuers.extend(judge_of(issuer, cluster)?);
    }
    let reviewer = |cluster: &Arc<Cluster>| Arc::new(ClusterReviewer(Arc::clone(cluster)));
    let tokens = cluster
        .zip(plan.tokens.clone())
        .map(|(cluster, options)| Arc::new(TokenReviews::new(reviewer(cluster), options)));
    let impersonation = cluster
        .filter(|_| plan.judges_impersonation)
        .map(|cluster| Impersonation::new(reviewer(cluster)));
    Ok(Authenticator::new(AuthenticatorOptions {
        front_proxies,
        authority,
        local: (!issuers.is_empty()).then(|| LocalTokens::new(issuers)),
        tokens,
        impersonation,
        anonymous: plan.anonymous,
    }))
}

fn judge_of(
    plan: &IssuerPlan,
    cluster: Option<&Arc<Cluster>>,
) -> Result<Option<Issuer>, ClientsFault> {
    let IssuerPlan {
        names,
        audiences,
        keys,
        tokens,
    } = plan;
    let keys = match keys {
        KeysPlan::Files(files) => KeyRing::fixed(read_keys(files)?),
        KeysPlan::Cluster { stale_for } => match cluster {
            Some(cluster) => {
                KeyRing::following(Arc::new(ClusterKeys(Arc::clone(cluster))), *stale_for)
            }
            None => return Ok(None),
        },
        KeysPlan::Discovery {
            url,
            ca_file,
            stale_for,
        } => {
            let source = DiscoveredKeys::new(url, &read(ca_file)?);
            let source = source.map_err(|source| ClientsFault::Discovery {
                url: url.clone(),
                source,
            })?;
            KeyRing::following(Arc::new(source), *stale_for)
        }
    };
    Ok(Some(Issuer {
        names: names.clone(),
        audiences: audiences.clone(),
        keys,
        tokens: match tokens {
            TokensPlan::ServiceAccounts { confirm } => {
                Tokens::ServiceAccounts { confirm: *confirm }
            }
            TokensPlan::Oidc(mapping) => Tokens::Oidc(mapping.clone()),
        },
    }))
}

fn read_keys(files: &[PathBuf]) -> Result<KeySet, ClientsFault> {
    let texts: Vec<Vec<u8>> = files
        .iter()
        .map(|file| read(file))
        .collect::<Result<_, _>>()?;
    KeySet::read_all(&texts).map_err(|(at, source)| ClientsFault::Keys {
        path: files.get(at).cloned().unwrap_or_default(),
        source,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, ClientsFault> {
    std::fs::read(path).map_err(|source| ClientsFault::File {
        path: path.to_owned(),
        source,
    })
}
