//! Table tests of decisions over whole objects.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::index::Objects;
use super::{Attributes, Authorizer};
use crate::identity::UserInfo;

fn objects(roles: &[Value], bindings: &[Value]) -> Objects {
    fn keyed<T: serde::de::DeserializeOwned>(list: &[Value]) -> BTreeMap<(String, String), T> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let place = |v: &Value| {
            (
                text(&v["metadata"]["namespace"]),
                text(&v["metadata"]["name"]),
            )
        };
        list.iter()
            .map(|v| {
                (
                    place(v),
                    serde_json::from_value(v.clone()).expect("an object"),
                )
            })
            .collect()
    }
    Objects {
        roles: keyed(roles),
        bindings: keyed(bindings),
    }
}

fn role(namespace: &str, name: &str, rules: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules})
}

fn bind(namespace: &str, kind: &str, role: &str, subjects: Value) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": format!("{role}-as-{kind}")},
        "roleRef": {"apiGroup": super::GROUP, "kind": kind, "name": role},
        "subjects": subjects,
    })
}

fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.into(),
        groups: groups.iter().map(|g| (*g).to_owned()).collect(),
        ..UserInfo::default()
    }
}

fn sample() -> Authorizer {
    let read = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    let mixed = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["tls"]},
        {"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]},
    ]);
    Authorizer::fixed(&objects(
        &[
            role("shop", "reader", read.clone()),
            role("", "reader", read),
            role("", "mixed", mixed),
            json!({
                "metadata": {"name": "sum"},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"to": "sum"}}]},
                "rules": null,
            }),
            json!({
                "metadata": {"name": "part", "labels": {"to": "sum"}},
                "rules": [{"apiGroups": ["x.io"], "resources": ["*"], "verbs": ["*"]}],
            }),
        ],
        &[
            bind(
                "shop",
                "Role",
                "reader",
                json!([{"kind": "User", "name": "ann"}]),
            ),
            bind(
                "shop",
                "ClusterRole",
                "mixed",
                json!([{"kind": "Group", "name": "team"}]),
            ),
            bind(
                "",
                "ClusterRole",
                "mixed",
                json!([{"kind": "User", "name": "ops"}]),
            ),
            bind(
                "",
                "ClusterRole",
                "sum",
                json!([{"kind": "User", "name": "summer"}]),
            ),
            bind(
                "",
                "ClusterRole",
                "gone",
                json!([{"kind": "User", "name": "ops"}]),
            ),
            bind(
                "shop",
                "ClusterRole",
                "reader",
                json!([
                    {"kind": "ServiceAccount", "name": "bot"},
                    {"kind": "ServiceAccount", "name": "bot", "namespace": "other"},
                ]),
            ),
            bind(
                "",
                "ClusterRole",
                "reader",
                json!([{"kind": "ServiceAccount", "name": "lost"}]),
            ),
        ],
    ))
}

#[test]
fn bindings_reach_exactly_whom_and_where_they_say() {
    let rbac = sample();
    let pods = |verb, namespace| Attributes {
        verb,
        resource: "pods",
        namespace,
        ..Attributes::default()
    };
    let path = |path| Attributes {
        verb: "get",
        path,
        ..Attributes::default()
    };
    let secret = |name, namespace| Attributes {
        verb: "get",
        resource: "secrets",
        name,
        namespace,
        ..Attributes::default()
    };
    let cases = [
        (user("ann", &[]), pods("list", "shop"), true),
        (user("ann", &[]), pods("watch", "shop"), false),
        (user("ann", &[]), pods("list", "other"), false),
        // No namespace: role bindings do not count.
        (user("ann", &[]), pods("list", ""), false),
        (user("bob", &["team"]), secret("tls", "shop"), true),
        (user("bob", &["team"]), secret("tls", "other"), false),
        (user("bob", &["team"]), secret("", "shop"), false),
        // Paths of a cluster role count only through a cluster role binding.
        (user("bob", &["team"]), path("/metrics"), false),
        (user("ops", &[]), path("/metrics"), true),
        (user("ops", &[]), path("/metrics/x"), false),
        (user("ops", &[]), path("/debug/pprof"), true),
        (user("ops", &[]), secret("tls", "any"), true),
        // A service account without a namespace is one of the binding's; cluster-wide it is nobody.
        (
            user("system:serviceaccount:shop:bot", &[]),
            pods("get", "shop"),
            true,
        ),
        (
            user("system:serviceaccount:other:bot", &[]),
            pods("get", "shop"),
            true,
        ),
        (
            user("system:serviceaccount:other:bot", &[]),
            pods("get", "other"),
            false,
        ),
        (
            user("system:serviceaccount:shop:lost", &[]),
            pods("get", "shop"),
            false,
        ),
        (
            user("system:serviceaccount::lost", &[]),
            pods("get", "shop"),
            false,
        ),
        (
            user("root", &["system:masters"]),
            pods("anything", "nowhere"),
            true,
        ),
        (
            user("summer", &[]),
            Attributes {
                verb: "get",
                group: "x.io",
                resource: "y",
                ..Attributes::default()
            },
            true,
        ),
        (user("nobody", &[]), pods("get", "shop"), false),
    ];
    for (who, asked, wanted) in cases {
        let decision = rbac.authorize(&who, &asked);
        assert_eq!(decision.allowed, wanted, "{who:?} {asked:?} {decision:?}");
    }
}

#[test]
fn reason_names_binding_role_and_subject() {
    let asked = Attributes {
        verb: "get",
        resource: "secrets",
        name: "tls",
        namespace: "shop",
        ..Attributes::default()
    };
    assert_eq!(
        sample().authorize(&user("bob", &["team"]), &asked).reason,
        "RBAC: allowed by RoleBinding \"mixed-as-ClusterRole/shop\" of ClusterRole \"mixed\" to Group \"team\""
    );
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in list {
        map.append(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).expect("a value"),
        );
    }
    map
}

