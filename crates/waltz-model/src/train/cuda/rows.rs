//! Operations on rows: copies by index, norm, gate, and the optimiser.

use super::kernels::{Size, launch};
use super::{Cuda, Floats, Numbers, failed, fits};
use crate::Error;
use crate::train::device::{AdamW, Moments};

/// Most blocks that share a sum over rows: enough to fill a GPU, few enough to add up quickly.
pub(super) const MOST_BLOCKS: usize = 256;
/// Bytes that the warps of a block may share without asking.
pub(super) const SHARED: usize = 48 << 10;

impl Cuda {
    pub(super) fn gather_rows(
        &self,
        from: &Numbers,
        width: usize,
        rows: &[u32],
        output: &mut Numbers,
    ) -> Result<(), Error> {
        known_rows("gather rows", from.len(), width, rows)?;
        fits("gather rows", output.len(), rows.len() * width)?;
        let indices = self.upload(rows)?;
        launch!(self, gather, Size::blocks(rows.len(), 128), from, &indices, output, &width)
    }

    pub(super) fn scatter_rows(
        &self,
        from: &Numbers,
        width: usize,
        rows: &[u32],
        output: &mut Numbers,
    ) -> Result<(), Error> {
        known_rows("scatter rows", output.len(), width, rows)?;
        fits("scatter rows", from.len(), rows.len() * width)?;
        let indices = self.upload(rows)?;
        launch!(self, scatter, Size::blocks(rows.len(), 128), from, &indices, output, &width)
    }

    /// Rows of one token are added by one block, in the order of the batch.
    pub(super) fn add_by_token(
        &self,
        gradient: &Numbers,
        width: usize,
        tokens: &[u32],
        table: &mut Floats,
    ) -> Result<(), Error> {
        known_rows("add to the embedding", table.len(), width, tokens)?;
        fits("add to the embedding", gradient.len(), tokens.len() * width)?;
        let mut order: Vec<(u32, u32)> = tokens.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let (mut which, mut ends) = (Vec::new(), Vec::new());
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            which.push(group[0].0);
            ends.push(ends.last().copied().unwrap_or(0) + group.len() as u32);
        }
        let order: Vec<u32> = order.into_iter().map(|(_, row)| row).collect();
        let size = Size::blocks(which.len(), 192);
        let (which, ends, order) = (self.upload(&which)?, self.upload(&ends)?, self.upload(&order)?);
        launch!(self, embed_back, size, gradient, &which, &ends, &order, table, &width)
    }

    pub(super) fn rms_norm(
        &self,
        input: &Numbers,
        (gain, width): (&Numbers, usize),
        epsilon: f32,
        output: &mut Numbers,
    ) -> Result<(), Error> {
        let rows = norm_rows(input.len(), gain.len(), width)?;
        fits("norm rows", output.len(), input.len())?;
        launch!(self, rms_norm, Size::threads(rows * 32), input, gain, output, &rows, &width, &epsilon)
    }

    pub(super) fn rms_norm_back(
        &self,
        input: &Numbers,
        (gain, width): (&Numbers, usize),
        epsilon: f32,
        gradient: &Numbers,
        to_input: &mut Numbers,
        to_gain: Option<&mut Floats>,
    ) -> Result<(), Error> {
        let rows = norm_rows(input.len(), gain.len(), width)?;
        fits("norm rows", gradient.len(), input.len())?;
        fits("norm rows", to_input.len(), input.len())?;
        let warps = (SHARED / (width * size_of::<f32>())).clamp(1, 8);
        let blocks = rows.div_ceil(warps).min(MOST_BLOCKS);
        let size = Size::blocks(blocks, 32 * warps as u32);
        let Some(to_gain) = to_gain else {
            let (nothing, without) = (0_u64, 0_i32);
            return launch!(
                self,
                rms_norm_back,
                size,
                input,
                gain,
                gradient,
                to_input,
                &nothing,
                &rows,
                &width,
                &epsilon,
                &without,
            );
        };
        fits("norm rows", to_gain.len(), width)?;
        let mut sums: Floats = self.memory(blocks * width)?;
        let (size, with) = (size.shared(warps * width * size_of::<f32>()), 1_i32);
        launch!(
            self,
            rms_norm_back,
            size,
            input,
            gain,
            gradient,
            to_input,
            &mut sums,
            &rows,
            &width,
            &epsilon,
            &with,
        )?;
        launch!(self, add_columns, Size::blocks(width.div_ceil(32), 32), &sums, to_gain, &blocks, &width)
    }

    pub(super) fn silu_gate(&self, both: &Numbers, hidden: usize, output: &mut Numbers) -> Result<(), Error> {
        let rows = gate_rows(both.len(), hidden)?;
        fits("gate rows", output.len(), rows * hidden)?;
        launch!(self, gate, Size::threads(rows * hidden / 8), both, output, &rows, &hidden)
    }

    pub(super) fn silu_gate_back(
        &self,
        both: &Numbers,
        hidden: usize,
        gradient: &Numbers,
        to_both: &mut Numbers,
    ) -> Result<(), Error> {
        let rows = gate_rows(both.len(), hidden)?;
        fits("gate rows", gradient.len(), rows * hidden)?;
        fits("gate rows", to_both.len(), both.len())?;
        launch!(self, gate_back, Size::threads(rows * hidden / 8), both, gradient, to_both, &rows, &hidden)
    }

    /// Blocks sum their part of each buffer; the host adds up what they found, in order.
    pub(super) fn sum_of_squares(&self, floats: &[&Floats]) -> Result<f64, Error> {
        let blocks = |length: usize| length.div_ceil(4096).clamp(1, MOST_BLOCKS);
        let total: usize = floats.iter().map(|buffer| blocks(buffer.len())).sum();
        if total == 0 {
            return Ok(0.0);
        }
        let mut sums = self.memory::<f64>(total)?;
        let mut first = 0;
        for buffer in floats {
            let (length, count) = (buffer.len(), blocks(buffer.len()));
            let mut part = sums.slice_mut(first..first + count);
            launch!(self, square_sum, Size::blocks(count, 256), *buffer, &mut part, &length)?;
            first += count;
        }
        Ok(self.download(&sums)?.iter().sum())
    }

    pub(super) fn adam_w(&self, step: &AdamW, tensor: Moments<'_, Self>) -> Result<(), Error> {
        const UPDATE: &str = "update weights";
        let Moments { master, weights, gradient, first, second } = tensor;
        let master = master.ok_or_else(|| failed(UPDATE)("there is no master of them"))?;
        let length = master.len();
        for other in [weights.len(), gradient.len(), first.len(), second.len()] {
            fits(UPDATE, other, length)?;
        }
        let AdamW { rate, beta1, beta2, epsilon, decay, step: number, scale } = *step;
        let correction =
            |beta: f32| (1.0 - f64::from(beta).powi(i32::try_from(number).unwrap_or(i32::MAX))) as f32;
        let (correction1, correction2) = (correction(beta1), correction(beta2));
        launch!(
            self,
            update,
            Size::threads(length),
            master,
            weights,
            gradient,
            first,
            second,
            &length,
            &rate,
            &beta1,
            &beta2,
            &epsilon,
            &decay,
            &scale,
            &correction1,
            &correction2,
        )
    }
}

