//! Our client against another library's server, over pipes that hold a little or a lot: everything
//! that is sent arrives, in both directions, whoever stops when.

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use proptest::prelude::*;
use std::future::poll_fn;

use super::super::StreamError;
use super::driving::{connect, send};

/// What one request is, and what becomes of it.
#[derive(Clone, Debug)]
struct Plan {
    upload: Vec<usize>,
    answer: Vec<usize>,
    has_trailers: bool,
    fate: Fate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Whole,
    /// The server resets it instead of answering.
    Refused,
    /// The server resets it behind its content.
    Cut,
    /// The client drops the answer.
    Dropped,
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![0..20_usize, 0..20_000_usize, 60_000..140_000_usize];
    prop::collection::vec(size, 0..4)
}

fn plan() -> impl Strategy<Value = Plan> {
    let fate = prop_oneof![
        6 => Just(Fate::Whole),
        1 => Just(Fate::Refused),
        1 => Just(Fate::Cut),
        1 => Just(Fate::Dropped),
    ];
    (sizes(), sizes(), any::<bool>(), fate).prop_map(|(upload, answer, has_trailers, fate)| Plan {
        upload,
        answer,
        has_trailers,
        fate,
    })
}

fn made(size: usize) -> Bytes {
    (0..size)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect()
}

fn all(sizes: &[usize]) -> Vec<u8> {
    sizes.iter().flat_map(|size| made(*size)).collect()
}

async fn serve(far: tokio::io::DuplexStream, plans: Vec<Plan>) {
    let mut server = h2::server::Builder::new()
        .max_concurrent_streams(3)
        .handshake(far)
        .await
        .unwrap();
    while let Some(accepted) = server.accept().await {
        let Ok((request, mut respond)) = accepted else {
            return;
        };
        let place = usize::try_from(u32::from(respond.stream_id()) / 2).unwrap();
        let plan = plans[place].clone();
        tokio::spawn(async move {
            if plan.fate == Fate::Refused {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
                return;
            }
            let mut body = request.into_body();
            let mut read = Vec::new();
            while let Some(data) = body.data().await {
                let Ok(data) = data else { return };
                let _ = body.flow_control().release_capacity(data.len());
                read.extend_from_slice(&data);
            }
            assert!(read == all(&plan.upload), "what was sent arrives");
            let response = Response::builder().status(StatusCode::ACCEPTED);
            let Ok(mut stream) = respond.send_response(response.body(()).unwrap(), false) else {
                return;
            };
            for size in &plan.answer {
                let mut data = made(*size);
                while !data.is_empty() {
                    stream.reserve_capacity(data.len());
                    let Some(Ok(room)) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
                        return;
                    };
                    let piece = data.split_to(room.min(data.len()));
                    if stream.send_data(piece, false).is_err() {
                        return;
                    }
                }
            }
            if plan.fate == Fate::Cut {
                return stream.send_reset(h2::Reason::INTERNAL_ERROR);
            }
            let _ = if plan.has_trailers {
                let mut lines = HeaderMap::new();
                lines.insert("last", "word".parse().unwrap());
                stream.send_trailers(lines)
            } else {
                stream.send_data(Bytes::new(), true)
            };
        });
    }
}

async fn ask(sender: &super::super::Http2, plan: Plan) {
    let has_content = !plan.upload.is_empty();
    let method = if has_content {
        Method::PUT
    } else {
        Method::GET
    };
    let sent = send(sender, &method, has_content, None).await;
    let (answer, outlet) = sent.expect("it is open");
    let uploading = async {
        let Some(outlet) = outlet else { return };
        for size in &plan.upload {
            if poll_fn(|cx| outlet.poll_room(cx)).await.is_err() {
                return;
            }
            outlet.send(made(*size), false);
        }
        outlet.send(Bytes::new(), true);
    };
    let reading = async {
        let (head, mut content) = match answer.await {
            Ok(answered) => answered,
            Err(error) => {
                let is_refused = matches!(error, StreamError::Unseen { is_leaving: false });
                let is_planned = match plan.fate {
                    Fate::Refused => is_refused,
                    Fate::Cut => matches!(error, StreamError::Reset(_)),
                    _ => false,
                };
                assert!(is_planned, "{error} {plan:?}");
                return;
            }
        };
        assert_eq!(head.status, StatusCode::ACCEPTED);
        if plan.fate == Fate::Dropped {
            return;
        }
        let (mut read, mut has_trailers) = (Vec::new(), false);
        while let Some(frame) = poll_fn(|cx| content.poll_next(cx)).await {
            match frame {
                Ok(frame) if frame.is_data() => read.extend(frame.into_data().unwrap()),
                Ok(_) => has_trailers = true,
                Err(error) => {
                    assert!(plan.fate == Fate::Cut, "{error} {plan:?}");
                    return;
                }
            }
        }
        assert_eq!(plan.fate, Fate::Whole);
        assert!(read == all(&plan.answer), "what was answered arrives");
        assert_eq!(has_trailers, plan.has_trailers);
        assert!(content.is_over());
    };
    tokio::join!(uploading, reading);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_arrives_at_another_library_and_comes_back(
        plans in prop::collection::vec(plan(), 1..8),
        pipe in prop::sample::select(vec![1_usize, 7, 100, 9_001, 1 << 20]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        // A byte at a time, less of it.
        let shrink = |sizes: &mut Vec<usize>| sizes.iter_mut().for_each(|it| *it /= 10_000 / pipe.min(10_000));
        let mut plans = plans;
        for plan in &mut plans {
            shrink(&mut plan.upload);
            shrink(&mut plan.answer);
        }
        runtime.block_on(async {
            let (sender, driver, far) = connect(pipe).await;
            let server = tokio::spawn(serve(far, plans.clone()));
            let driven = tokio::spawn(driver);
            let asking = async {
                // One after the other begins, all at once go on.
                let asked: Vec<_> = plans.into_iter().map(|plan| ask(&sender, plan)).collect();
                futures_util::future::join_all(asked).await;
            };
            let done = tokio::time::timeout(std::time::Duration::from_secs(20), asking).await;
            done.expect("nobody waits for ever");
            assert_eq!(sender.shared.state.lock().core.unanswered, 0);
            assert_eq!(sender.shared.state.lock().core.streams.open(), 0);
            drop(sender);
            driven.await.unwrap().unwrap();
            server.await.unwrap();
        });
    }
}
