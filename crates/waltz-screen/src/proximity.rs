//! Finds where the groups of a family stand close together. Each walk looks at every hit of every
//! group once, so that a text made of nothing but terms costs no more per word than any other.

use crate::family::MAX_GROUPS;
use crate::matching::Hit;
use crate::words::Words;

/// Most places reported for one family in one text.
pub(crate) const MAX_PLACES: usize = 16;

/// Words from `first` to `last` in which every group occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// The windows, from left to right and without overlap, in which all groups stand within `within`
/// words of each other and which `keep` accepts; at most [`MAX_PLACES`] of those. Windows that are not
/// accepted do not count, so that a text cannot hide one behind many exceptions.
pub(crate) fn windows(
    groups: &[&[Hit]],
    view: &Words,
    within: u32,
    ordered: bool,
    keep: impl Fn(Window) -> bool,
) -> Vec<Window> {
    if groups.is_empty() || groups.len() > MAX_GROUPS || groups.iter().any(|group| group.is_empty()) {
        return Vec::new();
    }
    if ordered {
        ordered_windows(groups, view, within, keep)
    } else {
        free_windows(groups, view, within, keep)
    }
}

fn place(view: &Words, hit: Hit) -> u32 {
    view.words.get(hit.last as usize).map_or(0, |word| word.place(hit.last as usize))
}

/// The smallest windows over several sorted lists: the pointer that lies farthest left moves on.
fn free_windows(groups: &[&[Hit]], view: &Words, within: u32, keep: impl Fn(Window) -> bool) -> Vec<Window> {
    let mut found = Vec::new();
    let mut at = [0_usize; MAX_GROUPS];
    loop {
        let mut window = Window { first: u32::MAX, last: 0 };
        let (mut low, mut high, mut lowest) = (u32::MAX, 0, 0);
        let mut shared = None;
        for (index, group) in groups.iter().enumerate() {
            let Some(hit) = group.get(at[index]) else { return found };
            let here = place(view, *hit);
            // Two groups may not be satisfied by one and the same word.
            let twin = groups[..index].iter().zip(&at).position(|(other, at)| other[*at].last == hit.last);
            shared = shared.or(twin.map(|twin| (twin, index)));
            if here < low {
                (low, lowest) = (here, index);
            }
            high = high.max(here);
            window = Window { first: window.first.min(hit.first), last: window.last.max(hit.last) };
        }
        if let Some((left, right)) = shared {
            // Of the two, the one with the nearer alternative moves on.
            let next = |index: usize| groups[index].get(at[index] + 1).map_or(u32::MAX, |hit| hit.last);
            at[if next(left) <= next(right) { left } else { right }] += 1;
            continue;
        }
        if high - low > within {
            at[lowest] += 1;
            continue;
        }
        if keep(window) {
            found.push(window);
        }
        if found.len() == MAX_PLACES {
            return found;
        }
        for (index, group) in groups.iter().enumerate() {
            while group.get(at[index]).is_some_and(|hit| hit.last <= window.last) {
                at[index] += 1;
            }
        }
    }
}

/// From each hit of the first group the nearest chain to the right; pointers only move right.
fn ordered_windows(
    groups: &[&[Hit]],
    view: &Words,
    within: u32,
    keep: impl Fn(Window) -> bool,
) -> Vec<Window> {
    let mut found: Vec<Window> = Vec::new();
    let mut at = [0_usize; MAX_GROUPS];
    for start in groups[0] {
        if found.last().is_some_and(|window| start.first <= window.last) {
            continue;
        }
        let mut previous = *start;
        for (index, group) in groups.iter().enumerate().skip(1) {
            while group.get(at[index]).is_some_and(|hit| hit.first <= previous.last) {
                at[index] += 1;
            }
            let Some(hit) = group.get(at[index]) else { return found };
            previous = *hit;
        }
        let window = Window { first: start.first, last: previous.last };
        if place(view, previous) - place(view, *start) <= within && keep(window) {
            found.push(window);
            if found.len() == MAX_PLACES {
                return found;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests;
