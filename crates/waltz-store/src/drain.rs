//! The drain: one task that moves the journal into the database in group commits. The store starts
//! it and tells it when to stop; nothing else writes to the database.

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::database::Writer;
use crate::ingest::{self, Failure};
use crate::journal::{Batch, Journal, Position};
use crate::lock::DataLock;
use crate::rows::{self, Prepared};
use crate::{Error, Settings, chain};

const FIRST_RETRY: Duration = Duration::from_millis(20);

/// What the drain is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Go on.
    Run,
    /// Drain what is there, then end.
    Finish,
    /// End after the commit that is under way.
    Abandon,
}

/// What the drain reports; read by the store's health.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Why the last attempt was not committed; `None` after a success.
    pub(crate) error: Option<String>,
    /// Entries that could not be stored as what they are.
    pub(crate) rejected: u64,
    /// Journal bytes that could not be read.
    pub(crate) unreadable_bytes: u64,
}

/// The store's end of the drain.
pub(crate) struct Drain {
    order: watch::Sender<Order>,
    drained: watch::Receiver<Position>,
    report: Arc<Mutex<Report>>,
    task: Mutex<Option<JoinHandle<Writer>>>,
}

/// The task's end.
struct Work {
    journal: Arc<Journal>,
    writer: Writer,
    order: watch::Receiver<Order>,
    drained: watch::Sender<Position>,
    report: Arc<Mutex<Report>>,
    delay: Duration,
    batch: usize,
    retry_limit: Duration,
    /// Held until the task has ended, so that no second process meets it.
    _lock: Arc<DataLock>,
}

impl Drain {
    /// Starts the task. `from` is where the database stands.
    pub(crate) fn start(
        settings: &Settings,
        journal: Arc<Journal>,
        writer: Writer,
        lock: Arc<DataLock>,
        from: &ingest::Stand,
    ) -> Self {
        let (order, order_seen) = watch::channel(Order::Run);
        let (drained_told, drained) = watch::channel(from.drained);
        let report = Arc::new(Mutex::new(Report { rejected: from.rejected, ..Report::default() }));
        let work = Work {
            journal,
            writer,
            order: order_seen,
            drained: drained_told,
            report: Arc::clone(&report),
            delay: settings.drain_delay,
            batch: settings.drain_batch.max(1),
            retry_limit: settings.retry_limit,
            _lock: lock,
        };
        let task = tokio::spawn(work.run());
        Self { order, drained, report, task: Mutex::new(Some(task)) }
    }

    /// Waits until everything before `target` is in the database.
    pub(crate) async fn reaches(&self, target: Position) -> Result<(), Error> {
        let mut drained = self.drained.clone();
        let reached = drained.wait_for(|position| *position >= target).await;
        reached.map(|_| ()).map_err(|_| Error::DrainStopped)
    }

    /// Gives an order, waits until the task has ended, and takes over its connection. A second call
    /// has nothing to wait for.
    pub(crate) async fn end(&self, order: Order) -> Result<Option<Writer>, Error> {
        self.order.send_replace(order);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        match task {
            Some(task) => task.await.map(Some).map_err(|_| Error::Worker { operation: "drain the journal" }),
            None => Ok(None),
        }
    }

    /// Whether the task has ended, as it was told or not.
    pub(crate) fn has_ended(&self) -> bool {
        self.drained.has_changed().is_err()
    }

