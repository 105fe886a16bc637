//! The threats of identity and headers, each with the tests that show its outcome.
//!
//! Numbers are those of the project's list of twenty-five threats; those of framing, of floods of
//! frames, of the store and of the supply chain are shown elsewhere. A test that is renamed or goes
//! away fails here, so that no threat is left without one unnoticed.

use std::io::{self, Write};
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sluice_gateway::authn::{
    AuthenticatorOptions, ReviewFuture, Reviewer, TokenReviews, TokenReviewsOptions,
};
use sluice_gateway::upstream::{Cluster, ClusterSpec};

use crate::fake::{Fake, Options, fine};
use crate::pipeline::Whole;
use crate::rig::{get, text};

const HEADERS: &str = include_str!("headers.rs");
const IDENTITY: &str = include_str!("identity.rs");
const LISTENING: &str = include_str!("listening.rs");
const SECURE: &str = include_str!("secure.rs");
const TUNNELS: &str = include_str!("tunnels.rs");
const THREATS: &str = include_str!("threats.rs");
const AUTHN: &str = include_str!("../../src/authn/tests/mod.rs");
const FRONT_PROXY: &str = include_str!("../../src/authn/tests/front_proxy.rs");
const IMPERSONATE: &str = include_str!("../../src/authn/tests/impersonate.rs");
const SIGNED: &str = include_str!("../../src/authn/jwt/tests/mod.rs");
const MAPPING: &str = include_str!("../../src/authn/jwt/tests/mapping.rs");
const TOKENS: &str = include_str!("../../src/authn/token/tests.rs");

/// Number, outcome, and what shows it.
type Row = (u8, &'static str, &'static [(&'static str, &'static str)]);

const TABLE: &[Row] = &[
    (
        1,
        "a tunnel only after a 101 that matches; any other answer is an ordinary one",
        &[(TUNNELS, "refused_upgrade_is_an_ordinary_answer")],
    ),
    (
        2,
        "only SPDY/3.1 and websocket are upgraded to, and without content",
        &[(
            TUNNELS,
            "only_known_protocols_without_content_are_asked_for",
        )],
    ),
    (
        3,
        "redirects are not followed, and foreign ones not passed on",
        &[(HEADERS, "redirect_to_another_host_is_not_passed_on")],
    ),
    (
        5,
        "no client's identity header survives, configured names and trailers included; X-Remote-* \
         counts with a front proxy's certificate only",
        &[
            (
                HEADERS,
                "client_copies_die_and_the_callers_identity_is_told",
            ),
            (
                HEADERS,
                "configured_names_die_in_every_mode_and_are_said_where_they_are_meant",
            ),
            (HEADERS, "request_trailers_pass_without_identities"),
            (FRONT_PROXY, "nobody_elses_headers_are_read"),
        ],
    ),
    (
        6,
        "each header of an impersonation is authorised; none can be read in two ways",
        &[
            (IMPERSONATE, "each_impersonation_header_is_authorised"),
            (
                IMPERSONATE,
                "headers_that_can_be_read_in_two_ways_are_400_and_nobody_is_asked",
            ),
            (
                AUTHN,
                "a_scoped_token_does_not_act_by_the_verdict_on_an_unscoped_one",
            ),
        ],
    ),
    (
        7,
        "Connection cannot take the gateway's lines away; nobody is sent as the gateway itself",
        &[
            (
                HEADERS,
                "connection_header_cannot_take_the_gateways_lines_away",
            ),
            (HEADERS, "nameless_user_is_never_sent_as_the_gateway_itself"),
        ],
    ),
    (
        15,
        "a running stream outlives its authority, no later request does",
        &[(IDENTITY, "an_authority_changes_while_streams_run")],
    ),
    (
        16,
        "each bad certificate is refused; a session is judged anew, and ends with its authorities",
        &[
            (AUTHN, "each_bad_certificate_is_401"),
            (
                AUTHN,
                "a_certificate_of_another_cluster_or_without_a_name_is_401_not_anonymous",
            ),
            (
                IDENTITY,
                "a_resumed_session_is_judged_anew_and_ends_with_its_authorities",
            ),
            (
                LISTENING,
                "certificates_are_asked_for_recorded_and_not_required",
            ),
        ],
    ),
    (
        17,
        "an upstream that is not the one named is not spoken to",
        &[(SECURE, "stranger_and_wrong_name_are_refused")],
    ),
    (
        18,
        "a token is in no log at any level, in no metric, no audit event and no answer",
        &[(THREATS, "tokens_are_in_no_output")],
    ),
    (
        22,
        "strangers have a bounded number of questions, by address and over all",
        &[
            (TOKENS, "a_source_of_bad_tokens_is_not_asked_about_for_ever"),
            (TOKENS, "accounts_of_sources_are_bounded"),
            (TOKENS, "a_flood_of_bad_tokens_holds_up_nobody_else"),
        ],
    ),
    (
        24,
        "a kube-apiserver's order of credentials; what does not hold is never anonymous",
        &[
            (AUTHN, "mixed_credentials_are_taken_in_an_apiservers_order"),
            (
                AUTHN,
                "a_token_that_cannot_be_read_is_401_and_not_anonymous",
            ),
            (
                IDENTITY,
                "a_strangers_certificate_is_401_and_a_token_beside_it_counts",
            ),
            (
                SIGNED,
                "a_public_key_is_never_a_shared_secret_nor_used_otherwise_than_it_says",
            ),
            (
                MAPPING,
                "an_outside_issuer_makes_nobody_one_of_kubernetes_own",
            ),
        ],
    ),
];

