//! How large the form of an object may be. Forms come from requests, and what is prepared of one grows with it.

use super::schema::{Field, FieldKind};
use crate::Error;

/// The most values that all enums, booleans and numbers of a form may have together.
pub const MOST_VALUES: usize = 20_000;
/// The most bytes of all names, constants, enum values and numbers of a form together.
pub const MOST_BYTES: usize = 100_000;

/// Refuses a form that is too large, and says by which limit. Nothing is prepared for it.
pub(super) fn check(fields: &[Field]) -> Result<(), Error> {
    let (mut values, mut bytes) = (0_usize, 0_usize);
    for Field { name, kind } in fields {
        let (more_values, more_bytes) = match kind {
            FieldKind::Fixed(text) => (0, text.len()),
            FieldKind::OneOf(texts) => (texts.len(), texts.iter().map(String::len).sum()),
            FieldKind::Number { least, most, decimals } => numbers(*least, *most, *decimals),
            FieldKind::Flag => (2, "true".len() + "false".len()),
            FieldKind::Text { .. } | FieldKind::OpenNumber { .. } => (0, 0),
        };
        values = values.saturating_add(more_values);
        bytes = bytes.saturating_add(name.len()).saturating_add(more_bytes);
    }
    within(values, MOST_VALUES, "values of enums, booleans and numbers")?;
    within(bytes, MOST_BYTES, "bytes of names, constants and values")
}

/// How many numbers a range has, and at most how many bytes.
fn numbers(least: i32, most: i32, decimals: u8) -> (usize, usize) {
    let steps = i64::from(most) - i64::from(least);
    let scale = 10_i64.saturating_pow(u32::from(decimals));
    let count = if steps < 0 { 0 } else { steps.saturating_mul(scale).saturating_add(1) };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let digits = |limit: i32| limit.to_string().len() + usize::from(decimals > 0) + usize::from(decimals);
    (count, count.saturating_mul(digits(least).max(digits(most))))
}

fn within(have: usize, most: usize, what: &str) -> Result<(), Error> {
    if have <= most {
        return Ok(());
    }
    Err(Error::Schema { reason: format!("the form has {have} {what} in all; at most {most} are allowed") })
}
