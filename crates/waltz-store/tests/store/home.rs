//! Where a store of a test lives: a data folder and a database of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::postgres::PgPool;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;
use waltz_store::{Database, Error, Settings, Store};

use crate::common::{coached, exchange};
use crate::server::Server;

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// A data folder and a database.
pub(crate) struct Home {
    folder: TempDir,
    /// The URL of a PostgreSQL database.
    pub(crate) url: Option<String>,
    /// A server that is not the tests' own, from which the database has to be removed.
    guest_of: Option<String>,
}

impl Drop for Home {
    fn drop(&mut self) {
        let (Some(server), Some(url)) = (self.guest_of.clone(), self.url.clone()) else {
            return;
        };
        // A test's runtime cannot wait in a drop; another thread's can.
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(remove_database(&server, &url));
        });
        let _ = removal.join();
    }
}

/// A look at the tables beside the store.
pub(crate) enum Tables {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Home {
    /// An empty folder and an empty database.
    pub(crate) async fn new(kind: Kind) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if kind == Kind::Sqlite {
            return Self { folder, url: None, guest_of: None };
        }
        let (server, guest_of) = match shared_server() {
            Shared::Own(server) => (server.url("postgres"), None),
            Shared::Given(url) => (url.clone(), Some(url.clone())),
        };
        Self { folder, url: Some(fresh_database(&server).await), guest_of }
    }

    /// An empty folder on the database at a URL.
    pub(crate) fn on(url: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: Some(url.to_owned()), guest_of: None }
    }

    /// Another gateway's home on the same database.
    pub(crate) fn neighbour(&self) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), url: self.url.clone(), guest_of: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn settings(&self) -> Settings {
        let database = match &self.url {
            None => Database::Sqlite,
            Some(url) => Database::postgres(url.as_str().into()).unwrap(),
        };
        Settings { database, ..Settings::at(self.path()) }
    }

    /// Settings under which nothing is drained before `drained` is called.
    pub(crate) fn patient(&self) -> Settings {
        Settings { drain_delay: Duration::from_secs(3600), ..self.settings() }
    }

    pub(crate) async fn open(&self) -> Store {
        opened(self.settings()).await.unwrap()
    }

    pub(crate) async fn open_patient(&self) -> Store {
        opened(self.patient()).await.unwrap()
    }

    /// The journal's files in order.
    pub(crate) fn segments(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path().join("journal")).unwrap();
        let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    }

    pub(crate) async fn tables(&self) -> Tables {
        match &self.url {
            None => {
                let options = SqliteConnectOptions::new().filename(self.path().join("waltz.db"));
                Tables::Sqlite(SqlitePool::connect_with(options.create_if_missing(true)).await.unwrap())
            }
            Some(url) => Tables::Postgres(PgPool::connect(url).await.unwrap()),
        }
    }

    /// The ids of all exchanges, after a check that everything that hangs on one is there exactly once.
    /// All of them must be exchanges as [`append`] makes them.
    pub(crate) async fn stored(&self) -> BTreeSet<String> {
        let tables = self.tables().await;
        let ids = tables.texts("SELECT id FROM exchanges").await;
        for (sql, each) in [
            ("SELECT CAST(COALESCE(SUM(exchanges), 0) AS BIGINT) FROM coaching_sessions", 1),
            ("SELECT CAST(COALESCE(SUM(findings), 0) AS BIGINT) FROM exchanges", 9),
            ("SELECT CAST(COALESCE(SUM(interactions), 0) AS BIGINT) FROM exchange_totals", 1),
            ("SELECT COUNT(*) FROM past_coachings", 1),
            ("SELECT COUNT(*) FROM coaching_text", 1),
        ] {
            assert_eq!(tables.number(sql).await, each * ids.len() as i64, "{sql}");
        }
        tables.close().await;
        ids.into_iter().collect()
    }
}

impl Tables {
    pub(crate) async fn number(&self, sql: &'static str) -> i64 {
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        }
    }

    pub(crate) async fn texts(&self, sql: &'static str) -> Vec<String> {
        match self {
            Self::Sqlite(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
        }
    }

    pub(crate) async fn run(&self, sql: &'static str) {
        match self {
            Self::Sqlite(pool) => pool.execute(sql).await.map(|_| ()).unwrap(),
            Self::Postgres(pool) => pool.execute(sql).await.map(|_| ()).unwrap(),
        }
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// Appends a coached exchange.
pub(crate) fn append(store: &Store, id: &str) {
    store.append(&exchange(coached(id, "acme", "ses", 0, "open my door"))).unwrap();
}

pub(crate) fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// Why a store cannot be opened.
pub(crate) async fn refusal(settings: Settings) -> String {
    opened(settings).await.err().map(|error| error.to_string()).unwrap()
}

/// Opens the store of a folder that may just have been released. A process that another test starts holds a copy of every lock
/// of this one until it runs its own program, so that the folder seems to be in use for a moment.
async fn opened(settings: Settings) -> Result<Store, Error> {
    for _ in 0..400 {
        match Store::open(settings.clone()).await {
            Err(Error::Locked { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            opened => return opened,
        }
    }
    Store::open(settings).await
}

/// Creates a database on the server that a URL leads to, and returns its URL.
pub(crate) async fn fresh_database(server: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("waltz_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let mut connection = PgConnection::connect(server).await.unwrap();
    let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"));
    sqlx::query(create).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let (address, options) = server.split_once('?').unwrap_or((server, ""));
    let (host, _) = address.rsplit_once('/').unwrap();
    format!("{host}/{name}?{options}")
}

async fn remove_database(server: &str, url: &str) {
    let address = url.split('?').next().unwrap();
    let (_, name) = address.rsplit_once('/').unwrap();
    let mut connection = PgConnection::connect(server).await.unwrap();
    let remove = sqlx::AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
    sqlx::query(remove).execute(&mut connection).await.unwrap();
}

enum Shared {
    Own(Server),
    Given(String),
}

/// One server for all tests of this program.
fn shared_server() -> &'static Shared {
    static SHARED: OnceLock<Result<Shared, String>> = OnceLock::new();
    let shared = SHARED.get_or_init(|| match std::env::var("WALTZ_TEST_POSTGRES") {
        Ok(url) => Ok(Shared::Given(url)),
        Err(_) => Server::start(false).map(Shared::Own),
    });
    shared.as_ref().unwrap_or_else(|message| panic!("{message}"))
}
