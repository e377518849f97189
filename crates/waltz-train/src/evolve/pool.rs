//! The pool that new candidates are made of. What is not safe never enters it.

use rand::RngExt as _;
use rand::rngs::ChaCha8Rng;
use serde::Serialize;

use super::candidate::Candidate;
use super::measure::Safety;

/// The most members.
pub(super) const CAP: usize = 50;
/// From this score on a member is a success, and is not pruned.
pub(super) const SUCCESS: f64 = 0.7;
/// Below this score a member is a failure, and nothing is made of it.
pub(super) const FAILURE: f64 = 0.3;
/// Members of so many last generations are not pruned.
const YOUNG: u32 = 10;

/// A member: a candidate that is safe as far as was asked, and its share of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The candidate.
    pub candidate: Candidate,
    /// The share of its tasks that were done.
    pub score: f64,
}

/// What became of the candidates that were offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// They entered.
    pub entered: usize,
    /// They were kept out as unsafe.
    #[serde(rename = "unsafe")]
    pub not_safe: usize,
    /// They were kept out because the benchmark showed nothing.
    pub unproven: usize,
    /// They were kept out because prompts have no answer.
    pub unanswered: usize,
    /// They entered and had to leave.
    pub pruned: usize,
}

/// The pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    members: Vec<Member>,
    counts: Counts,
}

impl Pool {
    /// Takes a candidate in if it is safe, and returns whether it did. Somebody else may have to leave for it.
    pub fn offer(&mut self, candidate: &Candidate, score: f64, safety: &Safety) -> bool {
        let counted = match safety {
            Safety::Proven | Safety::Unmeasured => &mut self.counts.entered,
            Safety::Unsafe { .. } => &mut self.counts.not_safe,
            Safety::Unproven { .. } => &mut self.counts.unproven,
            Safety::Unanswered { .. } => &mut self.counts.unanswered,
        };
        *counted += 1;
        if !safety.admits() {
            return false;
        }
        self.members.push(Member { candidate: candidate.clone(), score });
        while self.members.len() > CAP {
            self.prune(candidate.generation);
        }
        true
    }

    /// Those in it.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// What became of all that were offered.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The best by score; of equals the one with fewer changes, then the older.
    pub fn best(&self) -> Option<&Member> {
        self.members.iter().min_by(|one, other| {
            let score = other.score.total_cmp(&one.score);
            score.then(one.candidate.patch.len().cmp(&other.candidate.patch.len()))
        })
    }

    /// One or two different members to make something of; failures are none. Each is the better of two.
    pub(super) fn parents(&self, two: bool, random: &mut ChaCha8Rng) -> Vec<&Member> {
        let mut fit: Vec<&Member> = self.members.iter().filter(|member| member.score >= FAILURE).collect();
        let mut chosen = Vec::new();
        while chosen.len() < if two { 2 } else { 1 } && !fit.is_empty() {
            let (one, other) = (random.random_range(0..fit.len()), random.random_range(0..fit.len()));
            chosen.push(fit.remove(if fit[other].score > fit[one].score { other } else { one }));
        }
        chosen
    }

