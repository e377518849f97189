use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;
use crate::client::{Client, line};
use crate::dialect::Dialect;

const KEEP: Keep = Keep { time: Duration::from_secs(3600), bytes: 10 * ENTRY_BYTES };

fn named(number: usize) -> Digest {
    id::sha256(&number.to_le_bytes())
}

fn new_line() -> (Client, Line) {
    let wait = Duration::from_secs(60);
    line(wait, wait, CancellationToken::new(), Dialect::OpenAi)
}

/// Runs one request to its end with an answer of so many bytes.
async fn answer(answers: &Answers, number: usize, status: StatusCode, bytes: usize) {
    let (first, _) = answers.enter(named(number), b"{}", KEEP).unwrap();
    let (mut client, line) = new_line();
    client.whole(status, HeaderMap::new(), Bytes::from(vec![b'x'; bytes])).unwrap();
    drop(client);
    answers.write(first.unwrap(), line, Bytes::from_static(b"end")).await;
}

#[tokio::test]
async fn the_oldest_answers_make_room_and_nothing_is_counted_twice() {
    let answers = Answers::default();
    for number in 0..100 {
        answer(&answers, number, StatusCode::OK, 1024).await;
        assert!(answers.table().bytes <= KEEP.bytes, "at {number}");
    }
    {
        let table = answers.table();
        assert_eq!((table.entries.len(), table.ended.len()), (4, 4), "2 KiB each, and room for one more");
        let counted: usize = table.entries.values().map(|entry| entry.bytes).sum();
        assert_eq!(table.bytes, counted);
    }
    let (first, _) = answers.enter(named(99), b"{}", KEEP).unwrap();
    assert!(first.is_none(), "the newest is there");
    let (first, _) = answers.enter(named(0), b"{}", KEEP).unwrap();
    assert!(first.is_some(), "the oldest is not");
}

#[tokio::test]
async fn an_answer_larger_than_the_limit_is_let_go_at_its_end() {
    let answers = Answers::default();
    answer(&answers, 0, StatusCode::OK, 2 * KEEP.bytes).await;
    let table = answers.table();
    assert_eq!((table.entries.len(), table.bytes), (0, 0));
}

#[tokio::test]
async fn requests_under_way_are_bounded_and_never_let_go() {
    let answers = Answers::default();
    let mut held = Vec::new();
    let error = loop {
        match answers.enter(named(held.len()), b"{}", KEEP) {
            Ok((first, _)) => held.push(first.unwrap()),
            Err(error) => break error,
        }
    };
    assert_eq!((held.len(), error.status, error.code.as_ref()), (10, 503, "idempotency_full"));
    let (twin, _) = answers.enter(named(3), b"{}", KEEP).unwrap();
    assert!(twin.is_none());
}

#[tokio::test]
async fn answers_expire_and_failures_are_not_kept() {
    let answers = Answers::default();
    for (number, (status, kept)) in
        [(200, true), (400, true), (422, true), (408, false), (409, false), (429, false), (503, false)]
            .into_iter()
            .enumerate()
    {
        answer(&answers, number, StatusCode::from_u16(status).unwrap(), 1).await;
        assert_eq!(answers.table().entries.contains_key(&named(number)), kept, "{status}");
    }
    let expired = Keep { time: Duration::ZERO, ..KEEP };
    let (first, _) = answers.enter(named(0), b"{}", expired).unwrap();
    assert!(first.is_some());
    assert_eq!(answers.table().entries.len(), 1, "all others expired with it");
}

#[tokio::test]
async fn a_stream_without_its_end_is_not_kept() {
    for (last, kept) in [("end", true), ("data: {\"error\"", false)] {
        let answers = Answers::default();
        let (first, mut reader) = answers.enter(named(0), b"{}", KEEP).unwrap();
        let (mut client, line) = new_line();
        client.begin_stream(HeaderMap::new()).await.unwrap();
        client.frame(Bytes::from_static(last.as_bytes())).await.unwrap();
        drop(client);
        answers.write(first.unwrap(), line, Bytes::from_static(b"end")).await;
        assert_eq!(answers.table().entries.len(), usize::from(kept), "{last}");
        let read = reader.wait_for(|answer| answer.is_over).await.unwrap();
        assert_eq!(read.frames.len(), 2, "whoever waits gets all of it");
    }
}

#[tokio::test]
async fn what_the_failure_policy_answered_is_not_kept() {
    let mut headers = HeaderMap::new();
    headers.insert("x-waltz-decision", "degraded".parse().unwrap());
    for stream in [false, true] {
        let answers = Answers::default();
        let (first, _) = answers.enter(named(0), b"{}", KEEP).unwrap();
        let (mut client, line) = new_line();
        if stream {
            client.begin_stream(headers.clone()).await.unwrap();
            client.frame(Bytes::from_static(b"end")).await.unwrap();
        } else {
            client.whole(StatusCode::OK, headers.clone(), Bytes::from_static(b"{}")).unwrap();
        }
        drop(client);
        answers.write(first.unwrap(), line, Bytes::from_static(b"end")).await;
        assert_eq!(answers.table().entries.len(), 0);
    }
}

#[test]
fn a_name_is_of_one_tenant_and_one_path() {
    let mut headers = HeaderMap::new();
    assert_eq!(name(&headers, "a", "/p").unwrap(), None);
    headers.insert(HEADER, "key".parse().unwrap());
    let mine = name(&headers, "a", "/p").unwrap().unwrap();
    assert_eq!(name(&headers, "a", "/p").unwrap(), Some(mine));
    assert_ne!(name(&headers, "b", "/p").unwrap(), Some(mine));
    assert_ne!(name(&headers, "a", "/q").unwrap(), Some(mine));
    headers.append(HEADER, "other".parse().unwrap());
    assert_eq!(name(&headers, "a", "/p").unwrap_err().status, 400);
    headers.insert(HEADER, "k".repeat(256).parse().unwrap());
    assert_eq!(name(&headers, "a", "/p").unwrap_err().status, 400);
    headers.insert(HEADER, "".parse().unwrap());
    assert_eq!(name(&headers, "a", "/p").unwrap_err().status, 400);
}
