//! The thread that answers: takes requests in, computes steps, hands out texts.
//!
//! A step reads one token of every answer that is being written and a limited number of prompt tokens, so
//! that a long prompt delays the others by no more than that.

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::sequence::{Job, Purpose, Sequence};
use super::{Queue, RoomSettings, Waiting};
use crate::cache::{BLOCK_TOKENS, Cache, PrefixCache};
use crate::generate::EndReason;
use crate::llama::Turn;
use crate::{Model, Threads, Tokenizer};

/// Prompt tokens of a step while answers are being written, and while none is.
const READ_BESIDE_WRITING: usize = 64;
const READ_ALONE: usize = 256;

/// What is being answered.
pub(super) struct Batch {
    model: Arc<Model>,
    tokenizer: Arc<Tokenizer>,
    settings: RoomSettings,
    threads: Threads,
    prefixes: PrefixCache,
    running: Vec<Sequence>,
    steps: usize,
}

impl Batch {
    pub(super) fn new(model: Arc<Model>, tokenizer: Arc<Tokenizer>, settings: RoomSettings) -> Self {
        let threads = match settings.threads {
            0 => Threads::for_this_machine(),
            count => Threads::new(count),
        };
        let prefixes = PrefixCache::new(model.cache_shape(), settings.prefixes);
        Self { model, tokenizer, settings, threads, prefixes, running: Vec::new(), steps: 0 }
    }

    /// Answers until the queue is closed.
    pub(super) fn run(mut self, queue: &Queue) {
        while self.take_in(queue) {
            self.step();
        }
        for sequence in self.running {
            sequence.job.end(EndReason::Cancelled);
        }
    }

    /// Drops requests that are over and takes in new ones; waits while there is nothing to do. False when
    /// the queue is closed.
    fn take_in(&mut self, queue: &Queue) -> bool {
        let mut state = queue.lock();
        loop {
            if state.closed {
                state.jobs.drain(..).for_each(|job| job.end(EndReason::Cancelled));
                return false;
            }
            let now = Instant::now();
            for index in (0..state.jobs.len()).rev() {
                if let Some(reason) = state.jobs[index].over(now)
                    && let Some(job) = state.jobs.remove(index)
                {
                    job.end(reason);
                }
            }
            for index in (0..self.running.len()).rev() {
                if let Some(reason) = self.running[index].job.over(now) {
                    self.running.remove(index).job.end(reason);
                }
            }
            self.admit(&mut state);
            if !self.running.is_empty() {
                return true;
            }
            state = queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes in requests in their order while there is room for what they may come to remember.
    fn admit(&mut self, state: &mut Waiting) {
        while self.running.len() < self.settings.running.max(1)
            && let Some(job) = state.jobs.front()
        {
            let remembered: usize = self.running.iter().map(|sequence| sequence.job.most).sum();
            if remembered + job.most > self.settings.memory && !self.running.is_empty() {
                return;
            }
            let Some(job) = state.jobs.pop_front() else { return };
            let cache = match job.needs_every_token() {
                true => Cache::new(self.model.cache_shape()),
                false => self.prefixes.begin(job.adapter_number(), &job.tokens),
            };
            // Neighbours with the same adapter are computed together.
            let number = job.adapter_number();
            let place = self.running.partition_point(|other| other.job.adapter_number() <= number);
            self.running.insert(place, Sequence { job, cache });
        }
    }

    /// Takes every sequence forward that has a share in this step.
    fn step(&mut self) {
        self.steps += 1;
        let shares = self.shares();
        let mut turns = Vec::with_capacity(self.running.len());
        for (sequence, share) in self.running.iter_mut().zip(&shares) {
            if *share > 0 {
                let tokens = &sequence.job.tokens[sequence.cache.tokens()..][..*share];
                let adapter = sequence.job.adapter.as_deref();
                turns.push(Turn { tokens, cache: &mut sequence.cache, adapter });
            }
        }
        let states = self.model.step(&self.threads, &mut turns);
        let width = self.model.shape().width;
        // The last row of each sequence that was read to its end and wants text.
        let mut last = Vec::new();
        let mut ended = vec![None; self.running.len()];
        let mut first = 0;
        for ((sequence, share), ended) in self.running.iter_mut().zip(&shares).zip(&mut ended) {
            let rows = &states[first * width..][..share * width];
            first += share;
            if *share == 0 {
                continue;
            }
            let (read, prompt) = (sequence.cache.tokens(), sequence.job.prompt);
            if read >= prompt && read - share < prompt {
                let number = sequence.job.adapter_number();
                self.prefixes.learn(number, &sequence.job.tokens[..prompt], &sequence.cache);
            }
            match &mut sequence.job.purpose {
                Purpose::Encode(encoding) => {
                    encoding.take(&self.model.normed(&self.threads, rows), width);
                    *ended = (read >= prompt).then_some(EndReason::Stop);
                }
                Purpose::Write(_) if read >= prompt => last.extend_from_slice(&rows[(share - 1) * width..]),
                Purpose::Write(_) => {}
            }
        }
        self.write(&shares, &last, &mut ended);
        for (index, reason) in ended.into_iter().enumerate().rev() {
            if let Some(reason) = reason {
                let Sequence { job, cache } = self.running.remove(index);
                self.prefixes.learn(job.adapter_number(), &job.tokens, &cache);
                job.end(reason);
            }
        }
    }

    /// Chooses the next token of every sequence that was read to its end, by the rows in `last`.
    fn write(&mut self, shares: &[usize], last: &[f32], ended: &mut [Option<EndReason>]) {
        let mut logits = self.model.logits(&self.threads, last);
        let mut rows = logits.chunks_exact_mut(self.model.shape().vocabulary);
        for ((sequence, share), ended) in self.running.iter_mut().zip(shares).zip(ended) {
            let Job { tokens, prompt, purpose, .. } = &mut sequence.job;
            if let Purpose::Write(writing) = purpose
                && *share > 0
                && sequence.cache.tokens() >= *prompt
                && let Some(logits) = rows.next()
            {
                *ended = writing.next(&self.tokenizer, tokens, *prompt, logits);
            }
        }
    }

    /// How many tokens of each sequence are read in this step. Prompts share the limit evenly, in whole
    /// blocks; who comes first changes from step to step.
    fn shares(&self) -> Vec<usize> {
        let reading = self.running.iter().filter(|sequence| !sequence.writes()).count();
        let mut left = if reading == self.running.len() { READ_ALONE } else { READ_BESIDE_WRITING };
        let even = (left / reading.max(1)).next_multiple_of(BLOCK_TOKENS);
        let mut shares = vec![1; self.running.len()];
        for offset in 0..self.running.len() {
            let index = (self.steps + offset) % self.running.len();
            let sequence = &self.running[index];
            if !sequence.writes() {
                shares[index] = sequence.unread().min(even).min(left);
                left -= shares[index];
            }
        }
        shares
    }
}
