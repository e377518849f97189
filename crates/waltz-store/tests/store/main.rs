//! Tests of the whole store on both databases. PostgreSQL must be installed: the tests start a server of
//! their own, or use the one at the URL in `WALTZ_TEST_POSTGRES`, in which they create databases.
#![expect(non_snake_case, reason = "fault tests carry the ids of the fault list")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod conformance;
#[path = "../disk/mod.rs"]
mod disk;
mod disk_faults;
mod file;
mod gateways;
mod home;
mod kill;
mod outage;
mod recovery;
mod server;
mod versions;

/// Runs each case, a function over the kind of the database, on both. On one thread, so that nothing is
/// drained between two appends of a test.
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $case() {
                    super::cases::$case(crate::home::Kind::Sqlite).await;
                }
            )*
        }
        mod postgres {
            $(
                #[tokio::test]
                async fn $case() {
                    super::cases::$case(crate::home::Kind::Postgres).await;
                }
            )*
        }
    };
}
pub(crate) use on_both;
