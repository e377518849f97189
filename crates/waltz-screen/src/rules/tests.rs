use super::*;
use crate::finding::Side;
use crate::screen::Screen;

const FILE: &str = r#"
[lists]
project = ["project falcon", "falcon*"]

[[rule]]
id = "own.project"
category = "trade_secrets"
severity = 0.8
side = "response"
means = "names an unannounced project"
within = 6
all = [["@project"], ["release", "launch*"]]
unless = ["peregrine"]
softened_by = ["rumour*"]
action = "block"

[[rule]]
id = "own.ticket"
category = "trade_secrets"
severity = 0.4
means = "an internal ticket"
regex = 'FAL-[0-9]{4}'
"#;

#[test]
fn rules_flag_block_soften_and_make_exceptions() -> Result<(), Error> {
    let rules = Rules::parse(FILE)?;
    assert_eq!(rules.len(), 2);
    assert!(!rules.is_empty());
    let screen = Screen::with_rules(&rules)?;
    let own = |text: &str, side: Side| -> Vec<(String, f32, bool)> {
        let findings = screen.read(text, side).findings;
        findings.into_iter().map(|finding| (finding.family, finding.severity, finding.blocks)).collect()
    };
    let launch = "The launch of Project Falcon is in May.";
    assert_eq!(own(launch, Side::Response), [("own.project".to_owned(), 0.8, true)]);
    assert!(own(launch, Side::Prompt).is_empty());
    assert!(own("The launch of Project Falcon, a peregrine, is in May.", Side::Response).is_empty());
    let rumour = "It is a rumour. The launch of Project Falcon is in May.";
    assert_eq!(own(rumour, Side::Response), [("own.project".to_owned(), 0.4, true)]);
    assert_eq!(own("see fal-1234", Side::Prompt), [("own.ticket".to_owned(), 0.4, false)]);
    Ok(())
}

#[test]
fn a_thousand_rules_are_allowed() -> Result<(), Error> {
    let mut file = String::new();
    for index in 0..MAX_RULES {
        file.push_str(&format!(
            "[[rule]]\nid = \"own.r{index}\"\ncategory = \"own\"\nseverity = 0.5\nmeans = \"m\"\nall = [[\"term{index}x\"]]\n"
        ));
    }
    let screen = Screen::with_rules(&Rules::parse(&file)?)?;
    assert_eq!(screen.read("here is term999x", Side::Prompt).findings.len(), 1);
    Ok(())
}
