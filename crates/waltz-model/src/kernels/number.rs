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
    /// The error function of this.
    fn error_function(self) -> Self;
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

    #[inline(always)]
    fn error_function(self) -> Self {
        super::dense::error_function(self)
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

    /// By its series, whose terms all have one sign, so that nothing cancels.
    fn error_function(self) -> Self {
        // Beyond this it is 1 in 53 bits.
        if self.abs() > 6.0 {
            return self.signum();
        }
        let (mut term, mut sum) = (self, self);
        let mut odd = 1.0;
        while term.abs() > sum.abs() * Self::EPSILON / 4.0 {
            odd += 2.0;
            term *= 2.0 * self * self / odd;
            sum += term;
        }
        sum * (-self * self).exp() * std::f64::consts::FRAC_2_SQRT_PI
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the handbook of Abramowitz and Stegun, table 7.1, and what the function does far out.
    #[test]
    fn the_error_function_in_f64_is_exact() {
        let known = [
            (0.5_f64, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (1.5, 0.966_105_146_5),
            (2.0, 0.995_322_265_0),
        ];
        for (x, exact) in known {
            assert!((x.error_function() - exact).abs() < 1e-10, "erf({x}) is {}", x.error_function());
            assert_eq!((-x).error_function(), -x.error_function());
        }
        assert_eq!(0.0_f64.error_function(), 0.0);
        assert!((5.9_f64.error_function() - 1.0).abs() < 1e-14);
        assert_eq!(1e9_f64.error_function(), 1.0);
    }
}
