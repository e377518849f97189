//! Prometheus' [text form](https://prometheus.io/docs/instrumenting/exposition_formats/).

use std::borrow::Cow;
use std::fmt::Write;

use super::cells::{Family, Kind, Value};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Writes metrics as text. A metric without values is left out.
pub fn write(families: &[Family]) -> String {
    let mut text = String::with_capacity(16 * 1024);
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        // Writing to a string cannot fail.
        family_text(&mut text, family).ok();
    }
    text
}

fn family_text(text: &mut String, family: &Family) -> std::fmt::Result {
    let Family { name, help, kind, samples } = family;
    let kind = match kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    writeln!(text, "# HELP {name} {}", help.replace('\\', "\\\\").replace('\n', "\\n"))?;
    writeln!(text, "# TYPE {name} {kind}")?;
    for sample in samples {
        match &sample.value {
            Value::Number(number) => writeln!(text, "{name}{} {number}", labels(&sample.labels, None))?,
            Value::Buckets { bounds, counts, sum } => {
                let mut below = 0;
                for (position, count) in counts.iter().enumerate() {
                    below += count;
                    let bound = bounds.get(position).map_or_else(|| "+Inf".to_owned(), f64::to_string);
                    writeln!(text, "{name}_bucket{} {below}", labels(&sample.labels, Some(&bound)))?;
                }
                writeln!(text, "{name}_sum{} {sum}", labels(&sample.labels, None))?;
                writeln!(text, "{name}_count{} {below}", labels(&sample.labels, None))?;
            }
        }
    }
    Ok(())
}

fn labels(labels: &[(&'static str, Cow<'static, str>)], bound: Option<&str>) -> String {
    let own = labels.iter().map(|(name, value)| (*name, &**value));
    let written: Vec<String> = own
        .chain(bound.map(|bound| ("le", bound)))
        .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
        .collect();
    if written.is_empty() { String::new() } else { format!("{{{}}}", written.join(",")) }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::cells::{Histogram, Sample, gauge};
    use super::*;

    #[test]
    fn labels_and_help_are_escaped() {
        let sample = |value: &'static str| Sample {
            labels: vec![("odd", Cow::Borrowed(value))],
            value: Value::Number(1.5),
        };
        let family = Family {
            name: "odd_info",
            help: "back\\slash and\nline",
            kind: Kind::Gauge,
            samples: vec![sample("say \"hi\"\\\nbye"), sample("plain")],
        };
        let expected = "# HELP odd_info back\\\\slash and\\nline\n# TYPE odd_info gauge\n\
            odd_info{odd=\"say \\\"hi\\\"\\\\\\nbye\"} 1.5\nodd_info{odd=\"plain\"} 1.5\n";
        assert_eq!(write(&[family]), expected);
    }

    #[test]
    fn buckets_are_cumulative_and_the_last_is_the_count() {
        let histogram = Histogram::new(&[0.25, 1.0]);
        for value in [0.125, 0.25, 0.5, 3.0] {
            histogram.observe(value);
        }
        let expected = "# HELP wait_seconds Waiting.\n# TYPE wait_seconds histogram\n\
            wait_seconds_bucket{le=\"0.25\"} 2\nwait_seconds_bucket{le=\"1\"} 3\n\
            wait_seconds_bucket{le=\"+Inf\"} 4\nwait_seconds_sum 3.875\nwait_seconds_count 4\n";
        assert_eq!(write(&[histogram.family("wait_seconds", "Waiting.")]), expected);
    }

    #[test]
    fn what_is_not_known_is_not_there() {
        assert_eq!(write(&[gauge("rate", "A share of nothing.", None)]), "");
    }
}
