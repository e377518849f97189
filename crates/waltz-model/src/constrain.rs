//! Makes a model write one JSON object of a fixed form, and makes it finish in time.
//!
//! The form is a chain of segments (text that is fixed, one of several texts, free text) read byte by byte. Before
//! each token, [`ObjectConstraint`] leaves only tokens whose bytes the chain can take and after which the shortest
//! way to the closing brace still fits into the tokens that are left. That way is known for every state, and its
//! first token is always among those left, so that no choice of tokens can end outside of the form.

mod index;
mod limits;
mod number;
mod schema;
mod state;

use std::sync::Arc;

pub use index::TokenIndex;
pub use limits::{MOST_BYTES, MOST_VALUES};
pub use schema::{Field, FieldKind, Schema};
use state::State;

use crate::{Constraint, TokenMask};

/// Keeps one sequence of tokens inside of a [`Schema`].
#[derive(Clone, Debug)]
pub struct ObjectConstraint {
    schema: Arc<Schema>,
    index: Arc<TokenIndex>,
    state: Option<State>,
}

impl ObjectConstraint {
    /// Begins an object. The index must be the one that the schema was made for.
    pub fn new(schema: Arc<Schema>, index: Arc<TokenIndex>) -> Self {
        let state = Some(schema.start());
        Self { schema, index, state }
    }

    fn allow_by_walking(&self, from: State, most: usize, mask: &mut TokenMask) {
        self.index.walk(
            from,
            |state, byte| self.schema.step(state, byte),
            |state, token| {
                if self.schema.need(state) <= most {
                    mask.allow(token);
                }
            },
        );
    }
}

impl Constraint for ObjectConstraint {
    fn mask(&mut self, tokens_left: usize, mask: &mut TokenMask) {
        let Some(state) = self.state.filter(|_| !self.is_complete()) else {
            // The object is complete, or the caller took a token that was not allowed: only the end may come.
            mask.clear();
            mask.allow(self.index.end());
            return;
        };
        // With too few tokens for any whole object, the shortest way is all that is left.
        let most = tokens_left.max(self.schema.need(state)) - 1;
        let room = self.schema.room(state);
        match room {
            // Most tokens are plain text, and all of those lead back to the same state.
            Some(characters) if self.schema.need(state) <= most => {
                mask.intersect(self.index.plain(characters));
                for (token, bytes) in self.index.marked() {
                    let end = bytes.iter().try_fold(state, |state, byte| self.schema.step(state, *byte));
                    if end.is_some_and(|end| self.schema.need(end) <= most) {
                        mask.allow(*token);
                    }
                }
            }
            _ => {
                mask.clear();
                self.allow_by_walking(state, most, mask);
            }
        }
    }

    fn accept(&mut self, token: u32) {
        let bytes = self.index.bytes(token);
        let step = |state, byte: &u8| self.schema.step(state, *byte);
        // A control token has no bytes and leads nowhere.
        self.state =
            self.state.filter(|_| !bytes.is_empty()).and_then(|state| bytes.iter().try_fold(state, step));
    }

    fn is_complete(&self) -> bool {
        self.state.is_some_and(|state| self.schema.is_end(state))
    }
}

#[cfg(test)]
#[path = "constrain/tests.rs"]
mod tests;
