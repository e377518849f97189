//! Evidence that may be looked at after every outcome without being fooled by looking often: e-values. An e-value of
//! 1/alpha or more has at most the chance alpha to appear, at any time, where there is nothing to find.

mod floor;
mod shiryaev;
mod two_sample;

pub use floor::ln_e_above;
pub use shiryaev::Shiryaev;
pub use two_sample::TwoSample;
