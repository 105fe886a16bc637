//! Reading back what is durable: the newest checkpoint that is whole, then the log after it.
//!
//! One window of one file is held at a time. What a crash can leave (an unfinished checkpoint, a
//! frame that was being written, files of a trim half done) is passed over in silence or with a
//! warning; anything else is damage, and damage before valid data is never cut away.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use bytes::Bytes;

use super::super::{Batch, Place as Kept, Recovered, Source};
use super::files::Files;
use super::frame::{self, Kind, Place};
use super::segment::{self, Info};
use super::window::Window;
use super::{checkpoint, corrupt, io_error, spare};
use crate::{Error, Revision};

const RESTORE: &str = "nothing was changed: restore the data directory from a backup";

const OTHER_BUILD: &str = "nothing was changed: run the build that wrote it";

/// A search for later frames steps over what is still zero by this much.
const BLOCK: u64 = 4096;
const ZEROS: [u8; 4096] = [0; 4096];

type Sink<'a> = dyn FnMut(Recovered, Option<Kept>) -> Result<(), Error> + 'a;

/// Segments that values may be read from, by sequence.
pub(super) type Sources = BTreeMap<u64, Weak<Source>>;

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) checkpoint: Option<(Revision, u64)>,
    /// Oldest first, without a gap.
    pub(super) segments: VecDeque<Info>,
    /// Those that were read, to see whether values are still read from them.
    pub(super) sources: Sources,
    /// The last revision, when there is anything.
    pub(super) tail: Option<Revision>,
    /// Files that nothing needs any more: older or damaged checkpoints, segments before a gap.
    pub(super) stale: Vec<String>,
}

/// Reads everything back into `sink`.
pub(super) fn recover(files: &dyn Files, sink: &mut Sink<'_>) -> Result<Found, Error> {
    let mut names = files
        .list()
        .map_err(|source| io_error(files, "read the data directory", "", source))?;
    names.sort_unstable();
    for name in names.iter().filter(|name| spare::is_leftover(name)) {
        files
            .remove(name)
            .map_err(|source| io_error(files, "remove", name, source))?;
    }
    let (headers, mut stale) = read_headers(files, &names)?;
    let base = choose_base(files, &names, &headers)?;
    let at = base.map(|header| header.at);
    let mut bytes = 0;
    if let Some(header) = base {
        let name = checkpoint::name(header.at);
        sink(Recovered::Checkpoint(header.at), None)?;
        let source = open_source(files, &name)?;
        let chunk = &mut |chunk, offset| {
            let source = Arc::clone(&source);
            sink(Recovered::Chunk(chunk), Some(Kept { source, offset }))
        };
        let read = checkpoint::read(files, &name, chunk);
        (_, bytes) = read.map_err(|error| unreadable(files, &name, error, ""))?;
    }
    let mut replay = Replay {
        files,
        at,
        tail: None,
        sources: Sources::new(),
        sink,
    };
    let segments = replay.all(&headers)?;
    let others = names
        .iter()
        .filter(|name| checkpoint::revision(name).is_some_and(|r| Some(r) != at));
    stale.extend(others.cloned());
    Ok(Found {
        checkpoint: at.map(|at| (at, bytes)),
        segments,
        sources: replay.sources,
        tail: replay.tail.max(at),
        stale,
    })
}

/// Opens a file for values that are read back from it.
pub(super) fn open_source(files: &dyn Files, name: &str) -> Result<Arc<Source>, Error> {
    let file = files
        .open(name)
        .map_err(|source| io_error(files, "open", name, source))?;
    Ok(Source::new(files.place().join(name), Arc::from(file)))
}

