//! Training on the CPU: f32, or f64 to check gradients.
//!
//! Every operation runs on all threads of the pool and gives the same bits on any number of them: what is summed is
//! summed in one fixed order, by one thread.

mod attention;
mod dense;
mod loss;
mod product;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

use self::attention::Scratch;
use self::product::Factors;
use super::device::{
    AdamW, AttentionShape, Device, Form, Grid, LayerNorm, LogProbabilities, Moments, Sight, Starts,
};
use crate::Error;
use crate::kernels::{
    AdamFactors, Instructions, Number, Threads, Tile, adam_w, rms_norm, rms_norm_back, square_sum, swiglu,
    swiglu_back,
};

/// The CPU as a device; `T` is what it computes with.
#[derive(Debug)]
pub struct Cpu<T = f32> {
    threads: Threads,
    instructions: Instructions,
    /// What threads work in: memory that comes and goes costs more than the small products done in it.
    rooms: Mutex<Vec<Scratch<T>>>,
}

/// Numbers of long buffers that are one piece of work.
const PART: usize = 1 << 16;
/// Rows that are one piece of work.
const ROWS: usize = 32;
/// Columns that are one piece of work where rows depend on each other.
const COLUMNS: usize = 64;

impl<T: Number> Cpu<T> {
    /// Computes on these threads.
    pub fn new(threads: Threads) -> Self {
        Self { threads, instructions: Instructions::best(), rooms: Mutex::default() }
    }

    /// Calls `work` with room that nobody else uses.
    fn with_room(&self, work: impl FnOnce(&mut Scratch<T>)) {
        let rooms = || self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let mut room = rooms().pop().unwrap_or_default();
        work(&mut room);
        rooms().push(room);
    }

    /// Calls `work` with the number of each row of `matrix` and the row.
    fn rows(&self, matrix: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        self.threads.tiles(matrix, width, ROWS, width, |mut tile| {
            for row in tile.rows() {
                work(row, tile.row(row));
            }
        });
    }

    fn product(&self, factors: Factors<'_, T>, (output, grid): (&mut [T], Grid)) {
        let tile = Tile::new(&mut output[grid.first..], grid.rows, grid.columns, grid.stride);
        product::multiply(self, &factors, tile);
    }

    /// Adds rows of `from` to the named rows of `output`, in order.
    fn add_rows(&self, from: &[T], width: usize, rows: &[u32], output: &mut [T]) {
        assert_eq!(from.len(), rows.len() * width, "one row for each that is named");
        let height = output.len() / width;
        self.threads.tiles(output, width, height, COLUMNS, |mut tile| {
            for (from, row) in from.chunks_exact(width).zip(rows) {
                let from = &from[tile.columns()];
                for (to, from) in tile.row(*row as usize).iter_mut().zip(from) {
                    *to += *from;
                }
            }
        });
    }
}

impl<T: Number> Device for Cpu<T> {
    type Numbers = Vec<T>;
    type Floats = Vec<T>;
    /// Nothing: the way back computes the chances again.
    type Attended = ();

    fn rounds(&self) -> bool {
        false
    }

    fn numbers(&self, length: usize) -> Result<Vec<T>, Error> {
        Ok(vec![T::default(); length])
    }

    fn floats(&self, length: usize) -> Result<Vec<T>, Error> {
        self.numbers(length)
    }

    fn load(&self, values: &[f32]) -> Result<Vec<T>, Error> {
        Ok(values.iter().map(|value| T::of(f64::from(*value))).collect())
    }

    fn load_floats(&self, values: &[f32]) -> Result<Vec<T>, Error> {
        self.load(values)
    }

    fn read(&self, numbers: &Vec<T>) -> Result<Vec<f32>, Error> {
        Ok(numbers.iter().map(|value| value.wide() as f32).collect())
    }

    fn read_floats(&self, floats: &Vec<T>) -> Result<Vec<f32>, Error> {
        self.read(floats)
    }

    fn clear(&self, floats: &mut Vec<T>) -> Result<(), Error> {
        self.threads.each(floats.chunks_mut(PART), |part| part.fill(T::default()));
        Ok(())
    }

    fn copy(&self, from: &Vec<T>, to: &mut Vec<T>) -> Result<(), Error> {
        assert_eq!(from.len(), to.len(), "buffers of one length");
        self.threads.each(from.chunks(PART).zip(to.chunks_mut(PART)), |(from, to)| to.copy_from_slice(from));
        Ok(())
    }

