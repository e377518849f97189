//! Tests of the operators.

use proptest::prelude::*;
use rand::SeedableRng as _;

use super::*;

const PROMPT: &str =
    "You help.\n# Role\nYou build APIs. You test them. You explain them.\n# Style\nBe brief.\nBe kind.";

fn base(prompt: &str) -> Setup {
    Setup { prompt: prompt.to_owned(), ..Setup::default() }
}

/// A line of patches, each made of those before it.
fn line(seed: u64, steps: usize, prompt: &str) -> Vec<Vec<Modification>> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut made: Vec<Vec<Modification>> = vec![Vec::new()];
    for step in 0..steps {
        let operator = [Operator::Revision, Operator::Recombination, Operator::Refinement][step % 3];
        let parents =
            [&made[random.random_range(0..made.len())][..], &made[random.random_range(0..made.len())]];
        let is_new = |patch: &[Modification]| !made.iter().any(|old| old == patch);
        if let Some(patch) = make(operator, &parents, &base(prompt), &is_new, &mut random) {
            made.push(patch);
        }
    }
    made
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_patch_is_new_and_within_the_bounds(seed in any::<u64>(), bare in any::<bool>()) {
        let prompt = if bare { "" } else { PROMPT };
        let made = line(seed, 40, prompt);
        prop_assert!(made.len() > 20, "{}", made.len());
        for (at, patch) in made.iter().enumerate() {
            prop_assert!(bounded(patch, &base(prompt)).is_ok(), "{patch:?}");
            prop_assert!(!made[..at].contains(patch));
        }
        prop_assert_eq!(&made, &line(seed, 40, prompt), "the same seed makes the same");
    }
}

#[test]
fn other_seeds_make_others_and_every_move_is_made() {
    assert_ne!(line(1, 10, PROMPT), line(2, 10, PROMPT));
    let all: Vec<Modification> = (0..40).flat_map(|seed| line(seed, 30, PROMPT)).flatten().collect();
    let is = |wanted: fn(&Modification) -> bool| all.iter().any(wanted);
    assert!(is(
        |change| matches!(change, Modification::Prompt(change) if change.operation == Operation::Append)
    ));
    assert!(is(
        |change| matches!(change, Modification::Prompt(change) if change.operation == Operation::Replace)
    ));
    for (name, ..) in PARAMETERS {
        assert!(all.iter().any(|change| slot(change) == format!("parameter {name}")), "{name}");
    }
}

#[test]
fn two_parents_give_sections_of_both_and_nothing_else() {
    let style = |text: &str| {
        Modification::Prompt(PromptChange {
            section: Some("Style".to_owned()),
            operation: Operation::Append,
            content: text.to_owned(),
        })
    };
    let first = [style("Be brief."), with_parameter(&[], "temperature", 2).remove(0)];
    let second = [style("Be long."), with_parameter(&[], "top_p", 5).remove(0)];
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let (mut from_first, mut crossed) = (0, 0);
    for _ in 0..200 {
        let child = recombine(&first, &second, &mut random);
        assert!(child.iter().all(|change| first.contains(change) || second.contains(change)));
        assert_eq!(child.iter().filter(|change| slot(change) == "section style").count(), 1);
        from_first += usize::from(child.contains(&first[0]));
        crossed += usize::from(child.contains(&first[0]) && child.contains(&second[1]));
    }
    assert!((60..140).contains(&from_first) && crossed > 20, "{from_first}, {crossed}");
}

#[test]
fn shortening_keeps_the_first_half() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    for _ in 0..20 {
        let patch = shorten(&[], &base(PROMPT), &mut random).unwrap();
        let prompt = bounded(&patch, &base(PROMPT)).unwrap().prompt;
        assert!(prompt.len() < PROMPT.len() && prompt.starts_with("You help.\n# Role"), "{prompt}");
        assert!(
            prompt.contains("You build APIs. You test them.") && prompt.contains("Be brief."),
            "{prompt}"
        );
    }
    let bare = shorten(&[], &base("One. Two. Three."), &mut random).unwrap();
    assert_eq!(bounded(&bare, &base("One. Two. Three.")).unwrap().prompt, "One. Two.");
    assert_eq!(shorten(&[], &base("One."), &mut random), None);
}
