//! `root.der`, `leaf.der` and `leaf.key` are of nobody: a root, and what it signed for `models.example`, for a century.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::super::tests::settings;
use super::super::{Call, CallError, Upstream};
use super::*;

const LIMIT: Duration = Duration::from_secs(60);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

async fn call(upstream: &Upstream) -> Result<Bytes, CallError> {
    let slot = upstream.slot(false).await?;
    let answer = upstream.post(slot, Call::Chat, Bytes::from_static(b"[]"), upstream.deadline()).await?;
    answer.collect().await
}

/// Reads one request with the body of [`call`].
async fn request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n[]") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "half a request");
    }
    String::from_utf8(read).unwrap()
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    (listener, url)
}

#[tokio::test]
async fn a_call_says_what_it_must_and_no_more() {
    let (listener, url) = listen().await;
    let served = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        let first = request(&mut stream).await;
        stream.write_all(ANSWER).await.unwrap();
        let second = request(&mut stream).await;
        stream.write_all(ANSWER).await.unwrap();
        (first, second)
    });
    let mut settings = settings(&url);
    settings.key = Some("sk-canary".to_owned().into());
    let upstream = Upstream::new(settings).unwrap();
    for _ in 0..2 {
        assert_eq!(call(&upstream).await.unwrap(), "{}");
    }
    let host = url.trim_start_matches("http://").trim_end_matches("/v1");
    let mut expected = [
        "POST /v1/chat/completions HTTP/1.1".to_owned(),
        "accept: application/json, text/event-stream".to_owned(),
        "authorization: Bearer sk-canary".to_owned(),
        "content-length: 2".to_owned(),
        "content-type: application/json".to_owned(),
        format!("host: {host}"),
        concat!("user-agent: waltz/", env!("CARGO_PKG_VERSION")).to_owned(),
        "[]".to_owned(),
    ];
    expected.sort();
    let (first, second) = served.await.unwrap();
    assert_eq!(first, second, "over the same connection");
    let mut said: Vec<&str> = first.split("\r\n").filter(|line| !line.is_empty()).collect();
    said.sort_unstable();
    assert_eq!(said, expected);
    assert!(!format!("{upstream:?}").contains("sk-canary"));
}

/// Servers close connections that nobody uses without a word. A call that finds one closed takes another.
#[tokio::test]
async fn a_connection_that_was_closed_while_idle_fails_no_call() {
    let (listener, url) = listen().await;
    let (closed, mut closes) = tokio::sync::mpsc::channel(1);
    let served = tokio::spawn(async move {
        for _ in 0..20 {
            let mut stream = listener.accept().await.unwrap().0;
            request(&mut stream).await;
            stream.write_all(ANSWER).await.unwrap();
            drop(stream);
            closed.send(()).await.unwrap();
        }
    });
    let upstream = Upstream::new(settings(&url)).unwrap();
    for _ in 0..20 {
        assert_eq!(call(&upstream).await.unwrap(), "{}");
        closes.recv().await.unwrap();
        // The end has arrived; whether the connection has looked at it when the next call comes is left open.
        tokio::task::yield_now().await;
    }
    served.await.unwrap();
}

/// What a server has read it may have worked on: only whoever made the call knows whether it may be made twice.
#[tokio::test]
async fn a_call_that_was_read_is_not_sent_again() {
    let (listener, url) = listen().await;
    let served = tokio::spawn(async move {
        let mut stream = listener.accept().await.unwrap().0;
        request(&mut stream).await;
        stream.write_all(ANSWER).await.unwrap();
        request(&mut stream).await;
        drop(stream);
        let mut stream = listener.accept().await.unwrap().0;
        request(&mut stream).await;
        stream.write_all(ANSWER).await.unwrap();
    });
    let upstream = Upstream::new(settings(&url)).unwrap();
    assert_eq!(call(&upstream).await.unwrap(), "{}");
    assert_eq!(call(&upstream).await, Err(CallError::Unreachable("main".to_owned())));
    assert_eq!(call(&upstream).await.unwrap(), "{}", "over a new connection");
    served.await.unwrap();
}

#[tokio::test]
async fn names_and_handshakes_must_be_done_in_time() {
    let (listener, url) = listen().await;
    let mut silent = settings(&url.replace("http://", "https://"));
    silent.connect_timeout = Duration::from_millis(1);
    let mut unknown = settings("http://models.example/v1");
    unknown.connect_timeout = Duration::from_millis(1);
    let never = Guard::new(Arc::new(|_| Box::pin(std::future::pending())));
    for upstream in [Upstream::guarded(silent, Guard::system()), Upstream::guarded(unknown, never)] {
        let expected = CallError::Timeout("main".to_owned(), "no connection in time");
        assert_eq!(call(&upstream.unwrap()).await, Err(expected));
    }
    drop(listener);
}

#[test]
fn a_password_in_an_address_is_sent_and_never_shown() {
    let url = Url::parse("https://me:c%40nary@models.example/v1?a=b#c").unwrap();
    let head = Head::post(&url, HeaderMap::new()).unwrap();
    assert_eq!(head.0.uri, "https://models.example/v1?a=b");
    assert_eq!(head.0.headers["authorization"], "Basic bWU6Y0BuYXJ5");
    let shown = format!("{head:?}");
    assert!(!shown.contains("nary") && !shown.contains("Basic"), "{shown}");
    let mut headers = HeaderMap::new();
    headers.insert("authorization", HeaderValue::from_static("own"));
    assert_eq!(Head::post(&url, headers).unwrap().0.headers["authorization"], "own");
}

