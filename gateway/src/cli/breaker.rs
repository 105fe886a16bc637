//! `sluice breaker`: list, trip, reset and ramp circuit breakers by the admin API.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Value, json};

use super::admin_client::{AdminClient, AdminClientError, AdminConnection};
use super::output::{OutputFormat, structured, table};
use crate::admin::BreakerRow;

const BREAKERS: &str = "/admin/v1/breakers";

/// Stop a cluster, a rule, a client or an endpoint now, and let it go again.
#[derive(Clone, Debug, clap::Args)]
pub struct BreakerArgs {
    #[command(flatten)]
    connection: AdminConnection,
    /// Form of the output.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: OutputFormat,
    #[command(subcommand)]
    command: BreakerCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum BreakerCommand {
    /// Show all breakers that are not closed.
    List,
    /// Open a breaker: nothing passes.
    Trip {
        #[command(flatten)]
        target: Target,
        /// Why; clients are told.
        #[arg(long)]
        reason: String,
        /// For how long, such as 90s or 10m; without it, until it is reset.
        #[arg(long)]
        duration: Option<String>,
        /// Of a cluster: stop the heartbeats of its nodes too. Within a minute nodes are taken
        /// for dead, and their pods are evicted.
        #[arg(long)]
        stop_heartbeats: bool,
    },
    /// Close a breaker: everything passes at once.
    Reset {
        #[command(flatten)]
        target: Target,
        /// Why; for the audit log.
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Let a growing share pass.
    Ramp {
        #[command(flatten)]
        target: Target,
        /// The share at the start, in per cent.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(0..=100))]
        from: u8,
        /// Until everything passes, such as 5m.
        #[arg(long)]
        over: String,
        /// Why; for the audit log.
        #[arg(long, default_value = "")]
        reason: String,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct Target {
    /// What to stop.
    #[arg(value_enum)]
    scope: ScopeArg,
    /// Which: the cluster's name, the rule as RULES/RULE, the user (with * for any text), or
    /// the endpoint.
    name: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ScopeArg {
    Cluster,
    Rule,
    Client,
    Endpoint,
}

impl ScopeArg {
    fn as_str(self) -> &'static str {
        match self {
            ScopeArg::Cluster => "cluster",
            ScopeArg::Rule => "rule",
            ScopeArg::Client => "client",
            ScopeArg::Endpoint => "endpoint",
        }
    }
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum BreakerError {
    /// The admin API was not reached, or refused.
    #[error(transparent)]
    Admin(#[from] AdminClientError),
    /// The admin API answered in another form than this binary's.
    #[error("the admin API answers in a form not known here, is it another version: {0}")]
    Form(#[from] serde_json::Error),
    /// Standard output is closed.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// Runs the command, and prints to `out`.
///
/// # Errors
/// When the admin API is not reached, or refuses.
pub async fn run(args: BreakerArgs, out: &mut (dyn Write + Send)) -> Result<(), BreakerError> {
    let client = AdminClient::open(&args.connection)?;
    let (verb, body) = match args.command {
        BreakerCommand::List => return list(&client, args.output, out).await,
        BreakerCommand::Trip {
            target,
            reason,
            duration,
            stop_heartbeats,
        } => {
            let mut body = target_body(&target, &reason);
            put(&mut body, "duration", duration.map(Value::from));
            put(
                &mut body,
                "heartbeats",
                stop_heartbeats.then(|| "stop".into()),
            );
            ("trip", body)
        }
        BreakerCommand::Reset { target, reason } => ("reset", target_body(&target, &reason)),
        BreakerCommand::Ramp {
            target,
            from,
            over,
            reason,
        } => {
            let mut body = target_body(&target, &reason);
            put(&mut body, "from", Some(from.into()));
            put(&mut body, "over", Some(over.into()));
            ("ramp", body)
        }
    };
    let answer = client.post(&format!("{BREAKERS}/{verb}"), &body).await?;
    let printed = structured(args.output, &answer).unwrap_or_else(|| {
        let message = answer.get("message").and_then(Value::as_str);
        format!("{}\n", message.unwrap_or("done"))
    });
    Ok(out.write_all(printed.as_bytes())?)
}

async fn list(
    client: &AdminClient,
    format: OutputFormat,
    out: &mut (dyn Write + Send),
) -> Result<(), BreakerError> {
    let answer = client.get(BREAKERS).await?;
    if let Some(printed) = structured(format, &answer) {
        return Ok(out.write_all(printed.as_bytes())?);
    }
    let rows = answer.get("items").cloned().unwrap_or_default();
    let rows: Vec<BreakerRow> = serde_json::from_value(rows)?;
    if rows.is_empty() {
        return Ok(out.write_all(b"all breakers are closed\n")?);
    }
    let head = [
        "SCOPE", "NAME", "PHASE", "ADMITS", "SINCE", "ENDS IN", "REFUSED", "BY", "REASON",
    ];
    let rows: Vec<_> = rows.into_iter().map(cells).collect();
    Ok(out.write_all(table(head, &rows).as_bytes())?)
}

fn cells(row: BreakerRow) -> [String; 9] {
    [
        row.scope,
        row.name,
        row.phase,
        format!("{}%", row.admitting_percent),
        span(row.since_seconds),
        row.remaining_seconds.map_or("reset".to_owned(), span),
        row.refused.to_string(),
        row.by,
        row.reason,
    ]
}

fn span(seconds: u64) -> String {
    let span = Duration::from_secs(seconds);
    jiff::SignedDuration::try_from(span)
        .map_or_else(|_| format!("{span:?}"), |it| format!("{it:#}"))
}

fn target_body(target: &Target, reason: &str) -> Value {
    json!({ "scope": target.scope.as_str(), "name": target.name, "reason": reason })
}

fn put(body: &mut Value, field: &str, value: Option<Value>) {
    if let (Some(object), Some(value)) = (body.as_object_mut(), value) {
        object.insert(field.to_owned(), value);
    }
}
