//! Floods on HTTP/2, written frame by frame.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{Gateway, Mock};

const LONG: Duration = Duration::from_secs(60);

/// What the gateway may grow by under any of the floods.
const ROOM: usize = 96 << 20;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// The reason that says: too much.
const ENHANCE_YOUR_CALM: u32 = 11;

struct Connection {
    stream: TcpStream,
}

struct Frame {
    kind: u8,
    flags: u8,
    payload: Vec<u8>,
}

impl Connection {
    fn open(gateway: &Gateway, settings: &[(u16, u32)]) -> Self {
        let stream = TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        let mut connection = Self { stream };
        connection.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat())
            .collect();
        assert!(connection.send(SETTINGS, 0, 0, &payload));
        connection
    }

    /// Whether it could be written; a gateway that hung up takes no more.
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        self.stream.write_all(&frame(kind, flags, stream, payload)).is_ok()
    }

    /// The next frame, or `None` when the connection is closed.
    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.fill(&mut payload)?;
        Some(Frame { kind: head[3], flags: head[4], payload })
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Option<()> {
        match self.stream.read_exact(bytes) {
            Ok(()) => Some(()),
            Err(error) => {
                let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(closed.contains(&error.kind()), "the connection was not closed: {error}");
                None
            }
        }
    }

    /// Reads until the connection is closed, answering pings, and returns the reason of the last goodbye.
    fn goodbye(&mut self) -> Option<u32> {
        let mut reason = None;
        let began = Instant::now();
        while let Some(frame) = self.next() {
            assert!(began.elapsed() < LONG, "the connection stays open");
            if frame.kind == PING && frame.flags & ACK == 0 {
                self.send(PING, ACK, 0, &frame.payload);
            }
            if frame.kind == GOAWAY {
                reason = Some(u32::from_be_bytes(frame.payload[4..8].try_into().unwrap()));
            }
        }
        reason
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A number with a prefix of so many bits, as HPACK writes it.
fn number(first: u8, bits: u32, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![first | u8::try_from(value).unwrap()];
    }
    let mut bytes = vec![first | u8::try_from(most).unwrap()];
    let mut rest = value - most;
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

fn text(value: &str) -> Vec<u8> {
    [number(0, 7, value.len()), value.as_bytes().to_vec()].concat()
}

/// A header that is not put into the table of headers.
fn header(name: &str, value: &str) -> Vec<u8> {
    [vec![0], text(name), text(value)].concat()
}

/// `POST` over `http` to a path, by the places of these in the static table.
fn post(path: &str) -> Vec<u8> {
    [vec![0x83, 0x86, 0x04], text(path), vec![0x01], text("localhost")].concat()
}

/// Every second number from 1 on names a stream of a client.
fn stream(count: u32) -> u32 {
    2 * count + 1
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_F21_h2_floods() {
    let script =
        format!("[[reply]]\nwhen = {{ contains = \"long\" }}\ntext = \"{}\"\n", "x".repeat(256 << 10));
    let mock = Mock::start(&script);
    let gateway = Gateway::over(&mock, "[server]\nclient_timeout_ms = 1000\n[waltz]\nenabled = false\n");
    assert_eq!(gateway.ask("hi").await.status, 200);
    let before = gateway.resident_bytes();
    let grown = |flood: &str| {
        let grown = gateway.resident_bytes().saturating_sub(before);
        assert!(grown < ROOM, "{flood}: {grown} bytes more");
    };

    // Headers that never end.
    let mut connection = Connection::open(&gateway, &[]);
    let piece = header("x-more", &"y".repeat(16_000));
    let mut sent = 0_u32;
    let mut open = connection.send(HEADERS, END_STREAM, 1, &post("/v1/chat/completions"));
    while open && sent < 20_000 {
        open = connection.send(CONTINUATION, 0, 1, &piece);
        sent += 1;
    }
    assert!(!open, "{sent} frames of headers were taken");
    assert_eq!(connection.goodbye(), Some(ENHANCE_YOUR_CALM), "CONTINUATION");
    grown("CONTINUATION");

    // The same with empty frames, which no limit on bytes stops.
    let mut connection = Connection::open(&gateway, &[]);
    let mut open = connection.send(HEADERS, END_STREAM, 1, &post("/v1/chat/completions"));
    let mut sent = 0_u32;
    while open && sent < 1_000_000 {
        open = connection.send(CONTINUATION, 0, 1, &[]);
        sent += 1;
    }
    assert!(!open, "{sent} empty frames of headers were taken");
    assert_eq!(connection.goodbye(), Some(ENHANCE_YOUR_CALM), "empty CONTINUATION");
    grown("empty CONTINUATION");

    // Streams that are opened and reset at once.
    let mut connection = Connection::open(&gateway, &[]);
    let reset = |count: u32| {
        let opened = frame(HEADERS, END_HEADERS, stream(count), &post("/v1/chat/completions"));
        [opened, frame(RST_STREAM, 0, stream(count), &[0, 0, 0, 8])].concat()
    };
    let burst: Vec<u8> = (0..2_000).flat_map(reset).collect();
    connection.stream.write_all(&burst).ok();
    assert_eq!(connection.goodbye(), Some(ENHANCE_YOUR_CALM), "rapid reset");
    grown("rapid reset");

    // A list of headers that is small on the wire and huge once it is unpacked.
    let mut connection = Connection::open(&gateway, &[]);
    let entry = [vec![0x40], text("x-bomb"), text(&"z".repeat(3_900))].concat();
    let block = [post("/v1/chat/completions"), entry, vec![0x80 | 62; 8_000]].concat();
    connection.send(HEADERS, END_HEADERS | END_STREAM, 1, &block);
    assert_eq!(connection.goodbye(), Some(ENHANCE_YOUR_CALM), "huge header list");
    grown("huge header list");
    assert_eq!(mock.requests().await.len(), 1, "none of these went on");

    // Windows that stay shut: answers must not be held for ever.
    let body = json!({"model": "mock", "messages": [{"role": "user", "content": "long"}]}).to_string();
    let streamed =
        json!({"model": "mock", "stream": true, "messages": [{"role": "user", "content": "long"}]})
            .to_string();
    for window in [0, 1] {
        let mut connection = Connection::open(&gateway, &[(4, window)]);
        for count in 0..32 {
            let block = [post("/v1/chat/completions"), header("content-type", "application/json")].concat();
            assert!(connection.send(HEADERS, END_HEADERS, stream(count), &block));
            let asked = if count % 2 == 0 { &body } else { &streamed };
            assert!(connection.send(DATA, END_STREAM, stream(count), asked.as_bytes()));
        }
        assert!(connection.goodbye().is_some(), "a window of {window}");
        grown("shut windows");
    }
    assert_eq!(gateway.ask("hi").await.status, 200, "others are served");
}
