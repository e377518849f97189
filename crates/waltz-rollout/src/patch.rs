//! Applies a variant's patch to an agent's prompt, model and parameters. A patch that cannot be applied as a whole
//! changes nothing.

use serde_json::{Map, Value};
use waltz_exchange::variant::{Modification, Operation, ParameterChange, PromptChange};

use crate::Error;

/// What an agent is asked with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setup {
    /// The system prompt.
    pub prompt: String,
    /// The model.
    pub model: String,
    /// Parameters of the request, such as `temperature`.
    pub parameters: Map<String, Value>,
}

/// Parameters that a variant may set, with the least and the largest value.
const PARAMETERS: [(&str, f64, f64); 7] = [
    ("temperature", 0.0, 2.0),
    ("top_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
    ("max_tokens", 1.0, 1e6),
    ("max_completion_tokens", 1.0, 1e6),
    ("seed", 0.0, 9_007_199_254_740_992.0),
];

/// The setup with the patch applied, in the order of its changes.
pub fn apply(patch: &[Modification], setup: &Setup) -> Result<Setup, Error> {
    let mut changed = setup.clone();
    for modification in patch {
        match modification {
            Modification::Prompt(change) => changed.prompt = change_prompt(&changed.prompt, change)?,
            Modification::Parameter(ParameterChange { parameter, value, .. }) => {
                check_parameter(parameter, value)?;
                changed.parameters.insert(parameter.clone(), value.clone());
            }
            Modification::Model(change) if change.model.trim().is_empty() => {
                return Err(Error::Patch("the model has no name".into()));
            }
            Modification::Model(change) => changed.model.clone_from(&change.model),
        }
    }
    Ok(changed)
}

fn check_parameter(parameter: &str, value: &Value) -> Result<(), Error> {
    let Some((_, least, most)) = PARAMETERS.iter().find(|(name, ..)| *name == parameter) else {
        let known: Vec<&str> = PARAMETERS.iter().map(|(name, ..)| *name).collect();
        return Err(Error::Patch(format!("`{parameter}` is not one of {}", known.join(", "))));
    };
    let whole = matches!(parameter, "max_tokens" | "max_completion_tokens" | "seed");
    let fits = value.as_f64().is_some_and(|number| (*least..=*most).contains(&number));
    if !fits || (whole && !value.is_u64()) {
        let kind = if whole { "a whole number" } else { "a number" };
        return Err(Error::Patch(format!(
            "`{parameter}` must be {kind} from {least} to {most}, not {value}"
        )));
    }
    Ok(())
}

fn change_prompt(prompt: &str, change: &PromptChange) -> Result<String, Error> {
    let PromptChange { section, operation, content } = change;
    let Some(section) = section else {
        return Ok(match operation {
            Operation::Append => joined(prompt, content),
            Operation::Replace => content.clone(),
        });
    };
    match (find(prompt, section), operation) {
        (Some((body, end)), Operation::Append) => {
            Ok(format!("{}{}", joined(&prompt[..end.max(body)], content), tail(&prompt[end..])))
        }
        (Some((body, end)), Operation::Replace) => {
            // The last line of a prompt may be a heading that nothing follows.
            let heading = prompt[..body].trim_end_matches('\n');
            Ok(format!("{heading}\n{}{}", content.trim_end(), tail(&prompt[end..])))
        }
        // The older proposals name sections that a prompt may not have; adding to nothing makes it.
        (None, Operation::Append) => Ok(joined(prompt, &format!("## {section}\n{content}"))),
        (None, Operation::Replace) => {
            Err(Error::Patch(format!("the prompt has no section `{section}` to replace")))
        }
    }
}

/// A section of a prompt: its heading and what stands under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section<'a> {
    /// The heading, without its marks.
    pub title: &'a str,
    /// What stands under it, smaller sections included.
    pub body: &'a str,
}

/// The sections of a prompt that a patch can name; of several with one heading, the first.
pub fn sections(prompt: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut fence = None;
    for line in prompt.lines() {
        fence = fence_after(fence, line);
        let Some((_, title)) = heading(line).filter(|_| fence.is_none()) else { continue };
        if sections.iter().any(|section| section.title.eq_ignore_ascii_case(title)) {
            continue;
        }
        let Some((body, end)) = find(prompt, title) else { continue };
        sections.push(Section { title, body: prompt[body..end.max(body)].trim() });
    }
    sections
}

/// Where the body of the section begins and ends: from below its heading to the next heading of its own or a
/// higher rank. Lines between code fences are no headings.
fn find(prompt: &str, section: &str) -> Option<(usize, usize)> {
    let (mut found, mut position, mut fence) = (None, 0, None);
    for line in prompt.split_inclusive('\n') {
        fence = fence_after(fence, line);
        if let (None, Some((rank, title))) = (fence, heading(line)) {
            match found {
                None if title.eq_ignore_ascii_case(section.trim()) => {
                    found = Some((position + line.len(), rank));
                }
                Some((body, own)) if rank <= own => return Some((body, position)),
                _ => {}
            }
        }
        position += line.len();
    }
    found.map(|(body, _)| (body, prompt.len()))
}

