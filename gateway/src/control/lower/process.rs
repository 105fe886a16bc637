//! The parts of `kind: GatewayConfig` that control itself acts on: certificates whose contents
//! change, and the Kubernetes API's place among the routes. The rest is for bootstrap.

use sluice_config as config;

use super::AuthnPlan;
use super::cluster::material;
use crate::material::Material;

/// The files of a listener's certificate.
#[derive(Clone, Debug)]
pub(in crate::control) struct TlsPlan {
    pub(in crate::control) cert_file: Material,
    pub(in crate::control) key_file: Material,
    pub(in crate::control) client_ca_file: Option<Material>,
}

/// The Kubernetes API of our own, as a route.
#[derive(Clone, Debug)]
pub(in crate::control) struct ApiPlan {
    pub(in crate::control) hosts: Vec<String>,
    pub(in crate::control) is_default: bool,
    pub(in crate::control) authn: AuthnPlan,
}

pub(in crate::control) fn lower_listen(process: &config::GatewayConfig) -> TlsPlan {
    let config::Listen {
        address: _,
        tls,
        proxy_protocol_from: _,
        forwarded_for_from: _,
    } = &process.listen;
    let config::ServerTls {
        cert_file,
        key_file,
        client_ca_file,
    } = tls;
    TlsPlan {
        cert_file: material(cert_file),
        key_file: material(key_file),
        client_ca_file: client_ca_file.as_ref().map(material),
    }
}

pub(in crate::control) fn lower_admin(process: &config::GatewayConfig) -> Option<TlsPlan> {
    let config::Admin {
        address: _,
        tls,
        allowed_groups: _,
        allowed_users: _,
    } = process.admin.as_ref()?;
    let config::MutualTls {
        cert_file,
        key_file,
        client_ca_file,
    } = tls;
    Some(TlsPlan {
        cert_file: material(cert_file),
        key_file: material(key_file),
        client_ca_file: Some(material(client_ca_file)),
    })
}

pub(in crate::control) fn lower_api(process: &config::GatewayConfig) -> Option<ApiPlan> {
    let config::Api {
        hosts,
        default,
        client_ca_file,
    } = &**process.api.as_ref()?;
    let listen_ca = process.listen.tls.client_ca_file.as_ref();
    Some(ApiPlan {
        hosts: hosts.iter().map(|host| host.as_str().to_owned()).collect(),
        is_default: **default,
        authn: AuthnPlan {
            client_ca_file: client_ca_file.as_ref().or(listen_ca).map(material),
            ..AuthnPlan::default()
        },
    })
}
