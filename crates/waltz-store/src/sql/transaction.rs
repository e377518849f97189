//! A transaction on either database. The drain and the migrations write through it; dropping it
//! without a commit undoes it.

use sqlx::{Postgres, Sqlite};

use super::{Row, Statement, Value, for_postgres, for_sqlite};

/// A transaction that is under way.
pub(crate) enum Transaction<'c> {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'c, Postgres>),
}

impl Transaction<'_> {
    /// Runs a statement that returns nothing.
    pub(crate) async fn execute(
        &mut self,
        statement: Statement,
        arguments: &[Value<'_>],
    ) -> Result<(), sqlx::Error> {
        self.write(statement, arguments, arguments.len()).await.map(|_| ())
    }

    /// Runs a statement over rows of so many columns; says how many rows it wrote.
    pub(super) async fn write(
        &mut self,
        statement: Statement,
        rows: &[Value<'_>],
        columns: usize,
    ) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => {
                let query = sqlx::query_with(statement.sqlite, for_sqlite(rows, columns)?);
                query.execute(&mut **transaction).await.map(|done| done.rows_affected())
            }
            Self::Postgres(transaction) => {
                let query = sqlx::query_with(statement.postgres, for_postgres(rows)?);
                query.execute(&mut **transaction).await.map(|done| done.rows_affected())
            }
        }
    }

    /// All rows of an answer.
    pub(crate) async fn fetch_all(
        &mut self,
        statement: Statement,
        arguments: &[Value<'_>],
    ) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => {
                let query = sqlx::query_with(statement.sqlite, for_sqlite(arguments, arguments.len())?);
                Ok(query.fetch_all(&mut **transaction).await?.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(transaction) => {
                let query = sqlx::query_with(statement.postgres, for_postgres(arguments)?);
                Ok(query.fetch_all(&mut **transaction).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Runs the statements of a migration.
    pub(crate) async fn run_script(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => sqlx::raw_sql(sql).execute(&mut **transaction).await.map(|_| ()),
            Self::Postgres(transaction) => sqlx::raw_sql(sql).execute(&mut **transaction).await.map(|_| ()),
        }
    }

    /// Undoes everything now. A transaction that is only dropped is undone when its connection is used again, and keeps
    /// its locks until then.
    pub(crate) async fn undo(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => transaction.rollback().await,
            Self::Postgres(transaction) => transaction.rollback().await,
        }
    }

    /// Makes everything that was done visible to others.
    pub(crate) async fn commit(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
    }
}
