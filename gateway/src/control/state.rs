//! What became of the configuration: for the admin API, metrics and readiness.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::watch;

/// What became of the configuration. Cloning it gives another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct ConfigState(Arc<watch::Sender<ConfigView>>);

/// The state at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigView {
    /// Grows with each reload that was applied; the first is 1.
    pub generation: u64,
    /// When that was, as time since the Unix epoch.
    pub loaded_at: Duration,
    /// What the files held then, as a short digest.
    pub content: String,
    /// Reloads that were applied, the first load included.
    pub applied: u64,
    /// Reloads that were refused; one a distinct content, however often it was tried.
    pub refused: u64,
    /// Why the newest content is not in force; `None` when it is.
    pub fault: Option<ConfigFault>,
    /// Whether the process file has changed since the start: it takes a restart to follow it.
    pub restart_needed: bool,
}

/// Why a content was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigFault {
    /// When it was first seen, as time since the Unix epoch.
    pub since: Duration,
    /// Every fault with file, line, column and advice.
    pub message: String,
}

impl ConfigState {
    /// The state now.
    #[must_use]
    pub fn view(&self) -> ConfigView {
        self.0.borrow().clone()
    }

    /// The state now and whenever it changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<ConfigView> {
        self.0.subscribe()
    }

    /// Whether the newest content is in force.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.0.borrow().fault.is_none()
    }

    pub(super) fn applied(&self, generation: u64, content: String, wall: Duration) {
        self.0.send_modify(|view| {
            view.generation = generation;
            view.loaded_at = wall;
            view.content = content;
            view.applied += 1;
            view.fault = None;
        });
    }

    /// Notes a refusal; `true` when it is news.
    pub(super) fn refused(&self, message: &str, wall: Duration) -> bool {
        self.0.send_if_modified(|view| {
            if view.fault.as_ref().is_some_and(|f| f.message == message) {
                return false;
            }
            view.refused += 1;
            view.fault = Some(ConfigFault {
                since: wall,
                message: message.to_owned(),
            });
            true
        })
    }

    /// The content in force is back on disk: there is nothing to mend any more.
    pub(super) fn settled(&self) {
        self.0.send_if_modified(|view| view.fault.take().is_some());
    }

    /// Notes whether the process file differs from the one at the start; `true` when it has come to.
    pub(super) fn process_changed(&self, is_changed: bool) -> bool {
        let is_news = self.0.send_if_modified(|view| {
            std::mem::replace(&mut view.restart_needed, is_changed) != is_changed
        });
        is_news && is_changed
    }
}
