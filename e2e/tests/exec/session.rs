//! A command that is talked to while it runs.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

/// Only reached when what is waited for does not come.
const LIMIT: Duration = Duration::from_secs(90);

/// Waits with a bound.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(LIMIT, future).await;
    done.unwrap_or_else(|_| panic!("waited {LIMIT:?} for {what}"))
}

/// A running command; killed with this value.
pub(crate) struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    errors: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

/// How a session has ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) errors: String,
}

impl Session {
    pub(crate) fn start(command: std::process::Command) -> Session {
        let mut child = Command::from(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let errors = Arc::<Mutex<Vec<u8>>>::default();
        let (mut stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&errors));
        let reading = tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
                kept.lock().extend_from_slice(&buffer[..count]);
            }
        });
        Session {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()).lines(),
            errors,
            reading,
            child,
        }
    }

    pub(crate) async fn say(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).await.unwrap();
        input.flush().await.unwrap();
    }

    /// The next line, less the carriage return of a terminal.
    pub(crate) async fn line(&mut self) -> String {
        let line = within("a line", self.output.next_line()).await.unwrap();
        let errors = || String::from_utf8_lossy(&self.errors.lock()).into_owned();
        let line = line.unwrap_or_else(|| panic!("ended: {}", errors()));
        line.trim_end_matches('\r').to_owned()
    }

    /// Says a line and hears it again.
    pub(crate) async fn talk(&mut self, word: &str) {
        self.say(&format!("{word}\n")).await;
        assert_eq!(self.line().await, format!("heard {word}"));
    }

    /// Says no more.
    pub(crate) fn close(&mut self) {
        drop(self.input.take());
    }

    /// Waits until there is nothing more to hear, and the command has ended.
    pub(crate) async fn end(mut self) -> End {
        while within("the end of the output", self.output.next_line())
            .await
            .unwrap()
            .is_some()
        {}
        let status = within("the end", self.child.wait()).await.unwrap();
        within("the last error", &mut self.reading).await.unwrap();
        let errors = String::from_utf8_lossy(&self.errors.lock()).into_owned();
        End {
            code: status.code(),
            errors,
        }
    }
}

/// Runs a command to its end with this input; its code, output and errors.
pub(crate) async fn run(
    command: std::process::Command,
    input: Option<Vec<u8>>,
) -> (Option<i32>, Vec<u8>, String) {
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    let stdin = child.stdin.take();
    let writing = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // Refused when the command has ended before, which its code says.
            let _ = stdin.write_all(&input).await;
        }
    };
    let (output, ()) = within("a command's end", async {
        tokio::join!(child.wait_with_output(), writing)
    })
    .await;
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), output.stdout, errors)
}
