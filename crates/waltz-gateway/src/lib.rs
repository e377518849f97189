//! The HTTP server. A request takes seven steps, one file each, called in order by [`pipeline`]:
//! receive, route, draft, feedback, coach, respond, record. Streams and JSON take the same path.
//!
//! Each exchange runs on its own tracked task, so that a client that hangs up does not lose the record.

#![cfg_attr(test, expect(non_snake_case, reason = "fault tests carry the ids of the fault list"))]

pub mod admin;
pub mod api;
pub mod auth;
pub mod client;
pub mod coach;
pub mod connection;
pub mod dialect;
pub mod draft;
pub mod feedback;
pub mod idempotency;
mod intake;
pub mod live;
pub mod metrics;
pub mod outages;
pub mod peers;
pub mod personal;
pub mod pipeline;
pub mod receive;
pub mod record;
pub mod recording;
pub mod reply;
pub mod respond;
pub mod route;
pub mod router;
pub mod server;
pub mod settings;
pub mod signer;
pub mod trace;
mod underway;
pub mod variants;

pub use live::{Gateway, Live, Version};
pub use server::serve;
pub use settings::Settings;
