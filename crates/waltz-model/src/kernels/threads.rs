//! A few threads that share the work of one matrix product.
//!
//! The calling thread takes part. Work is cut into more pieces than threads and handed out one by one,
//! and the caller waits only for threads that took a piece, so that a thread the system has paused holds
//! nobody up. Idle threads spin for a moment, because the next product comes at once, and then sleep.
#![expect(unsafe_code, reason = "threads that outlive a call borrow its closure and share its output")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Threads that compute together.
#[derive(Debug)]
pub struct Threads {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    /// One call at a time.
    turn: Mutex<()>,
}

/// A rectangle of a row-major matrix that one piece of work alone may write.
pub(crate) struct Tile<'a, T> {
    start: *mut T,
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    matrix: PhantomData<&'a mut [T]>,
}

#[derive(Debug)]
struct Shared {
    /// Generation of the job in the upper half, `OPEN` while threads may join it, and how many joined.
    state: AtomicU64,
    job: UnsafeCell<Job>,
    next: AtomicUsize,
    sleeping: Vec<AtomicBool>,
    failed: AtomicBool,
    stop: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    work: *const (dyn Fn(usize) + Sync),
    pieces: usize,
}

// SAFETY: `job` is written only by the caller that holds `turn`, while the state is closed and nobody has
// joined; threads read it only after they joined. `work` points to a `Sync` closure that outlives the call.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

const OPEN: u64 = 1 << 31;
const JOINED: u64 = OPEN - 1;
const GENERATION: u64 = 1 << 32;
/// Turns of the waiting loop before a helper sleeps: some tens of microseconds.
const SPINS: usize = 4_000;
/// Turns of the waiting loop before the caller lets others run.
const PATIENCE: usize = 1_000;

