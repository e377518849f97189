//! The two kinds of numbers that kernels are written for: f32 computes, f64 checks gradients.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use super::instructions::Instructions;
use super::panel::{self, Panel, Strided, Sums};
use super::transpose::{self, Rows};

/// A number that kernels compute with.
pub trait Number:
    Copy
    + Default
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + 'static
{
    /// The nearest number.
    fn of(value: f64) -> Self;
    /// The same value as f64.
    fn wide(self) -> f64;
    /// `self * factor + summand`, rounded once.
    fn fused(self, factor: Self, summand: Self) -> Self;
    /// The square root.
    fn root(self) -> Self;
    /// `e` to the power of this.
    fn exponential(self) -> Self;
    /// Adds to `sums` the products of rows of `left` with a panel.
    fn add_panel(
        instructions: Instructions,
        left: Strided<'_, Self>,
        panel: Panel<'_, Self>,
        sums: &mut Sums<Self>,
    );
    /// Writes number `column` of row `row` to `output[column * width + row]`.
    fn transpose(instructions: Instructions, from: Rows<'_, Self>, output: &mut [Self], width: usize);
}

impl Number for f32 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value as Self
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn fused(self, factor: Self, summand: Self) -> Self {
        self.mul_add(factor, summand)
    }

    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }

    #[inline(always)]
    fn exponential(self) -> Self {
        super::rows::exponential(self)
    }

    fn add_panel(
        instructions: Instructions,
        left: Strided<'_, Self>,
        panel: Panel<'_, Self>,
        sums: &mut Sums<Self>,
    ) {
        panel::add_panel(instructions, left, panel, sums);
    }

    fn transpose(instructions: Instructions, from: Rows<'_, Self>, output: &mut [Self], width: usize) {
        transpose::transpose(instructions, from, output, width);
    }
}

impl Number for f64 {
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn fused(self, factor: Self, summand: Self) -> Self {
        self.mul_add(factor, summand)
    }

    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }

    #[inline(always)]
    fn exponential(self) -> Self {
        self.exp()
    }

    fn add_panel(
        instructions: Instructions,
        left: Strided<'_, Self>,
        panel: Panel<'_, Self>,
        sums: &mut Sums<Self>,
    ) {
        instructions.compiled(
            #[inline(always)]
            || panel::plain(left, panel, sums),
        );
    }

    fn transpose(_: Instructions, from: Rows<'_, Self>, output: &mut [Self], width: usize) {
        transpose::plain(from, output, width);
    }
}
