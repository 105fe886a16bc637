//! Asks each endpoint by itself whether it is ready, on a connection of its own, so that neither
//! a full pool nor a slow list makes a probe fail. The first probe goes out at once and decides
//! alone; afterwards it takes `rise` good or `fall` bad ones in a row. 401 and 403 mean that the
//! gateway's credential does not allow a judgement: the endpoint keeps its traffic. One that was
//! down does not get it back by them, and one that is new only gets what no other can take: see
//! [`REFUSALS_MIN`].

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use parking_lot::Mutex;

use super::cluster::Cluster;
use super::endpoint::Endpoint;
use super::http2::{Ask, Http2};
use super::send::{SendBody, send};
use super::spec::HealthSpec;
use super::view::View;
use crate::body::Body;
use crate::clock;

/// A probe's answer is a word; with `?verbose` it is a page.
const ANSWER_MAX: usize = 64 * 1024;

/// A kube-apiserver that starts refuses everybody until it has read its roles: 403 for seconds,
/// from an authorizer that knows nobody yet, in the very words of one that knows and forbids. By
/// default everybody who has a credential may ask (`system:public-info-viewer`); where an operator
/// has taken that away, the refusals do not end. So it takes that many in a row, a minute's at the
/// usual interval, until those of an endpoint that was not seen well are about the credential.
const REFUSALS_MIN: u32 = 60;

/// What probes say of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeState {
    /// No probe has come back yet.
    Unprobed,
    /// It says that it is ready.
    Ready,
    /// It says that it is not, or does not answer.
    Unready,
    /// It does not let the gateway ask.
    Unjudged,
    /// It has done nothing but refuse so far: it may just be starting.
    Refusing,
}

/// A [`ProbeState`] that others read while the prober writes, with what the newest probe ran into.
#[derive(Debug, Default)]
pub(super) struct Standing {
    state: AtomicU8,
    fault: Mutex<Option<Arc<str>>>,
}

impl Standing {
    pub(super) fn get(&self) -> ProbeState {
        match self.state.load(Ordering::Relaxed) {
            0 => ProbeState::Unprobed,
            1 => ProbeState::Ready,
            2 => ProbeState::Unready,
            4 => ProbeState::Refusing,
            _ => ProbeState::Unjudged,
        }
    }

    fn set(&self, state: ProbeState) {
        let code = match state {
            ProbeState::Unprobed => 0,
            ProbeState::Ready => 1,
            ProbeState::Unready => 2,
            ProbeState::Unjudged => 3,
            ProbeState::Refusing => 4,
        };
        self.state.store(code, Ordering::Relaxed);
    }

    pub(super) fn fault(&self) -> Option<Arc<str>> {
        self.fault.lock().clone()
    }

    fn set_fault(&self, fault: Option<String>) {
        *self.fault.lock() = fault.map(Arc::from);
    }
}

/// Counts probes in a row; pure.
#[derive(Debug)]
struct Judge {
    state: ProbeState,
    against: u32,
    refusals: u32,
}

impl Judge {
    /// Takes in one probe's verdict; true when the state has changed.
    fn observe(&mut self, verdict: ProbeState, spec: &HealthSpec) -> bool {
        let refused = verdict == ProbeState::Unjudged;
        self.refusals = if refused { self.refusals + 1 } else { 0 };
        if refused && self.state == ProbeState::Unprobed {
            self.state = ProbeState::Refusing;
            return true;
        }
        let may_start = matches!(self.state, ProbeState::Unready | ProbeState::Refusing);
        let is_starting = may_start && refused && self.refusals < REFUSALS_MIN;
        if verdict == self.state || is_starting {
            self.against = 0;
            return false;
        }
        self.against += 1;
        let needed = match (self.state, verdict) {
            (ProbeState::Unprobed, _) | (_, ProbeState::Unjudged) => 1,
            (ProbeState::Refusing, ProbeState::Unready) => 1,
            (_, ProbeState::Unready) => spec.fall.get(),
            _ => spec.rise.get(),
        };
        if self.against < needed {
            return false;
        }
        self.state = verdict;
        self.against = 0;
        self.refusals = 0;
        true
    }
}

