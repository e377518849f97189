//! The trace that a client has begun, in [W3C's form](https://www.w3.org/TR/trace-context/), and which traces
//! are exported.

use http::HeaderMap;

/// The client's span, as its `traceparent` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: u128,
    /// The client's span.
    pub span: u64,
    /// The client keeps this trace.
    pub sampled: bool,
}

/// Which traces are exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// The share of traces, 0 to 1.
    pub share: f64,
    /// Where the client has decided, its decision holds.
    pub parent_based: bool,
}

/// The fields of the first version.
const KNOWN_BYTES: usize = 55;

/// The client's `traceparent`, where it sent one and it is one.
pub fn traceparent(headers: &HeaderMap) -> Option<String> {
    let mut sent = headers.get_all("traceparent").iter();
    let first = sent.next()?.to_str().ok()?;
    // Two parents are none.
    let is_one = sent.next().is_none() && Parent::parse(first).is_some();
    // What a later version adds is not known and not kept.
    is_one.then(|| first.get(..KNOWN_BYTES).map(str::to_owned)).flatten()
}

impl Parent {
    /// Reads the header. Later versions may add fields at the end; of the first version there are none.
    pub fn parse(header: &str) -> Option<Self> {
        let (known, more) = header.split_at_checked(KNOWN_BYTES)?;
        let mut fields = known.split('-');
        let mut field = |length: usize| fields.next().filter(|field| field.len() == length && is_hex(field));
        let (version, trace, span, flags) = (field(2)?, field(32)?, field(16)?, field(2)?);
        let version_is_known =
            version != "ff" && (more.is_empty() || version != "00" && more.starts_with('-'));
        let trace = u128::from_str_radix(trace, 16).ok()?;
        let span = u64::from_str_radix(span, 16).ok()?;
        let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
        (version_is_known && trace != 0 && span != 0).then_some(Self { trace, span, sampled })
    }
}

fn is_hex(field: &str) -> bool {
    field.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

impl Sampler {
    /// Whether a trace is exported. Every service that takes a share takes the same traces, because the
    /// trace's own id decides.
    pub fn takes(&self, parent: Option<&Parent>, trace: u128) -> bool {
        if let Some(parent) = parent.filter(|_| self.parent_based) {
            return parent.sampled;
        }
        // The lower half of the id is random; 53 bits of it are a number that a float can hold.
        #[expect(clippy::cast_precision_loss, reason = "53 bits are held exactly")]
        let point = ((trace as u64) >> 11) as f64 / (1_u64 << 53) as f64;
        point < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn the_header_is_read_strictly() {
        let good = format!("00-{TRACE}-b7ad6b7169203331-01");
        let parent = Parent::parse(&good).unwrap();
        assert_eq!(parent.trace, 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c);
        assert_eq!((parent.span, parent.sampled), (0xb7ad_6b71_6920_3331, true));
        assert!(!Parent::parse(&format!("00-{TRACE}-b7ad6b7169203331-02")).unwrap().sampled);
        let later = format!("cc-{TRACE}-b7ad6b7169203331-01-more");
        assert!(Parent::parse(&later).is_some(), "a later version may say more");
        for bad in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-b7ad6b7169203331-01-more"),
            format!("ff-{TRACE}-b7ad6b7169203331-01"),
            format!("cc-{TRACE}-b7ad6b7169203331-01more"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
            format!("00-{}-b7ad6b7169203331-01", "+".repeat(32)),
            format!("00_{TRACE}_b7ad6b7169203331_01"),
            "é".repeat(55),
        ] {
            assert_eq!(Parent::parse(&bad), None, "{bad}");
        }
    }

    #[test]
    fn of_two_parents_none_is_taken() {
        let good = format!("00-{TRACE}-b7ad6b7169203331-01");
        let mut headers = HeaderMap::new();
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(traceparent(&headers), Some(good.clone()));
        headers.append("traceparent", good.parse().unwrap());
        assert_eq!(traceparent(&headers), None);
    }

    #[test]
    fn samplers_take_all_none_a_share_or_what_the_client_says() {
        let ids = (0..10_000_u64).map(|n| u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let taken = |share| {
            let sampler = Sampler { share, parent_based: false };
            ids.clone().filter(|id| sampler.takes(None, *id)).count()
        };
        assert_eq!((taken(0.0), taken(1.0)), (0, 10_000));
        assert!((2_400..2_600).contains(&taken(0.25)), "{}", taken(0.25));
        let last = u128::from(u64::MAX);
        assert!(Sampler { share: 1.0, parent_based: false }.takes(None, last));
        let client = |sampled| Parent { trace: last, span: 1, sampled };
        let follows = Sampler { share: 0.0, parent_based: true };
        assert!(follows.takes(Some(&client(true)), last) && !follows.takes(None, last));
        let follows = Sampler { share: 1.0, parent_based: true };
        assert!(!follows.takes(Some(&client(false)), last) && follows.takes(None, last));
        let stubborn = Sampler { share: 0.0, parent_based: false };
        assert!(!stubborn.takes(Some(&client(true)), last));
    }
}
