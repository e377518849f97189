//! What a board tells of itself.

use serde::{Deserialize, Serialize};
use waltz_exchange::release::ReleaseEvent;
use waltz_exchange::rollback::{DegradationMetrics, RollbackEvent};

use super::Change;
use crate::decide::VariantDecision;

/// Something that people or the record want to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum BoardEvent {
    /// A variant's last window was degraded; its traffic stays.
    Suspect {
        /// The variant.
        variant: String,
        /// The numbers.
        degradation_metrics: DegradationMetrics,
    },
    /// A suspect had a clean window.
    Cleared {
        /// The variant.
        variant: String,
    },
    /// A variant lost its traffic.
    RolledBack(RollbackEvent),
    /// Nothing changes by itself any more until a person looks.
    Frozen {
        /// Why.
        reason: String,
    },
    /// What is to be done about a variant has changed.
    Decided {
        /// The variant.
        variant: String,
        /// What, and why.
        decision: VariantDecision,
    },
    /// A variant serves from now on.
    Applied {
        /// The variant.
        variant: String,
        /// What served before.
        from_variant: String,
        /// Why.
        decision: VariantDecision,
    },
    /// The release moved.
    Release(ReleaseEvent),
    /// A subject has had its share of outcomes; more of them do not count.
    SubjectCapped {
        /// The subject.
        subject: String,
        /// The variant that it spoke of.
        variant: String,
    },
    /// A person changed something.
    Changed {
        /// What.
        change: Change,
        /// Who.
        by: String,
    },
}