/// How a server that speaks HTTP/2 treats a call.
#[derive(Clone, Copy, Debug)]
enum Mood {
    Answers,
    Refuses,
    ShutsDown,
}

/// A server with TLS that treats its calls as they are listed, and those after them like the last. Returns its address
/// and the number of calls.
async fn encrypted(moods: &'static [Mood]) -> (SocketAddr, Arc<AtomicUsize>) {
    waltz_model::connection::install_tls();
    let leaf = CertificateDer::from(include_bytes!("leaf.der").as_slice());
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(include_bytes!("leaf.key").as_slice()));
    let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![leaf], key).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if let Some(Mood::ShutsDown) = moods.get(counted.load(Ordering::SeqCst)) {
                counted.fetch_add(1, Ordering::SeqCst);
                shut_down(&mut stream).await;
                continue;
            }
            let mut connection = h2::server::handshake(stream).await.unwrap();
            while let Some(Ok((_, mut respond))) = connection.accept().await {
                let count = counted.fetch_add(1, Ordering::SeqCst);
                match moods[count.min(moods.len() - 1)] {
                    Mood::Answers => _ = respond.send_response(Response::new(()), true).unwrap(),
                    Mood::Refuses => respond.send_reset(h2::Reason::REFUSED_STREAM),
                    Mood::ShutsDown => unreachable!("a connection begins with it"),
                }
            }
        }
    });
    (address, calls)
}

/// Waits for a call and says that none was looked at, and that no more are taken.
async fn shut_down(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    let mut read = Vec::new();
    let has_call = |read: &[u8]| {
        let mut rest = read.get(PREFACE..).unwrap_or_default();
        while let [a, b, c, kind, ..] = *rest {
            if kind == HEADERS {
                return true;
            }
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            rest = rest.get(9 + length..).unwrap_or_default();
        }
        false
    };
    while !has_call(&read) {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "no call came");
    }
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let go_away = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    stream.write_all(&[settings.as_slice(), &go_away].concat()).await.unwrap();
    stream.flush().await.unwrap();
    // Until the client has read it and goes.
    while stream.read_buf(&mut read).await.is_ok_and(|count| count > 0) {}
}

/// A client that trusts the root of the tests, and a head for a name at which it finds an address.
fn client(name: &str, address: SocketAddr) -> (Client, Head) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(include_bytes!("root.der").as_slice())).unwrap();
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Client::over(Connector::new(leads_to(address), tls, LIMIT)), head(name))
}

fn head(name: &str) -> Head {
    Head::post(&Url::parse(&format!("https://{name}/v1")).unwrap(), HeaderMap::new()).unwrap()
}

fn leads_to(address: SocketAddr) -> Guard {
    Guard::new(Arc::new(move |_| Box::pin(async move { Ok(vec![address]) })))
}

#[tokio::test]
async fn a_call_that_was_handed_back_is_sent_again() {
    for (moods, expected) in [
        (&[Mood::Answers] as &[Mood], 1),
        (&[Mood::Refuses, Mood::Answers], 2),
        (&[Mood::ShutsDown, Mood::Answers], 2),
        (&[Mood::ShutsDown, Mood::Refuses, Mood::Answers], 3),
    ] {
        let (address, calls) = encrypted(moods).await;
        let (client, head) = client("models.example", address);
        let answer = client.send(&head, Bytes::from_static(b"[]")).await.unwrap();
        assert_eq!(answer.version(), http::Version::HTTP_2, "both sides know it");
        assert_eq!(calls.load(Ordering::SeqCst), expected, "{moods:?}");
    }
    let (address, calls) = encrypted(&[Mood::Refuses]).await;
    let (client, head) = client("models.example", address);
    assert!(matches!(client.send(&head, Bytes::new()).await, Err(Failure::Broken(_))));
    assert_eq!(calls.load(Ordering::SeqCst), 3, "a server that refuses everything is not asked for ever");
}

#[tokio::test]
async fn certificates_must_be_trusted_and_of_the_name() {
    let (address, calls) = encrypted(&[Mood::Answers]).await;
    let (own, _) = client("models.example", address);
    let other = own.send(&head("other.example"), Bytes::new()).await;
    assert!(matches!(other, Err(Failure::Broken(_))), "{other:?}");
    let url = Url::parse("https://models.example/v1").unwrap();
    let system = Client::new(&url, leads_to(address), LIMIT).unwrap();
    let unknown = system.send(&head("models.example"), Bytes::new()).await;
    assert!(matches!(unknown, Err(Failure::Broken(_))), "{unknown:?}");
    let plain = Client::new(&Url::parse("http://models.example").unwrap(), leads_to(address), LIMIT).unwrap();
    let unread = plain.send(&head("models.example"), Bytes::new()).await;
    assert!(matches!(unread, Err(Failure::Broken(_))), "{unread:?}");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert!(own.send(&head("models.example"), Bytes::new()).await.is_ok());
}
