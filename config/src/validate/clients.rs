//! Who may come in: at least one way, and each of them whole.

use std::time::Duration;

use crate::clients::{Clients, Oidc, ServiceAccounts};
use crate::cluster::RequestHeaders;
use crate::located::{Located, Position};

use super::Report;

/// Keys are fetched again each five minutes; one failure must not end them.
const KEYS_STALE_MIN: Duration = Duration::from_secs(600);

pub(super) fn check(clients: &Located<Clients>, has_credentials: bool, report: &mut Report<'_>) {
    let is_closed = clients.client_ca_file.is_none()
        && clients.front_proxy.is_none()
        && clients.token_review.is_none()
        && clients.service_accounts.is_none()
        && clients.oidc.is_empty()
        && !clients.anonymous;
    if is_closed {
        let help = "give `clientCAFile`, `frontProxy`, `tokenReview`, `serviceAccounts` or `oidc`, or allow `anonymous`";
        report.fault(clients.at, "nobody can come in", help);
    }
    if clients.token_review.is_some() && !has_credentials {
        let message = "tokenReview needs a credential of the gateway";
        report.fault(clients.at, message, "add `credentials`");
    }
    let mut issuers: Vec<&str> = Vec::new();
    if let Some(accounts) = &clients.service_accounts {
        check_accounts(accounts, clients, has_credentials, report);
        for issuer in &accounts.issuers {
            check_issuer(issuer, &mut issuers, report);
        }
    }
    for oidc in &clients.oidc {
        check_oidc(oidc, report);
        check_issuer(&oidc.issuer, &mut issuers, report);
    }
}

/// Headers that mean something else.
const TAKEN: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "sec-websocket-protocol",
    "te",
    "transfer-encoding",
    "upgrade",
    "via",
];

pub(super) fn check_headers(headers: &RequestHeaders, at: Position, report: &mut Report<'_>) {
    for (key, names) in [("username", &headers.username), ("group", &headers.group)] {
        if names.is_empty() {
            let message = format!("identity.requestHeaders.{key} is empty");
            report.fault(at, message, "name at least one header");
        }
    }
    let RequestHeaders {
        username,
        uid,
        group,
        extra_prefixes,
    } = headers;
    for name in username
        .iter()
        .chain(uid)
        .chain(group)
        .chain(extra_prefixes)
    {
        let is_token = !name.is_empty() && name.bytes().all(is_token_byte);
        if !is_token || TAKEN.contains(&name.to_ascii_lowercase().as_str()) {
            let message = format!("`{}` cannot be a header that tells who calls", **name);
            report.fault(
                name.at,
                message,
                "write a header's name, such as X-Remote-User",
            );
        }
    }
}

/// What names of headers are made of.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn check_accounts(
    accounts: &Located<ServiceAccounts>,
    clients: &Clients,
    has_credentials: bool,
    report: &mut Report<'_>,
) {
    if accounts.issuers.is_empty() {
        let help = "give the apiservers' --service-account-issuer";
        report.fault(accounts.at, "serviceAccounts.issuers is empty", help);
    }
    if accounts.key_files.is_empty() && !has_credentials {
        let message = "the cluster's keys are fetched with a credential of the gateway";
        report.fault(
            accounts.at,
            message,
            "add `credentials`, or give `keyFiles`",
        );
    }
    if *accounts.confirm && clients.token_review.is_none() {
        let at = if accounts.confirm.at == Position::default() {
            accounts.at
        } else {
            accounts.confirm.at
        };
        let help = "add `tokenReview`, or write `confirm: false`: tokens of deleted pods then hold until they run out";
        report.fault(
            at,
            "tokens are confirmed by a TokenReview, and there is none",
            help,
        );
    }
    check_stale(
        "serviceAccounts.keysStaleFor",
        &accounts.keys_stale_for,
        report,
    );
}

fn check_oidc(oidc: &Located<Oidc>, report: &mut Report<'_>) {
    if oidc.audiences.is_empty() {
        let help = "give the client id that the issuer knows the cluster by";
        report.fault(oidc.audiences.at, "oidc.audiences is empty", help);
    }
    match (&oidc.ca_file, &oidc.key_file) {
        (Some(_), None) if !oidc.issuer.starts_with("https://") => {
            let message = format!("issuer `{}` cannot be asked for its keys", *oidc.issuer);
            report.fault(
                oidc.issuer.at,
                message,
                "write an https URL, or give `keyFile`",
            );
        }
        (Some(_), None) | (None, Some(_)) => {}
        _ => {
            let help = "give `caFile` to fetch the keys from the issuer (for a public one the system's bundle), or `keyFile`";
            report.fault(oidc.at, "not exactly one source of the issuer's keys", help);
        }
    }
    for claim in [Some(&oidc.username), oidc.groups.as_ref()]
        .into_iter()
        .flatten()
    {
        if claim.claim.is_empty() {
            report.fault(
                claim.claim.at,
                "the claim has no name",
                "write one, such as sub",
            );
        }
    }
    check_stale("oidc.keysStaleFor", &oidc.keys_stale_for, report);
}

fn check_issuer<'a>(issuer: &'a Located<String>, seen: &mut Vec<&'a str>, report: &mut Report<'_>) {
    if issuer.is_empty() {
        report.fault(
            issuer.at,
            "an issuer has no name",
            "write what tokens say in `iss`",
        );
    } else if seen.contains(&issuer.as_str()) {
        let message = format!("issuer `{}` is given twice", **issuer);
        report.fault(issuer.at, message, "an issuer's tokens are read in one way");
    }
    seen.push(issuer.as_str());
}

fn check_stale(key: &str, span: &Located<crate::units::TimeSpan>, report: &mut Report<'_>) {
    if span.get() < KEYS_STALE_MIN {
        report.fault(span.at, format!("{key} is {}", **span), "write 10m or more");
    }
}
