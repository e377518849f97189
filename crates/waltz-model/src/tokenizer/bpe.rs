//! Byte-pair encoding of one word: the pair that was learned first is merged first, until none is left.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// What was learned: which two tokens become one, and in which order.
#[derive(Debug)]
pub(super) struct Merges {
    /// Rank and result of a pair.
    pairs: HashMap<(u32, u32), (u32, u32)>,
    /// The token of each single byte. Some vocabularies lack bytes that their training text did not hold, such as
    /// control characters.
    singles: [Option<u32>; 256],
}

/// The characters that GPT-2's vocabulary writes for bytes: printable ones stand for themselves, the others
/// for the bytes that are left, in order, from U+0100.
pub(super) fn letters() -> HashMap<char, u8> {
    let mut letters = HashMap::with_capacity(256);
    let mut next = 0x100_u32;
    for byte in 0..=u8::MAX {
        let letter = match byte {
            0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => Some(char::from(byte)),
            _ => {
                next += 1;
                char::from_u32(next - 1)
            }
        };
        letters.extend(letter.map(|letter| (letter, byte)));
    }
    letters
}

impl Merges {
    /// Reads the list of merges, each two tokens with a space between them. `ids` holds only tokens that stand
    /// for text, so that no merge can make a control token.
    pub(super) fn new(
        merges: &[&str],
        ids: &HashMap<&str, u32>,
        bytes: &[Box<[u8]>],
    ) -> Result<Self, String> {
        let mut singles = [None; 256];
        for id in ids.values() {
            if let [byte] = *bytes[*id as usize] {
                singles[usize::from(byte)] = Some(*id);
            }
        }
        let mut pairs = HashMap::with_capacity(merges.len());
        for (rank, merge) in (0_u32..).zip(merges) {
            let pair = merge.split_once(' ').and_then(|(left, right)| {
                let merged = ids.get(format!("{left}{right}").as_str())?;
                Some(((*ids.get(left)?, *ids.get(right)?), (rank, *merged)))
            });
            let (pair, merged) =
                pair.ok_or_else(|| format!("its merge {rank} is not of two tokens into one"))?;
            if pairs.insert(pair, merged).is_some() {
                return Err(format!("its merge {rank} is there twice"));
            }
        }
        Ok(Self { pairs, singles })
    }

    /// How many bytes of a text have a token.
    pub(super) fn count(&self, text: &[u8]) -> usize {
        text.iter().filter(|byte| self.singles[usize::from(**byte)].is_some()).count()
    }

    /// Appends the tokens of a word. Bytes without a token are left out, as in the original. A heap of pairs keeps
    /// a hostile word of any length in n log n steps.
    pub(super) fn encode(&self, word: &[u8], tokens: &mut Vec<u32>) {
        let mut pieces: Vec<Piece> = Vec::with_capacity(self.count(word));
        for token in word.iter().filter_map(|byte| self.singles[usize::from(*byte)]) {
            let at = pieces.len();
            pieces.push(Piece { token: Some(token), previous: at.checked_sub(1), next: Some(at + 1) });
        }
        if let Some(last) = pieces.last_mut() {
            last.next = None;
        }
        let mut heap = BinaryHeap::new();
        for left in 0..pieces.len() {
            self.offer(&pieces, left, &mut heap);
        }
        while let Some(Reverse((_, left, pair, merged))) = heap.pop() {
            // An offer is stale once one of its two pieces was merged otherwise.
            if self.pair_at(&pieces, left) != Some(pair) {
                continue;
            }
            let Some(right) = pieces[left].next else { continue };
            let after = pieces[right].next;
            pieces[right].token = None;
            pieces[left].token = Some(merged);
            pieces[left].next = after;
            if let Some(after) = after {
                pieces[after].previous = Some(left);
            }
            if let Some(before) = pieces[left].previous {
                self.offer(&pieces, before, &mut heap);
            }
            self.offer(&pieces, left, &mut heap);
        }
        tokens.extend(pieces.iter().filter_map(|piece| piece.token));
    }

    fn offer(&self, pieces: &[Piece], left: usize, heap: &mut BinaryHeap<Reverse<Offer>>) {
        let Some(pair) = self.pair_at(pieces, left) else { return };
        if let Some((rank, merged)) = self.pairs.get(&pair) {
            heap.push(Reverse((*rank, left, pair, *merged)));
        }
    }

    fn pair_at(&self, pieces: &[Piece], left: usize) -> Option<(u32, u32)> {
        let right = pieces[left].next?;
        Some((pieces[left].token?, pieces[right].token?))
    }
}

/// Rank, place of the left piece, the pair and what becomes of it.
type Offer = (u32, usize, (u32, u32), u32);

struct Piece {
    /// None once it was merged into the piece before it.
    token: Option<u32>,
    previous: Option<usize>,
    next: Option<usize>,
}
