//! Clients that are slow on purpose, and clients that want one request to be read as two.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Gateway, Mock};

/// Far more than anything here needs, so that a slow machine fails no test.
const LONG: Duration = Duration::from_secs(60);

fn connect(gateway: &Gateway) -> TcpStream {
    with_timeouts(TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap())
}

/// A connection whose own end takes little that is not read, so that the rest piles up at the other end or nowhere.
async fn connect_narrow(gateway: &Gateway) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let stream = socket.connect(gateway.url.trim_start_matches("http://").parse().unwrap()).await.unwrap();
    let stream = stream.into_std().unwrap();
    stream.set_nonblocking(false).unwrap();
    with_timeouts(stream)
}

fn with_timeouts(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

/// Reads until the gateway closes the connection; a connection that stays open fails the test.
fn until_closed(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => {
            panic!("the connection was not closed: {error}")
        }
        _ => bytes,
    }
}

/// Waits for something that the gateway does by itself.
async fn until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < LONG, "never {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether the gateway's end of a connection is open, as the system sees it.
fn is_open(gateway: &Gateway, stream: &TcpStream) -> bool {
    let port = |address: &str| address.rsplit(':').next().map(str::to_owned);
    let here = gateway.url.rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let ends = [here, stream.local_addr().unwrap().port()].map(|port| Some(format!("{port:04X}")));
    std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The state 01 is an open connection.
        [port(fields[1]), port(fields[2])] == ends && fields[3] == "01"
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F16_slow_reader() {
    // Much more than the buffers of two sockets hold.
    let size = 48 << 20;
    let reply = |word: &str, size: usize| {
        let text = "x".repeat(size);
        format!("[[reply]]\nwhen = {{ contains = \"{word}\" }}\nchunk_letters = 4096\ntext = \"{text}\"\n")
    };
    let script = reply("stream", size) + &reply("whole", size / 2);
    let mock = Mock::start(&script);
    let upstream = mock.upstream("main").replace("url =", "max_answer_bytes = 67108864\nurl =");
    // Unread answers are passed on as they come, which is where a slow reader could pile them up.
    let config = format!("{upstream}[server]\nclient_timeout_ms = 2000\n[waltz]\nenabled = false\n");
    let gateway = Gateway::start(&config, &[]);
    assert_eq!(gateway.ask("hi").await.status, 200);
    let before = gateway.resident_bytes();
    let open = async |stream: bool| {
        let word = if stream { "stream" } else { "whole" };
        let body =
            json!({"model": "mock", "stream": stream, "messages": [{"role": "user", "content": word}]});
        let body = body.to_string();
        let mut reader = connect_narrow(&gateway).await;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-waltz-session-id: slow\r\ncontent-length: ";
        reader.write_all(format!("{head}{}\r\n\r\n{body}", body.len()).as_bytes()).unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        reader
    };
    // Four streams, then an answer in one piece.
    for (stream, count) in [(true, 4), (false, 1)] {
        let mut readers: Vec<TcpStream> = Vec::new();
        for _ in 0..count {
            readers.push(open(stream).await);
        }
        let began = Instant::now();
        while readers.iter().any(|reader| is_open(&gateway, reader)) {
            assert!(began.elapsed() < LONG, "the slow readers were not cut off");
            for mut reader in &readers {
                // A trickle that ends no wait: the window stays as good as shut.
                reader.read_exact(&mut [0]).ok();
            }
            assert_eq!(gateway.ask("hi").await.content(), "hi", "other clients are served");
            let grown = gateway.resident_bytes().saturating_sub(before);
            // Piled up they would be four.
            assert!(!stream || grown < 2 * size, "{grown} bytes more for four streams of {size}");
        }
        for reader in readers {
            assert!(until_closed(&reader).len() < size, "the answer was broken off");
        }
    }
    // Each stream that was cut is on record; the large answer takes its time on the way to the database.
    let began = Instant::now();
    let mut gone = 0;
    while gone != 4 {
        assert!(began.elapsed() < LONG, "{gone} streams of 4 are on record as cut");
        let session = gateway.get("/waltz/v1/sessions/slow", &[]).await;
        gone = session.text.matches("\"decision\":\"client_gone\"").count();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F17_slowloris_headers() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "[server]\nheader_timeout_ms = 500\n");
    let beginnings: [&[u8]; 6] = [
        b"",
        b"P",
        b"PRI * HTTP/2.0\r\n\r\nSM",
        b"POST /v1/chat/completions HTTP/1.1",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-a: ",
        // A request that is answered; the connection then begins another one that never ends.
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nhost:",
    ];
    for beginning in beginnings {
        let mut stream = connect(&gateway);
        stream.write_all(beginning).unwrap();
        let answer = until_closed(&stream);
        let answers = String::from_utf8_lossy(&answer).matches("HTTP/1.1 200").count();
        assert_eq!(
            answers,
            usize::from(beginning.starts_with(b"GET")),
            "{}",
            String::from_utf8_lossy(beginning)
        );
    }
    // Bytes that keep coming do not extend the time for the whole header.
    let mut trickle = connect(&gateway);
    trickle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-a: ").unwrap();
    let began = Instant::now();
    while trickle.write_all(b"a").is_ok() {
        assert!(began.elapsed() < LONG, "a header that never ends was taken for ever");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(mock.requests().await.is_empty());

    let capped = Gateway::over(&mock, "[server]\nmax_connections_per_peer = 8\n");
    let mut held: Vec<TcpStream> = (0..8).map(|_| connect(&capped)).collect();
    for stream in &mut held {
        // Answered, so that each is known to hold its place.
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut first = [0; 12];
        stream.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
    }
    for _ in 0..20 {
        let told = until_closed(&connect(&capped));
        assert!(told.starts_with(b"HTTP/1.1 503"), "{}", String::from_utf8_lossy(&told));
    }
    capped.says("holds too many connections").await;
    // The connections that are there go on, and one that leaves makes room.
    held[0].write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    assert!(String::from_utf8_lossy(&until_closed(&held[0])).contains("HTTP/1.1 200"));
    until("was there room again", || {
        capped
            .raw(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 200")
    })
    .await;
    drop(held);
    let answered = || {
        capped
            .raw(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .starts_with("HTTP/1.1 200")
    };
    until("was everybody served again", answered).await;
}

const INNER: &str = r#"{"model":"mock","messages":[{"role":"user","content":"smuggled"}]}"#;
const OUTER: &str = r#"{"model":"mock","messages":[{"role":"user","content":"outer"}]}"#;

/// A request with these headers and this body, and behind it one that nobody may see.
fn hiding(headers: &str, body: &str) -> Vec<u8> {
    let hidden = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{INNER}",
        INNER.len()
    );
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n{body}{hidden}")
        .into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F18_cl_te_smuggling() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "");
    let length = OUTER.len();
    let sized = format!("content-length: {length}\r\n");
    let chunked = "transfer-encoding: chunked\r\n";
    let chunks = format!("{length:x}\r\n{OUTER}\r\n0\r\n\r\n");
    let refused = [
        ("two CL", hiding(&format!("{sized}content-length: 0\r\n"), OUTER)),
        ("a list of CL", hiding(&format!("content-length: {length}, {length}\r\n"), OUTER)),
        ("a signed CL", hiding(&format!("content-length: +{length}\r\n"), OUTER)),
        ("two TE", hiding(&format!("{chunked}{chunked}"), &chunks)),
        ("TE, then identity", hiding(&format!("{chunked}transfer-encoding: identity\r\n"), &chunks)),
        ("identity, then TE", hiding(&format!("transfer-encoding: identity\r\n{chunked}"), &chunks)),
        ("TE of two", hiding("transfer-encoding: gzip, chunked\r\n", &chunks)),
        ("TE with chunked not last", hiding("transfer-encoding: chunked, identity\r\n", &chunks)),
        ("TE of another name", hiding("transfer-encoding: xchunked\r\n", &chunks)),
        ("TE in quotes", hiding("transfer-encoding: \"chunked\"\r\n", &chunks)),
        ("TE with a vertical tab", hiding("transfer-encoding: \u{b}chunked\r\n", &chunks)),
        ("TE with a parameter", hiding("transfer-encoding: chunked;q=1\r\n", &chunks)),
        ("a space before the colon", hiding(&format!("transfer-encoding : chunked\r\n{sized}"), &chunks)),
        ("a folded line", hiding(&format!("transfer-encoding:\r\n chunked\r\n{sized}"), &chunks)),
        ("a bare CR", hiding(&format!("x-a: b\rtransfer-encoding: chunked\r\n{sized}"), &chunks)),
        ("CL after a bare LF", hiding(&format!("{sized}x-a: b\ncontent-length: 0\r\n"), OUTER)),
        ("a bare LF in chunks", hiding(chunked, &format!("{length:x}\n{OUTER}\r\n0\r\n\r\n"))),
        ("a bare LF after a chunk", hiding(chunked, &format!("{length:x}\r\n{OUTER}\n0\r\n\r\n"))),
        ("a chunk extension with LF", hiding(chunked, &format!("{length:x};a\nb\r\n{OUTER}\r\n0\r\n\r\n"))),
        (
            "an endless chunk extension",
            hiding(chunked, &format!("{length:x};{}\r\n{OUTER}\r\n0\r\n\r\n", "a".repeat(100_000))),
        ),
        ("a chunk size with 0x", hiding(chunked, &format!("0x{length:x}\r\n{OUTER}\r\n0\r\n\r\n"))),
        ("a chunk size that overflows", hiding(chunked, &format!("1{length:016x}\r\n{OUTER}\r\n0\r\n\r\n"))),
        ("a negative chunk size", hiding(chunked, &format!("-{length:x}\r\n{OUTER}\r\n0\r\n\r\n"))),
    ];
    for (name, bytes) in refused {
        let mut stream = connect(&gateway);
        stream.write_all(&bytes).ok();
        let answer = String::from_utf8_lossy(&until_closed(&stream)).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400"), "{name}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{name}: {answer}");
    }
    assert_eq!(mock.requests().await.len(), 0, "nothing of these went on");
    // A length beside chunks is ignored, as the standard allows where the connection ends behind it: what
    // follows is never read.
    let read_once = [
        ("CL and TE", hiding(&format!("{sized}{chunked}"), &chunks)),
        ("TE and CL", hiding(&format!("{chunked}{sized}"), &chunks)),
        ("CL 0 and TE", hiding(&format!("content-length: 0\r\n{chunked}"), &chunks)),
        ("TE after a bare LF", hiding(&format!("{sized}x-a: b\ntransfer-encoding: chunked\r\n"), &chunks)),
    ];
    let count = read_once.len();
    for (name, bytes) in read_once {
        let mut stream = connect(&gateway);
        stream.write_all(&bytes).ok();
        let answer = String::from_utf8_lossy(&until_closed(&stream)).into_owned();
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{name}: {answer}");
    }
    let seen = mock.requests().await;
    let outer: Value = serde_json::from_str(OUTER).unwrap();
    assert_eq!(seen.len(), count);
    assert!(seen.iter().all(|request| request["body"] == outer), "{seen:?}");
    // What the standard allows is one request: extensions of chunks mean nothing.
    let allowed = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{chunked}\r\n{length:x};name=value\r\n{OUTER}\r\n0\r\n\r\n"
    );
    let answer = gateway.raw(allowed.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = mock.requests().await;
    assert_eq!((seen.len(), &seen[count]["body"]), (count + 1, &outer));
}

/// A body that comes byte by byte is given up as a whole, however short the pauses are.
#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let gateway = Gateway::over(&Mock::start(""), "[server]\nbody_timeout_ms = 600\n");
    for (path, form) in
        [("/v1/chat/completions", "\"code\":\"request_timeout\""), ("/v1/messages", "\"type\":\"error\"")]
    {
        let address = gateway.url.trim_start_matches("http://");
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head =
            format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n{{\"a\":\"");
        stream.write_all(head.as_bytes()).await.unwrap();
        let began = Instant::now();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}") {
            assert!(began.elapsed() < Duration::from_secs(10), "{}", String::from_utf8_lossy(&answer));
            stream.write_all(b"x").await.ok();
            let mut block = [0; 4096];
            let read = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut block)).await;
            match read {
                Ok(Ok(0) | Err(_)) => break,
                Ok(Ok(count)) => answer.extend_from_slice(&block[..count]),
                Err(_) => {}
            }
        }
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.starts_with("HTTP/1.1 408") && answer.contains(form), "{path}: {answer}");
        assert!(began.elapsed() >= Duration::from_millis(500), "{path}: {:?}", began.elapsed());
    }
    assert_eq!(gateway.ask("hi").await.status, 200, "a body that comes in time is read");
}
