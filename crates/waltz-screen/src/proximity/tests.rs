use proptest::prelude::*;

use super::{Hit, Window, Words};
use crate::words::split;

fn hit(word: u32) -> Hit {
    Hit { first: word, last: word }
}

/// Every window counts.
fn windows(groups: &[&[Hit]], view: &Words, within: u32, ordered: bool) -> Vec<Window> {
    super::windows(groups, view, within, ordered, |_| true)
}

fn text(words: usize) -> Words {
    split(&"word ".repeat(words), false)
}

#[test]
fn groups_must_stand_close() {
    let view = text(30);
    let (first, second) = ([hit(2)], [hit(9)]);
    assert_eq!(windows(&[&first, &second], &view, 7, false), [Window { first: 2, last: 9 }]);
    assert!(windows(&[&first, &second], &view, 6, false).is_empty());
}

#[test]
fn order_counts_only_where_asked_for() {
    let view = text(30);
    let (first, second) = ([hit(9)], [hit(2)]);
    assert_eq!(windows(&[&first, &second], &view, 7, false).len(), 1);
    assert!(windows(&[&first, &second], &view, 7, true).is_empty());
    assert_eq!(windows(&[&second, &first], &view, 7, true), [Window { first: 2, last: 9 }]);
}

#[test]
fn one_word_does_not_satisfy_two_groups() {
    let view = text(5);
    let same = [hit(1)];
    assert!(windows(&[&same, &same], &view, 7, false).is_empty());
    assert!(windows(&[&same, &same], &view, 7, true).is_empty());
}

#[test]
fn a_sentence_end_counts_as_distance() {
    let view = split("one two. three", false);
    let (first, second) = ([hit(1)], [hit(2)]);
    assert!(windows(&[&first, &second], &view, 3, false).is_empty());
    assert_eq!(windows(&[&first, &second], &view, 4, false).len(), 1);
}

#[test]
fn windows_that_are_not_kept_do_not_fill_the_limit() {
    let view = text(200);
    let first: Vec<Hit> = (0..60).map(|index| hit(index * 3)).collect();
    let second: Vec<Hit> = (0..60).map(|index| hit(index * 3 + 1)).collect();
    let found = super::windows(&[&first, &second], &view, 1, false, |window| window.first >= 150);
    assert_eq!(found.first(), Some(&Window { first: 150, last: 151 }));
}

proptest! {
    /// The walk finds a window exactly when comparing every pair does.
    #[test]
    fn agrees_with_comparing_all_pairs(
        left in prop::collection::btree_set(0_u32..60, 1..12),
        right in prop::collection::btree_set(0_u32..60, 1..12),
        within in 1_u32..20,
        ordered: bool,
    ) {
        let view = text(60);
        let first: Vec<Hit> = left.iter().copied().map(hit).collect();
        let second: Vec<Hit> = right.iter().copied().filter(|word| !left.contains(word)).map(hit).collect();
        let near = first.iter().any(|a| second.iter().any(|b| {
            a.last.abs_diff(b.last) <= within && (!ordered || a.last < b.last)
        }));
        let found = windows(&[&first, &second], &view, within, ordered);
        prop_assert_eq!(near, !found.is_empty());
        for pair in found.windows(2) {
            prop_assert!(pair[0].last < pair[1].first);
        }
    }
}
