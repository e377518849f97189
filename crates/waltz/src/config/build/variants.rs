//! Checks the sections that say which variants serve.

use std::sync::Arc;

use secrecy::SecretString;
use waltz_coach::upstream::Hook;
use waltz_gateway::settings::VariantSettings;
use waltz_rollout::release::PROFILES;
use waltz_rollout::{
    ChooseRule, ChooseSettings, DecideSettings, ProposeSettings, ReleaseSettings, RollbackMode,
    RollbackSettings, Settings, SubjectSettings,
};

use super::{Check, is_variable_name};
use crate::config::raw::{self, RawConfig};

/// The key of the file for each setting whose name differs.
const NAMES: [(&str, &str); 13] = [
    ("choose.floor", "variants.least_share"),
    ("choose.epsilon", "variants.epsilon"),
    ("choose.ucb_c", "variants.ucb_c"),
    ("choose.linucb_alpha", "variants.linucb_alpha"),
    ("decide.auto_apply_q", "variants.auto_apply_q"),
    ("decide.auto_apply_e", "variants.auto_apply_e"),
    ("decide.floor", "variants.floor_q"),
    ("decide.approval_q", "variants.approval_q"),
    ("decide.min_gain", "variants.min_gain"),
    ("subject.window", "variants.subject_window"),
    ("propose.weak_q", "proposals.weak_q"),
    ("propose.promote_gap", "proposals.promote_gap"),
    ("propose.expire_days", "proposals.expire_days"),
];

impl Check<'_> {
    pub(super) fn variants(&mut self, raw: &RawConfig) -> VariantSettings {
        let thresholds = self.thresholds(raw);
        VariantSettings { webhooks: self.webhooks(&raw.webhooks), ..thresholds }
    }

    /// All but the addresses that are told of rollbacks, whose secrets only a gateway has.
    pub(crate) fn thresholds(&mut self, raw: &RawConfig) -> VariantSettings {
        let rollout = settings(raw);
        for (key, allowed) in rollout.mistakes() {
            let key = NAMES.iter().find(|(ours, _)| *ours == key).map_or(key, |(_, name)| name);
            self.mistake(key, format!("must be {allowed}"));
        }
        if !PROFILES.contains(&raw.release.profile.as_str()) {
            self.mistake("release.profile", format!("must be one of {}", PROFILES.join(", ")));
        }
        VariantSettings {
            rollout,
            release_profile: raw.release.profile.clone(),
            allow_self_approval: raw.proposals.allow_self_approval,
            webhooks: Vec::new(),
        }
    }

    fn webhooks(&mut self, raw: &[raw::Webhook]) -> Vec<Arc<Hook>> {
        let mut hooks = Vec::new();
        for (index, webhook) in raw.iter().enumerate() {
            let at = |field: &str| format!("webhooks[{index}].{field}");
            let timeout = self.duration(&at("timeout_ms"), webhook.timeout_ms);
            let secret =
                if is_variable_name(&webhook.secret_env) { self.variable(&webhook.secret_env) } else { None };
            let Some(secret) = secret.filter(|secret| secret.len() >= 16).map(str::to_owned) else {
                let message =
                    "must name an environment variable that holds a secret of 16 characters or more";
                self.mistake(at("secret_env"), message);
                continue;
            };
            let url = &webhook.url;
            let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            if !host.is_some_and(|host| !host.is_empty() && !host.contains(['@', '#', ' '])) {
                self.mistake(at("url"), "must be http:// or https:// with a host, and without credentials");
                continue;
            }
            let allow_private = webhook.allow_private_addresses;
            match Hook::new(url, SecretString::from(secret), timeout, allow_private) {
                Ok(hook) => hooks.push(Arc::new(hook)),
                Err(error) => self.mistake(at("url"), error.to_string()),
            }
        }
        hooks
    }
}