    fn multiply(
        &self,
        form: Form,
        scale: f32,
        left: (&Vec<T>, Grid),
        right: (&Vec<T>, Grid),
        keep: f32,
        output: (&mut Vec<T>, Grid),
    ) -> Result<(), Error> {
        let scale = T::of(f64::from(scale));
        let (left, right) = ((left.0.as_slice(), left.1), (right.0.as_slice(), right.1));
        let factors = Factors { form, scale, left, right, keep: keep != 0.0 };
        self.product(factors, (output.0.as_mut_slice(), output.1));
        Ok(())
    }

    fn accumulate(
        &self,
        form: Form,
        scale: f32,
        left: (&Vec<T>, Grid),
        right: (&Vec<T>, Grid),
        output: (&mut Vec<T>, Grid),
    ) -> Result<(), Error> {
        self.multiply(form, scale, left, right, 1.0, output)
    }

    fn embed_back(
        &self,
        gradient: &Vec<T>,
        width: usize,
        tokens: &[u32],
        table: &mut Vec<T>,
    ) -> Result<(), Error> {
        self.add_rows(gradient, width, tokens, table);
        Ok(())
    }

    fn gather(&self, from: &Vec<T>, width: usize, rows: &[u32], output: &mut Vec<T>) -> Result<(), Error> {
        assert_eq!(output.len(), rows.len() * width, "one row for each that is named");
        self.rows(output, width, |row, output| {
            output.copy_from_slice(&from[rows[row] as usize * width..][..width]);
        });
        Ok(())
    }

    fn scatter(&self, from: &Vec<T>, width: usize, rows: &[u32], output: &mut Vec<T>) -> Result<(), Error> {
        self.add_rows(from, width, rows, output);
        Ok(())
    }

    fn norm(
        &self,
        input: &Vec<T>,
        (gain, width): (&Vec<T>, usize),
        epsilon: f32,
        output: &mut Vec<T>,
    ) -> Result<(), Error> {
        assert_eq!((gain.len(), output.len()), (width, input.len()), "rows of the gain's length");
        self.rows(output, width, |row, output| {
            rms_norm(self.instructions, &input[row * width..][..width], gain, epsilon, output);
        });
        Ok(())
    }

    fn norm_back(
        &self,
        input: &Vec<T>,
        (gain, width): (&Vec<T>, usize),
        epsilon: f32,
        gradient: &Vec<T>,
        to_input: &mut Vec<T>,
        to_gain: Option<&mut Vec<T>>,
    ) -> Result<(), Error> {
        let lengths = (gain.len(), gradient.len(), to_input.len());
        assert_eq!(lengths, (width, input.len(), input.len()), "rows of the gain's length");
        let mut factors = vec![T::default(); input.len() / width];
        let outputs = to_input.chunks_mut(ROWS * width).zip(factors.chunks_mut(ROWS)).enumerate();
        self.threads.each(outputs, |(part, (to_input, factors))| {
            for (offset, (to, factor)) in to_input.chunks_exact_mut(width).zip(factors).enumerate() {
                let first = (part * ROWS + offset) * width;
                let (input, gradient) = (&input[first..][..width], &gradient[first..][..width]);
                *factor = rms_norm_back(self.instructions, input, gain, epsilon, gradient, to);
            }
        });
        let Some(to_gain) = to_gain else { return Ok(()) };
        self.threads.tiles(to_gain, width, 1, COLUMNS, |mut tile| {
            let columns = tile.columns();
            let sums = tile.row(0);
            for (row, factor) in factors.iter().enumerate() {
                let (input, gradient) =
                    (&input[row * width..][columns.clone()], &gradient[row * width..][columns.clone()]);
                for ((sum, value), gradient) in sums.iter_mut().zip(input).zip(gradient) {
                    *sum += *value * *factor * *gradient;
                }
            }
        });
        Ok(())
    }

    fn layer_norm(
        &self,
        input: &Vec<T>,
        norm: LayerNorm<'_, Self>,
        output: &mut Vec<T>,
    ) -> Result<(), Error> {
        self.normed(input, &norm, output);
        Ok(())
    }

