//! The store: opening, appending, waiting, closing. Queries live in one file per question.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::spawn_blocking;

use crate::database::{self, Writer};
use crate::drain::{Drain, Order};
use crate::journal::Journal;
use crate::lock::DataLock;
use crate::sql::{Readers, Transaction};
use crate::{Entry, Error, Settings, ingest};

/// The store of one data folder. Share it in an `Arc`.
///
/// Dropping a store without [`Store::close`] stops its drain after the commit that is under way;
/// nothing is lost, the rest is drained at the next start.
pub struct Store {
    pub(crate) readers: Readers,
    /// `None` in a store that was opened for reading only, or beside a gateway.
    writing: Option<Writing>,
    /// Writes what people and lessons change, beside the drain; `None` in a store that was opened for reading only.
    pen: Option<tokio::sync::Mutex<Option<Writer>>>,
}

struct Writing {
    journal: Arc<Journal>,
    drain: Drain,
    /// Taken out when the store is closed. The drain holds it too, until its task has ended.
    lock: Mutex<Option<Arc<DataLock>>>,
}

/// How the store is doing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Journal bytes that wait for the database.
    pub undrained_bytes: u64,
    /// Why the last drain failed; `None` when it succeeded.
    pub drain_error: Option<String>,
    /// Journal segments that were set aside because part of them cannot be read.
    pub damaged_segments: Vec<String>,
    /// Journal bytes that could not be read since this store was opened.
    pub unreadable_bytes: u64,
    /// Bytes of an unfinished append that were cut off when this store was opened.
    pub torn_bytes: u64,
    /// Entries kept in the table `rejected_entries` because they could not be stored as what they are.
    pub rejected_entries: u64,
}

impl Health {
    /// Whether nothing needs a look.
    pub fn is_good(&self) -> bool {
        self.drain_error.is_none()
            && self.damaged_segments.is_empty()
            && self.unreadable_bytes == 0
            && self.rejected_entries == 0
    }
}

impl Store {
    /// Locks the data folder, opens and migrates the database, and starts draining the journal,
    /// beginning with what an earlier process left. Creates what is missing. For a database server that
    /// is away it waits as long as [`Settings::start_limit`] says.
    pub async fn open(settings: Settings) -> Result<Self, Error> {
        let lock = Arc::new(DataLock::take(&settings.data_dir)?);
        let mut writer = Writer::open(&settings).await?;
        let stand = ingest::stand(&mut writer).await?;
        let readers = database::open_readers(&settings).await?;
        let pen = Some(tokio::sync::Mutex::new(Some(Writer::beside(&settings).await?)));
        let drained = stand.drained;
        let (settings, journal) = spawn_blocking(move || {
            let journal = Journal::open(&settings, drained);
            (settings, journal)
        })
        .await
        .map_err(|_| Error::Worker { operation: "open the journal" })?;
        let journal = Arc::new(journal?);
        let drain = Drain::start(&settings, Arc::clone(&journal), writer, Arc::clone(&lock), &stand);
        let lock = Mutex::new(Some(lock));
        Ok(Self { readers, writing: Some(Writing { journal, drain, lock }), pen })
    }

    /// Opens the database of a data folder beside a running gateway, for reading only. It takes no
    /// lock and drains nothing: entries that are still in the journal are not seen.
    pub async fn open_read_only(data_dir: impl AsRef<Path>) -> Result<Self, Error> {
        Self::open_for_reading(&Settings::at(data_dir.as_ref())).await
    }

    /// The same for any database. Of the settings only those that speak of the database are used.
    pub async fn open_for_reading(settings: &Settings) -> Result<Self, Error> {
        Ok(Self { readers: database::open_readers(settings).await?, writing: None, pen: None })
    }

    /// Opens a database beside a running gateway, to read it and to change variants, releases and proposals.
    /// It takes no lock and has no journal; gateways on the database see a change within a second.
    pub async fn open_beside(settings: &Settings) -> Result<Self, Error> {
        let readers = database::open_readers(settings).await?;
        let pen = Some(tokio::sync::Mutex::new(Some(Writer::beside(settings).await?)));
        Ok(Self { readers, writing: None, pen })
    }

