//! Forward-only migrations, embedded in the program. Each runs in one transaction together with the
//! new version number, so that an interrupted one leaves the old version. The version is read under the
//! lock of that transaction: of many gateways that start together one migrates and the others see it.

use super::Writer;
use crate::Error;
use crate::sql::{Statement, Transaction};

/// One step of the schema.
pub(super) struct Migration {
    /// The version that the schema has afterwards.
    version: i64,
    /// What the file is named.
    name: &'static str,
    /// Its statements.
    sql: &'static str,
}

/// All migrations of SQLite in order.
pub(super) const SQLITE: &[Migration] = &[
    Migration { version: 1, name: "initial", sql: include_str!("../../migrations/sqlite/0001_initial.sql") },
    Migration { version: 2, name: "lean", sql: include_str!("../../migrations/sqlite/0002_lean.sql") },
];

/// All migrations of PostgreSQL in order.
pub(super) const POSTGRES: &[Migration] = &[
    Migration {
        version: 1,
        name: "initial",
        sql: include_str!("../../migrations/postgres/0001_initial.sql"),
    },
    Migration { version: 2, name: "lean", sql: include_str!("../../migrations/postgres/0002_lean.sql") },
];

/// Held until the transaction ends. In SQLite the transaction has begun with the lock; the number is
/// the name of the lock and must never change.
const LOCK: Statement = Statement::each("SELECT 1", "SELECT pg_advisory_xact_lock(7742683310241091)");
/// A migration may take its time, and waits for another gateway's as long as that takes.
const TAKE_TIME: Statement = Statement::each("SELECT 1", "SET LOCAL statement_timeout = 0");
/// The tables that the program sees. In PostgreSQL those are the tables of the first schema on the
/// search path, in which new ones are created.
const TABLES: Statement = Statement::each(
    "SELECT COUNT(*) AS total, COUNT(*) FILTER (WHERE name = 'schema_version') AS ours FROM sqlite_master",
    "SELECT COUNT(*) AS total, COUNT(*) FILTER (WHERE tablename = 'schema_version') AS ours
     FROM pg_tables WHERE schemaname = current_schema()",
);
const VERSION: Statement =
    Statement::both("SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) AS version FROM schema_version");
const CREATE_VERSION: Statement = Statement::both(
    "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)",
);
const SET_VERSION: Statement = Statement::both("INSERT INTO schema_version (version, name) VALUES ($1, $2)");

/// Brings the database to the newest version. `name` is how messages call it.
pub(super) async fn migrate(writer: &mut Writer, migrations: &[Migration], name: &str) -> Result<(), Error> {
    let operation = "migrate the schema";
    let known = newest(migrations);
    loop {
        let mut transaction = writer.begin().await?;
        transaction.execute(TAKE_TIME, &[]).await.map_err(Error::database(operation))?;
        transaction.execute(LOCK, &[]).await.map_err(Error::database(operation))?;
        let found = version(&mut transaction, name).await?;
        if found > known {
            return Err(Error::SchemaTooNew { found, known });
        }
        let Some(migration) = migrations.iter().find(|migration| migration.version > found) else {
            return transaction.commit().await.map_err(Error::database(operation));
        };
        run(&mut transaction, migration).await.map_err(Error::database(operation))?;
        transaction.commit().await.map_err(Error::database(operation))?;
        tracing::info!(version = migration.version, name = migration.name, "schema migrated");
    }
}

/// Fails where the schema is not the one of this program.
pub(super) async fn check(
    mut transaction: Transaction<'_>,
    migrations: &[Migration],
    name: &str,
) -> Result<(), Error> {
    let found = version(&mut transaction, name).await?;
    let known = newest(migrations);
    if found > known {
        return Err(Error::SchemaTooNew { found, known });
    }
    if found < known {
        return Err(Error::SchemaTooOld { found, known });
    }
    transaction.commit().await.map_err(Error::database("read the schema version"))
}

/// The schema version of a database; 0 for an empty one.
async fn version(transaction: &mut Transaction<'_>, name: &str) -> Result<i64, Error> {
    let read = async {
        let tables = transaction.fetch_all(TABLES, &[]).await?;
        let Some(tables) = tables.first() else {
            return Ok(Some(0));
        };
        let (total, ours): (i64, i64) = (tables.try_get("total")?, tables.try_get("ours")?);
        if ours == 0 {
            return Ok((total == 0).then_some(0));
        }
        let rows = transaction.fetch_all(VERSION, &[]).await?;
        rows.first().map(|row| row.try_get("version")).transpose()
    };
    let found = read.await.map_err(Error::database("read the schema version"))?;
    found.ok_or_else(|| Error::ForeignTables { database: name.to_owned() })
}

async fn run(transaction: &mut Transaction<'_>, migration: &Migration) -> Result<(), sqlx::Error> {
    transaction.execute(CREATE_VERSION, &[]).await?;
    transaction.run_script(migration.sql).await?;
    transaction.execute(SET_VERSION, &[migration.version.into(), migration.name.into()]).await
}

fn newest(migrations: &[Migration]) -> i64 {
    migrations.last().map_or(0, |migration| migration.version)
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqlitePool;

    use super::*;

    const GOOD: Migration = Migration { version: 1, name: "good", sql: "CREATE TABLE a (x INTEGER)" };
    const BROKEN: Migration = Migration {
        version: 2,
        name: "broken",
        sql: "CREATE TABLE b (x INTEGER); INSERT INTO nowhere VALUES (1)",
    };

    #[tokio::test]
    async fn a_broken_migration_leaves_the_old_version() {
        let pool = SqlitePool::connect("sqlite::memory:").await.unwrap();
        let mut writer = Writer::Sqlite(pool.clone());
        assert_eq!(version(&mut writer.begin().await.unwrap(), "a").await.unwrap(), 0);
        assert!(migrate(&mut writer, &[GOOD, BROKEN], "a").await.is_err());
        assert_eq!(version(&mut writer.begin().await.unwrap(), "a").await.unwrap(), 1);
        let tables: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master WHERE name = 'b'")
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(tables, 0, "nothing of the broken migration stays");
    }

    #[test]
    fn versions_rise_without_gaps() {
        for migrations in [SQLITE, POSTGRES] {
            for (position, migration) in migrations.iter().enumerate() {
                assert_eq!(migration.version, position as i64 + 1);
            }
        }
    }
}
