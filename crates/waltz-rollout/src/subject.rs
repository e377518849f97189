//! Keeps one subject from deciding for all: of the last reports of a day, only so many may be one subject's. What the
//! judge says is not capped: a subject that asks a lot must not blind the watch.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use waltz_exchange::id::sha256;

use crate::settings::SubjectSettings;

const DAY_SECONDS: i64 = 86_400;
const MOST_NAMED: usize = 16;

/// Who the last counted reports came from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubjectCap {
    /// A hash of the subject, and the day.
    recent: VecDeque<(u32, i64)>,
    /// The subjects that were turned away last, so that each is named once a day.
    named: VecDeque<(u32, i64)>,
}

/// Whether a report counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Counts,
    /// The subject has had its share; `news` when nobody was told yet.
    Capped {
        news: bool,
    },
}

impl SubjectCap {
    pub(crate) fn admit(&mut self, subject: &str, at: Timestamp, settings: &SubjectSettings) -> Admission {
        if settings.cap == 0 {
            return Admission::Counts;
        }
        let head = sha256(subject.as_bytes());
        let subject = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let day = at.as_second().div_euclid(DAY_SECONDS);
        let same = self.recent.iter().filter(|entry| **entry == (subject, day)).count();
        if same >= settings.cap {
            let news = !self.named.contains(&(subject, day));
            if news {
                self.named.push_back((subject, day));
                while self.named.len() > MOST_NAMED {
                    self.named.pop_front();
                }
            }
            return Admission::Capped { news };
        }
        self.recent.push_back((subject, day));
        while self.recent.len() > settings.window {
            self.recent.pop_front();
        }
        Admission::Counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(non_snake_case, reason = "the fault's number")]
    fn fault_F46_one_subject_counts_only_so_often() {
        let mut cap = SubjectCap::default();
        let settings = SubjectSettings::default();
        let at = Timestamp::UNIX_EPOCH;
        let admissions: Vec<Admission> = (0..5000).map(|_| cap.admit("one", at, &settings)).collect();
        assert_eq!(admissions.iter().filter(|admission| **admission == Admission::Counts).count(), 2);
        assert_eq!(
            admissions.iter().filter(|admission| **admission == Admission::Capped { news: true }).count(),
            1
        );
        assert_eq!(cap.admit("two", at, &settings), Admission::Counts);
        let tomorrow = Timestamp::from_second(DAY_SECONDS).unwrap();
        assert_eq!(cap.admit("one", tomorrow, &settings), Admission::Counts);
        let all = SubjectSettings { cap: 0, ..settings };
        assert!((0..100).all(|_| cap.admit("one", at, &all) == Admission::Counts));
        assert!(serde_json::to_string(&cap).unwrap().len() < 6000);
    }
}
