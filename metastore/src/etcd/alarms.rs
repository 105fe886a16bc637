//! Alarms: the one that the store raises itself, and those that operators raise by hand.
//!
//! | alarm | raised by | cleared by | what it stops |
//! | --- | --- | --- | --- |
//! | NOSPACE | no room for a put | there being room for it; hand | the puts for which there is none |
//! | NOSPACE | hand | hand, restart | puts and new leases |
//! | CORRUPT | hand | hand, restart | every write of keys and leases |
//!
//! etcd raises CORRUPT when replicas differ and keeps alarms over restarts. Here there is nothing
//! to differ from, damage on disk keeps the store from opening at all, and what was raised by hand
//! goes with the process.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::proto::etcdserverpb as pb;
use super::proto::etcdserverpb::AlarmType;
use super::proto::etcdserverpb::alarm_request::AlarmAction;
use super::shared::Shared;

/// Alarms raised by hand: a type and the member it was raised for. An operator names few members.
const RAISED_MAX: usize = 1024;

/// What was raised by hand.
#[derive(Default)]
pub(crate) struct Alarms {
    raised: Mutex<BTreeSet<(i32, u64)>>,
    /// Whether CORRUPT is among them: looked at for every write.
    is_corrupt: AtomicBool,
}

impl Alarms {
    /// Whether writes of keys and leases are refused.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.is_corrupt.load(Ordering::Relaxed)
    }
}

/// Does what a request says; answers the alarms that it is about.
pub(crate) fn act(shared: &Shared, request: &pb::AlarmRequest) -> Vec<pb::AlarmMember> {
    let wanted = request.alarm;
    let one = (wanted, request.member_id);
    match request.action() {
        AlarmAction::Get => {
            let mut all = list(shared);
            all.retain(|alarm| wanted == AlarmType::None as i32 || alarm.alarm == wanted);
            all
        }
        AlarmAction::Activate if wanted == AlarmType::None as i32 => Vec::new(),
        AlarmAction::Activate => {
            let mut raised = shared.alarms.raised.lock();
            if raised.len() < RAISED_MAX {
                raised.insert(one);
            }
            apply(shared, &raised);
            vec![member(one)]
        }
        AlarmAction::Deactivate => {
            let mut raised = shared.alarms.raised.lock();
            let mut was = raised.remove(&one);
            apply(shared, &raised);
            if one == own(shared) {
                was |= shared.store.forget_refused();
            }
            was.then(|| member(one)).into_iter().collect()
        }
    }
}

/// All alarms that stand.
pub(crate) fn list(shared: &Shared) -> Vec<pb::AlarmMember> {
    let mut all = shared.alarms.raised.lock().clone();
    if shared.store.is_full() {
        all.insert(own(shared));
    }
    all.into_iter().map(member).collect()
}

/// The alarm that the store raises itself.
fn own(shared: &Shared) -> (i32, u64) {
    (AlarmType::Nospace as i32, shared.member.id)
}

fn apply(shared: &Shared, raised: &BTreeSet<(i32, u64)>) {
    let stands = |wanted: AlarmType| raised.iter().any(|(alarm, _)| *alarm == wanted as i32);
    let is_corrupt = stands(AlarmType::Corrupt);
    shared
        .alarms
        .is_corrupt
        .store(is_corrupt, Ordering::Relaxed);
    shared.store.refuse_puts(stands(AlarmType::Nospace));
}

fn member((alarm, member_id): (i32, u64)) -> pb::AlarmMember {
    pb::AlarmMember { member_id, alarm }
}

/// The alarm's name as etcd writes it.
pub(crate) fn name(alarm: &pb::AlarmMember) -> &'static str {
    alarm.alarm().as_str_name()
}
