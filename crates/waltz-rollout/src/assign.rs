//! Who meets which variant. A unit, such as a session or a user, always falls on the same point between 0 and 1, on
//! every machine and after every restart, so that a share that grows only adds units and one that shrinks only
//! takes those away that came last.

use waltz_exchange::id::sha256;

/// The point of a unit, from 0 up to but without 1: the first eight bytes of SHA-256 over seed, 0x1f and unit.
pub fn bucket(seed: &str, unit: &str) -> f64 {
    let mut bytes = Vec::with_capacity(seed.len() + 1 + unit.len());
    bytes.extend_from_slice(seed.as_bytes());
    bytes.push(0x1f);
    bytes.extend_from_slice(unit.as_bytes());
    let head = sha256(&bytes).iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    // 53 bits are what a double holds exactly.
    (head >> 11) as f64 / (1_u64 << 53) as f64
}

/// Whether a unit meets a candidate that has `percent` of the traffic.
pub fn is_in(seed: &str, unit: &str, percent: u8) -> bool {
    bucket(seed, unit) < f64::from(percent) / 100.0
}

/// The position of the share in which a point lies, where the shares are laid end to end.
pub fn pick(shares: &[f64], point: f64) -> usize {
    let mut end = 0.0;
    for (position, share) in shares.iter().enumerate() {
        end += share;
        if point < end {
            return position;
        }
    }
    // Rounding may leave the last end just below 1; a share of nothing is never picked.
    shares.iter().rposition(|share| *share > 0.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(non_snake_case, reason = "the fault's number")]
    fn fault_F75_assignment_is_sticky_and_monotone() {
        let units: Vec<String> = (0..100_000).map(|number| format!("user-{number}")).collect();
        let ramp = [0, 5, 10, 25, 50, 100, 50, 25, 10, 5, 0];
        let mut before: Option<(u8, Vec<bool>)> = None;
        for percent in ramp {
            let inside: Vec<bool> = units.iter().map(|unit| is_in("release-7", unit, percent)).collect();
            let share = inside.iter().filter(|inside| **inside).count() as f64 / units.len() as f64;
            assert!((share - f64::from(percent) / 100.0).abs() < 0.005, "{percent} %: {share}");
            if let Some((last, was)) = before {
                let (small, large) = if last < percent { (&was, &inside) } else { (&inside, &was) };
                assert!(
                    small.iter().zip(large).all(|(small, large)| !small || *large),
                    "{last} to {percent}"
                );
            }
            before = Some((percent, inside));
        }
    }

    #[test]
    #[expect(non_snake_case, reason = "the fault's number")]
    fn fault_F75_points_are_the_same_everywhere() {
        // The head of `printf 'release-7\x1fuser-1' | sha256sum`, over two to the power of 64.
        let point = 0.10716640358159668;
        assert_eq!(bucket("release-7", "user-1"), point);
        assert_ne!(bucket("release-8", "user-1"), point);
    }

    #[test]
    fn a_point_picks_its_share() {
        let shares = [0.25, 0.0, 0.75];
        assert_eq!([0.0, 0.2499, 0.25, 0.999].map(|point| pick(&shares, point)), [0, 0, 2, 2]);
        assert_eq!(pick(&[0.5, 0.499_999, 0.0], 0.999_999_9), 1);
    }
}
