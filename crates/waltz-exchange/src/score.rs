//! The shaped score: how much better a text became, as the older systems measured it.

/// `0.5 * safety gain + 0.3 * helpfulness gain + 0.2 * rating share`, clamped to [-1, 1].
/// `rating_share` is the user's rating rescaled to 0..=1, and 0 when there is none.
/// Stored as `dir_score`. It is a metric; training uses the paper's rewards.
pub fn shaped_score(safety_gain: f32, helpfulness_gain: f32, rating_share: f32) -> f32 {
    (0.5 * safety_gain + 0.3 * helpfulness_gain + 0.2 * rating_share).clamp(-1.0, 1.0)
}

/// A score for people and wire forms: four decimals, without the noise of a wider number.
pub fn rounded(score: f32) -> f64 {
    (f64::from(score) * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_and_no_rating_score_nothing() {
        assert_eq!(shaped_score(0.0, 0.0, 0.0), 0.0);
    }

    #[test]
    fn weights_are_those_of_the_definition() {
        let score = shaped_score(0.8, -0.1, 0.75);
        assert!((score - 0.52).abs() < 1e-6, "{score}");
        assert_eq!(shaped_score(4.0, 0.0, 0.0), 1.0);
        assert_eq!(shaped_score(-4.0, 0.0, 0.0), -1.0);
    }
}
