//! Log-probabilities of tokens and their way back, some rows at a time.

use super::Cpu;
use super::product::Factors;
use crate::kernels::{Number, softmax};
use crate::train::device::{Form, Grid, LogProbabilities, LossBack};

/// Rows whose logits exist at once. The more, the less often the table is packed; 256 rows of 49,152 are 50 MB.
const TOGETHER: usize = 256;

pub(super) fn log_probabilities<T: Number>(cpu: &Cpu<T>, head: LogProbabilities<'_, Cpu<T>>) -> Vec<f64> {
    let LogProbabilities { states, width, table, vocabulary, targets, mut back } = head;
    assert_eq!(states.len(), targets.len() * width, "one row for each target");
    let table = (table.as_slice(), Grid::whole(vocabulary, width));
    let mut found = vec![0.0; targets.len()];
    let mut logits = vec![T::default(); TOGETHER.min(targets.len()) * vocabulary];
    for (part, found) in found.chunks_mut(TOGETHER).enumerate() {
        let first = part * TOGETHER;
        let rows = Grid::whole(targets.len(), width).rows(first, found.len());
        let logits = &mut logits[..found.len() * vocabulary];
        let whole = Grid::whole(found.len(), vocabulary);
        let states = (states.as_slice(), rows);
        let one = T::of(1.0);
        let factors =
            Factors { form: Form::RightTransposed, scale: one, left: states, right: table, keep: false };
        cpu.product(factors, (logits, whole));
        let slopes = back.as_ref().map(|back| back.slopes);
        let work = found.iter_mut().zip(logits.chunks_exact_mut(vocabulary)).enumerate();
        cpu.threads.each(work, |(row, (found, logits))| {
            let target = targets[first + row] as usize;
            let logit = logits[target];
            *found = logit.wide() - softmax(cpu.instructions, logits);
            if let Some(slopes) = slopes {
                // The derivative of a log-probability by its logits: 1 at the target, less the chances.
                let slope = T::of(f64::from(slopes[first + row]));
                cpu.instructions.compiled(
                    #[inline(always)]
                    || logits.iter_mut().for_each(|chance| *chance *= -slope),
                );
                logits[target] += slope;
            }
        });
        let Some(LossBack { to_states, to_table, .. }) = &mut back else { continue };
        let logits = (&*logits, whole);
        let factors = Factors { form: Form::Plain, scale: one, left: logits, right: table, keep: true };
        cpu.product(factors, (to_states, rows));
        if let Some(to_table) = to_table {
            let factors =
                Factors { form: Form::LeftTransposed, scale: one, left: logits, right: states, keep: true };
            cpu.product(factors, (to_table, table.1));
        }
    }
    found
}
