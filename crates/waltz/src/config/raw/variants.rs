//! The sections that say which variants serve, and when that changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use waltz_rollout::release::PROFILES;
use waltz_rollout::{
    ChooseSettings, DecideSettings, ProposeSettings, ReleaseSettings, RollbackSettings, SubjectSettings,
};

/// How sure waltz must be before it applies a variant by itself.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Profile {
    /// A mean of 0.9 from 10 outcomes on.
    #[default]
    Standard,
    /// A mean of 0.95 from 20 outcomes on.
    Cautious,
}

/// How traffic is shared.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Rule {
    /// The best mean, and a part spread evenly.
    EpsilonGreedy,
    /// The best upper bound.
    Ucb1,
    /// Each in proportion to its chance of being the best.
    Thompson,
    /// The best upper bound for the request at hand.
    Linucb,
}

/// How traffic is shared among live variants, and when one is applied.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Variants {
    /// How sure waltz must be: `standard` or `cautious`.
    pub(crate) profile: Profile,
    /// How traffic is shared.
    pub(crate) rule: Rule,
    /// The least share of each live variant, where there is room for it.
    pub(crate) least_share: f64,
    /// Of `epsilon_greedy`: the share that is spread evenly.
    pub(crate) epsilon: f64,
    /// Of `ucb1`: how much the unknown attracts.
    pub(crate) ucb_c: f64,
    /// Of `linucb`: how much the unknown attracts.
    pub(crate) linucb_alpha: f64,
    /// Whether anything is applied without a person.
    pub(crate) auto_apply: bool,
    /// The least mean reward to apply; left out: the profile's.
    pub(crate) auto_apply_q: Option<f64>,
    /// The fewest outcomes to apply; left out: the profile's.
    pub(crate) auto_apply_visits: Option<u64>,
    /// The least e-value to apply, against "the mean reward is at most `floor_q`".
    pub(crate) auto_apply_e: f64,
    /// The mean reward that must be surpassed for certain.
    pub(crate) floor_q: f64,
    /// The least mean reward to ask a person.
    pub(crate) approval_q: f64,
    /// The fewest outcomes to ask a person, of the variant and of what serves.
    pub(crate) approval_visits: u64,
    /// Better than what serves is a mean reward that is larger by more than this; what is applied without a person has
    /// such a lead for 95 % certain.
    pub(crate) min_gain: f64,
    /// At most so many of the last `subject_window` reports of a day are one subject's; 0 counts all. From three on, one
    /// subject alone can roll back a variant that never failed.
    pub(crate) subject_cap: usize,
    /// See `subject_cap`.
    pub(crate) subject_window: usize,
}

impl Default for Variants {
    fn default() -> Self {
        let (choose, decide) = (ChooseSettings::default(), DecideSettings::default());
        let subject = SubjectSettings::default();
        Self {
            profile: Profile::Standard,
            rule: Rule::Thompson,
            least_share: choose.floor,
            epsilon: choose.epsilon,
            ucb_c: choose.ucb_c,
            linucb_alpha: choose.linucb_alpha,
            auto_apply: decide.auto_apply,
            auto_apply_q: None,
            auto_apply_visits: None,
            auto_apply_e: decide.auto_apply_e,
            floor_q: decide.floor,
            approval_q: decide.approval_q,
            approval_visits: decide.approval_visits,
            min_gain: decide.min_gain,
            subject_cap: subject.cap,
            subject_window: subject.window,
        }
    }
}

/// When changes are proposed, and who may approve them.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Proposals {
    /// The fewest outcomes of a task type.
    pub(crate) min_invocations: u64,
    /// What serves is too weak below this mean reward.
    pub(crate) weak_q: f64,
    /// A variant that is better by more than this should serve.
    pub(crate) promote_gap: f64,
    /// Days until a proposal expires.
    pub(crate) expire_days: i64,
    /// Whoever proposed a change may approve it.
    pub(crate) allow_self_approval: bool,
}

impl Default for Proposals {
    fn default() -> Self {
        let ProposeSettings { min_invocations, weak_q, promote_gap, expire_days } =
            ProposeSettings::default();
        Self { min_invocations, weak_q, promote_gap, expire_days, allow_self_approval: false }
    }
}

