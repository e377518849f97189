//! The two agents and the loop between them. A conversation agent drafts an answer, the judge and the
//! feedback agent read it, and when the draft is unsafe or refuses what it should answer, the advice
//! goes back and a better answer comes out.
//!
//! The gateway calls this crate once per request; it keeps no state between requests but the
//! connections and budgets of [`upstream`], and it knows no store: similar past coachings are handed in.

#![cfg_attr(test, expect(non_snake_case, reason = "fault tests carry the ids of the fault list"))]

pub mod conversation;
pub mod feedback;
pub mod judge;
pub mod local;
pub mod quality;
pub mod revise;
pub mod reward;
pub mod rounds;
pub mod route;
pub mod tally;
pub mod templates;
pub mod upstream;