impl Threads {
    /// Starts `count - 1` helpers; with the caller these are `count` threads. Helpers that the system
    /// does not grant are done without.
    pub fn new(count: usize) -> Self {
        let helpers = count.clamp(1, 256) - 1;
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(Job { work: &|_| {}, pieces: 0 }),
            next: AtomicUsize::new(0),
            sleeping: (0..helpers).map(|_| AtomicBool::new(false)).collect(),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
        });
        let helpers = (0..helpers)
            .filter_map(|index| {
                let shared = Arc::clone(&shared);
                thread::Builder::new().name(format!("model-{index}")).spawn(move || help(&shared, index)).ok()
            })
            .collect();
        Self { shared, helpers, turn: Mutex::new(()) }
    }

    /// One thread per core that this process may use.
    pub fn for_this_machine() -> Self {
        Self::new(thread::available_parallelism().map_or(1, usize::from))
    }

    /// How many threads compute, the caller included.
    pub fn count(&self) -> usize {
        self.helpers.len() + 1
    }

    /// Calls `work` once for each number below `pieces`, on all threads, and returns when all are done.
    /// `work` must not call this again: it would wait for itself.
    pub(crate) fn run(&self, pieces: usize, work: &(dyn Fn(usize) + Sync)) {
        if pieces <= 1 || self.helpers.is_empty() {
            (0..pieces).for_each(work);
            return;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        // SAFETY: only the lifetime is changed; `Closing` below keeps this frame alive until no helper
        // uses the closure any more, also when `work` panics.
        let work: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(work) };
        // SAFETY: the state is closed with nobody joined (the last call saw to it), and `turn` is ours.
        unsafe { *shared.job.get() = Job { work, pieces } };
        shared.next.store(0, Ordering::Relaxed);
        shared.failed.store(false, Ordering::Relaxed);
        let closing = Closing(shared);
        let generation = shared.state.load(Ordering::Relaxed) & !(GENERATION - 1);
        shared.state.store(generation.wrapping_add(GENERATION) | OPEN, Ordering::SeqCst);
        for (helper, sleeping) in self.helpers.iter().zip(&shared.sleeping) {
            if sleeping.load(Ordering::SeqCst) {
                helper.thread().unpark();
            }
        }
        shared.take_pieces(Job { work, pieces });
        drop(closing);
        if shared.failed.load(Ordering::Relaxed) {
            resume_unwind(Box::new("a kernel panicked on another thread"));
        }
    }

    /// Cuts a matrix with rows of `width` into tiles and calls `work` for each, on all threads.
    pub(crate) fn tiles<T: Send>(
        &self,
        matrix: &mut [T],
        width: usize,
        tile_rows: usize,
        tile_columns: usize,
        work: impl Fn(Tile<'_, T>) + Sync,
    ) {
        let rows = matrix.len().checked_div(width).unwrap_or(0);
        self.tiles_of(Tile::new(matrix, rows, width, width), tile_rows, tile_columns, work);
    }

    /// Cuts a tile into smaller ones, as [`Self::tiles`] cuts a matrix.
    pub(crate) fn tiles_of<T: Send>(
        &self,
        whole: Tile<'_, T>,
        tile_rows: usize,
        tile_columns: usize,
        work: impl Fn(Tile<'_, T>) + Sync,
    ) {
        let Tile { ref rows, ref columns, width, .. } = whole;
        let (tile_rows, tile_columns) = (tile_rows.max(1), tile_columns.max(1));
        let across = columns.len().div_ceil(tile_columns);
        let start = Start(whole.start);
        self.run(rows.len().div_ceil(tile_rows) * across, &|piece| {
            let row = rows.start + piece / across * tile_rows;
            let column = columns.start + piece % across * tile_columns;
            work(Tile {
                start: start.pointer(),
                width,
                rows: row..(row + tile_rows).min(rows.end),
                columns: column..(column + tile_columns).min(columns.end),
                matrix: PhantomData,
            });
        });
    }

    /// Calls `work` once with each item, on all threads.
    pub(crate) fn each<I: Send>(&self, items: impl IntoIterator<Item = I>, work: impl Fn(I) + Sync) {
        let items: Vec<Mutex<Option<I>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
        self.run(items.len(), &|piece| {
            let item = items[piece].lock().unwrap_or_else(PoisonError::into_inner).take();
            item.into_iter().for_each(&work);
        });
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for helper in self.helpers.drain(..) {
            helper.thread().unpark();
            // It cannot have panicked: panics of the work are caught.
            let _ = helper.join();
        }
    }
}

impl<'a, T> Tile<'a, T> {
    /// The first `columns` numbers of each of `rows` rows that are `width` apart.
    pub(crate) fn new(matrix: &'a mut [T], rows: usize, columns: usize, width: usize) -> Self {
        let length = rows.checked_sub(1).map_or(0, |last| last * width + columns);
        assert!(columns <= width && length <= matrix.len(), "the tile lies inside of its matrix");
        Self { start: matrix.as_mut_ptr(), width, rows: 0..rows, columns: 0..columns, matrix: PhantomData }
    }

    /// Rows of the matrix that the tile covers.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Columns of the matrix that the tile covers.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// The tile's part of a row, which is numbered as in the matrix.
    pub(crate) fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row {row} is outside of the tile");
        // SAFETY: the range lies inside of the matrix that is borrowed mutably, no other tile overlaps
        // it, and `&mut self` keeps this tile's own slices apart.
        unsafe {
            let start = self.start.add(row * self.width + self.columns.start);
            std::slice::from_raw_parts_mut(start, self.columns.len())
        }
    }
}

impl Shared {
    fn take_pieces(&self, job: Job) {
        // SAFETY: the caller of `run` keeps the closure alive while anyone has joined.
        let work = unsafe { &*job.work };
        loop {
            let piece = self.next.fetch_add(1, Ordering::Relaxed);
            if piece >= job.pieces {
                return;
            }
            work(piece);
        }
    }

    /// Joins a job that is open and newer than `seen`.
    fn join(&self, seen: &mut u64) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        if state & OPEN == 0 || state / GENERATION == *seen {
            return false;
        }
        let joined =
            self.state.compare_exchange(state, state + 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if joined {
            *seen = state / GENERATION;
        }
        joined
    }
}

/// Closes the job and waits until every helper that joined has left.
struct Closing<'a>(&'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut turns = 0;
        while self.0.state.load(Ordering::Acquire) & JOINED != 0 {
            turns += 1;
            if turns % PATIENCE == 0 { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

/// A pointer that threads may share, because they use disjoint parts behind it.
struct Start<T>(*mut T);

// SAFETY: only `tiles_of` makes one, and hands out disjoint parts of what it points to.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    fn pointer(&self) -> *mut T {
        self.0
    }
}

