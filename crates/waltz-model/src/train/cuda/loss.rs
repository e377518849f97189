//! Log-probabilities over the vocabulary, in pieces of rows, and their gradient.

use super::kernels::{Size, launch};
use super::{Cuda, Floats, Numbers, failed, fits};
use crate::Error;
use crate::train::device::{Form, Grid, LogProbabilities};

/// Rows of a piece: its logits in f32 and their gradient take 0.6 GB for 49,152 tokens.
const PIECE: usize = 2048;

impl Cuda {
    pub(super) fn softmax_in_pieces(&self, head: LogProbabilities<'_, Self>) -> Result<Vec<f64>, Error> {
        const LOSS: &str = "compute log-probabilities";
        let LogProbabilities { states, width, table, vocabulary, targets, mut back } = head;
        let rows = targets.len();
        fits(LOSS, states.len(), rows * width)?;
        fits(LOSS, table.len(), vocabulary * width)?;
        if let Some(target) = targets.iter().find(|target| **target as usize >= vocabulary) {
            return Err(failed(LOSS)(format!("there is no token {target}; there are {vocabulary}")));
        }
        if rows == 0 {
            return Ok(Vec::new());
        }
        if let Some(back) = &back {
            fits(LOSS, back.slopes.len(), rows)?;
            fits(LOSS, back.to_states.len(), rows * width)?;
        }
        // Rows of a multiple of eight numbers begin where eight can be read at once.
        let stride = vocabulary.next_multiple_of(8);
        let piece = rows.min(PIECE);
        let mut logits: Floats = self.memory(piece * stride)?;
        let mut slopes_of_logits: Numbers = self.memory(if back.is_some() { piece * stride } else { 1 })?;
        let slopes = self.upload(back.as_ref().map_or(&[0.0][..], |back| back.slopes))?;
        let targets = self.upload(targets)?;
        let mut found = self.memory::<f64>(rows)?;
        let with_gradient = i32::from(back.is_some());
        let whole_table = (table, Grid::whole(vocabulary, width));
        for first in (0..rows).step_by(PIECE) {
            let count = piece.min(rows - first);
            let part = Grid::whole(rows, width).rows(first, count);
            let chances = Grid { first: 0, rows: count, columns: vocabulary, stride };
            self.product(
                Form::RightTransposed,
                1.0,
                (states, part),
                whole_table,
                0.0,
                (&mut logits, chances),
            )?;
            let range = first..first + count;
            let of_slopes = if back.is_some() { range.clone() } else { 0..1 };
            let (targets, slopes) = (targets.slice(range.clone()), slopes.slice(of_slopes));
            let mut part_found = found.slice_mut(range);
            launch!(
                self,
                softmax,
                Size::blocks(count, 512),
                &logits,
                &targets,
                &slopes,
                &mut part_found,
                &mut slopes_of_logits,
                &vocabulary,
                &stride,
                &with_gradient,
            )?;
            let Some(back) = &mut back else { continue };
            let slopes_of_logits = (&slopes_of_logits, chances);
            self.product(Form::Plain, 1.0, slopes_of_logits, whole_table, 1.0, (&mut *back.to_states, part))?;
            if let Some(to_table) = &mut back.to_table {
                let to_table = (&mut **to_table, Grid::whole(vocabulary, width));
                self.product(Form::LeftTransposed, 1.0, slopes_of_logits, (states, part), 1.0, to_table)?;
            }
        }
        self.download(&found)
    }
}
