//! One layer's way forward and back: attention and the feed-forward part, each added to what came in and then normed.

use super::super::linear::{self, Onto};
use super::super::tensor::Tensor;
use super::super::{AttentionShape, Device, Form, Grid, LayerNorm, Sight, Starts};
use super::normed;
use crate::bert::{Layer, Linear, Norm};
use crate::{Error, Shape};

type Own<D> = Layer<Tensor<D>, Tensor<D>>;

/// What every layer of a pass has in common.
pub(super) struct Frame<'a, D: Device> {
    /// The machine.
    pub(super) device: &'a D,
    /// The model's sizes.
    pub(super) shape: &'a Shape,
    /// Where the sequences lie.
    pub(super) starts: &'a Starts,
    /// Tokens of the batch.
    pub(super) rows: usize,
    /// As many ones: a product with them adds a bias to every row, or every row to a bias.
    pub(super) ones: &'a D::Numbers,
}

/// What a pass keeps of a layer.
pub(super) struct Kept<D: Device> {
    /// What came in (rows, width).
    pub(super) input: D::Numbers,
    /// What was computed.
    pub(super) parts: Parts<D>,
}

/// What a layer computed and its way back needs.
pub(super) struct Parts<D: Device> {
    /// Queries, keys and values (rows, 3 x width).
    attention: D::Numbers,
    /// What attention keeps itself.
    attended: D::Attended,
    /// Attention's result (rows, width).
    mixed: D::Numbers,
    /// Input plus attention's output, before the norm (rows, width).
    first_sum: D::Numbers,
    /// After it.
    middle: D::Numbers,
    /// Before GELU (rows, hidden).
    up: D::Numbers,
    /// Middle plus what came down, before the norm (rows, width).
    second_sum: D::Numbers,
}

