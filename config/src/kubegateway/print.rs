//! Native objects as YAML: what `sluice import` shows, and what loads as the peer's object does.

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::{Imported, Translation};
use crate::cluster::ClusterSpec;
use crate::path::FilePath;
use crate::rate::{RateRule, Refuse};
use crate::selector::Terms;
use crate::units::Count;

/// Puts one object behind what was imported before it, and its keys beside.
pub(super) fn object(translation: &Translation, secrets: &Path, imported: &mut Imported) {
    let mut out = Printer {
        text: String::new(),
        folder: secrets,
        cluster: &translation.cluster.metadata.name,
        secrets: &mut imported.secrets,
    };
    if !imported.text.is_empty() {
        out.line("---");
    }
    out.line("# What is not as it was:");
    for difference in &translation.differences {
        let at = difference.at;
        let why = difference.help.as_deref().unwrap_or_default();
        out.line(&format!(
            "# - line {}: {}; {why}",
            at.line, difference.message
        ));
    }
    out.head("UpstreamCluster");
    out.cluster(&translation.cluster.spec);
    out.line("---");
    out.head("RateRules");
    out.line("spec:");
    let name = quoted(out.cluster);
    out.line(&format!("  cluster: {name}"));
    out.line("  rules:");
    for rule in translation.rates.spec.rules.iter() {
        out.rule(rule);
    }
    imported.text += &out.text;
}

/// As a double-quoted scalar.
fn quoted(text: impl Display) -> String {
    let mut out = "\"".to_owned();
    for letter in text.to_string().chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => {
                // Writing into a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// A list on one line.
fn list<T: Display>(items: impl Iterator<Item = T>) -> String {
    let items: Vec<String> = items.map(quoted).collect();
    format!("[{}]", items.join(", "))
}

struct Printer<'a> {
    text: String,
    folder: &'a Path,
    cluster: &'a str,
    secrets: &'a mut Vec<(String, Arc<[u8]>)>,
}

impl Printer<'_> {
    fn line(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    fn head(&mut self, kind: &str) {
        self.line(&format!("apiVersion: {}", crate::decode::API_VERSION));
        self.line(&format!("kind: {kind}"));
        let name = quoted(self.cluster);
        self.line(&format!("metadata: {{ name: {name} }}"));
    }

    /// The path of a file, whose content is kept where it is not one yet.
    fn file(&mut self, file: &FilePath, what: &str) -> String {
        let Some(content) = file.as_inline() else {
            return quoted(file.as_path().display());
        };
        let name = format!("{}-{what}", self.cluster);
        let path = quoted(self.folder.join(&name).display());
        self.secrets.push((name, Arc::clone(content)));
        path
    }

    fn cluster(&mut self, spec: &ClusterSpec) {
        self.line("spec:");
        let hosts = list(spec.hosts.iter().map(|host| host.as_str()));
        self.line(&format!("  hosts: {hosts}"));
        self.line("  endpoints:");
        for endpoint in spec.endpoints.iter() {
            self.line(&format!("  - url: {}", quoted(&endpoint.url.value)));
        }
        if !spec.subsets.is_empty() {
            self.line("  subsets:");
        }
        for subset in &spec.subsets {
            let name = quoted(&subset.name.value);
            let urls = list(subset.endpoints.iter().map(|url| &url.value));
            let strict = subset.strict;
            self.line(&format!(
                "  - {{ name: {name}, endpoints: {urls}, strict: {strict} }}"
            ));
        }
        if let Some(tls) = &spec.tls {
            self.line("  tls:");
            let file = self.file(&tls.ca_file, "ca.crt");
            self.line(&format!("    caFile: {file}"));
            if let Some(name) = &tls.server_name {
                self.line(&format!("    serverName: {}", quoted(name)));
            }
        }
        self.credentials(spec);
        self.line("  clients:");
        let clients = &spec.clients;
        if let Some(file) = &clients.client_ca_file {
            let file = self.file(file, "clients-ca.crt");
            self.line(&format!("    clientCAFile: {file}"));
        }
        if clients.token_review.is_some() {
            self.line("    tokenReview: {}");
        }
        self.line(&format!("    anonymous: {}", clients.anonymous));
        if let Some(serving) = &spec.serving {
            self.line("  serving:");
            let file = self.file(&serving.cert_file, "serving.crt");
            self.line(&format!("    certFile: {file}"));
            let file = self.file(&serving.key_file, "serving.key");
            self.line(&format!("    keyFile: {file}"));
        }
    }

    fn credentials(&mut self, spec: &ClusterSpec) {
        let Some(credentials) = &spec.credentials else {
            return;
        };
        self.line("  credentials:");
        for (key, file, what) in [
            (
                "clientCertFile",
                &credentials.client_cert_file,
                "client.crt",
            ),
            ("clientKeyFile", &credentials.client_key_file, "client.key"),
            ("tokenFile", &credentials.token_file, "token"),
        ] {
            if let Some(file) = file {
                let file = self.file(file, what);
                self.line(&format!("    {key}: {file}"));
            }
        }
    }

    fn rule(&mut self, rule: &RateRule) {
        let RateRule {
            name,
            matches,
            mode: _,
            exempt,
            refuse,
            share,
            rate,
            in_flight,
            long_running,
            send_to,
        } = rule;
        self.line(&format!("  - name: {}", quoted(&name.value)));
        let mut fields = Vec::new();
        push(&mut fields, "users", matches.users.as_deref());
        push(&mut fields, "groups", matches.groups.as_deref());
        push(&mut fields, "verbs", matches.verbs.as_deref());
        push(&mut fields, "resources", matches.resources.as_deref());
        push(&mut fields, "names", matches.names.as_deref());
        let paths = matches.non_resource_paths.as_deref();
        push(&mut fields, "nonResourcePaths", paths);
        if !fields.is_empty() {
            self.line("    match:");
            for field in fields {
                self.line(&format!("      {field}"));
            }
        }
        if **exempt {
            self.line("    exempt: true");
        }
        if let Some(refuse) = refuse {
            let word = match refuse.value {
                Refuse::Busy => "busy",
                Refuse::Forbidden => "forbidden",
            };
            self.line(&format!("    refuse: {word}"));
        }
        if let Some(share) = share {
            self.line(&format!("    share: {}", quoted(&share.value)));
        }
        if let Some(rate) = rate {
            let burst = rate.burst.unwrap_or(rate.per_second).get();
            let per_second = rate.per_second.get();
            self.line(&format!(
                "    rate: {{ perSecond: {per_second}, burst: {burst}, key: [] }}"
            ));
        }
        let at_once = |max: Count| format!("{{ max: {}, key: [] }}", max.get());
        if let Some(limit) = in_flight {
            self.line(&format!("    inFlight: {}", at_once(limit.max)));
        }
        if let Some(limit) = long_running {
            self.line(&format!("    longRunning: {}", at_once(limit.max)));
        }
        for send in send_to.iter() {
            let subset = quoted(&send.subset.value);
            self.line(&format!("    sendTo: [{{ subset: {subset} }}]"));
        }
    }
}

fn push<T: Display>(fields: &mut Vec<String>, key: &str, terms: Option<&Terms<T>>) {
    if let Some(terms) = terms {
        fields.push(format!("{key}: {}", list(terms.iter().map(|it| &it.value))));
    }
}
