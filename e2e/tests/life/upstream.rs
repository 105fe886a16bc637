//! A site with one scripted kube-apiserver: watches that say one event and then nothing, requests
//! that wait until they are let go, and everything else answered at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use sluice_e2e::fake::{self, Fake};
use sluice_e2e::site::Site;
use tokio::sync::Semaphore;

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
}

impl Behind {
    /// Writes the files, with `more` at the end of the process file.
    pub(crate) async fn of(more: &str) -> Behind {
        let site = Site::make();
        site.write("sluice.yaml", &format!("{}{more}", site.front()));
        let slow = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&slow);
        let serving = site.own.issue("upstream", &[], &[]);
        let upstream = Fake::start(0, &serving, move |request: http::Request<_>| {
            let gate = Arc::clone(&gate);
            let query = request.uri().query().unwrap_or_default().to_owned();
            let path = request.uri().path().to_owned();
            async move {
                if query.contains("watch=1") {
                    let json = ("content-type", "application/json");
                    let head = Response::builder().header(json.0, json.1);
                    return head.body(Silent(Some(EVENT)).boxed()).unwrap();
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
        }
    }
}

/// A body of one piece that never ends by itself.
struct Silent(Option<&'static [u8]>);

impl hyper::body::Body for Silent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.take() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(piece))))),
            None => Poll::Pending,
        }
    }
}
