//! The arithmetic of models: matrix products and row-wise functions over slices.
//!
//! Every kernel exists for AVX-512, AVX2 and as plain code, chosen once at run time. All three give the
//! same bits: integer sums are exact, and floating-point sums run in one fixed order. The result of a
//! row never depends on how many rows are computed with it, so that batching changes no answer.
//! All unsafe code for speed is in this folder, behind safe functions.

mod back;
mod dense;
mod float;
mod instructions;
mod int8;
mod matrix;
mod number;
mod panel;
mod rows;
mod threads;
mod transpose;

pub(crate) use back::{AdamFactors, adam_w, rms_norm_back, softmax_back, square_sum, swiglu_back};
pub(crate) use dense::{Norm, Spread, gelu, gelu_back, gelu_to, layer_norm, layer_norm_back, layer_norm_to};
pub(crate) use float::{Inputs, MOST_ROWS, Steps, add_products};
pub(crate) use instructions::Instructions;
pub(crate) use int8::{BLOCK, Block};
pub use matrix::MatrixKind;
pub(crate) use matrix::{Bytes, Matrix, Write};
pub use number::Number;
pub(crate) use panel::{PANEL_COLUMNS, PANEL_ROWS, Panel, Strided};
pub(crate) use rows::{exponentials, rms_norm, rotate, rotations, softmax, swiglu};
pub use threads::Threads;
pub(crate) use threads::Tile;
pub(crate) use transpose::Rows;

/// Rows of a matrix that are stored and computed together: the floats of one AVX-512 register.
pub(crate) const LANES: usize = 16;