/// Headers of the segments without a gap that end the log, oldest first, and names of those before
/// the gap.
fn read_headers(
    files: &dyn Files,
    names: &[String],
) -> Result<(Vec<segment::Header>, Vec<String>), Error> {
    let mut headers: Vec<segment::Header> = Vec::new();
    let mut stale = Vec::new();
    for name in names {
        let Some(sequence) = segment::sequence(name) else {
            continue;
        };
        let header = read_header(files, name)?;
        if header.sequence != sequence {
            return Err(corrupt(
                files,
                name,
                "is the file of another segment",
                RESTORE,
            ));
        }
        if headers
            .last()
            .is_some_and(|last| last.sequence + 1 != sequence)
        {
            stale.extend(
                headers
                    .drain(..)
                    .map(|header| segment::name(header.sequence)),
            );
        }
        headers.push(header);
    }
    Ok((headers, stale))
}

fn read_header(files: &dyn Files, name: &str) -> Result<segment::Header, Error> {
    let mut bytes = [0; segment::HEADER_BYTES];
    files
        .open(name)
        .and_then(|file| file.read_at(&mut bytes, 0))
        .map_err(|source| io_error(files, "read", name, source))?;
    segment::Header::decode(&bytes).map_err(|error| match error {
        segment::HeaderError::Damaged => {
            corrupt(files, name, &format!("at offset=0: {error}"), RESTORE)
        }
        segment::HeaderError::Version(_) => corrupt(files, name, &error.to_string(), OTHER_BUILD),
    })
}

/// The newest checkpoint that is whole; `None` when there is none and the log reaches back to the
/// beginning. One is read through beforehand only when there would be
/// something to fall back to.
fn choose_base(
    files: &dyn Files,
    names: &[String],
    log: &[segment::Header],
) -> Result<Option<checkpoint::Header>, Error> {
    let mut candidates: Vec<&String> = names
        .iter()
        .filter(|n| checkpoint::revision(n).is_some())
        .collect();
    let log_is_whole = log.first().is_some_and(|first| first.sequence == 1);
    let mut damage = None;
    while let Some(name) = candidates.pop() {
        let read = if log_is_whole || !candidates.is_empty() || damage.is_some() {
            checkpoint::read(files, name, &mut |_, _| Ok(())).map(|(header, _)| header)
        } else {
            checkpoint::peek(files, name)
        };
        match read {
            Ok(header) => {
                check_reach(files, log, Some(&header), damage)?;
                return Ok(Some(header));
            }
            Err(error @ checkpoint::ReadError::Damaged(..)) => {
                let error = unreadable(
                    files,
                    name,
                    error,
                    ", and the log does not reach back before it",
                );
                tracing::warn!(%error, "a damaged checkpoint is passed over");
                damage.get_or_insert(error);
            }
            Err(error) => return Err(unreadable(files, name, error, "")),
        }
    }
    check_reach(files, log, None, damage)?;
    Ok(None)
}

/// Whether the log goes on from where the checkpoint stands, and as far as it must.
fn check_reach(
    files: &dyn Files,
    log: &[segment::Header],
    base: Option<&checkpoint::Header>,
    damage: Option<Error>,
) -> Result<(), Error> {
    let newest = log.last().map_or(0, |last| last.sequence);
    let (is_reached, needed) = match (base, log.first()) {
        (Some(base), Some(first)) => (first.base <= base.at, base.log_sequence),
        (Some(base), None) => (true, base.log_sequence),
        (None, Some(first)) => (first.sequence == 1, 0),
        (None, None) => (damage.is_none(), 0),
    };
    if is_reached && newest >= needed {
        return Ok(());
    }
    if let Some(damage) = damage {
        return Err(damage);
    }
    let what = if is_reached {
        format!("lacks log segment {}", segment::name(needed))
    } else {
        let first = log.first().map_or(0, |first| first.sequence);
        format!("lacks what is before log segment {}", segment::name(first))
    };
    Err(corrupt(files, "", &what, RESTORE))
}

fn unreadable(files: &dyn Files, name: &str, error: checkpoint::ReadError, more: &str) -> Error {
    match error {
        checkpoint::ReadError::Damaged(offset, what) => corrupt(
            files,
            name,
            &format!("at offset={offset}: {what}{more}"),
            RESTORE,
        ),
        checkpoint::ReadError::Version(version) => {
            let what = format!(
                "is of format version {version}, this build reads {}",
                checkpoint::VERSION
            );
            corrupt(files, name, &what, OTHER_BUILD)
        }
        checkpoint::ReadError::Io(source) => io_error(files, "read", name, source),
        checkpoint::ReadError::Sink(error) => error,
    }
}

