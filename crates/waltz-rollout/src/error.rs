//! What can be wrong with a request to change or to learn.

/// Why something was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A number of an outcome is not one that can be learned from.
    #[error("`{field}` is {value}; allowed is {allowed}")]
    Outcome {
        /// The field.
        field: &'static str,
        /// What it holds.
        value: f64,
        /// What it may hold.
        allowed: &'static str,
    },
    /// There is no such variant.
    #[error("there is no variant `{0}`")]
    UnknownVariant(String),
    /// The variant cannot take part in this.
    #[error("variant `{variant}` is {status}: {why}")]
    WrongVariant {
        /// The variant.
        variant: String,
        /// Its status.
        status: &'static str,
        /// What stands against it.
        why: &'static str,
    },
    /// Somebody else changed it first.
    #[error("version {expected} was expected, but it is {found} by now; read it again")]
    Stale {
        /// The version that the caller saw.
        expected: u64,
        /// The version that is.
        found: u64,
    },
    /// A patch that cannot be applied.
    #[error("the patch cannot be applied: {0}")]
    Patch(String),
    /// A proposal that can no longer be decided on like this.
    #[error("proposal `{proposal}` {why}")]
    Proposal {
        /// The proposal.
        proposal: String,
        /// What stands against it.
        why: String,
    },
    /// A release that cannot do this now.
    #[error("release `{release}` {why}")]
    Release {
        /// The release.
        release: String,
        /// What stands against it.
        why: String,
    },
    /// Numbers that cannot be compared or estimated from.
    #[error("{0}")]
    Estimate(String),
}
