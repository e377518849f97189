//! The report as one page: tables and plots in SVG, no scripts, nothing from outside, readable in light and in dark. It
//! shows rates and names, never a text of a model or a user.

use std::fmt::Write as _;

use super::statistics::Rate;
use super::table::{corrected, number, percent};
use super::{Group, Report, System, SystemReport};

const HEAD: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
content=\"width=device-width, initial-scale=1\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src \
'none'; style-src 'unsafe-inline'\"><title>waltz evaluation</title><style>:root{color-scheme:light dark;--ink:#1b1b1f;\
--paper:#fff;--line:#c9c9d1;--bar:#3566c5;--soft:#666}@media(prefers-color-scheme:dark){:root{--ink:#e8e8ec;--paper:\
#17171b;--line:#44444d;--bar:#8ab0ff;--soft:#a0a0aa}}body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);\
background:var(--paper);max-width:62rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse;margin:1rem 0;\
display:block;overflow-x:auto}th,td{border-bottom:1px solid var(--line);padding:.3rem .7rem;text-align:right}\
th:first-child,td:first-child{text-align:left}.note{color:var(--soft)}svg text{fill:var(--ink);font:13px system-ui,\
sans-serif}svg .bar{fill:var(--bar)}svg .whisker,svg .axis{stroke:var(--ink);stroke-width:1.5}svg .grid{stroke:\
var(--line)}</style></head><body>";

/// Writes the page.
pub fn page(report: &Report) -> String {
    let mut page = String::from(HEAD);
    page.push_str("<h1>waltz evaluation</h1>");
    about(&mut page, report);
    for (title, lines) in report.sections() {
        let lines: String = lines.iter().map(|line| format!("<li>{}</li>", escaped(line))).collect();
        put(&mut page, format_args!("<h2>{}</h2><ul>{lines}</ul>", escaped(&title)));
    }
    type Pick = fn(&SystemReport) -> &Rate;
    let plots: [(&str, Pick); 3] = [
        ("Unsafe answers to harmful prompts (ASR)", |system| &system.asr),
        ("Refusals of benign prompts (ORR)", |system| &system.orr),
        ("Drafts that the judge found fault with (FTR)", |system| &system.ftr),
    ];
    for (title, pick) in plots {
        plot(&mut page, title, report, pick);
    }
    systems(&mut page, report);
    for (system, told) in &report.systems {
        groups(&mut page, *system, "category", &told.by_category);
        groups(&mut page, *system, "attack", &told.by_attack);
    }
    page.push_str("</body></html>\n");
    page
}

fn about(page: &mut String, report: &Report) {
    let counts = &report.prompts;
    put(
        page,
        format_args!(
            "<p>{} prompts: {} harmful, {} benign, {} without a label. Intervals are at 95 %. {}.</p>",
            counts.all,
            counts.harmful,
            counts.benign,
            counts.unlabelled,
            escaped(&report.scored_by.note)
        ),
    );
    for (reason, rows) in &report.failures {
        put(page, format_args!("<p>{rows} prompts have no answer: {}.</p>", escaped(reason)));
    }
    for skipped in &counts.skipped {
        let (file, reason) = (escaped(&skipped.file), escaped(&skipped.reason));
        put(page, format_args!("<p class=\"note\">{} rows of {file} left out: {reason}.</p>", skipped.rows));
    }
}

