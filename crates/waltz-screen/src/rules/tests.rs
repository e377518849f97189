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
    let rumour = "It is a rumour that the launch of Project Falcon is in May.";
    assert_eq!(own(rumour, Side::Response), [("own.project".to_owned(), 0.4, true)]);
    let elsewhere = "I like rumours. The launch of Project Falcon is in May.";
    assert_eq!(own(elsewhere, Side::Response), [("own.project".to_owned(), 0.8, true)]);
    assert_eq!(own("see fal-1234", Side::Prompt), [("own.ticket".to_owned(), 0.4, false)]);
    Ok(())
}

/// What the error says of a file.
fn mistakes(file: &str) -> Vec<String> {
    match Rules::parse(file).map(|rules| rules.len()) {
        Err(Error::Mistakes(mistakes)) => mistakes.iter().map(RuleMistake::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_mistake_of_a_rule_is_named() {
    let told = mistakes(
        "[[rule]]\nid = \"OWN BAD ÄÖ\"\ncategory = \"Own Harm\"\nseverity = 2\nside = \"left\"\nwithin = \"far\"\n\
         regex = '(?=x)'\nunless = [\"@none\"]\naction = 5\nordered = \"yes\"\nsevrity = 1\n",
    );
    let keys = [
        "id", "category", "severity", "side", "means", "within", "regex", "unless", "action", "ordered",
        "sevrity",
    ];
    for key in keys {
        let named = told.iter().filter(|line| line.contains(&format!("`{key}`"))).count();
        assert_eq!(named, 1, "{key}: {told:#?}");
    }
    assert_eq!(told.len(), keys.len(), "{told:#?}");
    // A rule without anything lacks what every rule needs; a value of another type is no other mistake.
    assert_eq!(mistakes("[[rule]]\n").len(), 5);
    assert_eq!(mistakes("[[rule]]\nid = 1\ncategory = 1\nseverity = \"1\"\nmeans = 1\nregex = 1\n").len(), 5);
}

/// A finding is known by the id of what made it.
#[test]
fn no_rule_takes_the_id_of_what_is_built_in() {
    for id in [
        "sexual.minors",
        "injection.new_task",
        "privacy.lookup",
        "refusal.sorry",
        "pii.email",
        "secret.password",
    ] {
        let told = mistakes(&FILE.replace("own.ticket", id));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with(&format!("rule 2 `{id}`: `id`")) && told[0].contains("built-in"),
            "{told:?}"
        );
    }
}

#[test]
fn a_rule_with_terms_and_a_regex_needs_both() -> Result<(), Error> {
    let file = FILE.replace("regex = ", "all = [[\"ticket*\"]]\nregex = ");
    let screen = Screen::with_rules(&Rules::parse(&file)?)?;
    for (text, count) in [("see FAL-1234", 0), ("see the ticket", 0), ("see ticket FAL-1234", 1)] {
        assert_eq!(screen.read(text, Side::Prompt).findings.len(), count, "{text}");
    }
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
