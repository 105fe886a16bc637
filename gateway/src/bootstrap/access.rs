//! Where broken glass of the etcd listener is written down: in the gateway's audit, or, where the
//! store is served by itself, as lines of the log under a target of their own.

use std::fmt;
use std::time::SystemTime;

use sluice_metastore::etcd::{AccessEvent, AccessLog};

use crate::audit::{AdminChange, Recorder};
use crate::clock;

/// What stands in an audit event for the setting.
const SETTING: &str = "metastore.etcd.access.breakGlass";
/// Of the audit events; the listener has no paths.
const PATH: &str = "/metastore/etcd";

/// Lines of the process's log, all of the target `audit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct AuditLines;

impl AccessLog for AuditLines {
    fn note(&self, event: &AccessEvent<'_>) {
        match event {
            AccessEvent::Broken { glass } => {
                let until = glass.until.and_then(text);
                tracing::warn!(
                    target: "audit",
                    verb = "break-glass",
                    reason = glass.reason,
                    until,
                    "every certificate may write to the store"
                );
            }
            AccessEvent::Admitted { glass, name, peer } => tracing::warn!(
                target: "audit",
                verb = "break-glass-admit",
                user = name,
                source = %peer,
                reason = glass.reason,
                "a client may write only because the glass is broken"
            ),
        }
    }
}

fn text(at: SystemTime) -> Option<String> {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let moment = jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(moment.to_string())
}

/// Events of the gateway's audit.
pub(super) struct Audited(pub(super) Recorder);

impl fmt::Debug for Audited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Audited")
    }
}

impl AccessLog for Audited {
    fn note(&self, event: &AccessEvent<'_>) {
        AuditLines.note(event);
        let (glass, verb, user, source) = match event {
            AccessEvent::Broken { glass } => (glass, "break-glass", "", None),
            AccessEvent::Admitted { glass, name, peer } => {
                (glass, "break-glass-admit", *name, Some(*peer))
            }
        };
        self.0.admin(AdminChange {
            at: clock::wall(),
            user: user.to_owned(),
            groups: Vec::new(),
            source,
            path: PATH.to_owned(),
            verb: verb.to_owned(),
            target: SETTING.to_owned(),
            reason: glass.reason.clone(),
            code: 200,
        });
    }
}
