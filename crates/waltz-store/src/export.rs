//! Exports: one statement streams rows, one blocking thread writes them, and a small bounded channel
//! lies between the two, so that an export of any size holds only a few rows in memory.

mod rows;
mod sink;
#[cfg(feature = "parquet")]
mod table;

use std::fmt;
use std::io::Write;
use std::str::FromStr;

use futures_util::TryStreamExt as _;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::sql::Statement;
use crate::{Error, Store};
use rows::ExportRow;

/// Rows that wait for the writing thread.
const ROWS_IN_FLIGHT: usize = 64;

/// What to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Namespace {
    /// One row per choice that was coached, with all of its rounds.
    Coaching,
    /// One row per text that was judged.
    Evaluations,
    /// One row per step that training can learn from.
    Training,
}

/// How to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Format {
    /// One JSON array.
    Json,
    /// One JSON object per line.
    JsonLines,
    /// Parquet with typed columns; nested objects are JSON text. Needs the feature `parquet`.
    Parquet,
}

impl Store {
    /// Writes all rows of a namespace, oldest first, and returns their number. What is written is one
    /// consistent view of the database, taken when the export begins.
    pub async fn export<W>(
        &self,
        namespace: Namespace,
        format: Format,
        tenant: Option<&str>,
        writer: W,
    ) -> Result<u64, Error>
    where
        W: Write + Send + 'static,
    {
        if format == Format::Parquet && cfg!(not(feature = "parquet")) {
            return Err(Error::FormatNotBuilt);
        }
        let (sender, receiver) = mpsc::channel(ROWS_IN_FLIGHT);
        let writing = spawn_blocking(move || sink::write(namespace, format, receiver, writer));
        let read = self.send_rows(namespace, tenant, &sender).await;
        let outcome = match &read {
            Ok(()) => sender.send(sink::Message::End).await,
            // The thread must not finish a file that looks complete.
            Err(_) => sender.send(sink::Message::Abort).await,
        };
        drop(sender);
        let written = writing.await.map_err(|_| Error::Worker { operation: "write an export" })?;
        read?;
        // A thread that stopped listening has an error to tell.
        let _ = outcome;
        written
    }

    /// Streams rows into the channel. Stops early without an error when the writing thread is gone:
    /// that thread's error is the one to report.
    async fn send_rows(
        &self,
        namespace: Namespace,
        tenant: Option<&str>,
        sender: &mpsc::Sender<sink::Message>,
    ) -> Result<(), Error> {
        let arguments = [tenant.into()];
        let mut stream = self.readers.fetch(namespace.statement(), &arguments);
        while let Some(row) = stream.try_next().await.map_err(Error::database("read rows to export"))? {
            let exported: Vec<ExportRow> = rows::from_database(namespace, &row)?;
            for each in exported {
                if sender.send(sink::Message::Row(each)).await.is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Namespace {
    /// All namespaces.
    pub const ALL: [Self; 3] = [Self::Coaching, Self::Evaluations, Self::Training];

    /// The address under which the namespace is known.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Coaching => "safety/waltzrl/coaching",
            Self::Evaluations => "safety/waltzrl/evaluations",
            Self::Training => "safety/waltzrl/training",
        }
    }

    fn statement(self) -> Statement {
        Statement::both(match self {
            Self::Coaching => include_str!("../sql/export_coaching.sql"),
            Self::Evaluations => include_str!("../sql/export_evaluations.sql"),
            Self::Training => include_str!("../sql/export_training.sql"),
        })
    }
}

impl Format {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
        }
    }
}

impl FromStr for Namespace {
    type Err = Error;

    /// Reads the whole address or its last word.
    fn from_str(name: &str) -> Result<Self, Error> {
        let fits = |namespace: &Self| {
            let address = namespace.as_str();
            address == name || address.rsplit('/').next() == Some(name)
        };
        Self::ALL.into_iter().find(fits).ok_or_else(|| Error::UnknownName {
            what: "a namespace",
            allowed: "safety/waltzrl/coaching, safety/waltzrl/evaluations and safety/waltzrl/training, or their last words",
            name: name.to_owned(),
        })
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "json" => Ok(Self::Json),
            "jsonl" => Ok(Self::JsonLines),
            "parquet" => Ok(Self::Parquet),
            _ => Err(Error::UnknownName {
                what: "an export format",
                allowed: "json, jsonl and parquet",
                name: name.to_owned(),
            }),
        }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl fmt::Display for Format {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl From<Namespace> for String {
    fn from(namespace: Namespace) -> Self {
        namespace.as_str().to_owned()
    }
}

impl From<Format> for String {
    fn from(format: Format) -> Self {
        format.as_str().to_owned()
    }
}

impl TryFrom<String> for Namespace {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}

impl TryFrom<String> for Format {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        name.parse()
    }
}
