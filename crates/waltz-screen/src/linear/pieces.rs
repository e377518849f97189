//! The pieces of a word: every run of three to five of its bytes, hashed. A word that was never seen is known by the
//! pieces that it shares with others.

use super::features::{LONGEST_WORD, step};

/// The pieces of the longest word, three at each of its places.
const MOST_PIECES: usize = 3 * LONGEST_WORD;

const PIECE_SEED: u64 = 0xb492_b66f_be98_f273;

/// The pieces of one word.
pub(super) struct Pieces {
    hashes: [u64; MOST_PIECES],
    count: usize,
    /// A bit for each run of three, so that hardly any has to be looked for. Longer runs that are equal begin with
    /// runs of three that are.
    maybe: u64,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self { hashes: [0; MOST_PIECES], count: 0, maybe: 0 }
    }

    /// Every run of three to five bytes of a word with a mark at either end, each once: a letter that is held down
    /// makes the same few pieces again and again.
    pub(super) fn read(&mut self, marked: &[u8]) -> &[u64] {
        let mut cut = [b' '; LONGEST_WORD + 2];
        let marked = if marked.len() > cut.len() {
            cut[..=LONGEST_WORD].copy_from_slice(&marked[..=LONGEST_WORD]);
            &cut
        } else {
            marked
        };
        (self.count, self.maybe) = (0, 0);
        let mut start = 0;
        while let Some(run) = marked[start..].first_chunk::<5>() {
            self.add(marked, start, run);
            start += 1;
        }
        if let Some(run) = marked.last_chunk::<4>() {
            self.add(marked, marked.len() - 4, run);
        }
        if let Some(run) = marked.last_chunk::<3>() {
            self.add(marked, marked.len() - 3, run);
        }
        &self.hashes[..self.count]
    }

    /// Adds the pieces that begin at a place, where the longest is `run`.
    #[inline]
    fn add<const N: usize>(&mut self, marked: &[u8], start: usize, run: &[u8; N]) {
        let mut hash = PIECE_SEED;
        let mut may_repeat = false;
        for (length, byte) in (1..).zip(run) {
            hash = step(hash, *byte);
            if length == 3 {
                let bit = 1 << (hash >> 40 & 63);
                may_repeat = self.maybe & bit != 0;
                self.maybe |= bit;
            }
            if length >= 3 && !(may_repeat && stands_before(marked, start, length)) {
                self.hashes[self.count] = hash ^ (length as u64 - 1) << 56;
                self.count += 1;
            }
        }
    }
}

/// Whether the run of bytes from `start` on also begins at an earlier place.
fn stands_before(bytes: &[u8], start: usize, length: usize) -> bool {
    let run = &bytes[start..start + length];
    (0..start).any(|earlier| &bytes[earlier..earlier + length] == run)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::features::hashed;
    use super::*;

    proptest! {
        #[test]
        fn pieces_are_all_runs_of_three_to_five_bytes_each_once(word in "([ab]{1,30}|[a-z]{1,30})") {
            let marked = format!(" {} ", &word[..word.len().min(LONGEST_WORD)]);
            let mut expected: Vec<u64> = Vec::new();
            for start in 0..marked.len() {
                for length in 3..=5 {
                    let Some(run) = marked.as_bytes().get(start..start + length) else { continue };
                    let piece = hashed(PIECE_SEED, run) ^ (length as u64 - 1) << 56;
                    if !expected.contains(&piece) {
                        expected.push(piece);
                    }
                }
            }
            let mut pieces = Pieces::new();
            prop_assert_eq!(pieces.read(format!(" {word} ").as_bytes()), expected);
        }
    }
}