    /// Reads the report.
    pub(crate) fn report<T>(&self, read: impl FnOnce(&Report) -> T) -> T {
        read(&self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Work {
    async fn run(mut self) -> Writer {
        let mut pause = FIRST_RETRY;
        let mut failing = false;
        loop {
            let order = self.current_order();
            if order == Order::Abandon {
                return self.writer;
            }
            match self.step().await {
                Ok(Step::Idle) if order == Order::Finish => return self.writer,
                Ok(Step::Idle) => self.wait_for_entries().await,
                Ok(Step::Moved { more }) => {
                    pause = FIRST_RETRY;
                    if std::mem::take(&mut failing) {
                        tracing::info!("the journal is drained again");
                    }
                    if !more && order == Order::Run {
                        self.wait(self.delay).await;
                    }
                }
                Err(error) => {
                    failing = true;
                    let reason = chain(&error);
                    tracing::warn!(reason, "the journal is not drained");
                    self.write_report(|report| report.error = Some(reason));
                    if order == Order::Finish {
                        return self.writer;
                    }
                    self.wait(pause).await;
                    pause = (pause * 2).min(self.retry_limit);
                }
            }
        }
    }

    /// The drain's stores are gone when the order channel is closed: stop at once.
    fn current_order(&mut self) -> Order {
        if self.order.has_changed().is_err() { Order::Abandon } else { *self.order.borrow_and_update() }
    }

    /// Waits for an append, then a little longer for others that can share its commit.
    async fn wait_for_entries(&mut self) {
        tokio::select! {
            () = self.journal.appended.notified() => {}
            _ = self.order.changed() => return,
        }
        self.wait(self.delay).await;
    }

    async fn wait(&mut self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.journal.hurry.notified() => {}
            _ = self.order.changed() => {}
        }
    }

    /// Moves one batch.
    async fn step(&mut self) -> Result<Step, Error> {
        let from = *self.drained.borrow();
        let journal = Arc::clone(&self.journal);
        let limit = self.batch;
        let read = spawn_blocking(move || journal.read(from, limit).map(prepare)).await;
        let (batch, mut prepared) = read.map_err(|_| Error::Worker { operation: "read the journal" })??;
        if batch.next == from {
            return Ok(Step::Idle);
        }
        if !prepared.is_empty() {
            self.commit(&batch, &mut prepared).await?;
        }
        let entries = batch.payloads.len();
        let rejected = prepared.iter().filter(|entry| matches!(entry, Prepared::Rejected(_))).count();
        self.write_report(|report| {
            report.error = None;
            report.rejected += rejected as u64;
            report.unreadable_bytes += batch.unreadable;
        });
        // The entries are in the database; a segment that cannot be deleted is only in the way.
        if let Err(error) = self.journal.release(batch.next, batch.bytes, entries as u64) {
            tracing::warn!(error = &error as &dyn std::error::Error, "a drained journal segment stays");
        }
        self.drained.send_replace(batch.next);
        Ok(Step::Moved { more: batch.next < batch.end })
    }

    /// Commits a batch. When the database refuses it for good, its entries are committed one by one,
    /// and the one that is refused is kept as rejected instead.
    async fn commit(&mut self, batch: &Batch, prepared: &mut [Prepared]) -> Result<(), Error> {
        match ingest::commit(&mut self.writer, prepared, batch.next).await {
            Ok(()) => return Ok(()),
            Err(Failure::Later(error)) => return Err(error),
            Err(Failure::Refused(error)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the database refuses a journal entry"
                );
            }
        }
        for (index, (entry, payload)) in prepared.iter_mut().zip(&batch.payloads).enumerate() {
            let next = batch.payloads.get(index + 1).map_or(batch.next, |following| following.position);
            let refused = match ingest::commit(&mut self.writer, slice::from_ref(entry), next).await {
                Ok(()) => continue,
                Err(Failure::Later(error)) => return Err(error),
                Err(Failure::Refused(error)) => error,
            };
            *entry = Prepared::Rejected(rows::rejected(payload, chain(&refused)));
            match ingest::commit(&mut self.writer, slice::from_ref(entry), next).await {
                Ok(()) => {}
                Err(Failure::Later(error) | Failure::Refused(error)) => return Err(error),
            }
        }
        Ok(())
    }

    fn write_report(&self, write: impl FnOnce(&mut Report)) {
        write(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// What one attempt came to.
enum Step {
    /// A batch is in the database; perhaps there was more than it could hold.
    Moved { more: bool },
    /// There was nothing to move.
    Idle,
}

fn prepare(mut batch: Batch) -> (Batch, Vec<Prepared>) {
    let prepared = batch.payloads.iter_mut().map(rows::prepare).collect();
    (batch, prepared)
}
