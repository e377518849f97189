//! One request while it waits and while it is answered.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};

use super::Refusal;
use crate::cache::Cache;
use crate::generate::{Ask, EndReason, Piece, Pooling, Speech};
use crate::sample::{Sampler, TokenChance, token_chance};
use crate::{Adapter, Constraint, TokenMask, Tokenizer};

/// A request that waits.
#[derive(Debug)]
pub(super) struct Job {
    /// Its prompt, and what was written since.
    pub(super) tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub(super) prompt: usize,
    /// Most tokens that it may come to remember.
    pub(super) most: usize,
    /// What is wanted.
    pub(super) purpose: Purpose,
    /// What changes the model for it.
    pub(super) adapter: Option<Arc<Adapter>>,
    deadline: Option<Instant>,
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) job: Job,
    pub(super) cache: Cache,
}

/// What is wanted of a request.
#[derive(Debug)]
pub(super) enum Purpose {
    /// Text.
    Write(Box<Writing>),
    /// A vector.
    Encode(Encoding),
}

/// The answer in the making.
pub(super) struct Writing {
    sampler: Sampler,
    speech: Speech,
    constraint: Option<(Box<dyn Constraint>, TokenMask)>,
    logprobs: Option<u8>,
    max_tokens: usize,
    pieces: mpsc::Sender<Piece>,
    /// Tokens whose text was not sent yet, and their chances.
    unsent: Vec<u32>,
    chances: Vec<TokenChance>,
}

/// The vector in the making.
#[derive(Debug)]
pub(super) struct Encoding {
    pooling: Pooling,
    sum: Vec<f32>,
    reply: oneshot::Sender<Result<Vec<f32>, Refusal>>,
}

impl Job {
    pub(super) fn write(ask: Ask, vocabulary: usize, pieces: mpsc::Sender<Piece>) -> Self {
        let Ask { tokens, sampling, max_tokens, stop, constraint, deadline, logprobs, adapter } = ask;
        let writing = Writing {
            sampler: Sampler::new(sampling, &tokens),
            speech: Speech::new(stop),
            constraint: constraint.map(|constraint| (constraint, TokenMask::new(vocabulary))),
            logprobs,
            max_tokens,
            pieces,
            unsent: Vec::new(),
            chances: Vec::new(),
        };
        let (prompt, most) = (tokens.len(), tokens.len() + max_tokens);
        Self { tokens, prompt, most, purpose: Purpose::Write(Box::new(writing)), adapter, deadline }
    }

    pub(super) fn encode(
        tokens: Vec<u32>,
        pooling: Pooling,
        adapter: Option<Arc<Adapter>>,
        deadline: Option<Instant>,
        reply: oneshot::Sender<Result<Vec<f32>, Refusal>>,
    ) -> Self {
        let encoding = Encoding { pooling, sum: Vec::new(), reply };
        let (prompt, most) = (tokens.len(), tokens.len());
        Self { tokens, prompt, most, purpose: Purpose::Encode(encoding), adapter, deadline }
    }

    /// The number of its adapter; 0: none.
    pub(super) fn adapter_number(&self) -> u64 {
        self.adapter.as_ref().map_or(0, |adapter| adapter.number())
    }

    /// Whether the numbers of every token are needed, so that none can be taken from earlier prompts.
    pub(super) fn needs_every_token(&self) -> bool {
        matches!(&self.purpose, Purpose::Encode(encoding) if encoding.pooling == Pooling::Mean)
    }

    /// Why the request is not worth going on with, if so.
    pub(super) fn over(&self, now: Instant) -> Option<EndReason> {
        let gone = match &self.purpose {
            Purpose::Write(writing) => writing.pieces.is_closed(),
            Purpose::Encode(encoding) => encoding.reply.is_closed(),
        };
        if gone {
            return Some(EndReason::Cancelled);
        }
        self.deadline.is_some_and(|deadline| deadline <= now).then_some(EndReason::Deadline)
    }

