//! Who calls the admin API, and whether they may. Fails closed: a path is open to everybody only
//! if it is named here.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::answer::refuse;
use crate::identity::{AUTHENTICATED, UserInfo};
use crate::status::Refusal;

/// The other end of a connection to the admin listener.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where from.
    pub address: SocketAddr,
    /// Whom its certificate names, once the listener has verified it.
    pub user: Option<Arc<UserInfo>>,
}

impl Peer {
    /// A peer with the chain that the TLS handshake verified against the admin listener's client
    /// CA, leaf first; empty when it showed none. A certificate without a common name is nobody's.
    #[must_use]
    pub fn of_verified_chain(address: SocketAddr, chain: &[CertificateDer<'_>]) -> Self {
        let user = chain.first().and_then(read_subject).map(Arc::new);
        Peer { address, user }
    }
}

fn read_subject(leaf: &CertificateDer<'_>) -> Option<UserInfo> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let subject = parsed.subject();
    // The last common name wins where there are several, as in Go.
    let name = subject.iter_common_name().last()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let organizations = subject.iter_organization().map(|it| it.as_str());
    let mut groups: Vec<String> = organizations
        .map(|group| group.map(str::to_owned))
        .collect::<Result<_, _>>()
        .ok()?;
    groups.push(AUTHENTICATED.to_owned());
    Some(UserInfo {
        name: name.to_owned(),
        groups,
        ..UserInfo::default()
    })
}

/// Who may use the admin API: no one, unless named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Members of one of these.
    pub allowed_groups: Vec<String>,
    /// These.
    pub allowed_users: Vec<String>,
}

impl Access {
    fn admits(&self, user: &UserInfo) -> bool {
        self.allowed_users.contains(&user.name)
            || self
                .allowed_groups
                .iter()
                .any(|group| user.is_member(group))
    }
}

/// A caller who may use the API; handlers find it in the request's extensions.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) user: Arc<UserInfo>,
    pub(super) address: SocketAddr,
}

/// Lets a request through, or answers 401 or 403.
pub(super) async fn guard(
    State(access): State<Arc<ArcSwap<Access>>>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = identify(&access.load(), request.extensions().get());
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
        }
        Err(_) if is_open(request.uri().path()) => {}
        Err(refusal) => return super::answer::refusal(refusal, request.headers()),
    }
    next.run(request).await
}

fn identify(access: &Access, peer: Option<&Peer>) -> Result<Caller, Refusal> {
    let Some(Peer {
        address,
        user: Some(user),
    }) = peer
    else {
        let message = "the admin API needs a client certificate of its own authority";
        return Err(refuse(StatusCode::UNAUTHORIZED, "Unauthorized", message));
    };
    if !access.admits(user) {
        let message = format!(
            "user {} is in none of the groups and users that the admin API allows",
            user.name
        );
        return Err(refuse(StatusCode::FORBIDDEN, "Forbidden", message));
    }
    Ok(Caller {
        user: Arc::clone(user),
        address: *address,
    })
}

/// Health is asked by kubelets and load balancers, which have no certificate.
fn is_open(path: &str) -> bool {
    ["/livez", "/readyz"].iter().any(|open| {
        let rest = path.strip_prefix(open);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}
