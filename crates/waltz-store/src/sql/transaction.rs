//! A transaction on either database. The drain and the migrations write through it; dropping it
//! without a commit undoes it.

use sqlx::{Postgres, Sqlite};

use super::{Row, Statement, Value, bound};

/// A transaction that is under way.
pub(crate) enum Transaction<'c> {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'c, Postgres>),
}

impl Transaction<'_> {
    /// Runs a statement whose answer does not matter.
    pub(crate) async fn execute(
        &mut self,
        statement: Statement,
        arguments: &[Value<'_>],
    ) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(transaction) => {
                bound!(statement.sqlite, arguments).execute(&mut **transaction).await.map(|_| ())
            }
            Self::Postgres(transaction) => {
                bound!(statement.postgres, arguments).execute(&mut **transaction).await.map(|_| ())
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
                let rows = bound!(statement.sqlite, arguments).fetch_all(&mut **transaction).await?;
                Ok(rows.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(transaction) => {
                let rows = bound!(statement.postgres, arguments).fetch_all(&mut **transaction).await?;
                Ok(rows.into_iter().map(Row::Postgres).collect())
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
