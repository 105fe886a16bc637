//! Access to the etcd listener by name, and where its broken glass is written down: in the gateway's
//! audit, or, where the store is served by itself, as lines of the log under a target of their own.

use std::fmt;
use std::time::SystemTime;

use sluice_metastore::etcd::{AccessEvent, AccessLog, BreakGlass, EtcdAccess};

use crate::audit::{AdminChange, Recorder};
use crate::clock;

/// What stands in an audit event for the setting.
const SETTING: &str = "metastore.etcd.access.breakGlass";
/// Of the audit events; the listener has no paths.
const PATH: &str = "/metastore/etcd";

/// The setting as the listener takes it.
pub(super) fn lower(config: &sluice_config::EtcdAccess) -> EtcdAccess {
    let sluice_config::EtcdAccess {
        writers,
        readers,
        break_glass,
    } = config;
    let names = |names: &[sluice_config::Located<String>]| {
        names.iter().map(|name| name.value.clone()).collect()
    };
    EtcdAccess {
        writers: names(writers),
        readers: names(readers),
        break_glass: break_glass.as_ref().map(|glass| {
            let sluice_config::BreakGlass { reason, until } = glass;
            BreakGlass {
                reason: reason.value.clone(),
                until: until.map(sluice_config::Moment::get),
            }
        }),
    }
}

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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::audit::{self, Event, Sink};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<AdminChange>>>);

    impl Sink for Kept {
        fn event(&mut self, _event: &Event) {}

        fn admin(&mut self, change: &AdminChange) {
            self.0.lock().push(change.clone());
        }

        fn flush(&mut self) {}
    }

    #[test]
    fn broken_glass_stands_in_the_audit() {
        let kept = Kept::default();
        let recorder = audit::spawn(vec![Box::new(kept.clone())]).unwrap();
        let glass = BreakGlass {
            reason: "the CA was lost".to_owned(),
            until: None,
        };
        let log = Audited(recorder.clone());
        log.note(&AccessEvent::Broken { glass: &glass });
        log.note(&AccessEvent::Admitted {
            glass: &glass,
            name: "ops",
            peer: ([127, 0, 0, 1], 9).into(),
        });
        recorder.flush(Duration::from_secs(10));
        let written: Vec<String> = kept
            .0
            .lock()
            .iter()
            .map(|change| format!("{} {} {}", change.verb, change.user, change.reason))
            .collect();
        let expected = [
            "break-glass  the CA was lost",
            "break-glass-admit ops the CA was lost",
        ];
        assert_eq!(written, expected);
    }
}
