//! Which variant a unit meets, and the share that each has.

use waltz_exchange::variant::{Choice, RequestContext, VariantStatus};

use super::{Board, Entry};
use crate::choose::{Arm, probabilities};
use crate::release::ReleaseRun;
use crate::{Settings, assign};

impl Board {
    /// Which variant serves a unit, such as a session, with the chance it had.
    pub fn choose(&self, unit: &str, context: &RequestContext, settings: &Settings) -> Choice {
        let shares = self.shares(context, settings);
        let chances: Vec<f64> = shares.iter().map(|(_, chance)| *chance).collect();
        let seed = self.running_release().map_or(&self.seed, |run| &run.release.seed);
        let position = assign::pick(&chances, assign::bucket(seed, unit));
        let (variant, action_prob) = shares.get(position).copied().unwrap_or((&self.serving, 1.0));
        Choice {
            variant: variant.to_owned(),
            action_prob,
            candidates: shares.iter().map(|(name, chance)| ((*name).to_owned(), *chance)).collect(),
        }
    }

    /// The share of each variant that gets traffic; the candidate of a release stands first, so that a growing
    /// share only adds units.
    fn shares(&self, context: &RequestContext, settings: &Settings) -> Vec<(&str, f64)> {
        if self.paused || self.frozen.is_some() {
            return vec![(&self.serving, 1.0)];
        }
        if let Some(run) = self.running_release() {
            let share = f64::from(run.percent(settings.release.cap)) / 100.0;
            let both = [(run.release.candidate.as_str(), share), (self.serving.as_str(), 1.0 - share)];
            return both.into_iter().filter(|(_, share)| *share > 0.0).collect();
        }
        let live: Vec<&Entry> =
            self.entries.values().filter(|entry| entry.variant.status == VariantStatus::Live).collect();
        let arms: Vec<Arm<'_>> =
            live.iter().map(|entry| Arm { value: &entry.value, linear: entry.linear.as_ref() }).collect();
        let chances = probabilities(&arms, &settings.choose, context);
        live.iter().map(|entry| entry.variant.name.as_str()).zip(chances).collect()
    }

    pub(crate) fn running_release(&self) -> Option<&ReleaseRun> {
        self.release.as_ref().filter(|run| run.is_active())
    }
}
