//! The admin API over its own TLS listener, moved by the command line and by hand-made requests.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use clap::Parser as _;
use http::{HeaderMap, Method, StatusCode};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde_json::{Value, json};
use sluice_gateway::admin::{
    Access, AdminChange, AdminHandles, AuditSink, BreakerError, BreakerRow, ConfigView, Control,
    EndpointBreakers, HealthChecks, Probe, router, serve,
};
use sluice_gateway::cli::breaker::{self, BreakerArgs};
use sluice_gateway::cli::{AdminClient, AdminClientError, AdminConnection};
use sluice_gateway::flow::{FlowSpec, FlowTable, KeyField, LiveState, RateSpec, RuleSpec};
use sluice_gateway::identity::UserInfo;
use sluice_gateway::request::RequestInfo;
use sluice_ratelimit::{Quota, Ramp};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// An authority, and certificates by it, as files.
struct Pki {
    dir: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("ca.crt"), ca.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Pki { dir, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn issue(&self, name: &str, groups: &[&str]) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params
                .distinguished_name
                .push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        std::fs::write(self.path(&format!("{name}.crt")), cert.pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn server(&self) -> ServerConfig {
        use rustls_pki_types::pem::PemObject as _;
        use rustls_pki_types::{CertificateDer, PrivateKeyDer};
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.path("ca.crt")).unwrap();
        roots.add(ca).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let chain = vec![CertificateDer::from_pem_file(self.path("server.crt")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(self.path("server.key")).unwrap();
        ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap()
    }
}

/// What the process would be.
#[derive(Default)]
struct Process {
    changes: Mutex<Vec<AdminChange>>,
    endpoint_moves: Mutex<Vec<String>>,
    generation: AtomicU64,
    fault: Mutex<Option<String>>,
    drained: CancellationToken,
}

impl AuditSink for Process {
    fn record(&self, change: &AdminChange) {
        self.changes.lock().unwrap().push(change.clone());
    }
}

impl Control for Process {
    fn config(&self) -> ConfigView {
        ConfigView {
            generation: self.generation.load(Ordering::SeqCst),
            last_error: self.fault.lock().unwrap().clone(),
        }
    }

    fn reload(&self) -> Result<ConfigView, String> {
        if let Some(fault) = self.fault.lock().unwrap().clone() {
            return Err(fault);
        }
        self.generation.fetch_add(1, Ordering::SeqCst);
        Ok(self.config())
    }

    fn drain(&self) {
        self.drained.cancel();
    }

    fn clusters(&self) -> Vec<String> {
        vec!["prod".to_owned(), "staging".to_owned()]
    }
}

impl EndpointBreakers for Process {
    fn list(&self) -> Vec<BreakerRow> {
        Vec::new()
    }

    fn trip(
        &self,
        name: &str,
        reason: &str,
        lasting: Option<Duration>,
        by: &str,
    ) -> Result<(), BreakerError> {
        let mut moves = self.endpoint_moves.lock().unwrap();
        moves.push(format!("trip {name} {reason} {lasting:?} {by}"));
        Ok(())
    }

    fn reset(&self, name: &str) -> Result<(), BreakerError> {
        Err(BreakerError::NotFound(format!("no endpoint {name}")))
    }

    fn ramp(&self, name: &str, ramp: Ramp, _by: &str) -> Result<(), BreakerError> {
        let mut moves = self.endpoint_moves.lock().unwrap();
        moves.push(format!("ramp {name} {} {:?}", ramp.from.get(), ramp.over));
        Ok(())
    }
}

struct Fixture {
    pki: Pki,
    address: SocketAddr,
    process: Arc<Process>,
    table: Arc<FlowTable>,
    health: Arc<HealthChecks>,
    stop: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

impl Fixture {
    async fn start() -> Self {
        let pki = Pki::new();
        pki.issue("server", &[]);
        pki.issue("oncall", &["system:masters"]);
        pki.issue("intern", &["interns"]);
        let live = LiveState::new(Instant::now(), 3);
        let rule = RuleSpec {
            rate: Some(RateSpec {
                quota: Quota::per_second(NonZeroU32::MIN, NonZeroU32::MIN).unwrap(),
                key: vec![KeyField::User],
            }),
            ..RuleSpec::new("default/lists")
        };
        let spec = FlowSpec { rules: vec![rule] };
        let table = Arc::new(FlowTable::compile(&spec, "prod", &live).unwrap());
        let process = Arc::new(Process::default());
        let health = Arc::new(HealthChecks::new());
        let shown = Arc::clone(&table);
        let handles = AdminHandles {
            access: Arc::new(ArcSwap::from_pointee(Access {
                allowed_groups: vec!["system:masters".to_owned()],
                allowed_users: Vec::new(),
            })),
            live,
            endpoint_breakers: Arc::clone(&process) as Arc<dyn EndpointBreakers>,
            flows: Arc::new(move || shown.flows()),
            endpoints: Arc::new(|| json!([{"name": "https://10.0.0.1:6443"}])),
            profiles: Arc::new(|| json!([{"client": "alice"}])),
            metrics: Arc::new(|| "sluice_up 1\n".to_owned()),
            health: Arc::clone(&health),
            control: Arc::clone(&process) as Arc<dyn Control>,
            audit: Arc::clone(&process) as Arc<dyn AuditSink>,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = Arc::new(pki.server());
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(
            listener,
            Arc::new(move || Arc::clone(&tls)),
            router(handles),
            stop.clone(),
        ));
        Fixture {
            pki,
            address,
            process,
            table,
            health,
            stop,
            server,
        }
    }

    fn client(&self, name: &str) -> AdminClient {
        AdminClient::open(&AdminConnection {
            server: format!("https://{}", self.address),
            certificate_authority: self.pki.path("ca.crt"),
            client_certificate: self.pki.path(&format!("{name}.crt")),
            client_key: self.pki.path(&format!("{name}.key")),
        })
        .unwrap()
    }

    /// `sluice breaker <args>`, as the admin `oncall`.
    async fn breaker(&self, args: &[&str]) -> Result<String, String> {
        let file = |name| self.pki.path(name).display().to_string();
        let server = format!("https://{}", self.address);
        let (ca, cert, key) = (file("ca.crt"), file("oncall.crt"), file("oncall.key"));
        let mut line = vec!["breaker"];
        line.extend(args);
        line.extend(["--server", &server, "--certificate-authority", &ca]);
        line.extend(["--client-certificate", &cert, "--client-key", &key]);
        let command = Command::try_parse_from(line).map_err(|fault| fault.to_string())?;
        let mut out = Vec::new();
        match breaker::run(command.args, &mut out).await {
            Ok(()) => Ok(String::from_utf8(out).unwrap()),
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn passes(&self, user: &str) -> bool {
        let uri = "/api/v1/pods".parse().unwrap();
        let info = RequestInfo::parse(&Method::GET, &uri, &HeaderMap::new()).unwrap();
        let user = UserInfo {
            name: user.to_owned(),
            ..UserInfo::default()
        };
        self.table.admit(&info, &user, None, Instant::now()).is_ok()
    }

    fn last_change(&self) -> AdminChange {
        self.process.changes.lock().unwrap().last().unwrap().clone()
    }
}

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    args: BreakerArgs,
}

fn refused(outcome: Result<Value, AdminClientError>) -> (StatusCode, String, String) {
    match outcome {
        Err(AdminClientError::Refused {
            code,
            reason,
            message,
        }) => (code, reason, message),
        other => panic!("not refused: {other:?}"),
    }
}

/// One request without a client certificate, by HTTP/1.1 in its plainest form.
async fn bare(fixture: &Fixture, path: &str) -> String {
    use rustls_pki_types::pem::PemObject as _;
    use rustls_pki_types::{CertificateDer, ServerName};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(fixture.pki.path("ca.crt")).unwrap();
    roots.add(ca).unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = tokio::net::TcpStream::connect(fixture.address)
        .await
        .unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, tcp).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn one_client_is_stopped_now_and_let_go_again() {
    let fixture = Fixture::start().await;
    assert_eq!(
        fixture.breaker(&["list"]).await.unwrap(),
        "all breakers are closed\n"
    );
    let trip = ["trip", "client", "ci-bot", "--reason", "runaway loop"];
    let done = fixture.breaker(&trip).await.unwrap();
    assert_eq!(done, "breaker.trip client/ci-bot until reset\n");
    assert!(!fixture.passes("ci-bot") && fixture.passes("alice"));
    let change = fixture.last_change();
    assert_eq!(
        (&*change.who.name, change.action),
        ("oncall", "breaker.trip")
    );
    assert_eq!(
        (&*change.target, &*change.reason),
        ("client/ci-bot", "runaway loop")
    );
    assert_eq!(change.outcome, Ok(()));

    let shown = fixture.breaker(&["list"]).await.unwrap();
    let lines: Vec<&str> = shown.lines().collect();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(words(lines[0])[..4], ["SCOPE", "NAME", "PHASE", "ADMITS"]);
    assert_eq!(words(lines[1])[..4], ["client", "ci-bot", "open", "0%"]);
    assert!(lines[1].ends_with("oncall  runaway loop"), "{shown}");
    let json: Value =
        serde_json::from_str(&fixture.breaker(&["list", "-o", "json"]).await.unwrap()).unwrap();
    assert_eq!(json["items"][0]["refused"], 1);
    let yaml = fixture.breaker(&["list", "-o", "yaml"]).await.unwrap();
    assert!(yaml.contains("name: ci-bot"), "{yaml}");

    fixture
        .breaker(&["reset", "client", "ci-bot"])
        .await
        .unwrap();
    assert!(fixture.passes("ci-bot"));
    let again = fixture.breaker(&["reset", "client", "ci-bot"]).await;
    assert_eq!(
        again.unwrap_err(),
        "NotFound: no breaker of client ci-bot is open"
    );
    let outcome = fixture.last_change().outcome;
    assert!(outcome.is_err(), "refused changes are written down too");
}

#[tokio::test]
async fn clusters_rules_and_endpoints_are_moved_by_name() {
    let fixture = Fixture::start().await;
    let typo = ["trip", "cluster", "prdo", "--reason", "x"];
    assert_eq!(
        fixture.breaker(&typo).await.unwrap_err(),
        "NotFound: there is no cluster \"prdo\"; there are 2: prod, staging"
    );
    let typo = ["ramp", "rule", "lists", "--over", "1m"];
    assert_eq!(
        fixture.breaker(&typo).await.unwrap_err(),
        "NotFound: there is no rule \"lists\"; there are 1: default/lists"
    );
    let ramp = [
        "ramp",
        "rule",
        "default/lists",
        "--from",
        "0",
        "--over",
        "1h",
    ];
    fixture.breaker(&ramp).await.unwrap();
    assert!(!fixture.passes("alice"));
    assert_eq!(fixture.last_change().how, "from 0% over 1h");
    let lasting = ["--reason", "x", "--duration", "1h30m"];
    let trip = [&["trip", "cluster", "prod"][..], &lasting].concat();
    fixture.breaker(&trip).await.unwrap();
    let rows = fixture
        .client("oncall")
        .get("/admin/v1/breakers")
        .await
        .unwrap();
    let remaining = rows["items"][1]["remainingSeconds"].as_u64().unwrap();
    assert!((5300..=5400).contains(&remaining), "{remaining}");

    let trip = [&["trip", "endpoint", "https://10.0.0.1:6443"][..], &lasting].concat();
    fixture.breaker(&trip).await.unwrap();
    let moves = fixture.process.endpoint_moves.lock().unwrap().clone();
    assert_eq!(moves, ["trip https://10.0.0.1:6443 x Some(5400s) oncall"]);
    let reset = fixture.breaker(&["reset", "endpoint", "x"]).await;
    assert_eq!(reset.unwrap_err(), "NotFound: no endpoint x");
}

#[tokio::test]
async fn bad_bodies_are_refused_by_name() {
    let fixture = Fixture::start().await;
    let client = fixture.client("oncall");
    let ask = async |path: &str, body: Value| {
        let path = format!("/admin/v1/breakers/{path}");
        let (code, reason, message) = refused(client.post(&path, &body).await);
        assert_eq!((code, &*reason), (StatusCode::BAD_REQUEST, "BadRequest"));
        message
    };
    let typo = json!({"scope": "client", "name": "a", "reason": "x", "duraton": "1m"});
    assert!(ask("trip", typo).await.contains("unknown field `duraton`"));
    let missing = json!({"scope": "client", "name": "a"});
    assert!(
        ask("trip", missing)
            .await
            .contains("missing field `reason`")
    );
    let empty = json!({"scope": "client", "name": "a", "reason": " "});
    assert!(ask("trip", empty).await.starts_with("reason: say why"));
    let scope = json!({"scope": "node", "name": "a", "reason": "x"});
    assert!(ask("trip", scope).await.contains("unknown variant `node`"));
    for bad in ["1 fortnight", "-1m", "0s", "2000000h", ""] {
        let body = json!({"scope": "client", "name": "a", "reason": "x", "duration": bad});
        let message = ask("trip", body).await;
        assert!(message.starts_with("duration: "), "{bad}: {message}");
    }
    let share = json!({"scope": "client", "name": "a", "from": 101, "over": "1m"});
    assert!(ask("ramp", share).await.starts_with("from: "));
    assert!(fixture.passes("a"), "nothing was moved");
}

#[tokio::test]
async fn only_the_named_may_call() {
    let fixture = Fixture::start().await;
    let intern = fixture.client("intern");
    let (code, reason, _) = refused(intern.get("/admin/v1/breakers").await);
    assert_eq!((code, &*reason), (StatusCode::FORBIDDEN, "Forbidden"));
    let body = json!({"scope": "client", "name": "alice", "reason": "x"});
    let (code, ..) = refused(intern.post("/admin/v1/breakers/trip", &body).await);
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(fixture.passes("alice"));
    for path in ["/metrics", "/admin/v1/flows", "/nothing", "/livezz", "/"] {
        let answer = bare(&fixture, path).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        assert!(answer.contains("\"kind\":\"Status\""), "{answer}");
    }
    let stranger = Pki::new();
    stranger.issue("oncall", &["system:masters"]);
    let foreign = AdminClient::open(&AdminConnection {
        server: format!("https://{}", fixture.address),
        certificate_authority: fixture.pki.path("ca.crt"),
        client_certificate: stranger.path("oncall.crt"),
        client_key: stranger.path("oncall.key"),
    });
    let outcome = foreign.unwrap().get("/admin/v1/flows").await;
    assert!(
        matches!(outcome, Err(AdminClientError::Reach { .. })),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn health_is_for_everybody_and_reasons_are_not() {
    let fixture = Fixture::start().await;
    let answer = bare(&fixture, "/readyz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("ok"),
        "{answer}"
    );
    fixture
        .health
        .register("engine", Probe::LiveAndReady, || Ok(()));
    let secret = || Err("10.1.2.3 refused".to_owned());
    fixture.health.register("upstreams", Probe::Ready, secret);
    let answer = bare(&fixture, "/livez?verbose").await;
    let expected = "[+]ping ok\n[+]engine ok\nlivez check passed\n";
    assert!(answer.ends_with(expected), "{answer}");
    let answer = bare(&fixture, "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
    let expected = "[-]upstreams failed: reason withheld\nreadyz check failed\n";
    assert!(answer.ends_with(expected), "{answer}");
    let answer = bare(&fixture, "/readyz?exclude=upstreams").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(bare(&fixture, "/readyz/engine").await.ends_with("ok"));
    assert!(
        bare(&fixture, "/livez/upstreams")
            .await
            .starts_with("HTTP/1.1 404 ")
    );
    let (_, _, message) = refused(fixture.client("oncall").get("/readyz").await);
    assert!(message.contains("10.1.2.3 refused"), "{message}");
}

#[tokio::test]
async fn the_process_is_shown_and_moved() {
    let fixture = Fixture::start().await;
    let client = fixture.client("oncall");
    assert!(fixture.passes("alice") && !fixture.passes("alice"));
    let flows = client.get("/admin/v1/flows").await.unwrap();
    let flow = &flows["items"][0];
    assert_eq!(
        (&flow["rule"], &flow["cluster"]),
        (&json!("default/lists"), &json!("prod"))
    );
    assert_eq!(
        (&flow["admitted"], &flow["refusedRate"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(flow["rate"], "one each 1s, 1 in a burst, for each user");
    let endpoints = client.get("/admin/v1/endpoints").await.unwrap();
    assert_eq!(endpoints["items"][0]["name"], "https://10.0.0.1:6443");
    let profiles = client.get("/admin/v1/profiles").await.unwrap();
    assert_eq!(profiles["items"][0]["client"], "alice");
    assert_eq!(client.get("/metrics").await.unwrap(), "sluice_up 1");

    let nothing = json!({});
    let config = client.post("/admin/v1/reload", &nothing).await.unwrap();
    assert_eq!(config, json!({"generation": 1}));
    let fault = "rules/a.yaml:3:5: unknown field `rat`".to_owned();
    *fixture.process.fault.lock().unwrap() = Some(fault.clone());
    let (code, reason, message) = refused(client.post("/admin/v1/reload", &nothing).await);
    assert_eq!(
        (code, &*reason),
        (StatusCode::UNPROCESSABLE_ENTITY, "Invalid")
    );
    assert!(message.ends_with(&fault), "{message}");
    assert_eq!(fixture.last_change().outcome, Err(fault));
    let config = client.get("/admin/v1/config").await.unwrap();
    assert_eq!(config["generation"], 1);

    let (code, reason, _) = refused(client.get("/admin/v1/reload").await);
    assert_eq!(
        (code, &*reason),
        (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed")
    );
    let (code, reason, _) = refused(client.get("/admin/v1/nothing").await);
    assert_eq!((code, &*reason), (StatusCode::NOT_FOUND, "NotFound"));
    client.post("/admin/v1/drain", &nothing).await.unwrap();
    assert!(fixture.process.drained.is_cancelled());
    assert_eq!(fixture.last_change().action, "drain");

    fixture.stop.cancel();
    fixture.server.await.unwrap();
    let closed = client.get("/admin/v1/flows").await;
    assert!(
        matches!(closed, Err(AdminClientError::Reach { .. })),
        "{closed:?}"
    );
}

#[test]
fn faults_of_the_connection_say_what_to_do() {
    let open = |server: &str, file: &str| {
        let fault = AdminClient::open(&AdminConnection {
            server: server.to_owned(),
            certificate_authority: PathBuf::from(file),
            client_certificate: PathBuf::from(file),
            client_key: PathBuf::from(file),
        });
        fault.err().unwrap().to_string()
    };
    let missing = "/nonexistent/ca.crt";
    for bad in ["http://a:1", "a b", "https://a/path", ":"] {
        assert!(
            open(bad, missing).contains("write https://<host>:<port>"),
            "{bad}"
        );
    }
    let fault = open("https://a:1", missing);
    assert!(
        fault.starts_with("--certificate-authority /nonexistent/ca.crt: "),
        "{fault}"
    );
}
