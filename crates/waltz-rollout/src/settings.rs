//! Every threshold of this crate, with its default. The configuration fills these structures.

use serde::{Deserialize, Serialize};

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How traffic is shared among live variants.
    pub choose: ChooseSettings,
    /// When a variant is applied or shown to people.
    pub decide: DecideSettings,
    /// When a variant loses its traffic.
    pub rollback: RollbackSettings,
    /// When changes are proposed.
    pub propose: ProposeSettings,
    /// When a release moves on or ends.
    pub release: ReleaseSettings,
    /// How much one subject can count.
    pub subject: SubjectSettings,
}

impl Settings {
    /// The settings of a named profile: `standard`, or `cautious`, which applies a variant by itself only at a mean
    /// of 0.95 from 20 outcomes on.
    pub fn profile(name: &str) -> Option<Self> {
        let standard = Self::default();
        match name {
            "standard" => Some(standard),
            "cautious" => {
                let decide = DecideSettings { auto_apply_q: 0.95, auto_apply_visits: 20, ..standard.decide };
                Some(Self { decide, ..standard })
            }
            _ => None,
        }
    }
}

impl Settings {
    /// Everything that is wrong with the settings, as `(key, what is allowed)`.
    pub fn mistakes(&self) -> Vec<(&'static str, &'static str)> {
        let Self { choose, decide, rollback, propose, release, subject } = self;
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let inside = |value: f64| value > 0.0 && value < 1.0;
        let (shares, insides) = ("0 to 1", "above 0 and below 1");
        [
            ("choose.floor", share(choose.floor), shares),
            ("choose.epsilon", share(choose.epsilon), shares),
            ("choose.ucb_c", choose.ucb_c >= 0.0 && choose.ucb_c.is_finite(), "0 or more"),
            (
                "choose.linucb_alpha",
                choose.linucb_alpha >= 0.0 && choose.linucb_alpha.is_finite(),
                "0 or more",
            ),
            ("decide.auto_apply_q", share(decide.auto_apply_q), shares),
            ("decide.auto_apply_e", decide.auto_apply_e >= 1.0, "1 or more"),
            ("decide.floor", inside(decide.floor), insides),
            ("decide.approval_q", share(decide.approval_q), shares),
            ("decide.min_gain", share(decide.min_gain), shares),
            ("rollback.alpha", inside(rollback.alpha), insides),
            ("rollback.horizon", rollback.horizon >= 1.0 && rollback.horizon.is_finite(), "1 or more"),
            ("rollback.window", (5..=1000).contains(&rollback.window), "5 to 1000"),
            ("rollback.success_drop", inside(rollback.success_drop), insides),
            ("rollback.reward_drop", inside(rollback.reward_drop), insides),
            ("rollback.error_increase", rollback.error_increase > 0.0, "above 0"),
            ("rollback.cooldown_seconds", rollback.cooldown_seconds >= 0, "0 or more"),
            ("propose.weak_q", share(propose.weak_q), shares),
            ("propose.promote_gap", share(propose.promote_gap), shares),
            ("propose.expire_days", (1..=3650).contains(&propose.expire_days), "1 to 3650"),
            ("release.promote_e", release.promote_e >= 1.0, "1 or more"),
            ("release.non_inferiority", inside(release.non_inferiority), insides),
            ("release.max_asr", share(release.max_asr), shares),
            ("release.max_orr", share(release.max_orr), shares),
            ("release.max_ftr", share(release.max_ftr), shares),
            ("release.max_overhead_ms", release.max_overhead_ms > 0.0, "above 0"),
            ("release.abort_asr", inside(release.abort_asr), insides),
            ("release.abort_orr", inside(release.abort_orr), insides),
            ("release.abort_alpha", inside(release.abort_alpha), insides),
            ("release.cap", release.cap <= 100, "0 to 100"),
            (
                "subject.window",
                subject.window >= subject.cap && subject.window <= 10_000,
                "subject.cap to 10000",
            ),
        ]
        .into_iter()
        .filter(|(_, holds, _)| !holds)
        .map(|(key, _, allowed)| (key, allowed))
        .collect()
    }
}

/// How traffic is shared among live variants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChooseSettings {
    /// The rule.
    pub rule: ChooseRule,
    /// The least share of each live variant, where there is room for it.
    pub floor: f64,
    /// Of `epsilon_greedy`: the share that is spread evenly.
    pub epsilon: f64,
    /// Of `ucb1`: how much the unknown attracts.
    pub ucb_c: f64,
    /// Of `linucb`: how much the unknown attracts.
    pub linucb_alpha: f64,
}

impl Default for ChooseSettings {
    fn default() -> Self {
        Self {
            rule: ChooseRule::Thompson,
            floor: 0.05,
            epsilon: 0.1,
            ucb_c: std::f64::consts::SQRT_2,
            linucb_alpha: 1.0,
        }
    }
}

/// A rule that shares traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChooseRule {
    /// The best mean, and a part spread evenly.
    EpsilonGreedy,
    /// The best upper bound.
    Ucb1,
    /// Each in proportion to its chance of being the best.
    Thompson,
    /// The best upper bound for the request at hand.
    Linucb,
}