/// The walk along the log.
struct Replay<'a, 'b> {
    files: &'a dyn Files,
    /// Where the checkpoint stands.
    at: Option<Revision>,
    /// The last revision seen in the log.
    tail: Option<Revision>,
    sources: Sources,
    sink: &'a mut Sink<'b>,
}

impl Replay<'_, '_> {
    fn all(&mut self, headers: &[segment::Header]) -> Result<VecDeque<Info>, Error> {
        let mut segments = VecDeque::with_capacity(headers.len());
        let mut following = headers.iter().skip(1);
        for header in headers {
            segments.push_back(self.segment(header, following.next())?);
        }
        Ok(segments)
    }

    fn segment(
        &mut self,
        header: &segment::Header,
        next: Option<&segment::Header>,
    ) -> Result<Info, Error> {
        let name = segment::name(header.sequence);
        self.begin(header, &name)?;
        let mut info = Info {
            sequence: header.sequence,
            base: header.base,
            end: segment::FRAMES_AT,
            last_batch: None,
        };
        if let Some(next) = next.filter(|next| self.at.is_some_and(|at| next.base < at)) {
            // The checkpoint stands for all of it, so it is not read.
            info.end = next.previous_end;
            self.tail = Some(next.base);
            return Ok(info);
        }
        let read_error = |source| io_error(self.files, "read", &name, source);
        let file = self.files.open(&name).map_err(read_error)?;
        let mut scan = Scan {
            files: self.files,
            name: &name,
            window: Window::new(&*file).map_err(read_error)?,
            place: Place {
                sequence: header.sequence,
                salt: header.salt,
                ordinal: 0,
            },
            offset: segment::FRAMES_AT,
            limit: next.map(|next| next.previous_end),
        };
        let source = open_source(self.files, &name)?;
        self.sources
            .insert(header.sequence, Arc::downgrade(&source));
        while let Some((header, body)) = scan.next()? {
            let frame = Kept {
                source: Arc::clone(&source),
                offset: scan.offset - header.frame_bytes(),
            };
            let each = |batch: Batch, at| {
                info.last_batch = Some((batch.previous, batch.last));
                self.batch(batch, frame.after(at), &name, scan.offset)
            };
            match frame::read_batches(&header, body, each) {
                Some(result) => result?,
                None => return Err(scan.damage("a frame does not hold what its header says")),
            }
        }
        info.end = scan.offset;
        Ok(info)
    }

    /// The log goes on in a new segment; only what a checkpoint stands for may be missing before.
    fn begin(&mut self, header: &segment::Header, name: &str) -> Result<(), Error> {
        let tail = self.tail.unwrap_or(header.base);
        let is_covered = header.base > tail && self.at.is_some_and(|at| header.base <= at);
        if header.base != tail && !is_covered {
            let what = format!(
                "goes on from revision={}, the log before it ends at revision={tail}",
                header.base
            );
            return Err(corrupt(self.files, name, &what, RESTORE));
        }
        self.tail = Some(header.base)
            .filter(|base| *base > Revision::ZERO)
            .or(self.tail);
        Ok(())
    }

    fn batch(&mut self, batch: Batch, place: Kept, name: &str, offset: u64) -> Result<(), Error> {
        if self.tail.is_some_and(|tail| tail != batch.previous) || batch.last < batch.previous {
            let what = format!("before offset={offset}: a batch does not follow the one before it");
            return Err(corrupt(self.files, name, &what, RESTORE));
        }
        self.tail = Some(batch.last);
        match self.at {
            Some(at) if batch.previous < at && batch.last > at => {
                let what = format!(
                    "before offset={offset}: the checkpoint at revision={at} lies within a batch"
                );
                Err(corrupt(self.files, name, &what, RESTORE))
            }
            Some(at) if batch.previous < at => Ok(()),
            _ => (self.sink)(Recovered::Batch(batch), Some(place)),
        }
    }
}

