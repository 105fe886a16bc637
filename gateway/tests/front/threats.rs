//! The project's list of twenty-five threats, each with the tests that show its outcome, wherever in
//! the tree they are. A test that is renamed or goes away fails here, so that no threat is left
//! without one unnoticed.

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

const ACCESS: &str = "gateway/src/api/tests/access.rs";
const ADMIN: &str = "gateway/tests/admin.rs";
const AUTHN: &str = "gateway/src/authn/tests/mod.rs";
const CONFIG: &str = "config/tests/faults.rs";
const FAULTS: &str = "e2e/tests/faults/frames.rs";
const FLOODS: &str = "gateway/tests/front/floods.rs";
const FLOW: &str = "gateway/src/flow/tests.rs";
const FRONT_PROXY: &str = "gateway/src/authn/tests/front_proxy.rs";
const HEADERS: &str = "gateway/tests/front/headers.rs";
const HOSTILE: &str = "metastore/tests/etcd/hostile.rs";
const HOSTS: &str = "gateway/src/snapshot.rs";
const IDENTITY: &str = "gateway/tests/front/identity.rs";
const IMPERSONATE: &str = "gateway/src/authn/tests/impersonate.rs";
const INPUTS: &str = "e2e/tests/faults/inputs.rs";
const KEYED: &str = "ratelimit/tests/keyed.rs";
const LISTENING: &str = "gateway/tests/front/listening.rs";
const LOWER: &str = "gateway/src/control/lower/tests.rs";
const MAPPING: &str = "gateway/src/authn/jwt/tests/mapping.rs";
const REQUEST: &str = "gateway/src/request/tests.rs";
const SECURE: &str = "gateway/tests/front/secure.rs";
const SIGNED: &str = "gateway/src/authn/jwt/tests/mod.rs";
const SLOW: &str = "e2e/tests/faults/clients.rs";
const SMUGGLING: &str = "gateway/tests/front/smuggling.rs";
const STORE_HTTP: &str = "metastore/tests/etcd/http.rs";
const THREATS: &str = "gateway/tests/front/threats.rs";
const TIDY: &str = "e2e/tests/tidy.rs";
const TOKENS: &str = "gateway/src/authn/token/tests.rs";
const TUNNELS: &str = "gateway/tests/front/tunnels.rs";

