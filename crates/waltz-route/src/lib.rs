//! Which agent does which task, and why. Agents say what they can do, rules say who is preferred, a graph says which
//! tasks wait for which, and a plan assigns each task to an agent with the reason in words.
//!
//! Everything here is pure: the same agents, rules and tasks give the same plan. The gateway asks for plans and for
//! the agent of a chat request, `waltz route` prints plans; who calls the agents is not this crate's affair.

pub mod agent;
pub mod graph;
pub mod plan;
pub mod router;
pub mod rule;
pub mod team;

pub use agent::{Agent, Cost};
pub use graph::{GraphError, Task, TaskGraph};
pub use plan::{Assignment, Plan, Unassigned};
pub use router::{Ask, Chosen, Fault, Load, Router, Section};
pub use rule::{Rule, Scalar};
pub use team::TeamPolicy;
