//! A linear layer's way forward and back: its weights, frozen or trained, and what an adapter adds.

use super::lora::Pair;
use super::tensor::Tensor;
use super::{Device, Form, Grid};
use crate::Error;

/// Whether a product replaces what was there or is added to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Onto {
    /// Overwrites.
    Nothing,
    /// Adds.
    What,
}

impl Onto {
    fn keep(self) -> f32 {
        match self {
            Self::Nothing => 0.0,
            Self::What => 1.0,
        }
    }
}

/// `output (+)= input W^T + scale * (input A^T) B^T` over `rows` rows.
pub(super) fn forward<D: Device>(
    device: &D,
    rows: usize,
    input: &D::Numbers,
    (weights, pair): (&Tensor<D>, Option<&Pair<D>>),
    onto: Onto,
    output: &mut D::Numbers,
) -> Result<(), Error> {
    let taken = Grid::whole(rows, weights.columns);
    let given = Grid::whole(rows, weights.rows);
    let matrix = (&weights.weights, Grid::whole(weights.rows, weights.columns));
    device.multiply(Form::RightTransposed, 1.0, (input, taken), matrix, onto.keep(), (output, given))?;
    let Some(pair) = pair else { return Ok(()) };
    let between = pair.between(device, rows, input)?;
    for part in pair.parts() {
        let low = (&between, pair.low(rows, part.index));
        let b = (&pair.b.weights, pair.rows_of_b(&part));
        let columns = given.columns(part.first, part.rows);
        device.multiply(Form::RightTransposed, pair.scale, low, b, 1.0, (output, columns))?;
    }
    Ok(())
}

/// The way back: adds to the gradients of what trains, and writes or adds the input's gradient.
pub(super) fn back<D: Device>(
    device: &D,
    rows: usize,
    input: &D::Numbers,
    (weights, pair): (&mut Tensor<D>, Option<&mut Pair<D>>),
    gradient: &D::Numbers,
    onto: Onto,
    to_input: &mut D::Numbers,
) -> Result<(), Error> {
    let taken = Grid::whole(rows, weights.columns);
    let given = Grid::whole(rows, weights.rows);
    let matrix = Grid::whole(weights.rows, weights.columns);
    let factor = (&weights.weights, matrix);
    device.multiply(Form::Plain, 1.0, (gradient, given), factor, onto.keep(), (to_input, taken))?;
    if let Some(to_weights) = weights.gradient_mut() {
        let (left, right) = ((gradient, given), (input, taken));
        device.accumulate(Form::LeftTransposed, 1.0, left, right, (to_weights, matrix))?;
    }
    let Some(pair) = pair else { return Ok(()) };
    let between = pair.between(device, rows, input)?;
    let mut to_between = device.unset(rows * pair.a.rows)?;
    for part in pair.parts() {
        let grid = pair.low(rows, part.index);
        let b = pair.rows_of_b(&part);
        let given = given.columns(part.first, part.rows);
        let factor = (&pair.b.weights, b);
        device.multiply(Form::Plain, pair.scale, (gradient, given), factor, 0.0, (&mut to_between, grid))?;
        if let Some(to_b) = pair.b.gradient_mut() {
            let (left, right) = ((gradient, given), (&between, grid));
            device.accumulate(Form::LeftTransposed, pair.scale, left, right, (to_b, b))?;
        }
    }
    let a = Grid::whole(pair.a.rows, pair.a.columns);
    let low = Grid::whole(rows, pair.a.rows);
    if let Some(to_a) = pair.a.gradient_mut() {
        let (left, right) = ((&to_between, low), (input, taken));
        device.accumulate(Form::LeftTransposed, 1.0, left, right, (to_a, a))?;
    }
    device.multiply(Form::Plain, 1.0, (&to_between, low), (&pair.a.weights, a), 1.0, (to_input, taken))
}

/// One projection of a matrix.
struct Place {
    /// Which one.
    index: usize,
    /// Its first row.
    first: usize,
    /// Its rows.
    rows: usize,
}

impl<D: Device> Pair<D> {
    /// `input A^T` of all parts, (rows, parts x rank).
    fn between(&self, device: &D, rows: usize, input: &D::Numbers) -> Result<D::Numbers, Error> {
        let mut between = device.unset(rows * self.a.rows)?;
        let input = (input, Grid::whole(rows, self.a.columns));
        let a = (&self.a.weights, Grid::whole(self.a.rows, self.a.columns));
        let output = (&mut between, Grid::whole(rows, self.a.rows));
        device.multiply(Form::RightTransposed, 1.0, input, a, 0.0, output)?;
        Ok(between)
    }

    fn parts(&self) -> Vec<Place> {
        let mut first = 0;
        let mut places = Vec::with_capacity(self.parts.len());
        for (index, rows) in self.parts.iter().copied().enumerate() {
            places.push(Place { index, first, rows });
            first += rows;
        }
        places
    }

    /// Where a part's numbers lie between A and B.
    fn low(&self, rows: usize, index: usize) -> Grid {
        Grid::whole(rows, self.a.rows).columns(index * self.rank, self.rank)
    }

    /// A part's rows of B.
    fn rows_of_b(&self, part: &Place) -> Grid {
        Grid::whole(self.b.rows, self.rank).rows(part.first, part.rows)
    }
}
