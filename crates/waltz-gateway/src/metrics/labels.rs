//! The labels with every value that they can have, and the bounds of histograms.

use super::cells::Label;

pub(super) const ENDPOINT: Label = Label {
    name: "endpoint",
    values: &[
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
        "/waltz/v1/evaluate",
        "/waltz/v1/run",
        "other",
    ],
};
pub(super) const STATUS: Label = Label {
    name: "status",
    values: &[
        "200", "400", "401", "403", "404", "408", "409", "413", "422", "429", "499", "500", "502", "503",
        "504", "other",
    ],
};
pub(super) const DECISION: Label = Label {
    name: "decision",
    values: &[
        "released",
        "coached",
        "refused",
        "stopped",
        "passthrough",
        "degraded",
        "blocked",
        "evaluated",
        "invalid",
        "failed",
        "incomplete",
        "client_gone",
        "other",
    ],
};
pub(super) const VERDICT: Label =
    Label { name: "verdict", values: &["safe", "unsafe", "overrefusal", "undecided", "unjudged"] };
pub(super) const CATEGORY: Label = Label {
    name: "category",
    values: &[
        "none",
        "violence_harm",
        "illegal_activity",
        "unauthorized_access",
        "privacy_violation",
        "hate_speech",
        "self_harm",
        "sexual_content",
        "misinformation",
        "other",
    ],
};
pub(super) const LEVEL: Label = Label { name: "level", values: &["0", "1", "2", "3"] };
pub(super) const REFUSAL: Label = Label { name: "kind", values: &["over", "justified"] };
pub(super) const DEGRADED: Label =
    Label { name: "reason", values: &["judge_unparsable", "judge_timeout", "judge_unavailable", "other"] };
pub(super) const PURPOSE: Label = Label {
    name: "purpose",
    values: &["draft", "feedback", "revision", "self_check", "embeddings", "count_tokens", "other"],
};
pub(super) const CALL_ERROR: Label = Label {
    name: "kind",
    values: &["shed", "unreachable", "broken_off", "timeout", "unusable", "status", "abandoned", "other"],
};
pub(super) const TOKENS: Label = Label { name: "kind", values: &["prompt", "completion", "coaching"] };
pub(super) const DROPPED_REVISION: Label =
    Label { name: "reason", values: &["worse", "echo", "repetition", "empty", "off_topic"] };
pub(super) const SIGNAL: Label = Label { name: "signal", values: &["traces", "metrics"] };
pub(super) const DROPPED: Label = Label {
    name: "reason",
    values: &["queue_full", "too_many", "timeout", "unreachable", "status", "stopped"],
};

/// Bounds that make 200 ms an edge, as the target for the overhead asks.
pub(super) const SECONDS: [f64; 16] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8];
/// The same in milliseconds, with room for slow models.
pub(super) const MILLISECONDS: [f64; 19] = [
    1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 150.0, 200.0, 250.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0,
    12_800.0, 25_600.0, 51_200.0, 102_400.0,
];
pub(super) const SHARE: [f64; 11] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
pub(super) const SIGNED: [f64; 11] = [-1.0, -0.8, -0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0];
pub(super) const ROUNDS: [f64; 4] = [0.0, 1.0, 2.0, 3.0];
