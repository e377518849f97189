//! What encoders of BERT's family need: layer norm, GELU, and attention of every token to all of its sequence.

use super::attention::{Attended, Packing, Shape};
use super::kernels::{Size, launch};
use super::rows::{MOST_BLOCKS, SHARED, norm_rows};
use super::{Cuda, Floats, Numbers, failed, fits};
use crate::Error;
use crate::train::device::{AttentionShape, LayerNorm, Starts};

/// Numbers of a head that the kernels are written for.
const HEAD: usize = 32;
const ATTEND: &str = "attend to all";

impl Cuda {
    pub(super) fn normed(
        &self,
        input: &Numbers,
        norm: &LayerNorm<'_, Self>,
        output: &mut Numbers,
    ) -> Result<(), Error> {
        let LayerNorm { gain, bias, width, epsilon } = *norm;
        let rows = norm_rows(input.len(), gain.len(), width)?;
        fits("norm rows", bias.len(), width)?;
        fits("norm rows", output.len(), input.len())?;
        let size = Size::threads(rows * 32);
        launch!(self, layer_norm, size, input, gain, bias, output, &rows, &width, &epsilon)
    }

    pub(super) fn normed_back(
        &self,
        input: &Numbers,
        norm: &LayerNorm<'_, Self>,
        gradient: &Numbers,
        to_input: &mut Numbers,
        to_norm: Option<(&mut Floats, &mut Floats)>,
    ) -> Result<(), Error> {
        let LayerNorm { gain, width, epsilon, .. } = *norm;
        let rows = norm_rows(input.len(), gain.len(), width)?;
        fits("norm rows", gradient.len(), input.len())?;
        fits("norm rows", to_input.len(), input.len())?;
        let of_warp = 2 * width * size_of::<f32>();
        if of_warp > SHARED {
            return Err(failed("norm rows")(format!("rows have {width} numbers; a block cannot share them")));
        }
        let warps = (SHARED / of_warp).clamp(1, 8);
        let blocks = rows.div_ceil(warps).min(MOST_BLOCKS);
        let size = Size::blocks(blocks, 32 * warps as u32);
        // Without gradients of weights the kernel writes no sums.
        let (length, with, size) = match &to_norm {
            Some(_) => (blocks * width, 1_i32, size.shared(warps * of_warp)),
            None => (1, 0, size),
        };
        let (mut gains, mut biases): (Floats, Floats) = (self.memory(length)?, self.memory(length)?);
        launch!(
            self,
            layer_norm_back,
            size,
            input,
            gain,
            gradient,
            to_input,
            &mut gains,
            &mut biases,
            &rows,
            &width,
            &epsilon,
            &with,
        )?;
        let Some((to_gain, to_bias)) = to_norm else { return Ok(()) };
        for (sums, to) in [(&gains, to_gain), (&biases, to_bias)] {
            fits("norm rows", to.len(), width)?;
            launch!(self, add_columns, Size::blocks(width.div_ceil(32), 32), sums, to, &blocks, &width)?;
        }
        Ok(())
    }

    pub(super) fn bent(&self, input: &Numbers, output: &mut Numbers) -> Result<(), Error> {
        let pairs = pairs(input.len(), output.len())?;
        launch!(self, gelu, Size::threads(pairs), input, output, &pairs)
    }

    pub(super) fn bent_back(
        &self,
        input: &Numbers,
        gradient: &Numbers,
        to_input: &mut Numbers,
    ) -> Result<(), Error> {
        let pairs = pairs(input.len(), to_input.len())?;
        fits("bend rows", gradient.len(), input.len())?;
        launch!(self, gelu_back, Size::threads(pairs), input, gradient, to_input, &pairs)
    }

    pub(super) fn attention_to_all(
        &self,
        shape: AttentionShape,
        starts: &Starts,
        rows: &Numbers,
        output: &mut Numbers,
    ) -> Result<Attended, Error> {
        let packing = self.packing(starts)?;
        let of = sizes(shape, &packing, rows, output)?;
        let mut sums: Floats = self.memory(packing.rows() * shape.heads)?;
        let size = Size::blocks(packing.tiles, super::attention::TILE as u32).heads(shape.heads);
        launch!(self, attend_all, size, rows, &packing.queries, output, &mut sums, &of)?;
        Ok(Attended(sums))
    }

    /// `given` are the rows, what they gave, what was kept and the gradient that comes back.
    pub(super) fn attention_to_all_back(
        &self,
        shape: AttentionShape,
        starts: &Starts,
        given: (&Numbers, &Numbers, &Attended, &Numbers),
        to_rows: &mut Numbers,
    ) -> Result<(), Error> {
        let (rows, output, Attended(sums), gradient) = given;
        let packing = self.packing(starts)?;
        let of = sizes(shape, &packing, rows, output)?;
        fits(ATTEND, gradient.len(), output.len())?;
        fits(ATTEND, to_rows.len(), rows.len())?;
        fits(ATTEND, sums.len(), packing.rows() * shape.heads)?;
        let mut alongs: Floats = self.memory(packing.rows() * shape.heads)?;
        let size = Size::blocks(packing.tiles, super::attention::TILE as u32).heads(shape.heads);
        launch!(
            self,
            attend_all_back_queries,
            size,
            rows,
            &packing.queries,
            output,
            gradient,
            sums,
            &mut alongs,
            &mut *to_rows,
            &of,
        )?;
        launch!(
            self,
            attend_all_back_keys,
            size,
            rows,
            &packing.queries,
            gradient,
            sums,
            &alongs,
            &mut *to_rows,
            &of,
        )
    }
}

fn sizes(
    shape: AttentionShape,
    packing: &Packing,
    given: &Numbers,
    output: &Numbers,
) -> Result<Shape, Error> {
    let AttentionShape { heads, kv_heads, head } = shape;
    if head != HEAD || kv_heads != heads {
        let reason = format!("{shape:?}; expected heads of {HEAD}, each with keys of its own");
        return Err(failed(ATTEND)(reason));
    }
    fits(ATTEND, given.len(), packing.rows() * 3 * heads * HEAD)?;
    fits(ATTEND, output.len(), packing.rows() * heads * HEAD)?;
    Shape::new(packing.rows(), heads, kv_heads)
}

/// Pairs of numbers that are computed together.
fn pairs(length: usize, output: usize) -> Result<usize, Error> {
    fits("bend rows", output, length)?;
    fits("bend rows", length % 2, 0)?;
    Ok(length / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_kernels_cannot_compute_are_refused() {
        assert_eq!(pairs(96, 96).unwrap(), 48);
        assert!(pairs(96, 95).is_err() && pairs(95, 95).is_err());
    }
}
