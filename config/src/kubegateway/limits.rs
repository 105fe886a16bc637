//! Its flow-control schemas: what a policy that names one is held to.

use std::collections::HashMap;

use super::Said;
use super::shape::{Bucket, FlowControl, Max, Schema};
use crate::located::{Located, Position};
use crate::rate::{InFlight, Rate, Refuse};
use crate::suggest::nearest;
use crate::units::Count;

/// What requests under a schema are held to.
#[derive(Clone, Debug)]
pub(super) enum Limit {
    /// Nothing.
    Exempt,
    /// They are not served.
    Refuse(Refuse),
    /// So many at once, all together.
    AtOnce(InFlight),
    /// So often, all together.
    Rate(Rate),
}

/// The longest name of a schema: it becomes part of a DNS name, spelt out at worst.
const NAME_BYTES_MAX: usize = 100;

/// All of them by name.
#[derive(Debug, Default)]
pub(super) struct Schemas(HashMap<String, Option<Limit>>);

impl Schemas {
    /// That of a name; none when there is no such schema or it is faulty, which is said.
    pub(super) fn find(&self, name: &Located<String>, said: &mut Said<'_>) -> Option<Limit> {
        if let Some(found) = self.0.get(name.as_str()) {
            return found.clone();
        }
        let near = nearest(name, self.0.keys().map(String::as_str));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "name a schema of spec.flowControl".to_owned(),
        };
        said.fault(
            name.at,
            format!("flowControlSchemaName `{}` is no schema", **name),
            &help,
        );
        None
    }
}

pub(super) fn translate(flow: Option<&FlowControl>, said: &mut Said<'_>) -> Schemas {
    let mut schemas = Schemas::default();
    let written = flow.and_then(|flow| flow.flow_control_schemas.as_ref());
    for schema in written.into_iter().flatten() {
        let limit = limit(schema, said);
        let name = &schema.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            let message = format!("a schema whose name has {} bytes", name.len());
            said.fault(name.at, message, "name it with 1 to 100 bytes");
        } else if schemas.0.insert(name.value.clone(), limit).is_some() {
            let message = format!("schema `{}` is given twice", **name);
            said.fault(name.at, message, "keep one");
        }
    }
    schemas
}

fn limit(schema: &Located<Schema>, said: &mut Said<'_>) -> Option<Limit> {
    let name = &*schema.name;
    let given = [
        schema.exempt.is_some(),
        schema.max_requests_inflight.is_some(),
        schema.token_bucket.is_some(),
    ];
    let has_global =
        schema.global_max_requests_inflight.is_some() || schema.global_token_bucket.is_some();
    global(schema, has_global, said);
    if given.into_iter().filter(|it| *it).count() != 1 {
        let help = if has_global {
            "beside a global limit give the local one of its kind, which holds when the other fails"
        } else {
            "give one of `exempt`, `maxRequestsInflight` and `tokenBucket`"
        };
        let message = format!("schema `{name}` has not exactly one limit");
        said.fault(schema.at, message, help);
        return None;
    }
    if let Some(max) = &schema.max_requests_inflight {
        return at_once(max, said);
    }
    match &schema.token_bucket {
        Some(bucket) => rate(bucket, said),
        None => Some(Limit::Exempt),
    }
}

/// The forms that count over several gateways.
fn global(schema: &Schema, has_global: bool, said: &mut Said<'_>) {
    let is_global = match schema.strategy.as_ref().map(|it| it.as_str()) {
        None | Some("" | "local") => has_global,
        Some("globalAllocate" | "globalCount") => true,
        Some(other) => {
            let at = schema.strategy.as_ref().map_or(schema.name.at, |it| it.at);
            let message = format!("unknown schema strategy `{other}`");
            let help = "write `local`, `globalAllocate` or `globalCount`";
            said.fault(at, message, help);
            false
        }
    };
    if is_global {
        said.differs(
            schema.name.at,
            format!("schema `{}` counts in each gateway by itself", *schema.name),
            "its local limit holds in each, and no limiter service is asked",
        );
    }
}

fn at_once(max: &Located<Max>, said: &mut Said<'_>) -> Option<Limit> {
    if max.max == 0 {
        said.differs(
            max.at,
            "max: 0 refuses with 429 and a wait of some seconds",
            "there without a wait, so that clients give up at once",
        );
        return Some(Limit::Refuse(Refuse::Busy));
    }
    let count = count("maxRequestsInflight.max", max.max, max.at, said)?;
    said.differs(
        max.at,
        "watches, logs and tunnels are counted apart, as many of them again",
        "there they hold the places of short requests for hours",
    );
    Some(Limit::AtOnce(InFlight {
        queue: None,
        max: count,
        key: Located {
            value: Vec::new(),
            at: max.at,
        },
    }))
}

fn rate(bucket: &Located<Bucket>, said: &mut Said<'_>) -> Option<Limit> {
    if bucket.qps == 0 {
        let help = "to refuse all, write `maxRequestsInflight: { max: 0 }`";
        said.fault(bucket.at, "tokenBucket.qps is zero", help);
        return None;
    }
    let per_second = count("tokenBucket.qps", bucket.qps, bucket.at, said)?;
    let burst = count("tokenBucket.burst", bucket.burst, bucket.at, said)?;
    if burst < per_second {
        let message = format!(
            "tokenBucket.burst {} is below qps {}",
            bucket.burst, bucket.qps
        );
        said.fault(bucket.at, message, "write a burst of at least qps");
        return None;
    }
    Some(Limit::Rate(Rate {
        per_second,
        burst: Some(burst),
        key: Located {
            value: Vec::new(),
            at: bucket.at,
        },
    }))
}

fn count(key: &str, number: i32, at: Position, said: &mut Said<'_>) -> Option<Count> {
    let count = u32::try_from(number).ok().and_then(Count::new);
    if count.is_none() {
        said.fault(at, format!("{key} is {number}"), "write one or more");
    }
    count
}
