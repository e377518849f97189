//! Checks what an operator changes of level 0: families, categories and texts that are allowed.

use waltz_exchange::Category;
use waltz_screen::{PiiKind, Screen, Settings, Switch};

use super::Check;
use crate::config::raw::{FamilyState, FamilySwitch, Judge};

impl Check<'_> {
    /// The changes, as far as they are right.
    pub(super) fn screen_settings(&mut self, raw: &Judge, screen: &Screen) -> Settings {
        let mut settings = Settings::default();
        for (family, switch) in &raw.families {
            let key = format!("judge.families.{family}");
            let data =
                |kind: &PiiKind| [format!("pii.{}", kind.as_str()), format!("secret.{}", kind.as_str())];
            let is_known = screen.families().iter().any(|info| info.id == *family)
                || PiiKind::ALL.iter().flat_map(data).any(|id| id == *family);
            if !is_known {
                self.mistake(key, "is no family; `waltz screen` and the reference name them");
                continue;
            }
            let switch = match switch {
                FamilySwitch::Named(FamilyState::Off) => Switch::Off,
                FamilySwitch::Named(FamilyState::Soft) => Switch::Soft,
                FamilySwitch::Named(FamilyState::On) => Switch::On,
                FamilySwitch::From(severity) => match self.severity(&key, *severity) {
                    Some(severity) => Switch::From(severity),
                    None => continue,
                },
            };
            settings.switch(family, switch);
        }
        for (name, rule) in &raw.categories {
            let key = format!("judge.categories.{name}");
            match (Category::parse(name), self.severity(&format!("{key}.threshold"), rule.threshold)) {
                (Some(category), Some(severity)) => settings.decides_from(category, severity),
                (None, _) => self.mistake(key, "is no name of a category"),
                (_, None) => {}
            }
        }
        for text in &raw.allow {
            if text.trim_matches('/').is_empty() {
                self.mistake("judge.allow", "must not be empty");
            } else if let Err(error) = settings.allow(text) {
                self.mistake("judge.allow", format!("`{text}` is no expression: {error}"));
            }
        }
        settings
    }

    #[expect(clippy::cast_possible_truncation, reason = "a severity needs no more digits")]
    fn severity(&mut self, key: &str, severity: f64) -> Option<f32> {
        let allowed = (0.0..=1.0).contains(&severity);
        if !allowed {
            self.mistake(key, "must be a number from 0 to 1");
        }
        allowed.then_some(severity as f32)
    }
}