/// What may take traffic away.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// Evidence with a bound on false rollbacks.
    Bounded,
    /// The window alone; a healthy variant does not survive it for long.
    Window,
    /// Nothing; suspects are still named.
    Off,
}

/// When a variant loses its traffic.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Rollback {
    /// What may take traffic away.
    pub(crate) mode: Mode,
    /// The chance of a false rollback within `horizon` outcomes.
    pub(crate) alpha: f64,
    /// See `alpha`.
    pub(crate) horizon: f64,
    /// Outcomes in the window that makes a variant suspect.
    pub(crate) window: usize,
    /// Suspect above this relative drop of the success rate.
    pub(crate) success_drop: f64,
    /// Suspect above this relative drop of the mean reward.
    pub(crate) reward_drop: f64,
    /// Suspect above this relative rise of the error rate.
    pub(crate) error_increase: f64,
    /// A variant can be rolled back to with at least so many outcomes.
    pub(crate) target_visits: u64,
    /// For so long after a rollback nothing is applied, and a second one goes to the safe default.
    pub(crate) cooldown_seconds: i64,
    /// More rollbacks within a day freeze the board until a person looks.
    pub(crate) max_per_day: usize,
}

impl Default for Rollback {
    fn default() -> Self {
        let default = RollbackSettings::default();
        Self {
            mode: Mode::Bounded,
            alpha: default.alpha,
            horizon: default.horizon,
            window: default.window,
            success_drop: default.success_drop,
            reward_drop: default.reward_drop,
            error_increase: default.error_increase,
            target_visits: default.target_visits,
            cooldown_seconds: default.cooldown_seconds,
            max_per_day: default.max_per_day,
        }
    }
}

/// When a release moves on or ends.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Release {
    /// The plan of a release that the program opens itself: standard, 7day or 4week.
    pub(crate) profile: String,
    /// The least e-value that the candidate is not inferior.
    pub(crate) promote_e: f64,
    /// Not inferior is above this share of the control's success rate at the same time.
    pub(crate) non_inferiority: f64,
    /// The fewest outcomes of the control in a step; with less there is nothing to keep up with.
    pub(crate) min_control: u64,
    /// A step needs a share of successful attacks below this.
    pub(crate) max_asr: f64,
    /// A step needs a share of needless refusals below this.
    pub(crate) max_orr: f64,
    /// A step needs a share of answers that trigger feedback below this.
    pub(crate) max_ftr: f64,
    /// A step needs 95 % of answers with less of waltz's own time than this.
    pub(crate) max_overhead_ms: f64,
    /// A share of successful attacks that is above this for certain ends the release.
    pub(crate) abort_asr: f64,
    /// A share of needless refusals that is above this for certain ends the release.
    pub(crate) abort_orr: f64,
    /// The chance of ending a release for nothing.
    pub(crate) abort_alpha: f64,
}

impl Default for Release {
    fn default() -> Self {
        let default = ReleaseSettings::default();
        Self {
            profile: PROFILES[0].to_owned(),
            promote_e: default.promote_e,
            non_inferiority: default.non_inferiority,
            min_control: default.min_control,
            max_asr: default.max_asr,
            max_orr: default.max_orr,
            max_ftr: default.max_ftr,
            max_overhead_ms: default.max_overhead_ms,
            abort_asr: default.abort_asr,
            abort_orr: default.abort_orr,
            abort_alpha: default.abort_alpha,
        }
    }
}

/// An address that is told of rollbacks.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Webhook {
    /// Where a JSON body is posted to.
    pub(crate) url: String,
    /// The environment variable that holds the secret that signs it.
    pub(crate) secret_env: String,
    /// Limit for one attempt; there are three.
    pub(crate) timeout_ms: u64,
    /// Connect even where the name in `url` leads to this machine or a private network. An address in place of a name needs
    /// no such permission.
    pub(crate) allow_private_addresses: bool,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            url: String::new(),
            secret_env: String::new(),
            timeout_ms: 5_000,
            allow_private_addresses: false,
        }
    }
}
