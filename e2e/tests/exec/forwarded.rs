//! Ports and logs.

use std::io::Write as _;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::commands::noise;
use crate::session::{Session, within};
use crate::stage::{POD, Stage, Way};

/// An HTTP server that answers with what it is sent.
pub(crate) struct Echo {
    port: u16,
    serving: JoinHandle<()>,
}

impl Echo {
    pub(crate) async fn start() -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = hyper::service::service_fn(|request: Request<Incoming>| async {
                    let body = request.into_body().collect().await?.to_bytes();
                    Ok::<_, hyper::Error>(Response::new(Full::new(body)))
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Echo { port, serving }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A port of the pod at a port of this machine.
pub(crate) struct Forwarded {
    pub(crate) session: Session,
    port: u16,
}

impl Forwarded {
    pub(crate) async fn start(way: &Way, echo: &Echo) -> Forwarded {
        let ports = format!(":{}", echo.port);
        let address = "--address=127.0.0.1";
        let command = way.command(&["port-forward", address, POD, &ports]);
        let mut session = Session::start(command);
        let line = session.line().await;
        // Forwarding from 127.0.0.1:1 -> 2
        let port = line.split([':', ' ']).nth(3).unwrap().parse();
        let port = port.unwrap_or_else(|_| panic!("{line}"));
        Forwarded { session, port }
    }

    /// A connection through it.
    pub(crate) async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

/// Sends content and has it back.
pub(crate) async fn exchange(sender: &mut http1::SendRequest<Full<Bytes>>, content: &Bytes) {
    let request = Request::post("/").header("host", "pod");
    let request = request.body(Full::new(content.clone())).unwrap();
    let answer = within("an answer", sender.send_request(request))
        .await
        .unwrap();
    let body = within("its content", answer.into_body().collect()).await;
    assert!(body.unwrap().to_bytes() == content, "not what was sent");
}

pub(crate) async fn a_forwarded_port_carries_http(stage: &Stage) {
    let echo = Echo::start().await;
    let content = Bytes::from(noise(1 << 20));
    for way in &stage.ways {
        let forwarded = Forwarded::start(way, &echo).await;
        let mut at_once = tokio::task::JoinSet::new();
        for _ in 0..4 {
            let (mut sender, content) = (forwarded.connect().await, content.clone());
            at_once.spawn(async move {
                exchange(&mut sender, &content).await;
                exchange(&mut sender, &content).await;
            });
        }
        at_once.join_all().await;
    }
}

/// The pod's log, to which lines can be added.
pub(crate) struct Log(std::fs::File);

impl Log {
    pub(crate) fn of(stage: &Stage) -> Log {
        let mut options = std::fs::File::options();
        let file = options.create(true).append(true);
        Log(file.open(stage.path(&format!("{POD}.log"))).unwrap())
    }

    pub(crate) fn add(&mut self, line: &str) {
        writeln!(self.0, "{line}").unwrap();
    }
}

pub(crate) async fn a_log_is_followed_line_by_line(stage: &Stage) {
    let mut log = Log::of(stage);
    log.add("the beginning");
    for (n, way) in stage.ways.iter().enumerate() {
        let mut session = Session::start(way.command(&["logs", "-f", POD]));
        assert_eq!(session.line().await, "the beginning", "{}", way.name);
        for before in 0..n * 20 {
            assert_eq!(session.line().await, format!("line {before}"));
        }
        for line in n * 20..(n + 1) * 20 {
            let line = format!("line {line}");
            log.add(&line);
            assert_eq!(session.line().await, line, "{}", way.name);
        }
    }
}