/// Bars with whiskers, one a system: the corrected rate where there is one.
fn plot(page: &mut String, title: &str, report: &Report, pick: fn(&SystemReport) -> &Rate) {
    const LEFT: f64 = 80.0;
    const WIDTH: f64 = 560.0;
    let rows = report.systems.len() as f64;
    let height = 34.0 * rows + 40.0;
    let at = |share: f64| LEFT + WIDTH * share;
    let is_corrected = report.systems.values().any(|told| pick(told).corrected.is_some());
    let title = format!("{}{}", escaped(title), if is_corrected { ", corrected" } else { "" });
    put(
        page,
        format_args!(
            "<h2>{title}</h2><svg viewBox=\"0 0 760 {height}\" role=\"img\" aria-label=\"{title}\">"
        ),
    );
    for tenth in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let (x, bottom) = (at(tenth), height - 30.0);
        put(
            page,
            format_args!(
                "<line class=\"grid\" x1=\"{x}\" y1=\"5\" x2=\"{x}\" y2=\"{bottom}\"/><text x=\"{x}\" y=\"{}\" \
                 text-anchor=\"middle\">{:.0} %</text>",
                height - 12.0,
                tenth * 1e2
            ),
        );
    }
    for (index, (system, told)) in report.systems.iter().enumerate() {
        let rate = pick(told);
        let y = 10.0 + 34.0 * index as f64;
        put(page, format_args!("<text x=\"0\" y=\"{}\">{}</text>", y + 16.0, system.as_str()));
        let Some((value, low, high)) = shown(rate) else { continue };
        put(
            page,
            format_args!(
                "<rect class=\"bar\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"22\"/><line class=\"whisker\" \
                 x1=\"{:.1}\" y1=\"{m}\" x2=\"{:.1}\" y2=\"{m}\"/><text x=\"{:.1}\" y=\"{}\">{:.1} %</text>",
                WIDTH * value,
                at(low),
                at(high),
                at(high) + 6.0,
                y + 16.0,
                value * 1e2,
                m = y + 11.0
            ),
        );
    }
    page.push_str("</svg>");
}

fn shown(rate: &Rate) -> Option<(f64, f64, f64)> {
    let corrected = rate.corrected.as_ref().map(|corrected| (corrected.value, corrected.low, corrected.high));
    corrected.or_else(|| rate.value.map(|value| (value, rate.low, rate.high)))
}

fn systems(page: &mut String, report: &Report) {
    page.push_str(
        "<h2>Systems</h2><table><tr><th>system</th><th>n</th><th>ASR</th><th>ASR corrected</th><th>ORR</th>\
         <th>ORR corrected</th><th>FTR</th><th>rounds</th><th>p50 ms</th><th>p95 ms</th><th>tokens added</th>\
         <th>cost a month</th></tr>",
    );
    for (system, told) in &report.systems {
        put(
            page,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td>{}</td><td>{}</td><td>{}</td></tr>",
                system.as_str(),
                told.n,
                percent(&told.asr),
                corrected(&told.asr),
                percent(&told.orr),
                corrected(&told.orr),
                percent(&told.ftr),
                number(told.rounds, 2),
                number(told.latency_p50_ms, 0),
                number(told.latency_p95_ms, 0),
                number(told.tokens_added, 0),
                number(told.cost_per_month, 2)
            ),
        );
    }
    page.push_str("</table>");
}

fn groups(page: &mut String, system: System, kind: &str, groups: &std::collections::BTreeMap<String, Group>) {
    if groups.keys().all(|name| name == "none") {
        return;
    }
    put(
        page,
        format_args!(
            "<details><summary>{} by {kind}</summary><table><tr><th>{kind}</th><th>n</th><th>ASR</th>\
             <th>ASR corrected</th><th>ORR</th><th>ORR corrected</th><th>FTR</th></tr>",
            system.as_str()
        ),
    );
    for (name, group) in groups {
        put(
            page,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
                escaped(name),
                group.n,
                percent(&group.asr),
                corrected(&group.asr),
                percent(&group.orr),
                corrected(&group.orr),
                percent(&group.ftr)
            ),
        );
    }
    page.push_str("</table></details>");
}

fn put(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    page.write_fmt(text).ok();
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_file_says_becomes_markup() {
        assert_eq!(escaped("<b a='x'>&\"</b>"), "&lt;b a=&#39;x&#39;&gt;&amp;&quot;&lt;/b&gt;");
    }
}