fn help(shared: &Shared, index: usize) {
    let mut seen = 0;
    let mut turns = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        if shared.join(&mut seen) {
            // SAFETY: having joined, nobody writes the job until we leave.
            let job = unsafe { *shared.job.get() };
            if catch_unwind(AssertUnwindSafe(|| shared.take_pieces(job))).is_err() {
                shared.failed.store(true, Ordering::Relaxed);
            }
            shared.state.fetch_sub(1, Ordering::Release);
            turns = 0;
        } else if turns < SPINS {
            turns += 1;
            std::hint::spin_loop();
        } else {
            sleep(shared, index, seen);
            turns = 0;
        }
    }
}

/// Parks until woken. The flag is raised before the state is read again, and the caller reads the flag
/// after it wrote the state: one of the two sees the other.
fn sleep(shared: &Shared, index: usize, seen: u64) {
    shared.sleeping[index].store(true, Ordering::SeqCst);
    let state = shared.state.load(Ordering::SeqCst);
    let idle = state & OPEN == 0 || state / GENERATION == seen;
    if idle && !shared.stop.load(Ordering::SeqCst) {
        thread::park();
    }
    shared.sleeping[index].store(false, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_done_once_on_any_number_of_threads() {
        for count in [1, 2, 3, 8] {
            let threads = Threads::new(count);
            for pieces in [0, 1, 2, 7, 100] {
                for _ in 0..200 {
                    let done: Vec<AtomicUsize> = (0..pieces).map(|_| AtomicUsize::new(0)).collect();
                    threads.run(pieces, &|piece| {
                        done[piece].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1));
                }
            }
        }
    }

    #[test]
    fn tiles_cover_a_matrix_without_overlap() {
        let threads = Threads::new(3);
        for (rows, width, tile_rows, tile_columns) in
            [(1, 1, 1, 1), (7, 33, 2, 16), (5, 16, 9, 100), (0, 4, 1, 1)]
        {
            let mut matrix = vec![0_u32; rows * width];
            threads.tiles(&mut matrix, width, tile_rows, tile_columns, |mut tile| {
                for row in tile.rows() {
                    let first = tile.columns().start;
                    for (offset, value) in tile.row(row).iter_mut().enumerate() {
                        *value += (row * width + first + offset + 1) as u32;
                    }
                }
            });
            assert!(matrix.iter().enumerate().all(|(index, value)| *value == index as u32 + 1));
        }
    }

    #[test]
    fn tiles_of_a_part_of_a_matrix_leave_the_rest_alone() {
        let threads = Threads::new(3);
        // 5 rows of 7 numbers, 10 apart; the last row ends with its columns.
        let mut matrix = vec![0_u32; 4 * 10 + 7];
        threads.tiles_of(Tile::new(&mut matrix, 5, 7, 10), 2, 3, |mut tile| {
            for row in tile.rows() {
                tile.row(row).iter_mut().for_each(|value| *value += 1);
            }
        });
        assert!(matrix.iter().enumerate().all(|(index, value)| *value == u32::from(index % 10 < 7)));
        for (rows, columns, width) in [(6, 7, 10), (5, 8, 10), (2, 5, 4)] {
            let outside = catch_unwind(AssertUnwindSafe(|| {
                Tile::new(&mut matrix, rows, columns, width);
            }));
            assert!(outside.is_err(), "{rows} rows of {columns}, {width} apart, do not fit");
        }
    }

    #[test]
    fn each_item_is_handed_out_once() {
        let threads = Threads::new(3);
        let mut values = vec![0_u32; 100];
        threads.each(values.chunks_mut(7).enumerate(), |(index, part)| {
            part.iter_mut().for_each(|value| *value += index as u32 + 1);
        });
        assert!(values.iter().enumerate().all(|(index, value)| *value == index as u32 / 7 + 1));
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_threads_live_on() {
        let threads = Threads::new(2);
        for _ in 0..20 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                threads.run(50, &|piece| assert!(piece != 25, "on purpose"));
            }));
            assert!(result.is_err());
        }
        let sum = AtomicUsize::new(0);
        threads.run(50, &|piece| {
            sum.fetch_add(piece, Ordering::Relaxed);
        });
        assert_eq!(sum.load(Ordering::Relaxed), 49 * 50 / 2);
    }

    #[test]
    fn calls_from_many_threads_take_turns() {
        let threads = Threads::new(2);
        let sum = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        threads.run(10, &|_| {
                            sum.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 4 * 100 * 10);
    }
}
