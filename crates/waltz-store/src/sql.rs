//! The one place where the two databases part: statements, their arguments, rows, and the connections
//! that read. Questions are asked and answered in the same words on both; a statement whose text has
//! to differ says so with [`Statement::each`], and the two texts lie side by side under `sql/`.

mod many;
mod transaction;

use std::sync::Arc;

use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Arguments as _, Decode, Postgres, Row as _, Sqlite, Type};

pub(crate) use many::ManyRows;
pub(crate) use transaction::Transaction;

/// The text of a statement on each database.
#[derive(Clone, Copy)]
pub(crate) struct Statement {
    sqlite: &'static str,
    postgres: &'static str,
}

/// An argument of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Text(Option<&'a str>),
    Integer(Option<i64>),
    Double(f64),
    Flag(Option<bool>),
    Bytes(&'a [u8]),
}

/// A row of either database.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// The connections that read.
pub(crate) enum Readers {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// Values as arguments of a database, texts as `$text` makes them of a place and a text. A macro, because the arguments
/// of the two databases have no common type.
macro_rules! bound {
    ($arguments:ty, $values:expr, $text:expr) => {{
        let mut arguments = <$arguments>::default();
        arguments.reserve($values.len(), 0);
        for (place, value) in $values.iter().enumerate() {
            match *value {
                Value::Text(Some(text)) => arguments.add($text(place, text)),
                Value::Text(None) => arguments.add(None::<&str>),
                Value::Integer(number) => arguments.add(number),
                Value::Double(number) => arguments.add(number),
                Value::Flag(flag) => arguments.add(flag),
                Value::Bytes(bytes) => arguments.add(bytes),
            }
            .map_err(sqlx::Error::Encode)?;
        }
        Ok(arguments)
    }};
}

/// The arguments of rows with so many columns. SQLite's thread takes texts over; one that stands below the same text is
/// allocated with it.
fn for_sqlite(values: &[Value<'_>], columns: usize) -> Result<SqliteArguments, sqlx::Error> {
    let mut above: Vec<Arc<str>> = vec![Arc::default(); columns];
    bound!(SqliteArguments, values, |place: usize, text: &str| {
        let above = &mut above[place % columns];
        if **above != *text {
            *above = text.into();
        }
        Arc::clone(above)
    })
}

fn for_postgres<'a>(values: &[Value<'a>]) -> Result<PgArguments, sqlx::Error> {
    bound!(PgArguments, values, |_, text: &'a str| text)
}

impl Statement {
    /// A text that both databases read.
    pub(crate) const fn both(sql: &'static str) -> Self {
        Self { sqlite: sql, postgres: sql }
    }

    /// A text for each, where their languages differ.
    pub(crate) const fn each(sqlite: &'static str, postgres: &'static str) -> Self {
        Self { sqlite, postgres }
    }
}

impl Row {
    /// Reads a column.
    pub(crate) fn try_get<'r, T>(&'r self, column: &str) -> Result<T, sqlx::Error>
    where
        T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// Reads a text that a person or a model wrote and that may hold a NUL. PostgreSQL has no such
    /// text, so that it keeps these as JSON strings.
    pub(crate) fn free_text(&self, column: &str) -> Result<String, sqlx::Error> {
        let text: String = self.try_get(column)?;
        match self {
            Self::Sqlite(_) => Ok(text),
            Self::Postgres(_) => serde_json::from_str(&text).map_err(|source| sqlx::Error::ColumnDecode {
                index: column.to_owned(),
                source: Box::new(source),
            }),
        }
    }
}

impl Readers {
    /// All rows of an answer.
    pub(crate) async fn fetch_all(
        &self,
        statement: Statement,
        arguments: &[Value<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        self.fetch(statement, arguments).try_collect().await
    }

    /// The first row of an answer.
    pub(crate) async fn fetch_optional(
        &self,
        statement: Statement,
        arguments: &[Value<'_>],
    ) -> Result<Option<Row>, sqlx::Error> {
        self.fetch(statement, arguments).try_next().await
    }

    /// The rows of an answer, one after the other.
    pub(crate) fn fetch<'a>(
        &'a self,
        statement: Statement,
        arguments: &'a [Value<'a>],
    ) -> BoxStream<'a, Result<Row, sqlx::Error>> {
        // No key holds a NUL, so that nothing matches one. PostgreSQL would refuse the question.
        if arguments.iter().any(Value::holds_nul) {
            return stream::empty().boxed();
        }
        let failed = |error| stream::once(async { Err(error) }).boxed();
        match self {
            Self::Sqlite(pool) => for_sqlite(arguments, arguments.len()).map_or_else(failed, |arguments| {
                sqlx::query_with(statement.sqlite, arguments).fetch(pool).map_ok(Row::Sqlite).boxed()
            }),
            Self::Postgres(pool) => for_postgres(arguments).map_or_else(failed, |arguments| {
                sqlx::query_with(statement.postgres, arguments).fetch(pool).map_ok(Row::Postgres).boxed()
            }),
        }
    }

    /// Waits for what is being read and closes the connections.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

impl Value<'_> {
    fn holds_nul(&self) -> bool {
        matches!(self, Self::Text(Some(text)) if text.contains('\0'))
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Value<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Integer(Some(number))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(number: Option<i64>) -> Self {
        Self::Integer(number)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Self::Double(number)
    }
}

impl From<Option<bool>> for Value<'_> {
    fn from(flag: Option<bool>) -> Self {
        Self::Flag(flag)
    }
}