impl<D: Device> Frame<'_, D> {
    /// Takes the state through a layer. Returns what the way back needs, and the new state.
    pub(super) fn forward(
        &self,
        input: &D::Numbers,
        layer: &Own<D>,
    ) -> Result<(Parts<D>, D::Numbers), Error> {
        let Self { device, shape, starts, rows, .. } = *self;
        let attention = self.linear(input, &layer.query_key_value, None)?;
        let mut mixed = device.unset(rows * shape.width)?;
        let attended = device.attend(self.heads(), Sight::All, starts, &attention, &mut mixed)?;
        let first_sum = self.linear(&mixed, &layer.mixed, Some(input))?;
        let middle = self.norm(&first_sum, &layer.attention_norm)?;
        let up = self.linear(&middle, &layer.up, None)?;
        let second_sum = self.linear(&self.bent(&up)?, &layer.down, Some(&middle))?;
        let output = self.norm(&second_sum, &layer.feed_norm)?;
        Ok((Parts { attention, attended, mixed, first_sum, middle, up, second_sum }, output))
    }

    /// The way back: from the gradient of the layer's output to that of its input.
    pub(super) fn back(
        &self,
        kept: Kept<D>,
        layer: &mut Own<D>,
        gradient: &D::Numbers,
    ) -> Result<D::Numbers, Error> {
        let Self { device, shape, starts, rows, .. } = *self;
        let Kept { input, parts } = kept;
        let Parts { attention, attended, mixed, first_sum, middle, up, second_sum } = parts;
        // What comes back to a sum goes to both that were added.
        let mut to_middle = self.norm_back(&second_sum, &mut layer.feed_norm, gradient)?;
        let mut to_hidden = device.unset(rows * shape.hidden)?;
        let hidden = self.bent(&up)?;
        self.linear_back(&hidden, &mut layer.down, &to_middle, Onto::Nothing, &mut to_hidden)?;
        drop(hidden);
        let mut to_up = device.unset(rows * shape.hidden)?;
        device.gelu_back(&up, &to_hidden, &mut to_up)?;
        drop(to_hidden);
        self.linear_back(&middle, &mut layer.up, &to_up, Onto::What, &mut to_middle)?;
        drop(to_up);
        let mut to_input = self.norm_back(&first_sum, &mut layer.attention_norm, &to_middle)?;
        let mut to_mixed = device.unset(rows * shape.width)?;
        self.linear_back(&mixed, &mut layer.mixed, &to_input, Onto::Nothing, &mut to_mixed)?;
        let mut to_attention = device.unset(rows * 3 * shape.width)?;
        device.attend_back(
            self.heads(),
            Sight::All,
            starts,
            &attention,
            &mixed,
            &attended,
            &to_mixed,
            &mut to_attention,
        )?;
        self.linear_back(&input, &mut layer.query_key_value, &to_attention, Onto::What, &mut to_input)?;
        Ok(to_input)
    }

    /// The way back of a norm: adds to the gradients of its weights and returns that of its input.
    pub(super) fn norm_back(
        &self,
        input: &D::Numbers,
        norm: &mut Norm<Tensor<D>>,
        gradient: &D::Numbers,
    ) -> Result<D::Numbers, Error> {
        let Shape { width, epsilon, .. } = *self.shape;
        let mut to_input = self.device.unset(self.rows * width)?;
        let ((gain, to_gain), (bias, to_bias)) = (norm.gain.split(), norm.bias.split());
        let norm = LayerNorm { gain, bias, width, epsilon };
        self.device.layer_norm_back(input, norm, gradient, &mut to_input, to_gain.zip(to_bias))?;
        Ok(to_input)
    }

    fn heads(&self) -> AttentionShape {
        let Shape { heads, kv_heads, head, .. } = *self.shape;
        AttentionShape { heads, kv_heads, head }
    }

    fn norm(&self, input: &D::Numbers, norm: &Norm<Tensor<D>>) -> Result<D::Numbers, Error> {
        let mut output = self.device.unset(self.rows * self.shape.width)?;
        self.device.layer_norm(input, normed(norm, self.shape), &mut output)?;
        Ok(output)
    }

    fn bent(&self, up: &D::Numbers) -> Result<D::Numbers, Error> {
        let mut hidden = self.device.unset(self.rows * self.shape.hidden)?;
        self.device.gelu(up, &mut hidden)?;
        Ok(hidden)
    }

    /// `onto + bias + input W^T`. The bias comes before the product, which adds to it before anything is rounded.
    fn linear(
        &self,
        input: &D::Numbers,
        linear: &Linear<Tensor<D>, Tensor<D>>,
        onto: Option<&D::Numbers>,
    ) -> Result<D::Numbers, Error> {
        let Self { device, rows, ones, .. } = *self;
        let count = linear.weights.rows;
        let mut output = device.unset(rows * count)?;
        if let Some(onto) = onto {
            device.copy(onto, &mut output)?;
        }
        let keep = if onto.is_some() { 1.0 } else { 0.0 };
        let (left, right) = ((ones, Grid::whole(rows, 1)), (&linear.bias.weights, Grid::whole(1, count)));
        device.multiply(Form::Plain, 1.0, left, right, keep, (&mut output, Grid::whole(rows, count)))?;
        linear::forward(device, rows, input, (&linear.weights, None), Onto::What, &mut output)?;
        Ok(output)
    }

    fn linear_back(
        &self,
        input: &D::Numbers,
        linear: &mut Linear<Tensor<D>, Tensor<D>>,
        gradient: &D::Numbers,
        onto: Onto,
        to_input: &mut D::Numbers,
    ) -> Result<(), Error> {
        let Self { device, rows, ones, .. } = *self;
        let count = linear.weights.rows;
        linear::back(device, rows, input, (&mut linear.weights, None), gradient, onto, to_input)?;
        match linear.bias.gradient_mut() {
            Some(to_bias) => {
                let (left, right) = ((ones, Grid::whole(1, rows)), (gradient, Grid::whole(rows, count)));
                device.accumulate(Form::Plain, 1.0, left, right, (to_bias, Grid::whole(1, count)))
            }
            None => Ok(()),
        }
    }
}
