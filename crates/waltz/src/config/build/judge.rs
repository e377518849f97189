//! Finds level 2 of the judge: its language model among those that run already, or in the models folder.

use std::sync::Arc;

use waltz_coach::judge::{EncoderJudge, NeuralJudge};
use waltz_coach::local::LocalModel;
use waltz_model::Models;

use super::Check;
use crate::config::raw::{Judge, Neural};

/// The language model whose body the neural judge is.
pub(crate) const NEURAL_MODEL: &str = "smollm2";

impl Check<'_> {
    /// Level 2a, unless it is switched off.
    pub(crate) fn encoder(&mut self, raw: &Judge) -> Option<EncoderJudge> {
        let limit = self.duration("judge.timeout_ms", raw.timeout_ms);
        raw.encoder.then(|| EncoderJudge::new(limit))
    }

    /// The neural judge, where it is wanted and its model is there.
    pub(crate) fn neural(
        &mut self,
        raw: &Judge,
        models: &Models,
        running: &[Arc<LocalModel>],
    ) -> Option<NeuralJudge> {
        let limit = self.duration("judge.timeout_ms", raw.timeout_ms);
        if raw.neural == Neural::Off {
            return None;
        }
        match NEURAL_MODEL.parse().and_then(|name| LocalModel::find(models, &name)) {
            Ok(model) => {
                let loaded = running.iter().find(|loaded| loaded.stands_for(&model)).cloned();
                let weights = raw.weights.as_ref().map(|file| self.base.join(file));
                if let Some(path) = &weights
                    && let Err(reason) = model.check_judge(path)
                {
                    self.mistake("judge.weights", format!("`{}`: {reason}", path.display()));
                }
                Some(NeuralJudge::new(loaded.unwrap_or_else(|| Arc::new(model)), weights, limit))
            }
            Err(error) => {
                if raw.neural == Neural::On {
                    self.mistake("judge.neural", error.to_string());
                }
                None
            }
        }
    }
}
