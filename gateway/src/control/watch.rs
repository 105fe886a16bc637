//! Notices that something may have changed on disk; what has changed is for the reader to find.
//!
//! Folders are watched, never files: a watch on a file ends with the first rename over it, and
//! mounted ConfigMaps change by swapping a symbolic link beside the files. What the file system
//! says of an event is ignored. No notice is reliable (queues overflow, network file systems are
//! silent, folders are replaced), so whoever uses this polls as well.

use std::path::Path;
use std::sync::Arc;

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// The most folders watched; the rest are left to polling. Certificates of some dozen tenants in a
/// folder each, and far below the limits that systems set on watches.
const FOLDERS_MAX: usize = 128;

/// A set of watched folders. Dropping it ends the watching.
pub(super) struct FolderWatch {
    watcher: Option<notify::RecommendedWatcher>,
    stirred: Arc<Notify>,
}

impl FolderWatch {
    /// Watches nothing yet; `stirred` is notified of events.
    pub(super) fn new(stirred: Arc<Notify>) -> Self {
        FolderWatch {
            watcher: None,
            stirred,
        }
    }

    /// Watches the folders of these files, and of `dir` itself, anew: a folder that was replaced
    /// has lost its watch. Blocking.
    pub(super) fn arm<'a>(&mut self, dir: Option<&'a Path>, files: impl Iterator<Item = &'a Path>) {
        // A rules folder that is itself a link is swapped in the folder above.
        let first = dir.into_iter().chain(dir.and_then(Path::parent));
        let mut folders: Vec<&Path> = Vec::new();
        for folder in first.chain(files.filter_map(Path::parent)) {
            if !folders.contains(&folder) && folders.len() < FOLDERS_MAX {
                folders.push(folder);
            }
        }
        let stirred = Arc::clone(&self.stirred);
        let made = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Our own reading of the files is an event too, and none that matters.
            if !matches!(&event, Ok(event) if event.kind.is_access()) {
                stirred.notify_one();
            }
        });
        let mut watcher = match made {
            Ok(watcher) => watcher,
            Err(error) => {
                tracing::warn!(%error, "files cannot be watched; they are polled");
                return;
            }
        };
        for folder in folders {
            // An empty path is the working directory.
            let place = if folder.as_os_str().is_empty() {
                Path::new(".")
            } else {
                folder
            };
            if let Err(error) = watcher.watch(place, RecursiveMode::NonRecursive) {
                tracing::debug!(folder = %place.display(), %error, "cannot be watched; polled");
            }
        }
        // The old one ends only now, so that nothing between the two is missed.
        self.watcher = Some(watcher);
    }
}