fn impersonator() -> Authorizer {
    let rules = json!([
        {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": ["authentication.k8s.io"], "resources": ["userextras/example.org/x"], "verbs": ["impersonate"]},
    ]);
    let subjects = json!([{"kind": "User", "name": "boss"}]);
    Authorizer::fixed(&objects(
        &[role("", "imp", rules)],
        &[bind("", "ClusterRole", "imp", subjects)],
    ))
}

#[test]
fn impersonation_takes_on_what_is_allowed_and_no_more() {
    let (rbac, boss) = (impersonator(), user("boss", &[]));
    let none = rbac
        .impersonate(&boss, &headers(&[("impersonate-user", "")]))
        .expect("absent");
    assert_eq!(none, None);
    let full = headers(&[
        ("impersonate-user", "eve"),
        ("impersonate-group", "a,b"),
        ("impersonate-group", "c"),
        ("impersonate-extra-example.org%2fx", "1"),
    ]);
    let eve = rbac
        .impersonate(&boss, &full)
        .expect("allowed")
        .expect("somebody");
    assert_eq!(eve.groups, ["a,b", "c", "system:authenticated"]);
    assert_eq!(
        eve.extra,
        [("example.org/x".to_owned(), vec!["1".to_owned()])]
    );
    let account = headers(&[("impersonate-user", "system:serviceaccount:ns:bot")]);
    let bot = rbac
        .impersonate(&boss, &account)
        .expect("allowed")
        .expect("somebody");
    assert_eq!(
        bot.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:ns",
            "system:authenticated"
        ]
    );
    let anonymous = headers(&[("impersonate-user", "system:anonymous")]);
    let nobody = rbac
        .impersonate(&boss, &anonymous)
        .expect("allowed")
        .expect("somebody");
    assert_eq!(nobody.groups, ["system:unauthenticated"]);
}

#[test]
fn impersonation_refuses_each_part_that_is_not_granted() {
    let (rbac, boss) = (impersonator(), user("boss", &[]));
    let cases = [
        (vec![("impersonate-group", "g")], StatusCode::BAD_REQUEST),
        (
            vec![("impersonate-user", ""), ("impersonate-uid", "1")],
            StatusCode::BAD_REQUEST,
        ),
        (
            vec![("impersonate-user", "a"), ("impersonate-user", "b")],
            StatusCode::BAD_REQUEST,
        ),
        (
            vec![("impersonate-user", "a"), ("impersonate-other", "b")],
            StatusCode::BAD_REQUEST,
        ),
        (
            vec![("impersonate-user", "a"), ("impersonate-uid", "1")],
            StatusCode::FORBIDDEN,
        ),
        (
            vec![("impersonate-user", "a"), ("impersonate-extra-z", "1")],
            StatusCode::FORBIDDEN,
        ),
    ];
    for (list, code) in cases {
        let refused = rbac
            .impersonate(&boss, &headers(&list))
            .expect_err("refused");
        assert_eq!(refused.code, code, "{list:?}");
    }
    let plain = headers(&[("impersonate-user", "eve")]);
    let refused = rbac
        .impersonate(&user("mallory", &[]), &plain)
        .expect_err("refused");
    assert_eq!(
        refused.message,
        "users \"eve\" is forbidden: User \"mallory\" cannot impersonate resource \"users\" in API \
         group \"\" at the cluster scope"
    );
}

#[test]
fn nobody_gives_away_what_they_do_not_have() {
    let rules = json!([
        {"apiGroups": [super::GROUP], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]);
    let plain = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let rbac = Authorizer::fixed(&objects(
        &[role("", "holder", plain.clone()), role("", "lord", rules)],
        &[
            bind(
                "",
                "ClusterRole",
                "holder",
                json!([{"kind": "User", "name": "ann"}]),
            ),
            bind(
                "",
                "ClusterRole",
                "lord",
                json!([{"kind": "User", "name": "lord"}]),
            ),
        ],
    ));
    let more = role(
        "",
        "more",
        json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "delete"]}]),
    );
    let same = role("", "same", plain);
    let (ann, lord) = (user("ann", &[]), user("lord", &[]));
    assert!(rbac.check_escalation(&ann, "clusterroles", &same).is_ok());
    let refused = rbac
        .check_escalation(&ann, "clusterroles", &more)
        .expect_err("more than held");
    assert!(
        refused.message.contains("Verbs:[\"delete\"]"),
        "{}",
        refused.message
    );
    assert!(
        !refused.message.contains("Verbs:[\"get\"]"),
        "{}",
        refused.message
    );
    // "*" on the RBAC group holds escalate and bind.
    assert!(rbac.check_escalation(&lord, "clusterroles", &more).is_ok());
    let to_lord = bind("", "ClusterRole", "lord", json!([]));
    assert!(
        rbac.check_escalation(&ann, "clusterrolebindings", &to_lord)
            .is_err()
    );
    assert!(
        rbac.check_escalation(&lord, "clusterrolebindings", &to_lord)
            .is_ok()
    );
    let to_holder = bind("", "ClusterRole", "holder", json!([]));
    assert!(
        rbac.check_escalation(&ann, "clusterrolebindings", &to_holder)
            .is_ok()
    );
    let to_nothing = bind("", "ClusterRole", "nothing", json!([]));
    let refused = rbac
        .check_escalation(&ann, "clusterrolebindings", &to_nothing)
        .expect_err("gone");
    assert_eq!(refused.code, StatusCode::NOT_FOUND);
}
