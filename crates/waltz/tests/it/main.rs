//! End to end: the real binary against the real mock upstream, on free loopback ports and fresh data
//! folders.
#![expect(non_snake_case, reason = "fault tests carry the ids of the fault list")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail loudly")]
#![expect(unreachable_pub, reason = "one binary; its modules share the harness")]

mod architecture;
mod behaviours;
mod cli;
mod coaching;
mod crash;
mod harness;
mod http_faults;
mod judge_faults;
mod matrix;
mod model;
mod reload;
mod streams;
mod upstream_faults;
