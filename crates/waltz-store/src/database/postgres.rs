//! Connections to a PostgreSQL server. The drain writes on one connection of its own, so that it sees
//! why the server does not answer and can give the connection up; readers share a pool.
//!
//! While a gateway drains it holds an advisory lock on its instance. Two gateways on copies of one data
//! folder would otherwise move each other's position in the journal, and lose entries.

use std::io;
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret as _, SecretString};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, Postgres};
use uuid::Uuid;

use crate::Error;

/// How long one attempt to connect may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a question waits for a connection. Requests wait for some of them, so it is short.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(2);
const FIRST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// What the server is asked to do on connections that write: soon notice that a gateway is gone.
const KEEPALIVE: &str =
    "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3";

/// What a connection is for, and what the server is asked to do on it.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// It drains the journal of an instance: a statement that waits for too long is stopped, and the lock of a gateway
    /// that is gone is soon free, so that it can start elsewhere.
    Drain(Uuid),
    /// It changes what all gateways share: one that stands still in the middle of that, with locks, is soon cut off, and
    /// others wait for their turn longer than that takes.
    Change,
    /// It reads.
    Read,
}

impl Use {
    fn limits(self) -> Option<&'static str> {
        match self {
            Self::Drain(_) => {
                Some("SET statement_timeout = '60s'; SET idle_in_transaction_session_timeout = '60s'")
            }
            Self::Change => {
                Some("SET statement_timeout = '10s'; SET idle_in_transaction_session_timeout = '5s'")
            }
            Self::Read => None,
        }
    }
}

/// A connection that is made anew when it was given up.
pub(crate) struct Link {
    options: PgConnectOptions,
    /// Database and host, for messages. Never the user's password.
    server: String,
    purpose: Use,
    connection: Option<PgConnection>,
}

impl Link {
    /// Connects. A server that is away is asked again until `limit` has passed.
    pub(super) async fn open(url: &SecretString, purpose: Use, limit: Duration) -> Result<Self, Error> {
        let options = options(url)?.application_name("waltz");
        let server = describe(&options);
        let mut link = Self { options, server, purpose, connection: None };
        let started = Instant::now();
        let mut pause = FIRST_RETRY;
        loop {
            let error = match link.connect().await {
                Ok(connection) => {
                    link.connection = Some(connection);
                    return Ok(link);
                }
                Err(error) => error,
            };
            if !may_pass(&error) {
                return Err(error);
            }
            if started.elapsed() + pause > limit {
                return Err(match error {
                    Error::Server { server, source } => {
                        Error::ServerAway { server, seconds: limit.as_secs(), source }
                    }
                    other => other,
                });
            }
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the database is not ready; trying again"
            );
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_RETRY);
        }
    }

    /// Database and host, for messages.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// The key of this gateway's rows.
    pub(super) fn instance(&self) -> String {
        match self.purpose {
            Use::Drain(instance) => instance.to_string(),
            Use::Change | Use::Read => String::new(),
        }
    }

    /// Begins a transaction, after connecting where there is no connection.
    pub(super) async fn begin(&mut self) -> Result<sqlx::Transaction<'_, Postgres>, Error> {
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        self.connection.insert(connection).begin().await.map_err(Error::database("begin a transaction"))
    }

    /// Drops the connection without a word: what is wrong with it may keep it from answering.
    pub(super) fn give_up(&mut self) {
        self.connection = None;
    }

    /// Connections that read. They are made when they are needed, so that a server that went away is
    /// found again.
    pub(super) fn pool(&self, connections: u32) -> PgPool {
        PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(ACQUIRE_LIMIT)
            // Compiling a question takes longer than answering it.
            .after_connect(|connection, _| {
                Box::pin(async { connection.execute("SET jit = off").await.map(|_| ()) })
            })
            .connect_lazy_with(self.options.clone())
    }

    /// Says good-bye to the server.
    pub(super) async fn close(self) {
        if let Some(connection) = self.connection {
            // The work is done; a server that does not hear it finds out by itself.
            let _ = tokio::time::timeout(CONNECT_LIMIT, connection.close()).await;
        }
    }

    async fn connect(&self) -> Result<PgConnection, Error> {
        let failed = |source| Error::Server { server: self.server.clone(), source };
        let attempt = async {
            let mut connection = PgConnection::connect_with(&self.options).await?;
            let mut ours = true;
            if let Some(limits) = self.purpose.limits() {
                sqlx::raw_sql(KEEPALIVE).execute(&mut connection).await?;
                sqlx::raw_sql(limits).execute(&mut connection).await?;
            }
            if let Use::Drain(instance) = self.purpose {
                // The lower half of a random id is as good a key as a hash of it.
                let key = (instance.as_u128() as u64).cast_signed();
                let query = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)");
                ours = query.bind(key).fetch_one(&mut connection).await?;
            }
            Ok((connection, ours))
        };
        match tokio::time::timeout(CONNECT_LIMIT, attempt).await {
            Ok(Ok((connection, true))) => Ok(connection),
            Ok(Ok((_, false))) => Err(Error::InstanceInUse { instance: self.instance() }),
            Ok(Err(source)) => Err(failed(source)),
            Err(_) => Err(failed(sqlx::Error::Io(io::Error::from(io::ErrorKind::TimedOut)))),
        }
    }
}