/// The code fence that is open after a line, as its mark and how often it stands there. As in CommonMark, a fence is
/// closed by one of the same mark that is at least as long, and code within one line opens none.
fn fence_after(open: Option<(char, usize)>, line: &str) -> Option<(char, usize)> {
    let line = line.trim();
    let Some(mark) = line.chars().next().filter(|mark| matches!(mark, '`' | '~')) else { return open };
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    match open {
        Some((own, least)) if own == mark && length >= least && rest.is_empty() => None,
        None if length >= 3 && !(mark == '`' && rest.contains('`')) => Some((mark, length)),
        open => open,
    }
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let rank = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = line[rank..].strip_prefix(' ')?.trim();
    (1..=6).contains(&rank).then_some((rank, title))
}

/// The text with more below it.
fn joined(text: &str, more: &str) -> String {
    match text.trim_end() {
        "" => more.to_owned(),
        before => format!("{before}\n{}", more.trim_end()),
    }
}

/// What follows a section, below an empty line.
fn tail(rest: &str) -> String {
    if rest.is_empty() { String::new() } else { format!("\n\n{rest}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PROMPT: &str =
        "# Core Identity\nYou build APIs.\n\n```\n# not a heading\n```\n\n# Style\nBe brief.\n";

    fn patched(patch: Value) -> Result<Setup, Error> {
        let patch: Vec<Modification> = serde_json::from_value(patch).unwrap();
        apply(&patch, &Setup { prompt: PROMPT.into(), model: "large".into(), parameters: Map::new() })
    }

    #[test]
    fn text_is_added_to_its_section() {
        let patch = json!([{"section": "core identity", "operation": "append", "content": "Mind security."}]);
        assert_eq!(
            patched(patch).unwrap().prompt,
            "# Core Identity\nYou build APIs.\n\n```\n# not a heading\n```\nMind security.\n\n# Style\nBe brief.\n"
        );
        let whole = json!([{"operation": "append", "content": "Mind security."}]);
        assert!(patched(whole).unwrap().prompt.ends_with("Be brief.\nMind security."));
        let new = json!([{"section": "Limits", "operation": "append", "content": "None."}]);
        assert!(patched(new).unwrap().prompt.ends_with("Be brief.\n## Limits\nNone."));
    }

    #[test]
    fn sections_are_those_that_a_patch_can_name() {
        let found = sections("Before.\n# A\none\n## B\ntwo\n```\n# no\n```\n# C\n# a\nthree");
        let found: Vec<_> = found.iter().map(|section| (section.title, section.body)).collect();
        assert_eq!(found, [("A", "one\n## B\ntwo\n```\n# no\n```"), ("B", "two\n```\n# no\n```"), ("C", "")]);
        assert_eq!(sections(""), []);
    }

    #[test]
    fn headings_are_told_from_code_and_survive_at_the_end() {
        let titles = |prompt| -> Vec<String> {
            sections(prompt).iter().map(|section| section.title.to_owned()).collect()
        };
        assert_eq!(titles("# A\n```x```\n# B\n"), ["A", "B"], "code within one line");
        assert_eq!(titles("# A\n~~~\n# no\n~~~\n# B"), ["A", "B"]);
        assert_eq!(titles("# A\n````\n# no\n```\n# no\n````\n# B"), ["A", "B"], "a shorter fence");
        assert_eq!(titles("# A\n```\n# no\n~~~\n# no\n```\n# B"), ["A", "B"], "another mark");
        let replace =
            PromptChange { section: Some("B".into()), operation: Operation::Replace, content: "new".into() };
        for prompt in ["# A\na\n# B", "# A\na\n# B\n", "# A\na\n# B\nold\n"] {
            assert_eq!(change_prompt(prompt, &replace).unwrap(), "# A\na\n# B\nnew", "{prompt:?}");
        }
    }

    #[test]
    fn a_section_is_replaced_and_a_missing_one_is_not() {
        let patch = json!([{"section": "Style", "operation": "replace", "content": "Be long."}]);
        assert!(patched(patch).unwrap().prompt.ends_with("# Style\nBe long."));
        let first = json!([{"section": "Core Identity", "operation": "replace", "content": "You test."}]);
        assert_eq!(patched(first).unwrap().prompt, "# Core Identity\nYou test.\n\n# Style\nBe brief.\n");
        let missing = json!([{"section": "Rules", "operation": "replace", "content": "x"}]);
        assert!(patched(missing).unwrap_err().to_string().contains("no section `Rules`"));
    }

    #[test]
    fn parameters_and_model_are_checked() {
        let good = json!([{"parameter": "temperature", "value": 0.2}, {"model": "small"}]);
        let setup = patched(good).unwrap();
        assert_eq!((setup.model.as_str(), &setup.parameters["temperature"]), ("small", &json!(0.2)));
        for bad in [
            json!([{"parameter": "temperature", "value": 3}]),
            json!([{"parameter": "temperature", "value": "hot"}]),
            json!([{"parameter": "max_tokens", "value": 10.5}]),
            json!([{"parameter": "tools", "value": []}]),
            json!([{"model": " "}]),
        ] {
            assert!(patched(bad.clone()).is_err(), "{bad}");
        }
    }
}
