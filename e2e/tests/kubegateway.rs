//! What a peer gateway gets wrong, case by case, and the tests that hold each here.
//!
//! The cases are numbered as in the study of that peer; a name with the number is a test written
//! for the case, the others were there for their own sake. The one test below sees that every test
//! named is one. Paths are below the crate named first.
//!
//! | case | what is right | held by |
//! | --- | --- | --- |
//! | A1 | inverted rules exclude | gateway `tests/front/kubegateway.rs` `a01_inverted_rules_exclude`; config `tests/kubegateway.rs` `lists_are_read_as_they_are_meant` |
//! | A2 | the first match decides, namespaces too; none is 403 | gateway `tests/front/kubegateway.rs` `a02_the_first_match_decides_and_what_none_matches_is_403`; gateway `src/flow/tests.rs` `every_list_of_a_match_is_looked_at` |
//! | A3 | identity is exact and cannot be forged | gateway `tests/front/headers.rs` `client_copies_die_and_the_callers_identity_is_told`, `connection_header_cannot_take_the_gateways_lines_away`; gateway `tests/front/kubegateway.rs` `a28_a_lone_uid_is_400` |
//! | A4 | `--as` is authorised | e2e `tests/front.rs` `impersonation_is_authorised_and_written_down`; gateway `src/authn/tests/impersonate.rs` `each_impersonation_header_is_authorised` |
//! | A5 | an outage is 503 and never 401 | e2e `tests/front.rs` `an_outage_of_all_apiservers_is_503_and_not_401`; gateway `src/authn/tests/mod.rs` `an_outage_of_the_reviewer_is_503_and_not_kept` |
//! | A6 | strangers' floods are contained | gateway `src/authn/tests/mod.rs` `a_flood_of_made_up_tokens_is_no_flood_of_questions`; gateway `src/authn/token/tests.rs` `a_flood_of_bad_tokens_holds_up_nobody_else`; gateway `src/profile/tests.rs` `anonymous_callers_cannot_push_others_out_nor_fill_the_memory` |
//! | A7 | a refused connection is tried elsewhere, a sent write is not | gateway `tests/front/faults.rs` `request_that_cannot_be_sent_goes_elsewhere`, `sent_write_that_breaks_is_not_replayed_but_a_read_is` |
//! | A8 | truncation is seen | gateway `tests/front/watches.rs` `broken_upstream_ends_a_watch_between_two_events_and_resets_the_rest`, `http1_client_sees_a_broken_list_as_broken` |
//! | A9 | the URI is byte-exact | gateway `tests/front/headers.rs` `uri_reaches_the_upstream_byte_for_byte` |
//! | A10 | exec with a token as the gateway's credential | gateway `tests/front/tunnels.rs` `spdy_and_websocket_echo`, `refused_upgrade_is_an_ordinary_answer` |
//! | A11 | the gateway's credential rotates | gateway `tests/front/secure.rs` `rotated_certificate_is_used_for_the_next_request`, `own_credentials_change_while_streams_run` |
//! | A12 | poison is refused and harmless | config `tests/kubegateway.rs` `what_has_no_counterpart_is_a_fault_with_its_place`; gateway `src/control/tests.rs` `faulty_content_changes_nothing_and_is_told_once` |
//! | A13 | a version is applied whole and in order | gateway `tests/front/kubegateway.rs` `a13_a_request_is_judged_by_one_whole_version` |
//! | A14 | the breaker ends in three ways | gateway `tests/front/kubegateway.rs` `a14_the_breaker_ends_in_each_of_three_ways` |
//! | A15 | limits are exact and keyed; not yet over several gateways | gateway `tests/front/kubegateway.rs` `a15_a_schema_is_one_limit_wherever_it_is_named`; gateway `src/flow/tests.rs` `a_noisy_user_does_not_spend_anothers_quota`; ratelimit `tests/bucket.rs` `resizing_every_two_seconds_adds_no_bursts` |
//! | A16 | watches take no place of short requests; nothing is queued | gateway `src/flow/tests.rs` `watches_and_tunnels_do_not_starve_short_calls`; gateway `tests/front/faults.rs` `watches_do_not_crowd_out_short_requests` |
//! | A17 | requests are balanced, by load and pace, and watches move back | gateway `tests/front/balance.rs` `ten_thousand_requests_of_one_connection_are_halved`, `slow_endpoint_gets_less_than_its_share`, `returned_endpoint_begins_with_a_part_of_its_share`, `resumed_watches_avoid_who_has_just_come_back` |
//! | A18 | health has hysteresis, and not all are left out | gateway `src/upstream/health.rs` `states_change_after_rise_and_fall`; gateway `tests/front/faults.rs` `when_all_are_out_one_is_tried_anyway`, `unready_endpoint_gets_no_new_requests` |
//! | A19 | it starts from its files and is ready when each cluster was probed | gateway `src/control/tests.rs` `faulty_content_changes_nothing_and_is_told_once`; gateway `src/bootstrap/operate.rs` `one_clusters_outage_does_not_take_the_others_gateway_away` |
//! | A20 | a drain is paced | gateway `tests/front/watches.rs` `drain_says_goodbye_and_ends_watches_between_events`; gateway `src/drain.rs` `neighbours_end_apart` |
//! | A21 | routing by name, alias, wildcard, address, default | gateway `src/snapshot.rs` `hosts_and_server_names_find_their_cluster_or_the_default`; e2e `tests/inputs.rs` `hosts_find_their_cluster_or_none` |
//! | A22 | a certificate counts for its cluster and is judged once | gateway `src/authn/tests/mod.rs` `a_certificate_names_user_and_groups_and_is_judged_once`, `a_certificate_of_another_cluster_or_without_a_name_is_401_not_anonymous` |
//! | A23 | compression and headers pass | gateway `tests/front/headers.rs` `answers_pass_with_warnings_and_trailers`, `client_copies_die_and_the_callers_identity_is_told` |
//! | A24 | a loop is found | gateway `tests/front/headers.rs` `request_that_comes_back_is_a_loop` |
//! | A25 | telemetry tells the truth; there are no spans | gateway `tests/front/pipeline.rs` `a_client_that_leaves_at_any_time_is_accounted_for_once`; gateway `src/telemetry/tests.rs` `what_is_counted_is_read_under_its_name` |
//! | A26 | the published baseline | e2e `tests/benchmark.rs`, and `bench/gateway-load` |
//! | A27 | SPDY from its first byte | gateway `tests/front/tunnels.rs` `spdy_and_websocket_echo`; e2e `tests/upgrade.rs` `it_switches_only_after_the_upstream_has` |
//! | A28 | a lone uid is refused | gateway `tests/front/kubegateway.rs` `a28_a_lone_uid_is_400` |
//! | A29 | uids and credential ids arrive | e2e `tests/front.rs` `certificates_and_tokens_name_their_users` |
//! | A30 | stray impersonation headers are 400 | gateway `tests/front/kubegateway.rs` `a30_stray_impersonation_headers_are_400` |
//! | A31 | an unknown host is 421, and never another API | gateway `src/snapshot.rs` `hosts_and_server_names_find_their_cluster_or_the_default`; e2e `tests/inputs.rs` `hosts_find_their_cluster_or_none` |

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};

