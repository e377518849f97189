//! The reference page, made from the families; used by the example that writes it and by the test
//! that compares it with the committed file.

use std::fmt::Write as _;

use waltz_screen::{Error, PiiKind, Screen, Side};

/// The text of `docs/reference/screen.md`.
pub(crate) fn page() -> Result<String, Error> {
    let screen = Screen::builtin()?;
    let mut page = String::from(INTRODUCTION);
    page.push_str(
        "| family | kind | category | severity | side | what it means |\n|---|---|---|---|---|---|\n",
    );
    for family in screen.families() {
        let side = match family.side {
            None => "both",
            Some(Side::Prompt) => "prompt",
            Some(Side::Response) => "response",
        };
        let (id, kind, category) = (&family.id, family.kind.as_str(), &family.category);
        let (severity, means) = (family.severity, &family.means);
        // Writing into a string cannot fail.
        let _ = writeln!(page, "| `{id}` | {kind} | {category} | {severity:.2} | {side} | {means} |");
    }
    page.push_str(RULES);
    page.push_str(EXAMPLE);
    page.push_str("```\n\n## Personal data and secrets\n\n");
    page.push_str("| kind | placeholder | what it is | secret |\n|---|---|---|---|\n");
    for kind in PiiKind::ALL {
        let secret = if kind.is_secret() { "yes" } else { "no" };
        let (name, placeholder, description) = (kind.as_str(), kind.placeholder(), kind.description());
        let _ = writeln!(page, "| `{name}` | `{placeholder}` | {description} | {secret} |");
    }
    Ok(page)
}

/// The example rules file of the page; a test loads it.
pub(crate) const EXAMPLE: &str = r#"[lists]
project = ["project falcon", "falcon programme"]

[[rule]]
id = "own.project"                  # a-z 0-9 . _ -, at most 64
category = "trade_secrets"          # one of the eight, or your own name in lower snake case
severity = 0.8                      # 0 to 1; 0.5 is the decision threshold
side = "response"                   # prompt, response or both (the default)
means = "names an unannounced project"
all = [["@project"], ["release*", "launch*"]]   # every group must occur ...
within = 6                          # ... within six words of the others (default 8)
ordered = false                     # true: in the order of the groups
unless = ["press release"]          # in the same sentence: no finding
softened_by = ["rumour*"]           # in the same sentence: half the severity
action = "block"                    # flag (the default) or block

[[rule]]
id = "own.ticket"
category = "trade_secrets"
severity = 0.4
means = "an internal ticket number"
regex = 'FAL-[0-9]{4}'              # for what terms cannot say; linear engine, no look-around
"#;

const INTRODUCTION: &str = "\
# The screen

Level 0 of the judge. This page is generated: `cargo run -p waltz-screen --example families > docs/reference/screen.md`.

A text is normalised (compatibility forms, case, invisible characters, look-alike letters, tag characters,
escapes, letters that are spaced out, parted or written as digits), its words are matched against the families below, and each
finding points at bytes of the original text. What stands behind an encoding is read beside it: base64 and hexadecimal runs, octets
in any base, Morse code, quoted-printable, tags between letters, rot13, reversed and upside-down letters. From severity 0.5 on a
finding counts as harm.

An exception in the same sentence (`in a novel`, `to prevent`) lowers the severity of a finding to 0.4, or to 0.5 where the family is
certain; it never makes the finding go away. Families about weapons of mass destruction, attacks on many people, ways to die and
children have no exceptions.

## Families

";

const RULES: &str = "
## Rules of your own

A rules file is TOML with `[[rule]]` tables in the form of the built-in families. A term is one or more whole
words; `*` at the end makes the last word a prefix; `@name` stands for a list of `[lists]`. At most 1,000 rules
and 4 MiB; one wrong rule rejects the file, and the error names every mistake. A rule needs `id` (no built-in one),
`category`, `severity`, `means`, and `all` or `regex`; with both, both must occur in the text.

```toml
";
