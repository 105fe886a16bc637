//! A `TokenReview`'s user.

use serde_json::Value;

use crate::identity::{AUTHENTICATED, UserInfo};

pub(super) fn user(user: &Value) -> UserInfo {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let texts = |value: Option<&Value>| -> Vec<String> {
        let list = value
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        list.iter()
            .filter_map(|v| v.as_str().map(str::to_owned))
            .collect()
    };
    let mut groups = texts(user.get("groups"));
    if !groups.iter().any(|g| g == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let extra = user
        .get("extra")
        .and_then(Value::as_object)
        .map(|map| {
            map.iter()
                .map(|(k, v)| (k.to_lowercase(), texts(Some(v))))
                .collect()
        })
        .unwrap_or_default();
    UserInfo {
        name: text(user.get("username")),
        uid: text(user.get("uid")),
        groups,
        extra,
    }
}
