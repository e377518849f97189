//! Counters and histograms of atomics: adding takes no lock and no memory, but for the rare errors of an upstream. Label
//! values come from fixed lists and the configuration, so that nothing a client sends can make the number of series grow.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A label and every value that it can have. A value that is not listed counts as the last one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) values: &'static [&'static str],
}

/// How many counters are shown while they stand at zero.
const MANY: usize = 64;

/// A counter for each combination of `N` labels' values.
#[derive(Debug)]
pub(super) struct Counters<const N: usize> {
    labels: [Label; N],
    cells: Box<[AtomicU64]>,
}

/// Counters of one label for each upstream. Their names come from the configuration and are few.
#[derive(Debug)]
pub(super) struct ByUpstream {
    label: Label,
    counters: Mutex<BTreeMap<String, Counters<1>>>,
}

/// How often values fell between fixed bounds, and their sum.
#[derive(Debug)]
pub(super) struct Histogram {
    bounds: &'static [f64],
    /// One for each bound and one above them all.
    buckets: Box<[AtomicU64]>,
    /// The bits of a float.
    sum: AtomicU64,
}

/// A metric as it stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub help: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its values.
    pub samples: Vec<Sample>,
}

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts values between bounds.
    Histogram,
}

/// One value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Names and values of its labels.
    pub labels: Vec<(&'static str, Cow<'static, str>)>,
    /// The value.
    pub value: Value,
}

/// What a sample holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a counter or gauge.
    Number(f64),
    /// Of a histogram.
    Buckets {
        /// Upper bounds, ascending.
        bounds: &'static [f64],
        /// Values in each bucket alone; one more than bounds.
        counts: Vec<u64>,
        /// The sum of all values.
        sum: f64,
    },
}

impl<const N: usize> Counters<N> {
    /// Counters that all stand at zero.
    pub(super) fn new(labels: [Label; N]) -> Self {
        let cells = labels.iter().map(|label| label.values.len()).product();
        Self { labels, cells: (0..cells).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds to the counter with these values of the labels, in their order.
    pub(super) fn add(&self, values: [&str; N], amount: u64) {
        let mut cell = 0;
        for (label, value) in self.labels.iter().zip(values) {
            let known = label.values.iter().position(|known| *known == value);
            cell = cell * label.values.len() + known.unwrap_or(label.values.len() - 1);
        }
        self.cells[cell].fetch_add(amount, Ordering::Relaxed);
    }

    /// The sum of all counters.
    pub(super) fn total(&self) -> u64 {
        self.cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
    }

    /// The sum of all counters whose first label has this value.
    pub(super) fn sum(&self, first: &str) -> u64 {
        let Some(label) = self.labels.first() else { return 0 };
        let Some(row) = label.values.iter().position(|value| *value == first) else { return 0 };
        let width = self.cells.len() / label.values.len();
        self.cells[row * width..(row + 1) * width].iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
    }

    /// The counters as they stand. Of many combinations most never occur, and those at zero are left out.
    pub(super) fn family(&self, name: &'static str, help: &'static str) -> Family {
        let mut samples = Vec::new();
        for (position, cell) in self.cells.iter().enumerate() {
            let count = cell.load(Ordering::Relaxed);
            if count == 0 && self.cells.len() > MANY {
                continue;
            }
            let mut rest = position;
            let mut labels = Vec::with_capacity(N);
            for label in self.labels.iter().rev() {
                labels.push((label.name, Cow::Borrowed(label.values[rest % label.values.len()])));
                rest /= label.values.len();
            }
            labels.reverse();
            samples.push(Sample { labels, value: number(count) });
        }
        Family { name, help, kind: Kind::Counter, samples }
    }
}

impl ByUpstream {
    /// No upstream is known yet.
    pub(super) fn new(label: Label) -> Self {
        Self { label, counters: Mutex::default() }
    }

    /// Adds to a counter of an upstream, which is known from then on.
    pub(super) fn add(&self, upstream: &str, value: &str, amount: u64) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let of_upstream = counters.entry(upstream.to_owned()).or_insert_with(|| Counters::new([self.label]));
        of_upstream.add([value], amount);
    }

    /// The counters of all known upstreams as they stand.
    pub(super) fn family(&self, name: &'static str, help: &'static str) -> Family {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let mut samples = Vec::new();
        for (upstream, counters) in counters.iter() {
            for mut sample in counters.family(name, help).samples {
                sample.labels.insert(0, ("upstream", Cow::Owned(upstream.clone())));
                samples.push(sample);
            }
        }
        Family { name, help, kind: Kind::Counter, samples }
    }
}

impl Histogram {
    /// An empty histogram over ascending bounds.
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let buckets = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, buckets, sum: AtomicU64::new(0) }
    }

    /// Counts a value. What is no number is not counted.
    pub(super) fn observe(&self, value: f64) {
        if !value.is_finite() {
            return;
        }
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok();
    }

    /// The histogram as it stands.
    pub(super) fn family(&self, name: &'static str, help: &'static str) -> Family {
        let counts = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let sum = f64::from_bits(self.sum.load(Ordering::Relaxed));
        let value = Value::Buckets { bounds: self.bounds, counts, sum };
        Family { name, help, kind: Kind::Histogram, samples: vec![Sample { labels: Vec::new(), value }] }
    }
}

