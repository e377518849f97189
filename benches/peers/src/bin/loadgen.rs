//! A closed-loop load generator: C keep-alive HTTP/1.1 connections, each sending its next request
//! when the last answer has ended. Loopback targets only. Prints one JSON line.
//!
//! loadgen --url http://127.0.0.1:9100/v1/chat/completions --body FILE --conc 16 --secs 4
//!         [--warm 0.5] [--header 'Name: value']... [--expect SUBSTRING] [--max-requests N]
//!
//! Counted are the answers that end within the --secs after the warm-up. Latency is from the first
//! byte sent to the last byte read; `ttfb` is to the first body byte, `content` to the first byte of the
//! first event whose `"content"` is not empty (a role or a comment sent early is not an answer). An answer counts as an error when its status is not 200 or, with
//! --expect, when the body lacks the substring.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper::Request;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

struct Plan {
    addr: SocketAddr,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
    expect: Option<Vec<u8>>,
    start: Instant,
    warm_end: Instant,
    end: Instant,
    sent: AtomicU64,
    max_requests: u64,
}

#[derive(Default)]
struct Tally {
    lat_us: Vec<u32>,
    ttfb_us: Vec<u32>,
    content_us: Vec<u32>,
    /// Good answers within the window that is reported.
    ok: u64,
    /// Good answers in all, warm-up and tail included.
    done: u64,
    errors: u64,
    first_error: Option<String>,
}

fn has(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|w| w == needle)
}

/// Whether a piece of a stream holds text: a `"content"` that is a non-empty string. `from` is where the
/// search goes on, so that a stream in small pieces is not searched again and again.
fn has_content(all: &[u8], from: usize) -> bool {
    const KEY: &[u8] = b"\"content\":";
    let start = from.saturating_sub(KEY.len() + 3);
    let mut at = start;
    while let Some(found) = all[at..].windows(KEY.len()).position(|w| w == KEY) {
        at += found + KEY.len();
        let value: Vec<u8> = all[at..].iter().copied().skip_while(|b| *b == b' ').take(2).collect();
        if matches!(value[..], [b'"', second] if second != b'"') {
            return true;
        }
    }
    false
}