    /// Tells the caller that it is over and sends what is left.
    pub(super) fn end(self, reason: EndReason) {
        let Self { tokens, prompt, purpose, .. } = self;
        // A caller that is gone needs no answer, so that failing to send is no error here.
        match purpose {
            Purpose::Write(mut writing) => {
                let text = writing.speech.finish();
                writing.send(text);
                let completion_tokens = tokens.len() - prompt;
                let _ =
                    writing.pieces.try_send(Piece::End { reason, prompt_tokens: prompt, completion_tokens });
            }
            Purpose::Encode(Encoding { pooling, mut sum, reply }) => {
                let result = match reason {
                    EndReason::Deadline => Err(Refusal::Deadline),
                    EndReason::Stop => {
                        if pooling == Pooling::Mean {
                            sum.iter_mut().for_each(|value| *value /= tokens.len() as f32);
                        }
                        match sum.iter().all(|value| value.is_finite()) {
                            true => Ok(sum),
                            false => Err(Refusal::NotFinite),
                        }
                    }
                    EndReason::Cancelled | EndReason::Length | EndReason::Failed => Err(Refusal::Stopped),
                };
                let _ = reply.send(result);
            }
        }
    }
}

impl Sequence {
    /// Tokens that the model has not read yet.
    pub(super) fn unread(&self) -> usize {
        self.job.tokens.len() - self.cache.tokens()
    }

    /// Whether the prompt was read, so that one token at a time is written.
    pub(super) fn writes(&self) -> bool {
        self.cache.tokens() >= self.job.prompt
    }
}

impl Writing {
    /// Chooses the next token out of logits and sends what is certain of the text. Returns why the
    /// answer is over, if it is.
    pub(super) fn next(
        &mut self,
        tokenizer: &Tokenizer,
        tokens: &mut Vec<u32>,
        prompt: usize,
        logits: &mut [f32],
    ) -> Option<EndReason> {
        let left = self.max_tokens - (tokens.len() - prompt);
        let mask = match &mut self.constraint {
            None => None,
            Some((constraint, mask)) => {
                mask.fill();
                constraint.mask(left, mask);
                Some(&*mask)
            }
        };
        let own = self.logprobs.map(|count| (count, logits.to_vec()));
        let Some(token) = self.sampler.choose(logits, mask) else { return Some(EndReason::Failed) };
        let bytes = tokenizer.token_bytes(token);
        if bytes.is_empty() {
            // Control tokens are not text: the model says that it is done.
            return Some(EndReason::Stop);
        }
        tokens.push(token);
        self.unsent.push(token);
        if let Some((count, logits)) = own {
            self.chances.push(token_chance(&logits, token, usize::from(count)));
        }
        let (text, stopped) = self.speech.push(bytes);
        self.send(text);
        let complete = self.constraint.as_mut().is_some_and(|(constraint, _)| {
            constraint.accept(token);
            constraint.is_complete()
        });
        if stopped || complete {
            return Some(EndReason::Stop);
        }
        (left == 1).then_some(EndReason::Length)
    }

    fn send(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        let (tokens, logprobs) = (std::mem::take(&mut self.unsent), std::mem::take(&mut self.chances));
        // The channel has room for every piece; a caller that is gone is noticed before the next step.
        let _ = self.pieces.try_send(Piece::Text { text, tokens, logprobs });
    }
}

impl Encoding {
    /// Takes the numbers of the next tokens (tokens, width).
    pub(super) fn take(&mut self, rows: &[f32], width: usize) {
        self.sum.resize(width, 0.0);
        for row in rows.chunks_exact(width) {
            match self.pooling {
                Pooling::Last => self.sum.copy_from_slice(row),
                Pooling::Mean => self.sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value),
            }
        }
    }
}

impl fmt::Debug for Writing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Writing").field("max_tokens", &self.max_tokens).finish_non_exhaustive()
    }
}