/// A gauge without labels; without a value it has no sample.
pub(super) fn gauge(name: &'static str, help: &'static str, value: Option<f64>) -> Family {
    let sample = |value| Sample { labels: Vec::new(), value: Value::Number(value) };
    Family { name, help, kind: Kind::Gauge, samples: value.map(sample).into_iter().collect() }
}

/// A counter that is kept elsewhere.
pub(super) fn counter(name: &'static str, help: &'static str, count: u64) -> Family {
    let sample = Sample { labels: Vec::new(), value: number(count) };
    Family { name, help, kind: Kind::Counter, samples: vec![sample] }
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, which no counter reaches")]
fn number(count: u64) -> Value {
    Value::Number(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRUIT: Label = Label { name: "fruit", values: &["apple", "pear", "other"] };
    const SIZE: Label = Label { name: "size", values: &["small", "large"] };
    const TREE: Label = Label { name: "tree", values: &["1"; 11] };

    fn numbers(family: &Family) -> Vec<(String, f64)> {
        let read = |sample: &Sample| {
            let labels: Vec<&str> = sample.labels.iter().map(|(_, value)| &**value).collect();
            let Value::Number(number) = sample.value else { panic!("a histogram") };
            (labels.join(" "), number)
        };
        family.samples.iter().map(read).collect()
    }

    #[test]
    fn each_combination_has_its_own_counter_and_unknown_values_share_the_last() {
        let counters = Counters::new([FRUIT, SIZE]);
        counters.add(["pear", "large"], 2);
        counters.add(["apple", "small"], 1);
        counters.add(["durian", "small"], 1);
        counters.add(["a user's text", "small"], 1);
        let expected = [
            ("apple small", 1.0),
            ("apple large", 0.0),
            ("pear small", 0.0),
            ("pear large", 2.0),
            ("other small", 2.0),
            ("other large", 0.0),
        ];
        let family = counters.family("fruit_total", "");
        assert_eq!(numbers(&family), expected.map(|(labels, count)| (labels.to_owned(), count)));
        assert_eq!((counters.sum("pear"), counters.sum("other"), counters.sum("kiwi")), (2, 2, 0));
    }

    #[test]
    fn a_counter_without_labels_is_one_and_of_many_only_those_with_a_count_are_shown() {
        let many = Counters::new([FRUIT, SIZE, TREE]);
        assert!(numbers(&many.family("fruit_total", "")).is_empty(), "66 of them");
        many.add(["apple", "large", "1"], 1);
        assert_eq!(numbers(&many.family("fruit_total", "")), [("apple large 1".to_owned(), 1.0)]);
        let single = Counters::new([]);
        single.add([], 7);
        assert_eq!(numbers(&single.family("all_total", "")), [(String::new(), 7.0)]);
    }

    #[test]
    fn a_value_on_a_bound_lies_below_it_and_threads_lose_nothing() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for value in [0.5, 1.0, 1.5, 9.0, f64::NAN, f64::INFINITY] {
                        for _ in 0..1000 {
                            histogram.observe(value);
                        }
                    }
                });
            }
        });
        let Value::Buckets { counts, sum, .. } = &histogram.family("h", "").samples[0].value else {
            panic!("no histogram")
        };
        assert_eq!((counts.as_slice(), *sum), ([8000, 4000, 4000].as_slice(), 48_000.0));
    }
}
