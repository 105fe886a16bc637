//! A body read line by line as it comes: watches and logs.

use std::time::Duration;

use bytes::BytesMut;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::Value;

use crate::client::{Client, ClientError, Http2};

/// How long a line that has to come may take; only reached when it does not come.
const LINE_MAX: Duration = Duration::from_secs(60);

/// The lines of a body.
pub struct Lines {
    body: Incoming,
    read: BytesMut,
    // The stream lives as long as its connection.
    _connection: Option<Http2>,
}

impl Lines {
    /// The lines of this answer.
    #[must_use]
    pub fn of(response: Response<Incoming>) -> Self {
        Lines {
            body: response.into_body(),
            read: BytesMut::new(),
            _connection: None,
        }
    }

    /// Opens `path` on a connection of its own.
    ///
    /// # Errors
    /// When it cannot be sent, or is not answered with 200.
    pub async fn open(client: &Client, path: &str) -> Result<Self, ClientError> {
        let connection = client.http2().await?;
        let request = client.request("GET", path).body(Full::default())?;
        let response = connection.open(request).await?;
        if response.status() != 200 {
            let status = response.status();
            let body = response.into_body().collect().await?.to_bytes();
            return Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into());
        }
        Ok(Lines {
            _connection: Some(connection),
            ..Lines::of(response)
        })
    }

    /// The next line without its end; `None` when the body has ended well.
    ///
    /// # Errors
    /// When the body breaks off, or ends within a line.
    ///
    /// # Panics
    /// When neither comes in time.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line = self.read.split_to(end + 1);
                return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
            }
            let frame = tokio::time::timeout(LINE_MAX, self.body.frame()).await;
            match frame.expect("waited for a line or the end of the body") {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
                None if self.read.is_empty() => return Ok(None),
                None => return Err("the body ended within a line".into()),
            }
        }
    }

    /// The next event of a watch: its type, the object's name and its version. Bookmarks are
    /// passed by.
    ///
    /// # Panics
    /// When the watch ends instead, or the line is no event.
    pub async fn event(&mut self) -> (String, String, u64) {
        loop {
            let line = self.next().await.expect("a whole line");
            let line = line.expect("the watch goes on");
            let event: Value = serde_json::from_str(&line).expect("an event");
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let metadata = event.pointer("/object/metadata").unwrap_or(&Value::Null);
            let field = |name: &str| metadata.get(name).map(text).unwrap_or_default();
            let kind = event.get("type").map(text).unwrap_or_default();
            assert_ne!(kind, "ERROR", "{line}");
            if kind != "BOOKMARK" {
                let version = field("resourceVersion").parse().expect("a version");
                return (kind, field("name"), version);
            }
        }
    }
}
