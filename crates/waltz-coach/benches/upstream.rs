//! What a call to an upstream costs the thread that makes it: 1 kB there, 1 kB back, over one connection that is kept.
//! The server is a thread of its own, whose work is not counted. Prints the best and the median of some rounds.
//!
//! `cargo bench -p waltz-coach`
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::Duration;

use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use waltz_coach::upstream::{Call, Protocol, Upstream, UpstreamSettings};

const CALLS: u32 = 20_000;
const ROUNDS: usize = 5;
const BODY: usize = 1024;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

#[expect(unsafe_code, reason = "an allocator cannot be written otherwise; this one only counts")]
// SAFETY: every call is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is the one that the system asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    std::thread::spawn(move || serve(&listener));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let upstream = Upstream::new(settings(url))?;
    runtime.block_on(calls(&upstream, CALLS / 10))?;
    let mut times = Vec::new();
    let mut allocations = 0;
    for _ in 0..ROUNDS {
        let (cpu, allocated) = (cpu_seconds(), ALLOCATIONS.get());
        runtime.block_on(calls(&upstream, CALLS))?;
        times.push((cpu_seconds() - cpu) * 1e6 / f64::from(CALLS));
        allocations = (ALLOCATIONS.get() - allocated) / u64::from(CALLS);
    }
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[ROUNDS / 2]);
    println!("upstream: {best:.1} us CPU per call, median {median:.1} us, {allocations} allocations");
    Ok(())
}

async fn calls(upstream: &Upstream, count: u32) -> Result<(), Box<dyn Error>> {
    let body = Bytes::from(vec![b' '; BODY]);
    for _ in 0..count {
        let slot = upstream.slot(false).await?;
        let answer = upstream.post(slot, Call::Chat, body.clone(), upstream.deadline()).await?;
        if answer.collect().await?.len() != BODY {
            return Err("an answer was cut".into());
        }
    }
    Ok(())
}

/// Answers every request of every connection, one connection after the other.
fn serve(listener: &TcpListener) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {BODY}\r\n\r\n");
    let answer = [head.as_bytes(), &[b' '; BODY]].concat();
    loop {
        let mut connection = listener.accept()?.0;
        connection.set_nodelay(true)?;
        let (mut buffer, mut filled) = (vec![0; 16 * 1024], 0);
        loop {
            let read = connection.read(&mut buffer[filled..])?;
            if read == 0 {
                break;
            }
            filled += read;
            let end = buffer[..filled].windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if end.is_some_and(|end| filled == end + 4 + BODY) {
                connection.write_all(&answer)?;
                filled = 0;
            }
        }
    }
}

fn settings(url: String) -> UpstreamSettings {
    let limit = Duration::from_secs(60);
    UpstreamSettings {
        name: "main".to_owned(),
        url,
        protocol: Protocol::OpenAi,
        key: Some("sk-of-a-usual-length-0123456789".to_owned().into()),
        models: vec!["*".to_owned()],
        connect_timeout: limit,
        first_byte_timeout: limit,
        chunk_timeout: limit,
        total_timeout: limit,
        max_concurrent: 8,
        max_answer_bytes: 1 << 20,
        allow_metadata: false,
    }
}

/// What this thread has used.
#[expect(clippy::cast_precision_loss, reason = "a bench runs for seconds")]
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
