//! Numbers of a range that is open at one end or both, read byte by byte: too many to be written down one by one.

/// The most that stands for no limit: fifteen digits, which every reader of JSON keeps exactly.
const OPEN: u64 = 999_999_999_999_999;

/// Which numbers may be written.
#[derive(Clone, Debug)]
pub(super) struct NumberForm {
    /// The whole parts of numbers without a sign, from the first to the last.
    plain: Option<(u64, u64)>,
    /// The whole parts behind a sign.
    signed: Option<(u64, u64)>,
    /// Digits after the point, all of which are written.
    decimals: u8,
}

/// A place in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberAt {
    /// Before it.
    Start,
    /// After the sign.
    Sign,
    /// After some digits of the whole part, which are this number.
    Whole { signed: bool, value: u64 },
    /// After the point, and so many digits more.
    Part { signed: bool, value: u64, written: u8 },
}

impl NumberForm {
    /// Numbers from `least` to `most`, where there are such limits.
    pub(super) fn new(least: Option<i32>, most: Option<i32>, decimals: u8) -> Self {
        let above = |limit: i32| u64::from(limit.max(0).unsigned_abs());
        let below = |limit: i32| u64::from(limit.min(0).unsigned_abs());
        // Zero has no sign; what lies between it and minus one does.
        let nearest = u64::from(decimals == 0).max(most.map_or(0, below));
        let plain = (least.map_or(0, above), most.map_or(OPEN, above));
        let signed = (nearest, least.map_or(OPEN, below));
        Self {
            plain: (most.is_none_or(|most| most >= 0) && plain.0 <= plain.1).then_some(plain),
            signed: (least.is_none_or(|least| least < 0) && signed.0 <= signed.1).then_some(signed),
            decimals,
        }
    }

    /// Where a byte leads; none where it may not come.
    pub(super) fn step(&self, at: NumberAt, byte: u8) -> Option<NumberAt> {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
        let next = match at {
            NumberAt::Start if byte == b'-' => NumberAt::Sign,
            NumberAt::Start => NumberAt::Whole { signed: false, value: digit? },
            NumberAt::Sign => NumberAt::Whole { signed: true, value: digit? },
            NumberAt::Whole { signed, value } if byte == b'.' => {
                if self.decimals == 0 || !self.holds(signed, value) {
                    return None;
                }
                NumberAt::Part { signed, value, written: 0 }
            }
            // No digit follows a zero that came first.
            NumberAt::Whole { value: 0, .. } => return None,
            NumberAt::Whole { signed, value } => NumberAt::Whole { signed, value: value * 10 + digit? },
            NumberAt::Part { signed, value, written } => {
                // At the limit itself there is no room for more than zeros.
                let last = self.range(signed)?.1;
                if written == self.decimals || (value == last && digit? != 0) {
                    return None;
                }
                digit?;
                NumberAt::Part { signed, value, written: written + 1 }
            }
        };
        self.missing(next).map(|_| next)
    }

    /// The fewest bytes from a place to where the number may end; none where no number of the range begins so.
    pub(super) fn missing(&self, at: NumberAt) -> Option<usize> {
        let decimals = usize::from(self.decimals);
        let point = if decimals == 0 { 0 } else { 1 + decimals };
        match at {
            NumberAt::Start => {
                let plain = self.plain.map(|(first, _)| digits(first));
                let signed = self.missing(NumberAt::Sign).map(|missing| 1 + missing - point);
                Some(plain.into_iter().chain(signed).min()? + point)
            }
            NumberAt::Sign => self.signed.map(|(first, _)| digits(first) + point),
            NumberAt::Whole { signed, value } => {
                let (first, last) = self.range(signed)?;
                let (mut low, mut high, mut more) = (value, value, 0);
                while low <= last {
                    if high >= first {
                        return Some(more + point);
                    }
                    if value == 0 {
                        return None;
                    }
                    (low, high, more) = (low * 10, high * 10 + 9, more + 1);
                }
                None
            }
            NumberAt::Part { written, .. } => Some(decimals - usize::from(written)),
        }
    }

    /// The bytes of a shortest number.
    pub(super) fn shortest(&self) -> Option<Vec<u8>> {
        let (mut at, mut bytes) = (NumberAt::Start, Vec::new());
        for left in (0..self.missing(at)?).rev() {
            let shorter =
                |byte: &u8| self.step(at, *byte).is_some_and(|next| self.missing(next) == Some(left));
            let byte = BYTES.into_iter().find(shorter)?;
            at = self.step(at, byte)?;
            bytes.push(byte);
        }
        Some(bytes)
    }

    fn range(&self, signed: bool) -> Option<(u64, u64)> {
        if signed { self.signed } else { self.plain }
    }

    fn holds(&self, signed: bool, value: u64) -> bool {
        self.range(signed).is_some_and(|(first, last)| (first..=last).contains(&value))
    }
}

/// What numbers are written with.
pub(super) const BYTES: [u8; 12] = *b"0123456789.-";

fn digits(value: u64) -> usize {
    value.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a text is a number of the form.
    fn takes(form: &NumberForm, text: &str) -> bool {
        let end = text.bytes().try_fold(NumberAt::Start, |at, byte| form.step(at, byte));
        end.is_some_and(|end| form.missing(end) == Some(0))
    }

    #[test]
    fn a_range_that_is_open_has_the_numbers_within_and_no_others() {
        let limits = [None, Some(-12), Some(-1), Some(0), Some(1), Some(7), Some(10), Some(205)];
        for least in limits {
            for most in limits {
                let form = NumberForm::new(least, most, 0);
                let within = |number: i32| {
                    least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most)
                };
                for number in -250..=250 {
                    assert_eq!(
                        takes(&form, &number.to_string()),
                        within(number),
                        "{least:?} {most:?} {number}"
                    );
                }
                let is_empty = least.zip(most).is_some_and(|(least, most)| least > most);
                assert_eq!(form.shortest().is_none(), is_empty, "{least:?} {most:?}");
                if let Some(shortest) = form.shortest() {
                    let number: i32 = std::str::from_utf8(&shortest).unwrap().parse().unwrap();
                    assert!(within(number), "{least:?} {most:?}: {number}");
                }
                let parts = NumberForm::new(least, most, 2);
                for hundredths in -2_500..=2_500 {
                    let number = f64::from(hundredths) / 100.0;
                    let inside = least.is_none_or(|least| number >= f64::from(least))
                        && most.is_none_or(|most| number <= f64::from(most));
                    assert_eq!(takes(&parts, &format!("{number:.2}")), inside, "{least:?} {most:?} {number}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_of_json_or_too_long_is_not_taken() {
        let (whole, parts) = (NumberForm::new(None, None, 0), NumberForm::new(None, None, 2));
        for text in ["", "-", "00", "01", "-01", "-0", "+1", "1.", "1.5", "1e3", "1000000000000000", " 1"] {
            assert!(!takes(&whole, text), "{text}");
        }
        for text in ["1", "1.5", ".50", "1.505", "00.50", "1000000000000000.00", "999999999999999.01"] {
            assert!(!takes(&parts, text), "{text}");
        }
        assert!(takes(&whole, "-999999999999999") && takes(&parts, "999999999999999.00"));
        assert!(takes(&parts, "-0.25"));
    }
}