/// Probes `endpoint` until it or the cluster is gone.
pub(super) async fn watch_over(endpoint: Arc<Endpoint>, cluster: Weak<Cluster>) {
    let mut judge = Judge {
        state: ProbeState::Unprobed,
        against: 0,
        refusals: 0,
    };
    let mut connection = None;
    loop {
        let Some(view) = cluster.upgrade().map(|cluster| cluster.view()) else {
            return;
        };
        let (verdict, fault) = probe(&endpoint, &view, &mut connection).await;
        let reason = fault.clone().unwrap_or_default();
        endpoint.standing.set_fault(fault);
        if judge.observe(verdict, &view.spec.health) {
            tracing::info!(
                cluster = view.spec.name,
                endpoint = &*endpoint.id,
                state = ?judge.state,
                reason,
                "endpoint changed"
            );
            let before = endpoint.standing.get();
            let was_starting = before == ProbeState::Refusing && judge.state == ProbeState::Ready;
            if before == ProbeState::Unready || was_starting {
                endpoint.pace.come_back(clock::now());
            }
            endpoint.standing.set(judge.state);
        }
        let pause = view.spec.health.interval;
        drop(view);
        tokio::select! {
            biased; // the end comes first, a hint before its time
            () = endpoint.stop.cancelled() => return,
            () = endpoint.probe_now.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One probe's verdict, and why it is not a good one.
async fn probe(
    endpoint: &Endpoint,
    view: &View,
    connection: &mut Option<Http2>,
) -> (ProbeState, Option<String>) {
    let timeout: Duration = view.spec.health.timeout;
    let asked = tokio::time::timeout(timeout, ask(endpoint, view, connection)).await;
    let status = match asked {
        Ok(Ok(status)) => status,
        Ok(Err(reason)) => {
            *connection = None;
            return (ProbeState::Unready, Some(reason));
        }
        Err(_) => {
            *connection = None;
            let reason = format!("no answer within {timeout:?}");
            return (ProbeState::Unready, Some(reason));
        }
    };
    let answered = || Some(format!("{} answered {status}", view.spec.health.path));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => (ProbeState::Unjudged, answered()),
        status if status.is_success() => (ProbeState::Ready, None),
        _ => (ProbeState::Unready, answered()),
    }
}

async fn ask(
    endpoint: &Endpoint,
    view: &View,
    connection: &mut Option<Http2>,
) -> Result<StatusCode, String> {
    let usable = connection.take().filter(|sender| !sender.is_over());
    let sender = match usable {
        Some(sender) => sender,
        None => {
            let opened = view.own_connector.http2(&endpoint.address).await;
            let (sender, driver) = opened.map_err(|error| error.to_string())?;
            tokio::spawn(async move {
                let _ = driver.await; // the next probe finds the sender closed
            });
            sender
        }
    };
    let path = view.spec.health.path.as_str();
    let path = PathAndQuery::try_from(path).map_err(|error| error.to_string())?;
    let headers = headers(view);
    let ask = Ask {
        method: &Method::GET,
        is_tls: endpoint.address.is_tls,
        authority: &endpoint.address.authority,
        path: &path,
        headers: &headers,
        length: None,
    };
    let answer = send(&sender, ask, SendBody::Empty, None)
        .await
        .map_err(|failure| failure.to_string())?;
    let status = answer.status();
    let body = Body::boxed(answer.into_body());
    let read = body.collect_up_to(ANSWER_MAX).await;
    read.map_err(|error| error.to_string())?;
    *connection = Some(sender);
    Ok(status)
}

fn headers(view: &View) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static("sluice-probe"));
    if let Some(bearer) = &view.bearer {
        headers.insert(AUTHORIZATION, bearer.clone());
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProbeState::{Ready, Refusing, Unjudged, Unprobed, Unready};

    fn judge_after(state: ProbeState, verdicts: &[ProbeState]) -> ProbeState {
        let mut judge = Judge {
            state,
            against: 0,
            refusals: 0,
        };
        for verdict in verdicts {
            judge.observe(*verdict, &HealthSpec::default()); // rise 2, fall 2
        }
        judge.state
    }

    #[test]
    fn states_change_after_rise_and_fall() {
        let steps = [
            (Ready, Ready), // the first decides alone
            (Unready, Ready),
            (Ready, Ready),
            (Unready, Ready),
            (Unready, Unready),
            (Ready, Unready),
            (Ready, Ready),
            (Unjudged, Unjudged),
            (Unready, Unjudged),
            (Unready, Unready),
        ];
        let verdicts = steps.map(|(verdict, _)| verdict);
        for (step, (_, expected)) in steps.into_iter().enumerate() {
            let state = judge_after(Unprobed, verdicts.get(..=step).unwrap());
            assert_eq!(state, expected, "step {step}");
        }
    }

    #[test]
    fn a_refusal_of_an_apiserver_that_starts_does_not_let_it_in() {
        // As seen of one that was killed: no connection, 403, 500, 200.
        let starting = [Unready, Unjudged, Unjudged, Unready, Unjudged, Ready];
        assert_eq!(judge_after(Unready, &starting), Unready);
        let ready = [&starting[..], &[Ready]].concat();
        assert_eq!(judge_after(Unready, &ready), Ready);
        // What is refused for good is the credential's fault.
        let refused = [Unjudged; REFUSALS_MIN as usize];
        assert_eq!(judge_after(Unready, &refused), Unjudged);
        assert_eq!(judge_after(Unready, &refused[1..]), Unready);
        let late = [Unready, Unjudged, Unready, Unjudged];
        assert_eq!(
            judge_after(Unready, &[&late[..], &refused[1..]].concat()),
            Unjudged
        );
    }

    #[test]
    fn a_newcomer_that_refuses_is_not_taken_for_ready() {
        // Added while it starts: 403, 500, 200. At once it may serve only when nobody else can.
        assert_eq!(judge_after(Unprobed, &[Unjudged]), Refusing);
        assert_eq!(judge_after(Unprobed, &[Unjudged, Unready]), Unready);
        assert_eq!(
            judge_after(Unprobed, &[Unjudged, Unjudged, Ready]),
            Refusing
        );
        assert_eq!(judge_after(Unprobed, &[Unjudged, Ready, Ready]), Ready);
        let refused = [Unjudged; REFUSALS_MIN as usize];
        assert_eq!(judge_after(Unprobed, &refused[1..]), Refusing);
        assert_eq!(judge_after(Unprobed, &refused), Unjudged);
    }
}