    /// The lowest score that is neither a success nor young leaves; where all are, the lowest of all, the oldest first.
    fn prune(&mut self, generation: u32) {
        let lowest = |spared: &dyn Fn(&Member) -> bool| {
            let left = self.members.iter().enumerate().filter(|(_, member)| !spared(member));
            left.min_by(|(_, one), (_, other)| one.score.total_cmp(&other.score)).map(|(at, _)| at)
        };
        let spared =
            |member: &Member| member.score >= SUCCESS || member.candidate.generation + YOUNG > generation;
        if let Some(at) = lowest(&spared).or_else(|| lowest(&|_| false)) {
            self.members.remove(at);
            self.counts.pruned += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use rand::SeedableRng as _;

    use super::*;

    fn candidate(number: usize, generation: u32) -> Candidate {
        Candidate { id: format!("c{number}"), generation, ..Candidate::base() }
    }

    fn safety(kind: u8) -> Safety {
        let reasons = vec!["because".to_owned()];
        match kind {
            0 => Safety::Proven,
            1 => Safety::Unmeasured,
            2 => Safety::Unsafe { reasons },
            3 => Safety::Unproven { reasons },
            _ => Safety::Unanswered { prompts: 1 },
        }
    }

    proptest! {
        #[test]
        fn nothing_unsafe_is_ever_in_it(
            offers in prop::collection::vec((0_u8..5, 0_u8..=10, 0_u32..3), 0..200),
        ) {
            let mut pool = Pool::default();
            let mut kinds = HashMap::new();
            let mut generation = 0;
            for (number, (kind, tenths, step)) in offers.iter().enumerate() {
                generation += step;
                let candidate = candidate(number, generation);
                kinds.insert(candidate.id.clone(), *kind);
                let entered = pool.offer(&candidate, f64::from(*tenths) / 10.0, &safety(*kind));
                prop_assert_eq!(entered, *kind < 2);
                prop_assert!(pool.members().iter().all(|member| kinds[&member.candidate.id] < 2));
                prop_assert!(pool.members().len() <= CAP);
                let mut random = ChaCha8Rng::seed_from_u64(number as u64);
                for parent in pool.parents(true, &mut random) {
                    prop_assert!(kinds[&parent.candidate.id] < 2 && parent.score >= FAILURE);
                }
            }
            let counts = pool.counts();
            let of = |wanted: &[u8]| offers.iter().filter(|(kind, ..)| wanted.contains(kind)).count();
            prop_assert_eq!(counts.entered, of(&[0, 1]));
            prop_assert_eq!((counts.not_safe, counts.unproven, counts.unanswered), (of(&[2]), of(&[3]), of(&[4])));
            prop_assert_eq!(counts.entered - counts.pruned, pool.members().len());
        }
    }

    fn ids(pool: &Pool) -> Vec<&str> {
        pool.members().iter().map(|member| member.candidate.id.as_str()).collect()
    }

    #[test]
    fn the_lowest_leaves_unless_it_is_a_success_or_young() {
        let mut pool = Pool::default();
        // Half are successes; of the others c1 is the lowest, and too young to leave until generation 11.
        for number in 0..CAP {
            let score = if number % 2 == 0 { 0.7 } else { 0.4 + number as f64 / 1_000.0 };
            pool.offer(&candidate(number, 1), score, &Safety::Proven);
        }
        assert_eq!((pool.members().len(), pool.counts().pruned), (CAP, 0));
        pool.offer(&candidate(100, 11), 0.1, &Safety::Proven);
        assert_eq!(pool.members().len(), CAP);
        assert!(!ids(&pool).contains(&"c1") && ids(&pool).contains(&"c100"), "the young one stays");
        pool.offer(&candidate(101, 11), 0.1, &Safety::Proven);
        assert!(!ids(&pool).contains(&"c3") && ids(&pool).contains(&"c0"));
        // Where all are spared the cap still holds, and the lowest goes.
        let mut young = Pool::default();
        for number in 0..=CAP {
            young.offer(&candidate(number, 1), 0.9 - number as f64 / 1_000.0, &Safety::Proven);
        }
        assert_eq!((young.members().len(), young.counts().pruned), (CAP, 1));
        assert!(!ids(&young).contains(&format!("c{CAP}").as_str()));
    }

    #[test]
    fn the_best_is_the_highest_then_the_simplest() {
        let mut pool = Pool::default();
        assert!(pool.best().is_none());
        for (number, score) in [(0, 0.5), (1, 0.8), (2, 0.8)] {
            pool.offer(&candidate(number, 1), score, &Safety::Proven);
        }
        assert_eq!(pool.best().unwrap().candidate.id, "c1");
    }
}