/// Refuses an index of a row that is not there.
fn known_rows(operation: &'static str, length: usize, width: usize, rows: &[u32]) -> Result<(), Error> {
    let most = length.checked_div(width).unwrap_or(0);
    match rows.iter().find(|row| **row as usize >= most) {
        Some(row) => Err(failed(operation)(format!("there is no row {row}; there are {most}"))),
        None => Ok(()),
    }
}

/// How many rows of `width` numbers there are, where the kernels of norms can compute them.
pub(super) fn norm_rows(length: usize, gain: usize, width: usize) -> Result<usize, Error> {
    fits("norm rows", gain, width)?;
    if width == 0 || !width.is_multiple_of(2) || width * size_of::<f32>() > SHARED {
        let reason = format!("rows have {width} numbers; expected an even number up to {}", SHARED / 4);
        return Err(failed("norm rows")(reason));
    }
    fits("norm rows", length % width, 0)?;
    Ok(length / width)
}

fn gate_rows(length: usize, hidden: usize) -> Result<usize, Error> {
    if hidden == 0 || !hidden.is_multiple_of(8) {
        return Err(failed("gate rows")(format!("rows have {hidden} numbers; expected a multiple of 8")));
    }
    fits("gate rows", length % (2 * hidden), 0)?;
    Ok(length / (2 * hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_kernels_cannot_compute_are_refused() {
        assert_eq!(norm_rows(3 * 576, 576, 576).unwrap(), 3);
        assert!(norm_rows(3 * 576 + 2, 576, 576).is_err(), "half a row");
        assert!(norm_rows(3 * 577, 577, 577).is_err(), "no pairs");
        assert!(norm_rows(576, 575, 576).is_err(), "a short gain");
        assert!(norm_rows(1 << 20, 1 << 20, 1 << 20).is_err(), "more than a block can share");
        assert_eq!(gate_rows(5 * 2 * 96, 96).unwrap(), 5);
        assert!(gate_rows(2 * 90, 90).is_err() && gate_rows(100, 96).is_err() && gate_rows(0, 0).is_err());
        assert!(known_rows("look", 10 * 64, 64, &[0, 9]).is_ok());
        assert!(
            known_rows("look", 10 * 64, 64, &[0, 10]).is_err() && known_rows("look", 0, 0, &[0]).is_err()
        );
    }
}