/// Number, outcome, and what shows it: a file and a test in it.
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
        4,
        "a rule refuses proxying by resource, name and namespace; a tunnel is audited and limited as one",
        &[
            (
                LOWER,
                "refusing_rules_refuse_in_their_own_way_and_only_when_enforced",
            ),
            (FLOW, "one_kind_of_target_leaves_the_other_out"),
            (FLOW, "long_running_requests_have_a_limit_of_their_own"),
        ],
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
        8,
        "what HTTP/1.1 may mean twice is refused, and nothing is left over",
        &[
            (SMUGGLING, "what_http1_may_mean_twice_is_refused"),
            (
                SMUGGLING,
                "chunks_that_may_end_in_two_places_are_never_whole",
            ),
            (
                SMUGGLING,
                "a_target_with_another_host_is_refused_and_the_same_is_not",
            ),
        ],
    ),
    (
        9,
        "what HTTP/1.1 cannot carry does not come out of HTTP/2",
        &[
            (
                SMUGGLING,
                "what_http1_cannot_carry_does_not_come_out_of_http2",
            ),
            (
                SMUGGLING,
                "content_of_another_length_than_it_says_is_never_whole",
            ),
        ],
    ),
    (
        10,
        "one reading of a path, a kube-apiserver's, and the bytes travel on as they came",
        &[
            (REQUEST, "paths_resolve_as_in_kube_apiserver"),
            (HEADERS, "uri_reaches_the_upstream_byte_for_byte"),
        ],
    ),
    (
        11,
        "a query is read as upstream, and no watch passes as a list",
        &[
            (REQUEST, "list_shape_is_read"),
            (REQUEST, "limits_of_zero_less_or_nonsense_are_none"),
            (
                FLOW,
                "headers_of_an_upgrade_do_not_take_a_list_out_of_its_limit",
            ),
        ],
    ),
    (
        12,
        "each flood is cut off, and neighbours notice nothing",
        &[
            (FLOODS, "floods_are_cut_off_and_neighbours_notice_nothing"),
            (LISTENING, "resets_in_a_hurry_close_the_connection"),
            (FAULTS, "fault_14_rapid_reset"),
            (FAULTS, "fault_15_header_bomb"),
        ],
    ),
    (
        13,
        "what is slow or too large is closed, refused or passed on in pieces, and costs a bounded room",
        &[
            (SLOW, "fault_11_slow_clients"),
            (LISTENING, "headers_have_a_bound"),
            (INPUTS, "threat_13_oversize_input"),
        ],
    ),
    (
        14,
        "no upstream's answer is kept for others; our own API judges each request by the roles of now",
        &[
            (
                ACCESS,
                "role_is_in_force_with_the_next_request_and_gone_with_its_binding",
            ),
            (
                AUTHN,
                "a_scoped_token_does_not_act_by_the_verdict_on_an_unscoped_one",
            ),
        ],
    ),
    (
        15,
        "a stream ends soon after its caller's credential, whole, and no later request outlives it at all",
        &[
            (
                IDENTITY,
                "a_stream_ends_with_its_callers_token_and_not_with_an_outage",
            ),
            (
                IDENTITY,
                "a_stream_ends_with_the_authority_of_its_callers_certificate",
            ),
            (IDENTITY, "an_authority_changes_while_streams_run"),
        ],
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
            (
                HOSTS,
                "hosts_and_server_names_find_their_cluster_or_the_default",
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
        19,
        "no content is in an audit event: it has no place for any",
        &[(INPUTS, "threat_19_audit_of_secrets")],
    ),
    (
        20,
        "health is for everybody, and everything else of the admin listener for the named",
        &[
            (ADMIN, "only_the_named_may_call"),
            (ADMIN, "health_is_for_everybody_and_reasons_are_not"),
        ],
    ),
    (
        21,
        "the store lets in known certificates only, and each client has a bounded room",
        &[
            (STORE_HTTP, "only_certificates_of_the_client_ca_come_in"),
            (HOSTILE, "a_transaction_of_many_large_reads_takes_room_too"),
            (
                HOSTILE,
                "watches_on_one_stream_are_bounded_and_the_rest_go_on",
            ),
            (HOSTILE, "a_flood_of_leases_holds_nobody_up"),
        ],
    ),
    (
        22,
        "limits are by who was found to call, with a bound on keys; strangers have a bounded number of \
         questions, by address and over all",
        &[
            (KEYED, "a_full_map_limits_new_keys_together"),
            (KEYED, "keys_with_moved_boundaries_differ"),
            (TOKENS, "a_source_of_bad_tokens_is_not_asked_about_for_ever"),
            (TOKENS, "accounts_of_sources_are_bounded"),
            (TOKENS, "a_flood_of_bad_tokens_holds_up_nobody_else"),
        ],
    ),
    (
        23,
        "files that would cost too much are refused with a reason; there are no regular expressions",
        &[
            (INPUTS, "threat_23_denial_by_config"),
            (CONFIG, "rules_that_cannot_work_are_faults"),
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
    (
        25,
        "one provider of cryptography, no dependency twice, none from elsewhere, no unsafe code",
        &[
            (TIDY, "dependencies_are_single_and_of_one_provider"),
            (
                TIDY,
                "manifests_take_dependencies_and_lints_from_the_workspace",
            ),
        ],
    ),
];

#[test]
fn each_threat_has_the_tests_that_are_named() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let numbers: Vec<u8> = TABLE.iter().map(|row| row.0).collect();
    assert_eq!(numbers, (1..=25).collect::<Vec<u8>>());
    for (number, outcome, tests) in TABLE {
        assert!(!tests.is_empty(), "{number}: {outcome}");
        for (file, test) in *tests {
            let source = std::fs::read_to_string(root.join(file));
            let source = source.unwrap_or_else(|error| panic!("{file}: {error}"));
            let found = source.contains(&format!("fn {test}("));
            assert!(
                found,
                "threat {number} ({outcome}): no test {test} in {file}"
            );
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
    // Tests beside this one log to nobody, and whether a place logs is remembered for all of them.
    tracing::callsite::rebuild_interest_cache();
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
