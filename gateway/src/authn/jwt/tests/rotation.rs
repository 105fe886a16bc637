//! Keys that change, and keys that cannot be had.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::advance;

use super::*;

/// Serves one text, or is out.
struct Served {
    text: Mutex<Result<String, KeysOutage>>,
    fetches: AtomicUsize,
}

impl Served {
    fn new(text: String) -> Arc<Self> {
        Arc::new(Served {
            text: Mutex::new(Ok(text)),
            fetches: AtomicUsize::new(0),
        })
    }

    fn serve(&self, text: String) {
        *self.text.lock() = Ok(text);
    }

    fn go_out(&self) {
        *self.text.lock() = Err(KeysOutage("out".to_owned()));
    }

    fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl KeySource for Served {
    fn fetch(&self) -> KeysFuture<'_> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let text = self.text.lock().clone();
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            text.map(Bytes::from)
        })
    }
}

const STALE_FOR: Duration = Duration::from_secs(3600);

fn following(served: &Arc<Served>) -> LocalTokens {
    let source: Arc<dyn KeySource> = Arc::clone(served) as _;
    accounts(KeyRing::following(source, STALE_FOR))
}

const TOO_SOON: &str = "outage: its key is not known yet, and its issuer was asked a moment ago";

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_when_a_token_names_it_and_not_more_often_than_stated() {
    let (old, new) = (Signer::new("ES256", "old"), Signer::new("ES256", "new"));
    let served = Served::new(old.json_set());
    let tokens = following(&served);
    assert_eq!(word(&tokens, &old.sign(&account()), WALL).await, SA);
    assert_eq!(served.fetches(), 1);
    // Made-up key names right after: no fetch, and no verdict either.
    let made_up = |n: usize| {
        let header = json!({"alg": "ES256", "kid": format!("made-up-{n}")});
        new.sign_as(&header, &account())
    };
    for n in 0..100 {
        assert_eq!(word(&tokens, &made_up(n), WALL).await, TOO_SOON);
    }
    assert_eq!(served.fetches(), 1);
    let both = json!({"keys": [old.json(), new.json()]}).to_string();
    served.serve(both);
    advance(REFETCH_MIN).await;
    assert_eq!(word(&tokens, &new.sign(&account()), WALL).await, SA);
    assert_eq!(served.fetches(), 2);
    advance(REFETCH_MIN).await;
    assert_eq!(word(&tokens, &made_up(0), WALL).await, UNSIGNED);
    assert_eq!(served.fetches(), 3);
}

#[tokio::test(start_paused = true)]
async fn many_who_wait_for_keys_cause_one_fetch() {
    let signer = Signer::new("ES256", "k");
    let served = Served::new(signer.json_set());
    let tokens = Arc::new(following(&served));
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..200 {
        let token = signer.sign(&with(account(), "jti", json!(n.to_string())));
        let tokens = Arc::clone(&tokens);
        callers.spawn(async move { word(&tokens, &token, WALL).await });
    }
    let words = callers.join_all().await;
    assert!(words.iter().all(|word| word == SA), "{words:?}");
    assert_eq!(served.fetches(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_withdrawn_takes_its_verdicts_along() {
    let (old, new) = (Signer::new("ES256", "old"), Signer::new("ES256", "new"));
    let served = Served::new(old.json_set());
    let tokens = following(&served);
    let token = old.sign(&account());
    assert_eq!(word(&tokens, &token, WALL).await, SA);
    served.serve(new.json_set());
    // The look that is due happens beside the request; the next one sees what it found.
    advance(Duration::from_secs(301)).await;
    assert_eq!(word(&tokens, &token, WALL).await, SA);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(served.fetches(), 2);
    tokio::time::sleep(REFETCH_MIN).await;
    assert_eq!(word(&tokens, &token, WALL).await, UNSIGNED);
}

#[tokio::test(start_paused = true)]
async fn a_key_without_a_name_is_replaced_too() {
    let (old, new) = (Signer::new("ES256", ""), Signer::new("ES256", ""));
    let served = Served::new(old.json_set());
    let tokens = following(&served);
    assert_eq!(word(&tokens, &old.sign(&account()), WALL).await, SA);
    served.serve(new.json_set());
    // A moment later nobody asks: it is as if the token were forged.
    assert_eq!(word(&tokens, &new.sign(&account()), WALL).await, UNSIGNED);
    advance(REFETCH_MIN).await;
    let again = new.sign(&with(account(), "jti", json!("other")));
    assert_eq!(word(&tokens, &again, WALL).await, SA);
}

#[tokio::test(start_paused = true)]
async fn keys_outlive_an_outage_of_their_issuer_as_long_as_stated() {
    let signer = Signer::new("ES256", "k");
    let served = Served::new(signer.json_set());
    let tokens = following(&served);
    let fresh = |n: &str| {
        signer.sign(&with(
            with(account(), "jti", json!(n)),
            "exp",
            json!(1_800_000_000),
        ))
    };
    assert_eq!(word(&tokens, &fresh("a"), WALL).await, SA);
    served.go_out();
    let mut waited = Duration::ZERO;
    while waited + Duration::from_secs(600) < STALE_FOR {
        advance(Duration::from_secs(600)).await;
        waited += Duration::from_secs(600);
        assert_eq!(word(&tokens, &fresh("a"), WALL).await, SA, "{waited:?}");
        assert_eq!(word(&tokens, &fresh("b"), WALL).await, SA, "{waited:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(served.fetches() > 3, "it goes on asking");
    advance(Duration::from_secs(700)).await;
    for _ in 0..3 {
        assert_eq!(word(&tokens, &fresh("a"), WALL).await, "outage: out");
    }
    served.serve(signer.json_set());
    advance(REFETCH_MIN).await;
    assert_eq!(word(&tokens, &fresh("a"), WALL).await, SA);
}

#[tokio::test(start_paused = true)]
async fn keys_that_were_never_had_are_an_outage_and_no_verdict() {
    let signer = Signer::new("ES256", "k");
    let served = Served::new("<html>".to_owned());
    let tokens = following(&served);
    for _ in 0..10 {
        let word = word(&tokens, &signer.sign(&account()), WALL).await;
        assert!(word.starts_with("outage: "), "{word}");
    }
    assert_eq!(served.fetches(), 1);
}
