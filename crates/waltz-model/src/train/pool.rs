//! From the states of all tokens to one row per sequence, and back.

use super::{Batch, Device, Form, Grid};
use crate::Error;
use crate::generate::Pooling;

/// The rows of a sequence that its pooled state is the mean of.
struct Counted {
    first: usize,
    count: usize,
    /// What each counts. Products take it in full precision, where a bf16 matrix of shares would round it.
    share: f32,
}

fn counted(batch: &Batch, pooling: Pooling) -> impl Iterator<Item = Counted> {
    batch.starts().windows(2).map(move |ends| {
        let first = match pooling {
            Pooling::Last => ends[1] - 1,
            Pooling::Mean => ends[0],
        };
        let count = ends[1] - first;
        Counted { first, count, share: 1.0 / count as f32 }
    })
}

/// One row per sequence (sequences, width) of `states` (tokens, width): the last token's, or the mean of all.
pub(super) fn pooled<D: Device>(
    device: &D,
    batch: &Batch,
    pooling: Pooling,
    (states, width): (&D::Numbers, usize),
) -> Result<D::Numbers, Error> {
    let (rows, sequences) = (batch.tokens().len(), batch.sequences());
    let ones = device.load(&vec![1.0; rows])?;
    let mut pooled = device.unset(sequences * width)?;
    for (index, Counted { first, count, share }) in counted(batch, pooling).enumerate() {
        let ones = (&ones, Grid::whole(1, count));
        let own = (states, Grid::whole(rows, width).rows(first, count));
        let output = (&mut pooled, Grid::whole(sequences, width).rows(index, 1));
        device.multiply(Form::Plain, share, ones, own, 0.0, output)?;
    }
    Ok(pooled)
}

/// The way back of [`pooled`]: the gradient of all states.
pub(super) fn back<D: Device>(
    device: &D,
    batch: &Batch,
    pooling: Pooling,
    (to_pooled, width): (&D::Numbers, usize),
) -> Result<D::Numbers, Error> {
    let (rows, sequences) = (batch.tokens().len(), batch.sequences());
    let ones = device.load(&vec![1.0; rows])?;
    let mut to_states = device.numbers(rows * width)?;
    for (index, Counted { first, count, share }) in counted(batch, pooling).enumerate() {
        let ones = (&ones, Grid::whole(1, count));
        let own = (to_pooled, Grid::whole(sequences, width).rows(index, 1));
        let output = (&mut to_states, Grid::whole(rows, width).rows(first, count));
        device.multiply(Form::LeftTransposed, share, ones, own, 0.0, output)?;
    }
    Ok(to_states)
}
