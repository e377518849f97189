//! What an encoder of BERT's family does to rows: layer norm and GELU, and their ways back.

use super::{COLUMNS, Cpu, PART, ROWS};
use crate::kernels::{Number, Spread, gelu_back, gelu_to, layer_norm_back, layer_norm_to};
use crate::train::device::LayerNorm;

impl<T: Number> Cpu<T> {
    pub(super) fn normed(&self, input: &[T], norm: &LayerNorm<'_, Self>, output: &mut [T]) {
        let width = self.fitting(input, norm);
        assert_eq!(output.len(), input.len(), "as many rows as come in");
        self.rows(output, width, |row, output| {
            let input = &input[row * width..][..width];
            layer_norm_to(self.instructions, input, (norm.gain, norm.bias), norm.epsilon, output);
        });
    }

    pub(super) fn normed_back(
        &self,
        input: &[T],
        norm: &LayerNorm<'_, Self>,
        gradient: &[T],
        to_input: &mut [T],
        to_norm: Option<(&mut Vec<T>, &mut Vec<T>)>,
    ) {
        let width = self.fitting(input, norm);
        assert_eq!((gradient.len(), to_input.len()), (input.len(), input.len()), "as many rows as came in");
        let mut spreads = vec![Spread::default(); input.len() / width];
        let outputs = to_input.chunks_mut(ROWS * width).zip(spreads.chunks_mut(ROWS)).enumerate();
        self.threads.each(outputs, |(part, (to_input, spreads))| {
            for (offset, (to, spread)) in to_input.chunks_exact_mut(width).zip(spreads).enumerate() {
                let first = (part * ROWS + offset) * width;
                let (input, gradient) = (&input[first..][..width], &gradient[first..][..width]);
                *spread = layer_norm_back(self.instructions, input, norm.gain, norm.epsilon, gradient, to);
            }
        });
        let Some((to_gain, to_bias)) = to_norm else { return };
        let parts = to_gain.chunks_mut(COLUMNS).zip(to_bias.chunks_mut(COLUMNS)).enumerate();
        self.threads.each(parts, |(part, (to_gain, to_bias))| {
            for (row, Spread { mean, factor }) in spreads.iter().enumerate() {
                let first = row * width + part * COLUMNS;
                let (input, gradient) = (&input[first..], &gradient[first..]);
                let sums = to_gain.iter_mut().zip(&mut *to_bias);
                for (((gain, bias), value), gradient) in sums.zip(input).zip(gradient) {
                    *gain += (*value - *mean) * *factor * *gradient;
                    *bias += *gradient;
                }
            }
        });
    }

    pub(super) fn bent(&self, input: &[T], output: &mut [T]) {
        assert_eq!(input.len(), output.len(), "buffers of one length");
        self.threads.each(input.chunks(PART).zip(output.chunks_mut(PART)), |(input, output)| {
            gelu_to(self.instructions, input, output);
        });
    }

    pub(super) fn bent_back(&self, input: &[T], gradient: &[T], to_input: &mut [T]) {
        assert_eq!((input.len(), gradient.len()), (to_input.len(), to_input.len()), "buffers of one length");
        let inputs = input.chunks(PART).zip(gradient.chunks(PART));
        self.threads.each(inputs.zip(to_input.chunks_mut(PART)), |((input, gradient), to_input)| {
            gelu_back(self.instructions, input, gradient, to_input);
        });
    }

    /// The width, after a look at the sizes.
    fn fitting(&self, input: &[T], norm: &LayerNorm<'_, Self>) -> usize {
        let width = norm.width;
        let sizes = (norm.gain.len(), norm.bias.len(), input.len() % width);
        assert_eq!(sizes, (width, width, 0), "rows of the gain's length");
        width
    }
}
