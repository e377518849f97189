//! The writing end of an export. Runs on a blocking thread until the rows end.

use std::io::{self, BufWriter, Write};

use tokio::sync::mpsc;

use super::rows::ExportRow;
use super::{Format, Namespace};
use crate::Error;

/// What the reading end says.
pub(super) enum Message {
    /// One more row.
    Row(ExportRow),
    /// That was all.
    End,
    /// Reading failed: leave the file unfinished.
    Abort,
}

/// Writes rows until they end, and returns how many there were.
pub(super) fn write<W>(
    namespace: Namespace,
    format: Format,
    rows: mpsc::Receiver<Message>,
    writer: W,
) -> Result<u64, Error>
where
    W: Write + Send + 'static,
{
    let buffered = BufWriter::new(writer);
    let written = match format {
        Format::Json => write_array(rows, buffered),
        Format::JsonLines => write_lines(rows, buffered),
        #[cfg(feature = "parquet")]
        Format::Parquet => super::table::write(namespace, rows, buffered),
        #[cfg(not(feature = "parquet"))]
        Format::Parquet => {
            let _ = namespace;
            return Err(Error::FormatNotBuilt);
        }
    };
    written.map_err(|source| Error::Export { source })
}

/// The next row, or `None` when the export is to be finished. An abort is an error, so that nothing
/// more is written.
pub(super) fn next(rows: &mut mpsc::Receiver<Message>) -> io::Result<Option<ExportRow>> {
    match rows.blocking_recv() {
        Some(Message::Row(row)) => Ok(Some(row)),
        Some(Message::End) => Ok(None),
        Some(Message::Abort) | None => Err(io::Error::other("reading stopped before the last row")),
    }
}

fn write_array(mut rows: mpsc::Receiver<Message>, mut writer: impl Write) -> io::Result<u64> {
    let mut count = 0;
    writer.write_all(b"[")?;
    while let Some(row) = next(&mut rows)? {
        writer.write_all(if count == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut writer, &row)?;
        count += 1;
    }
    writer.write_all(b"\n]\n")?;
    writer.flush()?;
    Ok(count)
}

fn write_lines(mut rows: mpsc::Receiver<Message>, mut writer: impl Write) -> io::Result<u64> {
    let mut count = 0;
    while let Some(row) = next(&mut rows)? {
        serde_json::to_writer(&mut writer, &row)?;
        writer.write_all(b"\n")?;
        count += 1;
    }
    writer.flush()?;
    Ok(count)
}