/// The cases of the study.
const CASES: usize = 31;

/// The rows of the table above: the case, and what holds it as pairs of file and test.
fn cases() -> Vec<(String, Vec<(PathBuf, String)>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let own = fs::read_to_string(root.join("e2e/tests/kubegateway.rs")).unwrap();
    let rows = own.lines().filter_map(|line| line.strip_prefix("//! | A"));
    rows.map(|row| {
        let (number, rest) = row.split_once(" | ").unwrap();
        let (_, holders) = rest.rsplit_once(" | ").unwrap();
        let mut held = Vec::new();
        for holder in holders.trim_end_matches(" |").split("; ") {
            let mut quoted = holder.split('`');
            let krate = quoted.next().unwrap().trim();
            let mut words = quoted.step_by(2);
            let file = root.join(krate).join(words.next().unwrap());
            held.extend(words.map(|test| (file.clone(), test.to_owned())));
            assert!(file.is_file(), "A{number}: {} is none", file.display());
        }
        (number.to_owned(), held)
    })
    .collect()
}

#[test]
fn every_case_is_held_by_tests_that_exist() {
    let cases = cases();
    let numbers: Vec<String> = cases.iter().map(|(number, _)| number.clone()).collect();
    let expected: Vec<String> = (1..=CASES).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected);
    for (number, held) in cases {
        for (file, test) in held {
            // The baseline is measured, not tested.
            if number == "26" {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            let is_there = text.contains(&format!("fn {test}("));
            assert!(is_there, "A{number}: no {test} in {}", file.display());
        }
    }
}
