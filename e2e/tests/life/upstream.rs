//! A site with one scripted kube-apiserver: watches that say one event and then nothing, requests
//! that wait until they are let go, and everything else answered at once.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use sluice_e2e::fake::{self, Fake, Streamed};
use sluice_e2e::site::Site;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedSender};

pub(crate) const WATCH: &str = "/api/v1/namespaces/n/configmaps?watch=1&resourceVersion=1";
pub(crate) const SLOW: &str = "/api/v1/namespaces/n/configmaps/slow";
pub(crate) const QUICK: &str = "/api/v1/namespaces/n/configmaps/quick";

const EVENT: &[u8] =
    b"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"2\"}}}\n";

/// A gateway's files with a cluster `main` of one scripted endpoint.
pub(crate) struct Behind {
    pub(crate) site: Site,
    pub(crate) upstream: Fake,
    /// Lets so many slow requests go.
    pub(crate) slow: Arc<Semaphore>,
    watches: Arc<Mutex<Vec<UnboundedSender<Bytes>>>>,
}

impl Behind {
    /// Writes the files, with `more` at the end of the process file.
    pub(crate) async fn of(more: &str) -> Behind {
        let site = Site::make();
        site.write("sluice.yaml", &format!("{}{more}", site.front()));
        let slow = Arc::new(Semaphore::new(0));
        let watches = Arc::<Mutex<Vec<UnboundedSender<Bytes>>>>::default();
        let (gate, open) = (Arc::clone(&slow), Arc::clone(&watches));
        let serving = site.own.issue("upstream", &[], &[]);
        let upstream = Fake::start(0, &serving, move |request: http::Request<_>| {
            let (gate, open) = (Arc::clone(&gate), Arc::clone(&open));
            let query = request.uri().query().unwrap_or_default().to_owned();
            let path = request.uri().path().to_owned();
            async move {
                if query.contains("watch=1") {
                    let json = ("content-type", "application/json");
                    let head = Response::builder().header(json.0, json.1);
                    let (send, events) = mpsc::unbounded_channel();
                    send.send(Bytes::from_static(EVENT)).unwrap();
                    open.lock().push(send);
                    return head.body(Streamed(events).boxed()).unwrap();
                }
                if path == SLOW {
                    gate.acquire().await.unwrap().forget();
                }
                fake::answer(200, r#"{"kind":"ConfigMap","apiVersion":"v1"}"#)
            }
        })
        .await;
        site.cluster("main", upstream.port, "own.crt", "  default: true\n");
        Behind {
            site,
            upstream,
            slow,
            watches,
        }
    }

    /// Says an event on every watch that is open.
    pub(crate) fn event(&self) {
        let mut open = self.watches.lock();
        open.retain(|watch| watch.send(Bytes::from_static(EVENT)).is_ok());
    }
}
