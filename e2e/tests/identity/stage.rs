//! A gateway in front of one scripted kube-apiserver, with a way in of the test's own.

use http::HeaderMap;
use http_body_util::Full;
use sluice_e2e::client::{Answer, Client};
use sluice_e2e::fake::{self, Fake};
use sluice_e2e::site::Site;
use sluice_e2e::sluice::Gateway;

pub(crate) const PODS: &str = "/api/v1/namespaces/n/pods";

pub(crate) struct Stage {
    pub(crate) site: Site,
    upstream: Fake,
    _gateway: Gateway,
}

impl Stage {
    /// `clients` is the text of `spec.clients`.
    pub(crate) async fn open(site: Site, clients: &str) -> Stage {
        site.write("sluice.yaml", &site.front());
        let leaf = site.own.issue("upstream", &[], &[]);
        let upstream = Fake::start(0, &leaf, |_| async { fake::answer(200, "{}") }).await;
        site.cluster("main", upstream.port, "own.crt", "  default: true\n");
        let rules = std::fs::read_to_string(site.path("rules/main.yaml")).unwrap();
        let before = "clients: { clientCAFile: ../users.crt }";
        assert!(rules.contains(before));
        site.write("rules/main.yaml", &rules.replace(before, clients));
        let mut gateway = site.gateway();
        gateway.start();
        gateway.ready().await;
        Stage {
            site,
            upstream,
            _gateway: gateway,
        }
    }

    /// Asks with these headers; what the apiserver was told, if it was asked at all.
    pub(crate) async fn ask(
        &self,
        client: &Client,
        headers: &[(&'static str, &str)],
    ) -> (Answer, Option<HeaderMap>) {
        let before = self.upstream.seen().len();
        let mut request = client.request("GET", PODS);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::default()).unwrap();
        let answer = client.http2().await.unwrap().exchange(request).await;
        let mut seen = self.upstream.seen();
        assert!(seen.len() <= before + 1);
        let told = (seen.len() > before).then(|| seen.pop().unwrap().headers);
        (answer.unwrap(), told)
    }
}

/// Whom the apiserver was told of: name and groups.
pub(crate) fn whom(told: Option<&HeaderMap>) -> (&str, Vec<&str>) {
    let told = told.expect("the apiserver was asked");
    let groups = told.get_all("impersonate-group").iter();
    (
        told["impersonate-user"].to_str().unwrap(),
        groups.map(|it| it.to_str().unwrap()).collect(),
    )
}
