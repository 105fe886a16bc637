//! What operators write: types, parsing, validation with line and column, defaults.
//!
//! One process file (`kind: GatewayConfig`) and a folder of rule files (`kind: UpstreamCluster`,
//! `kind: RateRules`), all `apiVersion: sluice.io/v1alpha1`. Decoding is strict and validation
//! lists every fault it finds, each with its place. `REFERENCE.md` beside the manifest lists every
//! key. Beside its own the rules folder may hold KubeGateway's `UpstreamCluster`s. Inert: it reads the files it is told to, opens no socket, spawns nothing and reads no
//! clock. Nothing of a request's path may name these types; they are lowered first.

mod address;
mod balance;
mod clients;
mod cluster;
mod decode;
mod diagnostic;
mod discovery;
mod kept;
mod kubegateway;
mod load;
mod located;
mod moment;
mod path;
mod process;
mod rate;
mod selector;
mod suggest;
mod units;
mod validate;

pub use address::{EndpointUrl, HostPattern, ListenAddress, Network, Scheme};
pub use balance::{Balance, Subset};
pub use clients::{
    ClaimName, Clients, FrontProxy, Oidc, RequiredClaim, ServiceAccounts, TokenReview,
};
pub use cluster::{
    Breaker, ClusterSpec, Credentials, Ejection, Endpoint, Health, Identity, IdentityMode,
    Metadata, RequestHeaders, Serving, Timeouts, Tunnels, UpstreamCluster, UpstreamTls,
};
pub use decode::API_VERSION;
pub use diagnostic::{Diagnostic, Diagnostics};
pub use discovery::{Discovery, Dns, Slice};
pub use kept::{KeptError, load_kept, load_kept_rules, pack};
pub use kubegateway::{Imported, import};
pub use load::{
    Loaded, RuleSet, Sourced, load, load_process, load_rules, load_rules_of, rule_files,
};
pub use located::{Located, Position};
pub use moment::Moment;
pub use path::FilePath;
pub use process::{
    Admin, Api, Audit, BreakGlass, Etcd, EtcdAccess, GatewayConfig, Listen, Log, LogFormat,
    LogLevel, Metastore, MutualTls, ServerTls, Snapshots, Tracing,
};
pub use rate::{
    InFlight, KeyField, LongRunning, Match, Mode, Queue, Rate, RateRule, RateRules, RateRulesSpec,
    Refuse, SendTo,
};
pub use selector::{Glob, Part, ResourceName, Term, Terms, VerbName};
pub use units::{ByteSize, Count, TimeSpan};
pub use validate::LOCAL_CLUSTER;