fn settings(raw: &RawConfig) -> Settings {
    let RawConfig { variants, proposals, rollback, release, .. } = raw;
    let profile = match variants.profile {
        raw::Profile::Standard => "standard",
        raw::Profile::Cautious => "cautious",
    };
    let usual = Settings::profile(profile).unwrap_or_default().decide;
    Settings {
        choose: ChooseSettings {
            rule: match variants.rule {
                raw::VariantRule::EpsilonGreedy => ChooseRule::EpsilonGreedy,
                raw::VariantRule::Ucb1 => ChooseRule::Ucb1,
                raw::VariantRule::Thompson => ChooseRule::Thompson,
                raw::VariantRule::Linucb => ChooseRule::Linucb,
            },
            floor: variants.least_share,
            epsilon: variants.epsilon,
            ucb_c: variants.ucb_c,
            linucb_alpha: variants.linucb_alpha,
        },
        decide: DecideSettings {
            // Without the benchmark every promotion is a person's.
            auto_apply: variants.auto_apply && raw.waltz.safety_benchmarks,
            auto_apply_q: variants.auto_apply_q.unwrap_or(usual.auto_apply_q),
            auto_apply_visits: variants.auto_apply_visits.unwrap_or(usual.auto_apply_visits),
            auto_apply_e: variants.auto_apply_e,
            floor: variants.floor_q,
            approval_q: variants.approval_q,
            approval_visits: variants.approval_visits,
            min_gain: variants.min_gain,
        },
        rollback: RollbackSettings {
            mode: match rollback.mode {
                raw::RollbackMode::Bounded => RollbackMode::Bounded,
                raw::RollbackMode::Window => RollbackMode::Window,
                raw::RollbackMode::Off => RollbackMode::Off,
            },
            alpha: rollback.alpha,
            horizon: rollback.horizon,
            window: rollback.window,
            success_drop: rollback.success_drop,
            reward_drop: rollback.reward_drop,
            error_increase: rollback.error_increase,
            target_visits: rollback.target_visits,
            cooldown_seconds: rollback.cooldown_seconds,
            max_per_day: rollback.max_per_day,
        },
        propose: ProposeSettings {
            min_invocations: proposals.min_invocations,
            weak_q: proposals.weak_q,
            promote_gap: proposals.promote_gap,
            expire_days: proposals.expire_days,
        },
        release: ReleaseSettings {
            promote_e: release.promote_e,
            non_inferiority: release.non_inferiority,
            max_asr: release.max_asr,
            max_orr: release.max_orr,
            max_ftr: release.max_ftr,
            max_overhead_ms: release.max_overhead_ms,
            abort_asr: release.abort_asr,
            abort_orr: release.abort_orr,
            abort_alpha: release.abort_alpha,
            min_control: release.min_control,
            // Without the benchmark every promotion is a person's.
            human: !raw.waltz.safety_benchmarks,
            cap: raw.waltz.traffic_percentage.min(100),
        },
        subject: SubjectSettings { cap: variants.subject_cap, window: variants.subject_window },
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str, environment: &[(String, String)]) -> (VariantSettings, Vec<String>) {
        let raw: RawConfig = toml::from_str(text).unwrap();
        let mut check = Check::new(&[], environment, Path::new(""));
        let settings = check.variants(&raw);
        (settings, check.mistakes.iter().map(|mistake| mistake.key.clone()).collect())
    }

    #[test]
    fn an_empty_file_means_the_defaults_and_a_profile_only_what_it_names() {
        assert_eq!(read("", &[]).0.rollout, Settings::default());
        let (cautious, _) = read("variants.profile = \"cautious\"", &[]);
        assert_eq!(Some(cautious.rollout), Settings::profile("cautious"));
        let (own, _) = read("[variants]\nprofile = \"cautious\"\nauto_apply_q = 0.8\n", &[]);
        assert_eq!((own.rollout.decide.auto_apply_q, own.rollout.decide.auto_apply_visits), (0.8, 20));
        let unmeasured = read("waltz.safety_benchmarks = false\nvariants.auto_apply = true", &[]).0;
        assert!(!unmeasured.rollout.decide.auto_apply && own.rollout.decide.auto_apply);
        assert!(unmeasured.rollout.release.human && !own.rollout.release.human, "no step without a person");
        let capped = read("waltz.traffic_percentage = 5", &[]).0;
        assert_eq!((capped.rollout.release.cap, own.rollout.release.cap), (5, 100));
    }

    #[test]
    fn mistakes_bear_the_names_of_the_file() {
        let text = "[variants]\nleast_share = 2.0\nfloor_q = 1.0\nmin_gain = -0.1\nsubject_cap = 300\n[proposals]\nweak_q = -1.0\n\
            [rollback]\nalpha = 0.0\n[release]\npromote_e = 0.5\n[[webhooks]]\nurl = \"http://169.254.169.254/\"\nsecret_env = \"S\"\n\
            [[webhooks]]\nurl = \"ftp://x\"\nsecret_env = \"S\"\n[[webhooks]]\nurl = \"http://x\"\nsecret_env = \"SHORT\"\n";
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (_, keys) = read(text, &[variable("S", "0123456789abcdef"), variable("SHORT", "x")]);
        assert_eq!(
            keys,
            [
                "variants.least_share",
                "variants.floor_q",
                "variants.min_gain",
                "rollback.alpha",
                "proposals.weak_q",
                "release.promote_e",
                "variants.subject_window",
                "webhooks[0].url",
                "webhooks[1].url",
                "webhooks[2].secret_env"
            ]
        );
    }
}
