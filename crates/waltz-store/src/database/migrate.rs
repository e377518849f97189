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
    Migration { version: 3, name: "vectors", sql: include_str!("../../migrations/sqlite/0003_vectors.sql") },
    Migration {
        version: 4,
        name: "variants",
        sql: include_str!("../../migrations/sqlite/0004_variants.sql"),
    },
    Migration { version: 5, name: "notices", sql: include_str!("../../migrations/sqlite/0005_notices.sql") },
    Migration {
        version: 6,
        name: "fewer_trees",
        sql: include_str!("../../migrations/sqlite/0006_fewer_trees.sql"),
    },
];

/// All migrations of PostgreSQL in order.
pub(super) const POSTGRES: &[Migration] = &[
    Migration {
        version: 1,
        name: "initial",
        sql: include_str!("../../migrations/postgres/0001_initial.sql"),
    },
    Migration { version: 2, name: "lean", sql: include_str!("../../migrations/postgres/0002_lean.sql") },
    Migration {
        version: 3,
        name: "vectors",
        sql: include_str!("../../migrations/postgres/0003_vectors.sql"),
    },
    Migration {
        version: 4,
        name: "variants",
        sql: include_str!("../../migrations/postgres/0004_variants.sql"),
    },
    Migration {
        version: 5,
        name: "notices",
        sql: include_str!("../../migrations/postgres/0005_notices.sql"),
    },
    Migration {
        version: 6,
        name: "fewer_trees",
        sql: include_str!("../../migrations/postgres/0006_fewer_trees.sql"),
    },
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
    let mut backed_up = false;
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
        if found > 0 && !backed_up {
            drop(transaction);
            writer.back_up(found).await?;
            backed_up = true;
            continue;
        }
        // What this very start makes needs no backup.
        backed_up = true;
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
    use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

    use super::*;

    const GOOD: Migration = Migration { version: 1, name: "good", sql: "CREATE TABLE a (x INTEGER)" };
    const BROKEN: Migration = Migration {
        version: 2,
        name: "broken",
        sql: "CREATE TABLE b (x INTEGER); INSERT INTO nowhere VALUES (1)",
    };

    const NEXT: Migration = Migration { version: 2, name: "next", sql: "ALTER TABLE a ADD COLUMN y INTEGER" };

    async fn open(file: &std::path::Path) -> (SqlitePool, Writer) {
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.unwrap();
        (pool.clone(), Writer::Sqlite(pool))
    }

    async fn number(pool: &SqlitePool, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
    }

    #[tokio::test]
    async fn fault_F58_downgrade_upgrade() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        let backup = folder.path().join("a.db.v1");
        let (pool, mut writer) = open(&file).await;
        assert_eq!(version(&mut writer.begin().await.unwrap(), "a").await.unwrap(), 0);
        migrate(&mut writer, &[GOOD], "a").await.unwrap();
        assert!(!backup.exists(), "there was nothing to save");
        sqlx::query("INSERT INTO a VALUES (7)").execute(&pool).await.unwrap();

        // A migration that breaks off leaves the old version as it was, and the backup of it.
        assert!(migrate(&mut writer, &[GOOD, BROKEN], "a").await.is_err());
        assert_eq!(version(&mut writer.begin().await.unwrap(), "a").await.unwrap(), 1);
        assert_eq!(number(&pool, "SELECT COUNT(*) FROM sqlite_master WHERE name = 'b'").await, 0);
        assert!(backup.exists());
        sqlx::query("INSERT INTO a VALUES (8)").execute(&pool).await.unwrap();
        // As a crash in the middle of a backup leaves it.
        std::fs::write(folder.path().join("a.db.v1.partial"), "half").unwrap();

        migrate(&mut writer, &[GOOD, NEXT], "a").await.unwrap();
        assert_eq!(number(&pool, "SELECT COUNT(*) FROM a WHERE y IS NULL").await, 2);
        migrate(&mut writer, &[GOOD, NEXT], "a").await.unwrap();

        // The old program refuses the new schema, touches nothing, and works on with the backup.
        let refused = migrate(&mut writer, &[GOOD], "a").await.unwrap_err();
        assert!(matches!(refused, Error::SchemaTooNew { found: 2, known: 1 }), "{refused}");
        assert_eq!(number(&pool, "SELECT COUNT(*) FROM a WHERE y IS NULL").await, 2);
        pool.close().await;
        let (pool, mut writer) = open(&backup).await;
        migrate(&mut writer, &[GOOD], "a").await.unwrap();
        assert_eq!(number(&pool, "SELECT SUM(x) FROM a").await, 15, "the newest state of the old version");
        let left = std::fs::read_dir(folder.path()).unwrap().flatten();
        let partial = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "partial"));
        assert_eq!(partial.count(), 0);
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
