//! Forward-only migrations, embedded in the program. Each runs in one transaction together with the
//! new version number, so that an interrupted one leaves the old version.

use sqlx::sqlite::SqlitePool;

use crate::Error;

/// One step of the schema.
pub(crate) struct Migration {
    /// The version that the schema has afterwards.
    pub(crate) version: i64,
    /// What the file is named.
    pub(crate) name: &'static str,
    /// Its statements.
    pub(crate) sql: &'static str,
}

/// All migrations in order.
pub(crate) const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "initial", sql: include_str!("../migrations/sqlite/0001_initial.sql") }];

/// The version that a list of migrations leads to.
pub(crate) fn newest(migrations: &[Migration]) -> i64 {
    migrations.last().map_or(0, |migration| migration.version)
}

/// The schema version of a database; 0 for an empty one, `None` for one that is not waltz's.
pub(crate) async fn version(pool: &SqlitePool) -> Result<Option<i64>, sqlx::Error> {
    let tables: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master").fetch_one(pool).await?;
    if tables == 0 {
        return Ok(Some(0));
    }
    let ours: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master WHERE name = 'schema_version'")
        .fetch_one(pool)
        .await?;
    if ours == 0 {
        return Ok(None);
    }
    let version: Option<i64> =
        sqlx::query_scalar("SELECT MAX(version) FROM schema_version").fetch_one(pool).await?;
    Ok(Some(version.unwrap_or(0)))
}

/// Brings a database of version `found` to the newest version.
pub(crate) async fn migrate(pool: &SqlitePool, migrations: &[Migration], found: i64) -> Result<(), Error> {
    for migration in migrations.iter().filter(|migration| migration.version > found) {
        let operation = "migrate the schema";
        let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.map_err(Error::database(operation))?;
        sqlx::query(
            "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)",
        )
        .execute(&mut *transaction)
        .await
        .map_err(Error::database(operation))?;
        sqlx::raw_sql(migration.sql).execute(&mut *transaction).await.map_err(Error::database(operation))?;
        sqlx::query("INSERT INTO schema_version (version, name) VALUES ($1, $2)")
            .bind(migration.version)
            .bind(migration.name)
            .execute(&mut *transaction)
            .await
            .map_err(Error::database(operation))?;
        transaction.commit().await.map_err(Error::database(operation))?;
        tracing::info!(version = migration.version, name = migration.name, "schema migrated");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(version(&pool).await.unwrap(), Some(0));
        assert!(migrate(&pool, &[GOOD, BROKEN], 0).await.is_err());
        assert_eq!(version(&pool).await.unwrap(), Some(1));
        let tables: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_master WHERE name = 'b'")
            .fetch_one(&pool)
            .await
            .unwrap();
        assert_eq!(tables, 0, "nothing of the broken migration stays");
    }

    #[test]
    fn versions_rise_without_gaps() {
        for (position, migration) in MIGRATIONS.iter().enumerate() {
            assert_eq!(migration.version, position as i64 + 1);
        }
    }
}