    /// Appends an entry to the journal with one write. When it returns `Ok`, no crash of the process
    /// loses the entry. After an error nothing of the entry stays in the journal, except that with
    /// [`crate::Sync::Power`] an entry whose confirmation was refused may still be stored.
    pub fn append(&self, entry: &Entry) -> Result<(), Error> {
        self.writing()?.journal.append(entry)
    }

    /// Finds out whether an entry could be appended now, for whoever saw an append refused. Leaves nothing in the journal.
    pub fn probe(&self) -> Result<(), Error> {
        self.writing()?.journal.probe()
    }

    /// Whether an append or a probe waits for the disk, so that it must not be made on a thread that serves others.
    pub fn waits_for_disk(&self) -> bool {
        self.writing.as_ref().is_some_and(|writing| writing.journal.waits_for_disk())
    }

    /// Waits until everything that was appended before the call is in the database. While the
    /// database is away it goes on waiting; [`Store::health`] says why.
    pub async fn drained(&self) -> Result<(), Error> {
        let Some(Writing { journal, drain, .. }) = &self.writing else {
            return Ok(());
        };
        let target = journal.end();
        journal.hurry.notify_one();
        drain.reaches(target).await
    }

    /// Refuses further appends, drains what is left, closes the database and releases the folder. When the
    /// database does not take the rest, that is the error; the rest stays in the journal.
    pub async fn close(&self) -> Result<(), Error> {
        self.end(Order::Finish).await
    }

    /// Stops without draining what is left, for an exit that cannot wait. It is drained at the next
    /// start.
    pub async fn abandon(&self) -> Result<(), Error> {
        self.end(Order::Abandon).await
    }

    /// How the store is doing. Cheap enough for every health check.
    pub fn health(&self) -> Health {
        let Some(Writing { journal, drain, .. }) = &self.writing else {
            return Health::default();
        };
        let stopped = || drain.has_ended().then(|| Error::DrainStopped.to_string());
        drain.report(|report| Health {
            undrained_bytes: journal.undrained_bytes(),
            drain_error: report.error.clone().or_else(stopped),
            damaged_segments: journal.damaged(),
            unreadable_bytes: report.unreadable_bytes,
            torn_bytes: journal.torn_bytes(),
            rejected_entries: report.rejected,
        })
    }

    /// Runs a transaction on the connection beside the drain's. It is committed if `work` returns true.
    pub(crate) async fn with_pen(
        &self,
        work: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<bool, sqlx::Error>,
    ) -> Result<bool, Error> {
        let operation = "change variants";
        let mut pen = self.pen.as_ref().ok_or(Error::ReadOnly)?.lock().await;
        let writer = pen.as_mut().ok_or(Error::DrainStopped)?;
        let attempt = async {
            let mut transaction = writer.begin().await?;
            let keep = work(&mut transaction).await.map_err(Error::database(operation))?;
            let ended = if keep { transaction.commit().await } else { transaction.undo().await };
            ended.map(|()| keep).map_err(Error::database(operation))
        };
        let outcome = tokio::time::timeout(database::CHANGE_LIMIT, attempt).await.unwrap_or_else(|_| {
            let source = sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::TimedOut));
            Err(Error::Database { operation, source })
        });
        if outcome.is_err() {
            writer.give_up_connection().await;
        }
        outcome
    }

    fn writing(&self) -> Result<&Writing, Error> {
        self.writing.as_ref().ok_or(Error::ReadOnly)
    }

    async fn end(&self, order: Order) -> Result<(), Error> {
        let Some(Writing { journal, drain, lock }) = &self.writing else {
            self.readers.close().await;
            return self.put_pen_down().await;
        };
        journal.close();
        let writer = drain.end(order).await?;
        // Readers go first: a checkpoint cannot pass a snapshot that is still read.
        self.readers.close().await;
        let pen = self.put_pen_down().await;
        let all_drained = journal.undrained_bytes() == 0;
        let ended = match writer {
            Some(writer) => writer.close(order == Order::Finish).await,
            None => Ok(()),
        };
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner).take());
        if order == Order::Finish && !all_drained {
            return Err(Error::DrainStopped);
        }
        ended.and(pen)
    }

    async fn put_pen_down(&self) -> Result<(), Error> {
        let Some(pen) = &self.pen else { return Ok(()) };
        match pen.lock().await.take() {
            Some(writer) => writer.close(false).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
