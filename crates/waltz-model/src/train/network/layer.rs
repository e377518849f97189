//! One layer's way forward and back: attention and the feed-forward part, each added to what came in.

use super::super::linear::{self, Onto};
use super::super::lora::Pair;
use super::super::tensor::Tensor;
use super::super::{AttentionShape, Device, Sight, Starts};
use crate::weights::Layer;
use crate::{Error, Shape};

/// What every layer of a pass has in common.
pub(super) struct Frame<'a, D> {
    /// The machine.
    pub(super) device: &'a D,
    /// The model's sizes.
    pub(super) shape: &'a Shape,
    /// Where the sequences lie.
    pub(super) starts: &'a Starts,
    /// Tokens of the batch.
    pub(super) rows: usize,
}

/// What a pass keeps of a layer.
pub(super) struct Kept<D: Device> {
    /// What came in (rows, width).
    pub(super) input: D::Numbers,
    /// What was computed, unless it shall be computed again.
    pub(super) parts: Option<Parts<D>>,
}

/// What a layer computed and its way back needs. Norms and the gate's result are made again: they cost little and
/// would be a third of all that is kept.
pub(super) struct Parts<D: Device> {
    /// Queries, keys and values (rows, (heads + 2 x kv_heads) x head).
    attention: D::Numbers,
    /// What attention keeps itself.
    attended: D::Attended,
    /// Attention's result (rows, width).
    mixed: D::Numbers,
    /// Input plus attention (rows, width).
    middle: D::Numbers,
    /// Gate and up (rows, 2 x hidden).
    both: D::Numbers,
}

impl<D: Device> Frame<'_, D> {
    /// Takes the state through a layer. Returns what the way back needs, and the new state.
    pub(super) fn forward(
        &self,
        input: &D::Numbers,
        layer: &Layer<Tensor<D>, Tensor<D>>,
        pairs: Option<&[Pair<D>; 4]>,
    ) -> Result<(Parts<D>, D::Numbers), Error> {
        let Self { device, shape, starts, rows } = *self;
        let Shape { width, hidden, .. } = *shape;
        let [one, two, three, four] = each(pairs);
        let normed = self.norm(input, &layer.attention_norm)?;
        let mut attention = device.unset(rows * (width + 2 * shape.kv_width()))?;
        let weights = (&layer.query_key_value, one);
        linear::forward(device, rows, &normed, weights, Onto::Nothing, &mut attention)?;
        drop(normed);
        let mut mixed = device.unset(rows * width)?;
        let attended = device.attend(self.heads(), self.sight(), starts, &attention, &mut mixed)?;
        let mut middle = device.unset(rows * width)?;
        device.copy(input, &mut middle)?;
        let weights = (&layer.attention_output, two);
        linear::forward(device, rows, &mixed, weights, Onto::What, &mut middle)?;
        let normed = self.norm(&middle, &layer.feed_norm)?;
        let mut both = device.unset(rows * 2 * hidden)?;
        linear::forward(device, rows, &normed, (&layer.gate_up, three), Onto::Nothing, &mut both)?;
        drop(normed);
        let mut gated = device.unset(rows * hidden)?;
        device.gate(&both, hidden, &mut gated)?;
        let mut output = device.unset(rows * width)?;
        device.copy(&middle, &mut output)?;
        linear::forward(device, rows, &gated, (&layer.down, four), Onto::What, &mut output)?;
        Ok((Parts { attention, attended, mixed, middle, both }, output))
    }

    /// The way back: `gradient` is that of the layer's output, and becomes that of its input.
    pub(super) fn back(
        &self,
        input: &D::Numbers,
        parts: Parts<D>,
        layer: &mut Layer<Tensor<D>, Tensor<D>>,
        pairs: Option<&mut [Pair<D>; 4]>,
        gradient: &mut D::Numbers,
    ) -> Result<(), Error> {
        let Self { device, shape, starts, rows } = *self;
        let Shape { width, hidden, .. } = *shape;
        let Parts { attention, attended, mixed, middle, both } = parts;
        let [one, two, three, four] = each_mut(pairs);
        let mut to_both = device.unset(rows * 2 * hidden)?;
        {
            let mut gated = device.unset(rows * hidden)?;
            device.gate(&both, hidden, &mut gated)?;
            let mut to_gated = device.unset(rows * hidden)?;
            let weights = (&mut layer.down, four);
            linear::back(device, rows, &gated, weights, gradient, Onto::Nothing, &mut to_gated)?;
            device.gate_back(&both, hidden, &to_gated, &mut to_both)?;
        }
        drop(both);
        let mut to_normed = device.unset(rows * width)?;
        {
            let normed = self.norm(&middle, &layer.feed_norm)?;
            let weights = (&mut layer.gate_up, three);
            linear::back(device, rows, &normed, weights, &to_both, Onto::Nothing, &mut to_normed)?;
        }
        drop(to_both);
        self.norm_back(&middle, &mut layer.feed_norm, &to_normed, gradient)?;
        let mut to_attention = device.unset(rows * (width + 2 * shape.kv_width()))?;
        {
            let mut to_mixed = device.unset(rows * width)?;
            let weights = (&mut layer.attention_output, two);
            linear::back(device, rows, &mixed, weights, gradient, Onto::Nothing, &mut to_mixed)?;
            let heads = self.heads();
            device.attend_back(
                heads,
                self.sight(),
                starts,
                &attention,
                &mixed,
                &attended,
                &to_mixed,
                &mut to_attention,
            )?;
        }
        let normed = self.norm(input, &layer.attention_norm)?;
        let weights = (&mut layer.query_key_value, one);
        linear::back(device, rows, &normed, weights, &to_attention, Onto::Nothing, &mut to_normed)?;
        self.norm_back(input, &mut layer.attention_norm, &to_normed, gradient)
    }

    fn heads(&self) -> AttentionShape {
        let Shape { heads, kv_heads, head, .. } = *self.shape;
        AttentionShape { heads, kv_heads, head }
    }

    fn sight(&self) -> Sight {
        Sight::Past { rope_base: self.shape.rope_base }
    }

    fn norm(&self, input: &D::Numbers, gain: &Tensor<D>) -> Result<D::Numbers, Error> {
        let Shape { width, epsilon, .. } = *self.shape;
        let mut output = self.device.unset(self.rows * width)?;
        self.device.norm(input, (&gain.weights, width), epsilon, &mut output)?;
        Ok(output)
    }

    fn norm_back(
        &self,
        input: &D::Numbers,
        gain: &mut Tensor<D>,
        gradient: &D::Numbers,
        to_input: &mut D::Numbers,
    ) -> Result<(), Error> {
        let Shape { width, epsilon, .. } = *self.shape;
        let (gain, to_gain) = gain.split();
        self.device.norm_back(input, (gain, width), epsilon, gradient, to_input, to_gain)
    }
}

/// The adapter's part in each of the four matrices.
fn each<D: Device>(pairs: Option<&[Pair<D>; 4]>) -> [Option<&Pair<D>>; 4] {
    pairs.map_or([None; 4], |pairs| pairs.each_ref().map(Some))
}

fn each_mut<D: Device>(pairs: Option<&mut [Pair<D>; 4]>) -> [Option<&mut Pair<D>>; 4] {
    pairs.map_or([const { None }; 4], |pairs| pairs.each_mut().map(Some))
}
