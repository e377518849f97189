//! How fast weights change: AdamW's constants, the warm-up and decay of the rate, the clip.

use serde::{Deserialize, Serialize};

use super::{AdamW, Device, Tensor};
use crate::Error;

/// How a run changes weights. Part of every checkpoint, so that a run goes on as it began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimiser {
    /// The highest learning rate.
    pub rate: f32,
    /// Steps in which the rate climbs to it.
    pub warm_up: u32,
    /// Steps of the run; at the last one the rate has come down to `lowest` along half a cosine.
    pub steps: u32,
    /// The lowest rate at the end, as a share of the highest.
    pub lowest: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Decay of matrices, apart from the gradient.
    pub decay: f32,
    /// The longest gradient; a longer one is shortened to it.
    pub clip: f32,
}

impl Default for Optimiser {
    fn default() -> Self {
        Self {
            rate: 2e-4,
            warm_up: 10,
            steps: 1_000,
            lowest: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            decay: 0.0,
            clip: 1.0,
        }
    }
}

impl Optimiser {
    /// Says what is out of range.
    pub(super) fn check(&self) -> Result<(), Error> {
        let Self { rate, steps, lowest, beta1, beta2, epsilon, decay, clip, .. } = *self;
        let share = |value: f32| (0.0..1.0).contains(&value);
        let sound = [
            ("rate", rate >= 0.0 && rate.is_finite()),
            ("steps", steps > 0),
            ("lowest", (0.0..=1.0).contains(&lowest)),
            ("beta1", share(beta1)),
            ("beta2", share(beta2)),
            ("epsilon", epsilon > 0.0 && epsilon.is_finite()),
            ("decay", decay >= 0.0 && decay.is_finite()),
            ("clip", clip > 0.0 && clip.is_finite()),
        ];
        match sound.iter().find(|(_, sound)| !sound) {
            Some((name, _)) => Err(Error::training(format!("the optimiser's `{name}` is out of range"))),
            None => Ok(()),
        }
    }

    /// The rate of a step, counted from 1.
    pub fn rate_at(&self, step: u32) -> f32 {
        let Self { rate, warm_up, steps, lowest, .. } = *self;
        if step <= warm_up {
            return rate * step as f32 / warm_up as f32;
        }
        let done = f64::from(step - warm_up) / f64::from(steps.saturating_sub(warm_up).max(1));
        let wave = 0.5 * (1.0 + (std::f64::consts::PI * done.min(1.0)).cos());
        rate * (lowest + (1.0 - lowest) * wave as f32)
    }

    /// Takes one step over all tensors and clears their gradients. Returns the gradient's length before the clip. A
    /// gradient that is not finite changes nothing, is thrown away and is an error.
    pub(super) fn step<D: Device>(
        &self,
        device: &D,
        step: u32,
        tensors: &mut [&mut Tensor<D>],
    ) -> Result<f64, Error> {
        let gradients: Vec<&D::Floats> = tensors.iter().filter_map(|tensor| tensor.gradient()).collect();
        let length = device.square_sum(&gradients)?.sqrt();
        if !length.is_finite() {
            for tensor in tensors {
                tensor.forget(device)?;
            }
            return Err(Error::training(format!("the gradient of step {step} is not finite")));
        }
        let scale = if length > f64::from(self.clip) { f64::from(self.clip) / length } else { 1.0 };
        let update = AdamW {
            rate: self.rate_at(step),
            beta1: self.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            decay: self.decay,
            step,
            scale: scale as f32,
        };
        for tensor in tensors {
            tensor.update(device, &update)?;
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_climbs_and_comes_down_along_a_cosine() {
        let plan = Optimiser { rate: 1.0, warm_up: 4, steps: 12, lowest: 0.2, ..Optimiser::default() };
        let rates: Vec<f32> = (1..=13).map(|step| plan.rate_at(step)).collect();
        assert_eq!(rates[..4], [0.25, 0.5, 0.75, 1.0]);
        assert!((rates[7] - 0.6).abs() < 1e-6, "half way: {}", rates[7]);
        assert!((rates[11] - 0.2).abs() < 1e-6 && rates[12] == rates[11], "{rates:?}");
        assert!(rates[3..12].windows(2).all(|pair| pair[0] > pair[1]), "{rates:?}");
        let flat = Optimiser { rate: 0.5, warm_up: 0, steps: 1, lowest: 1.0, ..Optimiser::default() };
        assert_eq!(flat.rate_at(1), 0.5);
    }

    #[test]
    fn values_out_of_range_are_named() {
        let sound = Optimiser::default();
        sound.check().unwrap();
        let refusals = [
            (Optimiser { rate: f32::NAN, ..sound }, "`rate`"),
            (Optimiser { beta2: 1.0, ..sound }, "`beta2`"),
            (Optimiser { clip: 0.0, ..sound }, "`clip`"),
            // JSON has no word for it, so that no checkpoint could be read again.
            (Optimiser { clip: f32::INFINITY, ..sound }, "`clip`"),
            (Optimiser { steps: 0, ..sound }, "`steps`"),
        ];
        for (plan, name) in refusals {
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