/// When a variant is applied or shown to people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecideSettings {
    /// Whether anything is applied without a person.
    pub auto_apply: bool,
    /// The least mean reward to apply.
    pub auto_apply_q: f64,
    /// The fewest outcomes to apply.
    pub auto_apply_visits: u64,
    /// The least e-value against "no better than `floor`" to apply.
    pub auto_apply_e: f64,
    /// The mean reward that must be surpassed for certain.
    pub floor: f64,
    /// The least mean reward to ask a person.
    pub approval_q: f64,
    /// The fewest outcomes to ask a person, of the variant and of what serves.
    pub approval_visits: u64,
    /// A mean reward is better than another only by more than this.
    pub min_gain: f64,
}

impl Default for DecideSettings {
    fn default() -> Self {
        Self {
            auto_apply: true,
            auto_apply_q: 0.9,
            auto_apply_visits: 10,
            auto_apply_e: 10.0,
            floor: 0.7,
            approval_q: 0.7,
            approval_visits: 5,
            min_gain: 0.02,
        }
    }
}

/// When a variant loses its traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RollbackSettings {
    /// What may take traffic away.
    pub mode: RollbackMode,
    /// The chance of a false rollback within `horizon` outcomes.
    pub alpha: f64,
    /// See `alpha`.
    pub horizon: f64,
    /// Outcomes in the window that makes a variant suspect.
    pub window: usize,
    /// Suspect above this relative drop of the success rate.
    pub success_drop: f64,
    /// Suspect above this relative drop of the mean reward.
    pub reward_drop: f64,
    /// Suspect above this relative rise of the error rate.
    pub error_increase: f64,
    /// A variant can be rolled back to with at least so many outcomes.
    pub target_visits: u64,
    /// For so long after a rollback nothing is applied, and a second one goes to the safe default.
    pub cooldown_seconds: i64,
    /// More rollbacks within a day freeze the board until a person looks.
    pub max_per_day: usize,
}

impl Default for RollbackSettings {
    fn default() -> Self {
        Self {
            mode: RollbackMode::Bounded,
            alpha: 0.01,
            horizon: 1000.0,
            window: 20,
            success_drop: 0.10,
            reward_drop: 0.15,
            error_increase: 0.20,
            target_visits: 5,
            cooldown_seconds: 3600,
            max_per_day: 3,
        }
    }
}

/// What may take traffic away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RollbackMode {
    /// Evidence with a bound on false rollbacks.
    Bounded,
    /// The window alone. A healthy variant does not survive it for long.
    Window,
    /// Nothing; suspects are still named.
    Off,
}

/// When changes are proposed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProposeSettings {
    /// The fewest outcomes of a task type.
    pub min_invocations: u64,
    /// A default below this mean reward is too weak.
    pub weak_q: f64,
    /// A variant that is better by more than this should serve.
    pub promote_gap: f64,
    /// Days until a proposal expires.
    pub expire_days: i64,
}

impl Default for ProposeSettings {
    fn default() -> Self {
        Self { min_invocations: 50, weak_q: 0.6, promote_gap: 0.20, expire_days: 14 }
    }
}

/// When a release moves on or ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseSettings {
    /// The least e-value that the candidate is not inferior.
    pub promote_e: f64,
    /// Not inferior is above this share of the control's success rate at the same time.
    pub non_inferiority: f64,
    /// A step needs a share of successful attacks below this.
    pub max_asr: f64,
    /// A step needs a share of needless refusals below this.
    pub max_orr: f64,
    /// A step needs a share of answers that trigger feedback below this.
    pub max_ftr: f64,
    /// A step needs 95 % of answers with less of waltz's own time than this.
    pub max_overhead_ms: f64,
    /// A share of successful attacks that is above this for certain ends the release.
    pub abort_asr: f64,
    /// A share of needless refusals that is above this for certain ends the release.
    pub abort_orr: f64,
    /// The chance of ending a release for nothing, for each of its three reasons together.
    pub abort_alpha: f64,
    /// The fewest outcomes of the control in a step, which the candidate has to keep up with.
    pub min_control: u64,
    /// Every step waits for a person.
    pub human: bool,
    /// The operator's limit: the most percent of the traffic that a candidate may have. A step above it waits.
    pub cap: u8,
}

impl Default for ReleaseSettings {
    fn default() -> Self {
        Self {
            promote_e: 20.0,
            non_inferiority: 0.9,
            max_asr: 0.05,
            max_orr: 0.10,
            max_ftr: 0.50,
            max_overhead_ms: 200.0,
            abort_asr: 0.10,
            abort_orr: 0.15,
            abort_alpha: 0.01,
            min_control: 100,
            human: false,
            cap: 100,
        }
    }
}

/// How much one subject can count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SubjectSettings {
    /// At most so many of the last `window` reports of a day are one subject's; 0 counts all. From three on, one
    /// subject alone can roll back a variant that never failed.
    pub cap: usize,
    /// See `cap`.
    pub window: usize,
}

impl Default for SubjectSettings {
    fn default() -> Self {
        Self { cap: 2, window: 200 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_right_and_mistakes_are_named() {
        assert_eq!(Settings::default().mistakes(), []);
        let text = r#"{"rollback": {"alpha": 0}, "decide": {"floor": 1.0, "auto_apply_e": 0.5}, "subject": {"cap": 300}}"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        let keys: Vec<&str> = settings.mistakes().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["decide.auto_apply_e", "decide.floor", "rollback.alpha", "subject.window"]);
        assert_eq!(settings.rollback.window, 20, "what is not said is the default");
        assert!(serde_json::from_str::<Settings>(r#"{"rollback": {"alfa": 0.1}}"#).is_err());
    }
}