#[test]
fn each_threat_has_the_tests_that_are_named() {
    for (number, outcome, tests) in TABLE {
        assert!(!tests.is_empty(), "{number}: {outcome}");
        for (source, test) in *tests {
            let found = source.contains(&format!("fn {test}("));
            assert!(found, "threat {number} ({outcome}): no test {test}");
        }
    }
}

/// Everything that was logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const CANARY: &str = "canary-7f3a9c";

/// Accepts one token, refuses another, and fails at a third, saying what it was asked.
struct Telling;

impl Reviewer for Telling {
    fn post(&self, _path: &'static str, review: Bytes) -> ReviewFuture<'_> {
        Box::pin(async move {
            let review: Value = serde_json::from_slice(&review).unwrap();
            let token = review["spec"]["token"].as_str().unwrap().to_owned();
            let holds = token.ends_with("good");
            let user = json!({"username": "bot"});
            let status = json!({"authenticated": holds, "user": user, "error": token});
            Ok(Bytes::from(json!({ "status": status }).to_string()))
        })
    }
}

#[tokio::test]
async fn tokens_are_in_no_output() {
    use base64::Engine as _;
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    tracing::trace!("it is on");

    let fake = Fake::start(Options::default(), fine()).await;
    let cluster = Cluster::spawn(ClusterSpec::new("test", [fake.url()])).unwrap();
    let tokens = TokenReviews::new(Arc::new(Telling), TokenReviewsOptions::default());
    let options = AuthenticatorOptions {
        tokens: Some(Arc::new(tokens)),
        ..AuthenticatorOptions::default()
    };
    let whole = Whole::with(cluster, options).await;
    let mut client = whole.rig.http2().await;
    let mut answers = String::new();
    let encode = |token: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(token);
    let rows = [
        ("good", StatusCode::OK),
        ("bad", StatusCode::UNAUTHORIZED),
        ("b\u{fc}d", StatusCode::UNAUTHORIZED),
    ];
    let mut hidden = vec![CANARY.to_owned()];
    for (end, expected) in rows {
        let token = format!("{CANARY}-{end}");
        hidden.push(encode(&token));
        let bearer = HeaderValue::from_bytes(format!("Bearer {token}").as_bytes()).unwrap();
        let subprotocol = format!(
            "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{}",
            encode(&token)
        );
        let subprotocol = HeaderValue::from_str(&subprotocol).unwrap();
        // A subprotocol counts where a WebSocket is asked for, and is no less a secret elsewhere.
        let nobody = StatusCode::UNAUTHORIZED;
        for (name, value, expected) in [
            ("authorization", bearer, expected),
            ("sec-websocket-protocol", subprotocol, nobody),
        ] {
            let mut request = get("/api/v1/pods");
            request.headers_mut().insert(name, value);
            let response = client.send(request).await.unwrap();
            assert_eq!(response.status(), expected, "{name} {end}");
            answers.push_str(&format!("{:?}", response.headers()));
            answers.push_str(&text(response).await);
        }
    }
    let events = format!("{:?}", whole.events(6).await);
    let metrics = whole.metrics();
    let logged = String::from_utf8_lossy(&logged.0.lock()).into_owned();
    assert!(
        logged.contains("it is on") && logged.len() > 10_000,
        "{logged}"
    );
    assert!(events.contains("bot") && metrics.contains("apiserver_request_total"));
    for (what, output) in [
        ("log", logged),
        ("audit", events),
        ("metrics", metrics),
        ("answers", answers),
    ] {
        for secret in &hidden {
            assert!(!output.contains(secret), "{secret} is in the {what}");
        }
    }
}
