//! The watch cache: a view of the store's own values and events, never a second copy of them.
//!
//! The store holds the objects, their history and the ring of events; lists and watches read
//! there. All that is kept here is the wire form of the newest events, so that a thousand watchers
//! of a kind share one encoding of each. A frame that has left the window is encoded again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use sluice_metastore::Revision;

use super::object::Opening;
use super::resource::ResourceKind;
use super::storage::watch::{Telling, Told};

/// Frames kept for each served version of a kind. Watchers that keep up are within a few events of
/// each other; those behind encode for themselves.
const FRAMES_MAX: usize = 256;
/// Bytes of frames kept for each served version of a kind: a few objects of the greatest size.
const FRAMES_BYTES_MAX: usize = 4 << 20;

/// The views of all kinds, made when first asked for.
#[derive(Debug, Default)]
pub struct Views {
    // One entry a served version of a kind; those of deleted definitions stay, a few hundred
    // bytes each once their frames are old.
    views: DashMap<(String, String), Arc<View>>,
}

impl Views {
    /// The view of a kind.
    #[must_use]
    pub fn of(&self, kind: &ResourceKind) -> Arc<View> {
        let at = (kind.api_version(), kind.plural.clone());
        let entry = self
            .views
            .entry(at)
            .or_insert_with(|| Arc::new(View::new(kind)));
        if entry.is_of(kind) {
            return Arc::clone(&entry);
        }
        // A definition came back with another kind behind the same path.
        drop(entry);
        let view = Arc::new(View::new(kind));
        self.views
            .insert((kind.api_version(), kind.plural.clone()), Arc::clone(&view));
        view
    }
}

/// How one served version of a kind looks on the wire.
#[derive(Debug)]
pub struct View {
    kind: String,
    alone: Opening,
    frames: Mutex<Frames>,
}

#[derive(Debug, Default)]
struct Frames {
    window: VecDeque<Frame>,
    bytes: usize,
}

#[derive(Debug)]
struct Frame {
    revision: Revision,
    key: Bytes,
    told: Told,
    wire: Bytes,
}

impl View {
    fn new(kind: &ResourceKind) -> Self {
        View {
            kind: kind.kind.clone(),
            alone: Opening::alone(kind),
            frames: Mutex::default(),
        }
    }

    fn is_of(&self, kind: &ResourceKind) -> bool {
        self.kind == kind.kind
    }

    /// An object by itself, its version in place; `None` for a value that this API did not write.
    #[must_use]
    pub fn object(&self, stored: &[u8], revision: Revision) -> Option<Bytes> {
        let mut out = Vec::new();
        let is_ours = self.alone.splice(&mut out, stored, revision);
        is_ours.then(|| Bytes::from(out))
    }

    /// An event's watch frame; the same bytes for all who are told the same.
    #[must_use]
    pub fn frame(&self, telling: &Telling) -> Option<Bytes> {
        let mut frames = self.frames.lock();
        let known = frames.window.iter().rev().find(|frame| {
            frame.revision == telling.revision
                && frame.told == telling.told
                && frame.key == telling.key
        });
        if let Some(frame) = known {
            return Some(frame.wire.clone());
        }
        let wire = self.encode(telling)?;
        frames.push(Frame {
            revision: telling.revision,
            key: telling.key.clone(),
            told: telling.told,
            wire: wire.clone(),
        });
        Some(wire)
    }

    /// The frame of an object that is not the newest event about it, so that nobody else wants it.
    #[must_use]
    pub fn encode(&self, telling: &Telling) -> Option<Bytes> {
        let mut out = Vec::with_capacity(telling.value.len() + 128);
        open_frame(&mut out, telling.told.as_str());
        if !self
            .alone
            .splice(&mut out, &telling.value, telling.revision)
        {
            return None;
        }
        close_frame(&mut out);
        Some(Bytes::from(out))
    }
}

impl Frames {
    fn push(&mut self, frame: Frame) {
        self.bytes += frame.wire.len();
        self.window.push_back(frame);
        while self.window.len() > FRAMES_MAX || self.bytes > FRAMES_BYTES_MAX {
            let Some(old) = self.window.pop_front() else {
                return;
            };
            self.bytes -= old.wire.len();
        }
    }
}

/// A watch frame around an object's JSON.
#[must_use]
pub fn frame_of(event: &str, object: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(object.len() + 64);
    open_frame(&mut out, event);
    out.extend_from_slice(object);
    close_frame(&mut out);
    Bytes::from(out)
}

fn open_frame(out: &mut Vec<u8>, event: &str) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(event.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
}

fn close_frame(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

#[cfg(test)]
mod tests {
    use super::super::resource::Registry;
    use super::*;

    fn telling(revision: u64, bytes: usize) -> Telling {
        let kind = Registry::new()
            .resolve("", "v1", "configmaps")
            .expect("built in");
        let object = serde_json::json!({
            "metadata": {"name": "a"},
            "data": {"k": "v".repeat(bytes)},
        });
        Telling {
            told: Told::Modified,
            value: super::super::object::encode(&kind, object.as_object().expect("an object")),
            revision: Revision::new(revision),
            key: Bytes::from_static(b"/registry/core/configmaps/d/a"),
        }
    }

    #[test]
    fn watchers_share_one_encoding_of_an_event() {
        let kind = Registry::new()
            .resolve("", "v1", "configmaps")
            .expect("built in");
        let views = Views::default();
        let one = views.of(&kind).frame(&telling(5, 10)).expect("ours");
        let two = views.of(&kind).frame(&telling(5, 10)).expect("ours");
        assert_eq!(one.as_ptr(), two.as_ptr());
        let later = views.of(&kind).frame(&telling(6, 10)).expect("ours");
        assert_ne!(one, later);
    }

    #[test]
    fn window_is_bounded_in_frames_and_in_bytes() {
        let kind = Registry::new()
            .resolve("", "v1", "configmaps")
            .expect("built in");
        let view = View::new(&kind);
        for revision in 0..400 {
            view.frame(&telling(revision, 10)).expect("ours");
        }
        assert_eq!(view.frames.lock().window.len(), FRAMES_MAX);
        for revision in 400..410 {
            view.frame(&telling(revision, 1 << 20)).expect("ours");
        }
        let frames = view.frames.lock();
        assert!(frames.bytes <= FRAMES_BYTES_MAX && frames.window.len() < 5);
    }
}
