//! Waiting until the store has reached a version that a client has seen elsewhere.

use std::time::Duration;

use sluice_metastore::Revision;

use super::Storage;
use crate::api::errors;
use crate::status::Refusal;

/// How long a read waits: as long as a kube-apiserver's cache does.
const WAIT_MAX: Duration = Duration::from_secs(3);

impl Storage {
    /// Waits until everything up to `version` is visible here.
    ///
    /// # Errors
    /// 504, to be tried again, when it does not come in time.
    pub async fn reach(&self, version: Revision) -> Result<(), Refusal> {
        if self.store.revision() >= version {
            return Ok(());
        }
        let mut newest = self.store.subscribe();
        let reached = newest.wait_for(|now| *now >= version);
        match tokio::time::timeout(WAIT_MAX, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(errors::too_new(version.get(), self.store.revision().get())),
        }
    }
}
