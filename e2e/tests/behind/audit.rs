//! What the gateway's audit says: who came, to which apiserver they were sent, and how it ended.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Seek as _, SeekFrom};

use serde_json::Value;

use crate::cluster::Cluster;

/// Callers that a control plane has, each under its own name.
const CALLERS: [&str; 10] = [
    "admin",
    "kwok",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:serviceaccount:kube-system:deployment-controller",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:serviceaccount:kube-system:node-controller",
    "system:serviceaccount:kube-system:replicaset-controller",
    "system:serviceaccount:kube-system:root-ca-cert-publisher",
];

/// Of an even share. Requests are spread by what apiservers have in flight and how slow they are.
const SHARE_MIN: f64 = 0.75;

/// Lines of the audit from one moment to another.
#[derive(Debug, Default)]
pub(crate) struct Said {
    users: BTreeSet<String>,
    /// Requests that were no watches, by apiserver.
    pub(crate) endpoints: BTreeMap<String, usize>,
    /// By code.
    codes: BTreeMap<u64, usize>,
    /// Users, verbs and resources of answers of 401, 403 and 5xx.
    bad: BTreeMap<String, usize>,
    lists: usize,
}

/// How long the file is.
pub(crate) fn now(cluster: &Cluster<'_>) -> u64 {
    std::fs::metadata(&cluster.stack.audit).unwrap().len()
}

/// All that was written after the file was `from` bytes long.
pub(crate) fn since(cluster: &Cluster<'_>, from: u64) -> Said {
    let mut file = std::fs::File::open(&cluster.stack.audit).unwrap();
    file.seek(SeekFrom::Start(from)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    let mut said = Said::default();
    // Both ends may lie within a line.
    for event in text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
    {
        said.note(&event);
    }
    said
}

impl Said {
    fn note(&mut self, event: &Value) {
        let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str);
        let (user, verb) = (text("/user/username"), text("/verb").unwrap_or_default());
        let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
        *self.codes.entry(code).or_default() += 1;
        if let Some(user) = user.filter(|_| code < 300) {
            self.users.insert(user.to_owned());
        }
        self.lists += usize::from(verb == "list");
        let endpoint = event["annotations"]["sluice.io/endpoint"].as_str();
        if let Some(endpoint) = endpoint.filter(|_| verb != "watch") {
            *self.endpoints.entry(endpoint.to_owned()).or_default() += 1;
        }
        if code >= 500 || code == 401 || code == 403 {
            let resource = text("/objectRef/resource").or(text("/requestURI"));
            let by = event["annotations"]["sluice.io/refused-by"].as_str();
            let line = format!(
                "{code} {} {verb} {} by {}",
                user.unwrap_or("nobody"),
                resource.unwrap_or_default(),
                by.unwrap_or("the apiserver"),
            );
            *self.bad.entry(line).or_default() += 1;
        }
    }

    /// Every apiserver had its part.
    pub(crate) fn is_even(&self, apiservers: usize) {
        println!("requests by apiserver: {:?}", self.endpoints);
        assert_eq!(self.endpoints.len(), apiservers);
        let all: usize = self.endpoints.values().sum();
        let least = *self.endpoints.values().min().unwrap();
        let even = all as f64 / apiservers as f64;
        assert!(least as f64 > even * SHARE_MIN, "{:?}", self.endpoints);
    }

    /// Everybody was there, and nobody who is not one of the cluster's.
    pub(crate) fn names_everybody(&self) {
        println!("{} lists; by code: {:?}", self.lists, self.codes);
        for (line, count) in &self.bad {
            println!("{count:>5} {line}");
        }
        for caller in CALLERS {
            assert!(self.users.contains(caller), "{caller} in {:?}", self.users);
        }
        let is_known = |user: &&String| {
            CALLERS.contains(&user.as_str())
                || user.starts_with("system:serviceaccount:kube-system:")
        };
        let others: Vec<_> = self.users.iter().filter(|user| !is_known(user)).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}
