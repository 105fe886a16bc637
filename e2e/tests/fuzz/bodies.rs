//! Bodies of requests to the Kubernetes API: whatever comes, the answer is JSON and no failure of
//! the server's, a dry run writes nothing, and what was made of an object is made of it again.
//!
//! An input is a line `METHOD resource media-type` and the body behind it.

use http::{Method, StatusCode};
use serde_json::Value;

use crate::harness::{Target, Verdict};
use crate::mutate::Shape;

pub(crate) use self::server::Server;

mod server;

const SHAPE: Shape = Shape {
    cuts: b"{}[]:,\" \n",
    words: &[
        "POST",
        "PUT",
        "PATCH",
        "configmaps",
        "secrets",
        "pods",
        "services",
        "namespaces",
        "deployments",
        "roles",
        "customresourcedefinitions",
        "subjectaccessreviews",
        "application/json",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "\"metadata\"",
        "\"name\"",
        "\"labels\"",
        "\"finalizers\"",
        "\"ownerReferences\"",
        "\"spec\"",
        "\"status\"",
        "\"data\"",
        "\"a\"",
        "null",
        "true",
        "-1",
        "1e400",
        "[]",
        "{}",
        "\"$patch\"",
        "\"delete\"",
        "\"replace\"",
        "\"op\"",
        "\"add\"",
        "\"test\"",
        "\"path\"",
        "\"/data/a\"",
        "\"/-\"",
        "\"value\"",
        "\"containers\"",
        "\"\\ud800\"",
        "&a",
        "*a",
        "- ",
    ],
    bytes_max: 4000,
};

pub(crate) fn target() -> Target {
    let server = Server::start();
    Target {
        name: "bodies",
        shape: SHAPE,
        seeds: Vec::new(),
        check: Box::new(move |input| check(&server, input)),
    }
}

fn check(server: &Server, input: &[u8]) -> Result<Verdict, String> {
    let end = input
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(input.len());
    let head = String::from_utf8_lossy(&input[..end]).into_owned();
    let body = input.get(end + 1..).unwrap_or_default();
    let mut words = head.split(' ');
    let (method, resource) = (
        words.next().unwrap_or_default(),
        words.next().unwrap_or_default(),
    );
    let media = words.next().unwrap_or_default();
    let Some(uri) = uri(method, resource) else {
        return Ok(Verdict::Refused);
    };
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    let Some(answer) = server.ask(&method, &uri, media, body)? else {
        return Ok(Verdict::Refused);
    };
    if answer.code != StatusCode::CREATED || resource.ends_with("reviews") {
        return Ok(verdict(answer.code));
    }
    // A generated name is another one each time.
    let mut first = answer.json;
    let text = first.to_string();
    let again = server.ask(&method, &uri, "application/json", text.as_bytes())?;
    let mut second = again.ok_or("its own answer cannot be sent")?.json;
    for object in [&mut first, &mut second] {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|field, _| field != "uid" && field != "creationTimestamp");
        }
    }
    match first == second {
        true => Ok(Verdict::Accepted),
        false => Err(format!("{first}\nmade anew is {second}")),
    }
}

pub(crate) fn verdict(code: StatusCode) -> Verdict {
    match code.is_success() {
        true => Verdict::Accepted,
        false => Verdict::Refused,
    }
}

/// Where a resource is, and the object there; always as a dry run.
fn uri(method: &str, resource: &str) -> Option<String> {
    let place = match resource {
        "configmaps" | "secrets" | "pods" | "services" => "/api/v1/namespaces/default",
        "namespaces" => "/api/v1",
        "deployments" => "/apis/apps/v1/namespaces/default",
        "roles" => "/apis/rbac.authorization.k8s.io/v1/namespaces/default",
        "customresourcedefinitions" => "/apis/apiextensions.k8s.io/v1",
        "subjectaccessreviews" => "/apis/authorization.k8s.io/v1",
        _ => return None,
    };
    let name = match (method, resource) {
        ("POST", _) => "",
        ("PUT" | "PATCH", "namespaces") => "/default",
        ("PUT" | "PATCH", _) => "/a",
        _ => return None,
    };
    Some(format!("{place}/{resource}{name}?dryRun=All"))
}

/// Whether an answer is one that clients can read.
fn check_answer(code: StatusCode, json: &Value) -> Result<(), String> {
    if code.is_server_error() {
        return Err(format!("{code}: {json}"));
    }
    let is_status = json["kind"] == "Status";
    if code.is_success() {
        let kind = json["kind"].as_str().unwrap_or_default();
        if kind.is_empty() || is_status {
            return Err(format!("{code} with {json}"));
        }
    } else if !is_status || json["code"] != code.as_u16() || json["status"] != "Failure" {
        return Err(format!("{code} with {json}"));
    }
    Ok(())
}