/// Reads a URL. What is wrong with it is not said in detail, because the detail could be a password.
pub(super) fn options(url: &SecretString) -> Result<PgConnectOptions, Error> {
    let text = url.expose_secret();
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err(Error::DatabaseUrl);
    }
    refuse_unknown(text)?;
    text.parse().map_err(|_| Error::DatabaseUrl)
}

/// Parameters of a URL that the driver knows.
const PARAMETERS: [&str; 17] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "password",
    "port",
    "ssl-ca",
    "ssl-cert",
    "ssl-key",
    "ssl-mode",
    "ssl-root-cert",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "statement-cache-capacity",
    "user",
];

/// The driver would warn of a parameter that it does not know and show its value, which may be a secret.
fn refuse_unknown(url: &str) -> Result<(), Error> {
    let Some((_, query)) = url.split_once('?') else { return Ok(()) };
    let mut names = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    let known = |name: &str| name.is_empty() || PARAMETERS.contains(&name) || name.starts_with("options");
    match names.find(|name| !known(name)) {
        Some(name) => Err(Error::DatabaseUrlParameter { name: name.chars().take(40).collect() }),
        None => Ok(()),
    }
}

fn describe(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("`{database}` on `{}`", socket.display()),
        None => format!("`{database}` on `{}:{}`", options.get_host(), options.get_port()),
    }
}

/// Whether waiting can help: the server cannot be reached, is starting or stopping, has no free
/// connection, or still holds the lock of a process that has just died.
fn may_pass(error: &Error) -> bool {
    match error {
        Error::InstanceInUse { .. } => true,
        // A certificate that does not fit comes as invalid data.
        Error::Server { source: sqlx::Error::Io(error), .. } => error.kind() != io::ErrorKind::InvalidData,
        Error::Server { source: sqlx::Error::Database(answer), .. } => {
            let code = answer.code().unwrap_or_default();
            ["08", "53", "57P"].iter().any(|class| code.starts_with(class))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_parameter_is_named_without_its_value() {
        for query in ["passphrase=s3cret", "sslmode=require&sslpassword=s3cret"] {
            let url = SecretString::from(format!("postgres://waltz@db.example/records?{query}"));
            let message = options(&url).unwrap_err().to_string();
            assert!(message.contains("pass") && !message.contains("s3cret"), "{message}");
        }
        let known = "postgres://w@db.example/r?sslmode=disable&application_name=waltz&options=-c%20a%3Db";
        assert!(options(&SecretString::from(known)).is_ok());
    }

    #[test]
    fn no_message_holds_the_password() {
        let url = SecretString::from("postgres://waltz:hunter2@db.example:5433/records");
        assert_eq!(describe(&options(&url).unwrap()), "`records` on `db.example:5433`");
        assert!(!format!("{url:?}").contains("hunter2"));
        for wrong in ["postgres://waltz:hunter2@db:port/records", "mysql://waltz:hunter2@db/records", ""] {
            let error = options(&SecretString::from(wrong)).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
        }
    }
}