    fn layer_norm_back(
        &self,
        input: &Vec<T>,
        norm: LayerNorm<'_, Self>,
        gradient: &Vec<T>,
        to_input: &mut Vec<T>,
        to_norm: Option<(&mut Vec<T>, &mut Vec<T>)>,
    ) -> Result<(), Error> {
        self.normed_back(input, &norm, gradient, to_input, to_norm);
        Ok(())
    }

    fn gelu(&self, input: &Vec<T>, output: &mut Vec<T>) -> Result<(), Error> {
        self.bent(input, output);
        Ok(())
    }

    fn gelu_back(&self, input: &Vec<T>, gradient: &Vec<T>, to_input: &mut Vec<T>) -> Result<(), Error> {
        self.bent_back(input, gradient, to_input);
        Ok(())
    }

    fn attend(
        &self,
        shape: AttentionShape,
        sight: Sight,
        starts: &Starts,
        rows: &Vec<T>,
        output: &mut Vec<T>,
    ) -> Result<(), Error> {
        attention::attend(self, shape, sight, starts, rows, output);
        Ok(())
    }

    fn attend_back(
        &self,
        shape: AttentionShape,
        sight: Sight,
        starts: &Starts,
        rows: &Vec<T>,
        _output: &Vec<T>,
        _kept: &(),
        gradient: &Vec<T>,
        to_rows: &mut Vec<T>,
    ) -> Result<(), Error> {
        attention::attend_back(self, shape, sight, starts, rows, gradient, to_rows);
        Ok(())
    }

    fn gate(&self, both: &Vec<T>, hidden: usize, output: &mut Vec<T>) -> Result<(), Error> {
        assert_eq!(both.len(), 2 * output.len(), "gate and up for each output");
        self.rows(output, hidden, |row, output| {
            swiglu(self.instructions, &both[row * 2 * hidden..][..2 * hidden], output);
        });
        Ok(())
    }

    fn gate_back(
        &self,
        both: &Vec<T>,
        hidden: usize,
        gradient: &Vec<T>,
        to_both: &mut Vec<T>,
    ) -> Result<(), Error> {
        assert_eq!(
            (both.len(), to_both.len()),
            (2 * gradient.len(), both.len()),
            "gate and up for each output"
        );
        self.rows(to_both, 2 * hidden, |row, to_both| {
            let both = &both[row * 2 * hidden..][..2 * hidden];
            swiglu_back(self.instructions, both, &gradient[row * hidden..][..hidden], to_both);
        });
        Ok(())
    }

    fn log_probabilities(&self, head: LogProbabilities<'_, Self>) -> Result<Vec<f64>, Error> {
        Ok(loss::log_probabilities(self, head))
    }

    fn square_sum(&self, floats: &[&Vec<T>]) -> Result<f64, Error> {
        let parts: Vec<&[T]> = floats.iter().flat_map(|floats| floats.chunks(PART)).collect();
        let mut sums = vec![0.0; parts.len()];
        self.threads
            .each(parts.iter().zip(&mut sums), |(part, sum)| *sum = square_sum(self.instructions, part));
        Ok(sums.iter().sum())
    }

    fn update(&self, step: &AdamW, tensor: Moments<'_, Self>) -> Result<(), Error> {
        let Moments { master, weights, gradient, first, second } = tensor;
        let lengths = [gradient.len(), first.len(), second.len()];
        assert_eq!(lengths, [weights.len(); 3], "buffers of one length");
        let bias = |beta: f32| 1.0 - f64::from(beta).powf(f64::from(step.step));
        let factors = AdamFactors {
            scale: T::of(f64::from(step.scale)),
            beta1: T::of(f64::from(step.beta1)),
            beta2: T::of(f64::from(step.beta2)),
            keep: T::of(1.0 - f64::from(step.rate) * f64::from(step.decay)),
            rate: T::of(f64::from(step.rate) / bias(step.beta1)),
            spread: T::of(1.0 / bias(step.beta2).sqrt()),
            epsilon: T::of(f64::from(step.epsilon)),
        };
        let moments = first.chunks_mut(PART).zip(second.chunks_mut(PART));
        let parts = weights.chunks_mut(PART).zip(gradient.chunks_mut(PART)).zip(moments);
        self.threads.each(parts, |((weights, gradient), (first, second))| {
            adam_w(self.instructions, factors, weights, gradient, first, second);
        });
        // The weights are in full precision themselves.
        master.map_or(Ok(()), |master| self.copy(weights, master))
    }
}
