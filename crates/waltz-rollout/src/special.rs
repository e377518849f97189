//! The few special functions that the statistics need: the gamma and beta functions, and the binomial and beta
//! distributions made of them. Every other file that computes chances calls these.

/// The logarithm of the gamma function for positive numbers, by Lanczos' approximation (g = 7, nine terms).
pub(crate) fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let shifted = x - 1.0;
    let base = shifted + 7.5;
    let mut sum = TERMS[0];
    for (index, term) in TERMS.iter().enumerate().skip(1) {
        sum += term / (shifted + index as f64);
    }
    0.5 * (2.0 * std::f64::consts::PI).ln() + (shifted + 0.5) * base.ln() - base + sum.ln()
}

/// The logarithm of the beta function.
pub(crate) fn ln_beta(a: f64, b: f64) -> f64 {
    ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b)
}

/// The regularised incomplete beta function I_x(a, b): the chance that a Beta(a, b) variable is at most x.
pub(crate) fn beta_cdf(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The continued fraction converges fast only on one side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta_tail(1.0 - x, b, a);
    }
    beta_tail(x, a, b)
}

/// The point at which [`beta_cdf`] reaches `chance`, by halving an interval.
pub(crate) fn beta_quantile(chance: f64, a: f64, b: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if beta_cdf(middle, a, b) < chance {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// The chance of at most `k` successes in `n` trials with success rate `p`.
pub(crate) fn binomial_cdf(k: u64, n: u64, p: f64) -> f64 {
    if k >= n {
        return 1.0;
    }
    beta_cdf(1.0 - p, (n - k) as f64, k as f64 + 1.0)
}

/// The incomplete beta function for x below its mean, by the modified Lentz continued fraction
/// (Numerical Recipes 6.4). It keeps its relative precision where the result is tiny.
fn beta_tail(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for step in 1..=400 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 / away(1.0 + even * d);
        c = away(1.0 + even / c);
        fraction *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 / away(1.0 + odd * d);
        c = away(1.0 + odd / c);
        fraction *= d * c;
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    (a * x.ln() + b * (-x).ln_1p() - ln_beta(a, b)).exp() * fraction / a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_values() {
        assert!((ln_gamma(10.0) - 362_880_f64.ln()).abs() < 1e-11);
        assert!((ln_gamma(0.5) - std::f64::consts::PI.sqrt().ln()).abs() < 1e-12);
        assert!((binomial_cdf(16, 20, 0.9) - 0.132_95).abs() < 5e-6);
        assert!((1.0 - binomial_cdf(2, 20, 0.1) - 0.323_07).abs() < 5e-6);
        assert_eq!(binomial_cdf(20, 20, 0.9), 1.0);
    }

    proptest! {
        #[test]
        fn the_binomial_is_the_sum_of_its_terms(n in 1_u64..60, k in 0_u64..60, p in 0.01_f64..0.99) {
            let k = k.min(n);
            let (whole, mut sum) = (n as f64, 0.0);
            for i in 0..=k {
                let hits = i as f64;
                let ways = -ln_beta(whole - hits + 1.0, hits + 1.0) - (whole + 1.0).ln();
                sum += (ways + hits * p.ln() + (whole - hits) * (1.0 - p).ln()).exp();
            }
            prop_assert!((binomial_cdf(k, n, p) - sum).abs() < 1e-9);
        }

        #[test]
        fn the_quantile_turns_the_distribution_round(chance in 0.001_f64..0.999, a in 0.5_f64..400.0, b in 0.5_f64..400.0) {
            prop_assert!((beta_cdf(beta_quantile(chance, a, b), a, b) - chance).abs() < 1e-6);
        }
    }
}
