//! The peer's `UpstreamCluster`, field by field, as people wrote it.
//!
//! Strict as everything here: a field it does not have is a fault. What a server of its API adds to
//! metadata is passed over, so that the output of `kubectl get -o yaml` can be read. Values are
//! taken as text and judged by the translation, which lists all their faults at once.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::located::Located;

pub(super) type Texts = Option<Located<Vec<Located<String>>>>;
pub(super) type Text = Option<Located<String>>;
pub(super) type Number = Option<Located<i32>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Cluster {
    #[serde(rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    pub(super) metadata: Metadata,
    pub(super) spec: Spec,
    #[serde(rename = "status")]
    _status: Option<IgnoredAny>,
}

/// The fields after the first two are a server's own or of no consequence.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: Located<String>,
    pub(super) annotations: Option<BTreeMap<String, Located<String>>>,
    #[serde(rename = "labels")]
    _labels: Option<IgnoredAny>,
    #[serde(rename = "uid")]
    _uid: Option<IgnoredAny>,
    #[serde(rename = "resourceVersion")]
    _resource_version: Option<IgnoredAny>,
    #[serde(rename = "generation")]
    _generation: Option<IgnoredAny>,
    #[serde(rename = "creationTimestamp")]
    _creation_timestamp: Option<IgnoredAny>,
    #[serde(rename = "selfLink")]
    _self_link: Option<IgnoredAny>,
    #[serde(rename = "managedFields")]
    _managed_fields: Option<IgnoredAny>,
    #[serde(rename = "finalizers")]
    _finalizers: Option<IgnoredAny>,
    #[serde(rename = "ownerReferences")]
    _owner_references: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Spec {
    pub(super) servers: Option<Located<Vec<Endpoint>>>,
    pub(super) client_config: Option<Located<ClientConfig>>,
    pub(super) secure_serving: Option<Located<SecureServing>>,
    pub(super) flow_control: Option<FlowControl>,
    pub(super) dispatch_policies: Option<Located<Vec<Located<Policy>>>>,
    pub(super) logging: Option<Logging>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Endpoint {
    pub(super) endpoint: Located<String>,
    pub(super) disabled: Option<bool>,
}

/// How its gateway calls the apiservers. Data is base64 of PEM, the token base64 of itself.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ClientConfig {
    pub(super) insecure: Option<Located<bool>>,
    pub(super) bearer_token: Text,
    pub(super) key_data: Text,
    pub(super) cert_data: Text,
    pub(super) ca_data: Text,
    pub(super) qps: Number,
    pub(super) burst: Number,
    pub(super) qps_divisor: Number,
    pub(super) server_name: Text,
}

/// What clients of the cluster are shown and judged by.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SecureServing {
    pub(super) key_data: Text,
    pub(super) cert_data: Text,
    #[serde(rename = "clientCAData")]
    pub(super) client_ca_data: Text,
    pub(super) server_names: Option<Vec<Located<String>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct FlowControl {
    pub(super) flow_control_schemas: Option<Vec<Located<Schema>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Schema {
    pub(super) name: Located<String>,
    pub(super) exempt: Option<Exempt>,
    pub(super) max_requests_inflight: Option<Located<Max>>,
    pub(super) token_bucket: Option<Located<Bucket>>,
    pub(super) global_max_requests_inflight: Option<Located<Max>>,
    pub(super) global_token_bucket: Option<Located<Bucket>>,
    pub(super) strategy: Text,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exempt {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Max {
    #[serde(default)]
    pub(super) max: i32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bucket {
    #[serde(default)]
    pub(super) qps: i32,
    #[serde(default)]
    pub(super) burst: i32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Policy {
    pub(super) strategy: Text,
    pub(super) upstream_subset: Texts,
    pub(super) flow_control_schema_name: Text,
    pub(super) log_mode: Text,
    pub(super) rules: Option<Located<Vec<Located<Rule>>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Rule {
    pub(super) verbs: Texts,
    pub(super) api_groups: Texts,
    pub(super) resources: Texts,
    pub(super) resource_names: Texts,
    pub(super) users: Texts,
    pub(super) service_accounts: Option<Located<Vec<Located<ServiceAccount>>>>,
    pub(super) user_groups: Texts,
    #[serde(rename = "nonResourceURLs")]
    pub(super) non_resource_urls: Texts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServiceAccount {
    #[serde(default)]
    pub(super) namespace: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Logging {
    pub(super) mode: Text,
}