/// The walk along one segment's frames.
struct Scan<'a> {
    files: &'a dyn Files,
    name: &'a str,
    window: Window<'a>,
    /// Of the next frame.
    place: Place,
    offset: u64,
    /// Where the segment's data ends, known from the segment after it.
    limit: Option<u64>,
}

impl Scan<'_> {
    /// The next frame; `None` at the end of the log's data in this segment.
    fn next(&mut self) -> Result<Option<(frame::Header, Bytes)>, Error> {
        if self.limit.is_some_and(|limit| self.offset == limit) {
            return Ok(None);
        }
        match self
            .frame()
            .map_err(|source| io_error(self.files, "read", self.name, source))?
        {
            Some((header, body)) => {
                self.offset += header.frame_bytes();
                self.place.ordinal += 1;
                if self.limit.is_some_and(|limit| self.offset > limit) {
                    return Err(self.damage("a frame reaches beyond the segment's data"));
                }
                if header.kind == Kind::Closed && self.limit.is_none() {
                    return Ok(None);
                }
                Ok(Some((header, body)))
            }
            None if self.limit.is_some() => {
                Err(self.damage("a frame does not match its checksum, and valid data follows"))
            }
            None => self.cut(),
        }
    }

    fn frame(&mut self) -> std::io::Result<Option<(frame::Header, Bytes)>> {
        let place = self.place;
        let bytes = self.window.view(self.offset, frame::HEADER_BYTES)?;
        let Some(header) = bytes
            .and_then(|bytes| frame::read_header(bytes, place))
            .filter(|header| header.ordinal == place.ordinal)
        else {
            return Ok(None);
        };
        let body_at = self.offset + frame::HEADER_BYTES as u64;
        let body = self.window.view(body_at, header.body_bytes)?;
        Ok(body
            .filter(|body| frame::is_whole(&header, body, place))
            .map(|body| (header, Bytes::copy_from_slice(body))))
    }

    /// The last segment's data ends here, unless a later frame shows that this one was synced: a
    /// frame is written only after the one before it is durable.
    fn cut(&mut self) -> Result<Option<(frame::Header, Bytes)>, Error> {
        let later = self
            .later_frame()
            .map_err(|source| io_error(self.files, "read", self.name, source))?;
        if let Some(later) = later {
            let what = format!(
                "a frame does not match its checksum, and a later one follows at offset={later}"
            );
            return Err(self.damage(&what));
        }
        Ok(None)
    }

    /// Where a header of a later frame of this segment is found.
    fn later_frame(&mut self) -> std::io::Result<Option<u64>> {
        let mut offset = self.offset + frame::ALIGN;
        let mut has_tail = false;
        while offset < self.window.bytes() {
            let count = BLOCK.min(self.window.bytes() - offset);
            let count = usize::try_from(count).unwrap_or(ZEROS.len());
            let block = self.window.view(offset, count)?.unwrap_or_default();
            if Some(block) != ZEROS.get(..count) {
                has_tail = true;
                let places: Vec<u64> = frame::places(block).collect();
                for place in places {
                    let bytes = self.window.view(offset + place, frame::HEADER_BYTES)?;
                    let header = bytes.and_then(|bytes| frame::read_header(bytes, self.place));
                    if header.is_some_and(|header| header.ordinal > self.place.ordinal) {
                        return Ok(Some(offset + place));
                    }
                }
            }
            offset += BLOCK;
        }
        if has_tail {
            let (segment, offset) = (self.name, self.offset);
            tracing::warn!(
                segment,
                offset,
                "the log ends in an unfinished frame, which is cut"
            );
        }
        Ok(None)
    }

    fn damage(&self, what: &str) -> Error {
        corrupt(
            self.files,
            self.name,
            &format!("at offset={}: {what}", self.offset),
            RESTORE,
        )
    }
}
