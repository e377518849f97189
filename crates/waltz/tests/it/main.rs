//! End to end: the real binary against the real mock upstream, on free loopback ports and fresh data
//! folders.
#![expect(non_snake_case, reason = "fault tests carry the ids of the fault list")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail loudly")]
#![expect(unreachable_pub, reason = "one binary; its modules share the harness")]

mod adapters;
mod answers;
mod anthropic;
mod architecture;
mod behaviours;
mod cli;
mod client_faults;
mod coaching;
mod crash;
#[path = "../../../waltz-store/tests/disk/mod.rs"]
mod disk;
mod eval;
mod evolve;
mod examiner;
mod fuzz;
mod h2_faults;
mod harness;
mod http_faults;
mod idempotency;
mod judge_faults;
mod load;
mod local;
mod matrix;
mod mock;
mod model;
mod personal;
#[path = "../../../waltz-store/tests/store/server.rs"]
mod postgres;
mod program;
mod reload;
mod route;
mod run_faults;
mod storage_faults;
mod stream_faults;
mod streams;
#[path = "../../../waltz-model/src/gguf/synthetic.rs"]
mod synthetic;
mod telemetry;
mod tiny;
mod train;
mod upstream_faults;
mod variants;
mod wire;