async fn worker(plan: Arc<Plan>) -> Tally {
    let mut tally = Tally::default();
    let mut sender: Option<http1::SendRequest<Full<Bytes>>> = None;
    while Instant::now() < plan.end {
        if plan.sent.fetch_add(1, Ordering::Relaxed) >= plan.max_requests {
            break;
        }
        if sender.as_ref().is_none_or(|s| s.is_closed()) {
            let Ok(sock) = TcpStream::connect(plan.addr).await else {
                tally.errors += 1;
                tally.first_error.get_or_insert("connect".into());
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let _ = sock.set_nodelay(true);
            match http1::handshake(TokioIo::new(sock)).await {
                Ok((s, conn)) => {
                    tokio::spawn(async move {
                        let _ = conn.await;
                    });
                    sender = Some(s);
                }
                Err(e) => {
                    tally.errors += 1;
                    tally.first_error.get_or_insert(format!("handshake: {e}"));
                    continue;
                }
            }
        }
        let s = sender.as_mut().unwrap();
        if s.ready().await.is_err() {
            sender = None;
            continue;
        }
        let mut req = Request::post(plan.path.as_str())
            .header("host", plan.addr.to_string())
            .header("content-type", "application/json");
        for (k, v) in &plan.headers {
            req = req.header(k.as_str(), v.as_str());
        }
        let req = req.body(Full::new(plan.body.clone())).unwrap();
        let t0 = Instant::now();
        let (mut ttfb, mut content) = (None, None);
        let answer = tokio::time::timeout(Duration::from_secs(30), async {
            let resp = s.send_request(req).await.map_err(|e| e.to_string())?;
            let status = resp.status();
            let mut body = resp.into_body();
            let mut all = Vec::new();
            while let Some(f) = body.frame().await {
                let f = f.map_err(|e| e.to_string())?;
                if let Some(d) = f.data_ref() {
                    if ttfb.is_none() {
                        ttfb = Some(t0.elapsed());
                    }
                    let before = all.len();
                    all.extend_from_slice(d);
                    if content.is_none() && has_content(&all, before) {
                        content = Some(t0.elapsed());
                    }
                }
            }
            Ok::<_, String>((status, all))
        })
        .await;
        let done = Instant::now();
        let lat = done - t0;
        let counted = done >= plan.warm_end && done <= plan.end;
        let problem = match &answer {
            Err(_) => Some("timeout".to_string()),
            Ok(Err(e)) => Some(e.clone()),
            Ok(Ok((st, b))) if st.as_u16() != 200 => {
                Some(format!("{st}: {}", String::from_utf8_lossy(&b[..b.len().min(300)])))
            }
            Ok(Ok((_, b))) => match &plan.expect {
                Some(x) if !has(b, x) => Some(format!(
                    "unexpected body: {}",
                    String::from_utf8_lossy(&b[..b.len().min(300)])
                )),
                _ => None,
            },
        };
        if problem.is_none() {
            tally.done += 1;
        }
        match problem {
            None if counted => {
                tally.ok += 1;
                tally.lat_us.push(lat.as_micros().min(u32::MAX as u128) as u32);
                let micros = |t: Duration| t.as_micros().min(u32::MAX as u128) as u32;
                tally.ttfb_us.extend(ttfb.map(micros));
                tally.content_us.extend(content.map(micros));
            }
            None => {}
            Some(p) => {
                tally.errors += 1;
                tally.first_error.get_or_insert(p);
                sender = None;
            }
        }
    }
    tally
}

fn pct(v: &[u32], p: f64) -> f64 {
    if v.is_empty() {
        return f64::NAN;
    }
    v[(((v.len() - 1) as f64) * p).round() as usize] as f64 / 1000.0
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (mut url, mut body, mut conc, mut secs, mut warm) =
        (String::new(), String::new(), 1usize, 4f64, 0.5f64);
    let (mut headers, mut expect, mut max_requests) = (Vec::new(), None, u64::MAX);
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        let v = args.next().unwrap_or_else(|| panic!("{a} needs a value"));
        match a.as_str() {
            "--url" => url = v,
            "--body" => body = v,
            "--conc" => conc = v.parse().unwrap(),
            "--secs" => secs = v.parse().unwrap(),
            "--warm" => warm = v.parse().unwrap(),
            "--header" => {
                let (k, x) = v.split_once(':').expect("Name: value");
                headers.push((k.trim().to_string(), x.trim().to_string()));
            }
            "--expect" => expect = Some(v.into_bytes()),
            "--max-requests" => max_requests = v.parse().unwrap(),
            _ => panic!("unknown option {a}"),
        }
    }
    let rest = url.strip_prefix("http://").expect("http:// url");
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let addr: SocketAddr = host.replace("localhost", "127.0.0.1").parse().expect("ip:port");
    assert!(addr.ip().is_loopback(), "loopback targets only");
    let body = Bytes::from(std::fs::read(&body).expect("body file"));
    let start = Instant::now();
    let warm_end = start + Duration::from_secs_f64(warm);
    let plan = Arc::new(Plan {
        addr,
        path: if path.is_empty() { "/".into() } else { path.into() },
        headers,
        body,
        expect,
        start,
        warm_end,
        end: warm_end + Duration::from_secs_f64(secs),
        sent: AtomicU64::new(0),
        max_requests,
    });
    let tasks: Vec<_> = (0..conc).map(|_| tokio::spawn(worker(plan.clone()))).collect();
    let mut all = Tally::default();
    for t in tasks {
        let t = t.await.unwrap();
        all.lat_us.extend(t.lat_us);
        all.ttfb_us.extend(t.ttfb_us);
        all.content_us.extend(t.content_us);
        all.ok += t.ok;
        all.done += t.done;
        all.errors += t.errors;
        if all.first_error.is_none() {
            all.first_error = t.first_error;
        }
    }
    // With --max-requests the run may end before its window does.
    let span = (plan.start.elapsed().as_secs_f64() - warm).min(secs).max(1e-9);
    all.lat_us.sort_unstable();
    all.ttfb_us.sort_unstable();
    all.content_us.sort_unstable();
    let mean = all.lat_us.iter().map(|&x| x as f64).sum::<f64>() / 1000.0 / all.lat_us.len().max(1) as f64;
    println!(
        "{}",
        serde_json::json!({
            "conc": conc, "secs": span, "ok": all.ok, "done": all.done, "errors": all.errors,
            "rps": all.ok as f64 / span, "mean_ms": mean,
            "p50_ms": pct(&all.lat_us, 0.5), "p90_ms": pct(&all.lat_us, 0.9),
            "p99_ms": pct(&all.lat_us, 0.99), "max_ms": pct(&all.lat_us, 1.0),
            "ttfb_p50_ms": pct(&all.ttfb_us, 0.5), "ttfb_p99_ms": pct(&all.ttfb_us, 0.99),
            "content_p50_ms": pct(&all.content_us, 0.5), "content_p99_ms": pct(&all.content_us, 0.99),
            "first_error": all.first_error
        })
    );
}
