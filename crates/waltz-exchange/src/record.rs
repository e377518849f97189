//! The record of an exchange: one terminal record per request, written once.
//!
//! Text in a record has passed the masking of the gateway's record step; nothing downstream masks
//! again.

mod fault;
mod finite;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::release::ProgramChoice;
use crate::variant::{Choice, RequestContext, VariantOutcome};
use crate::{Category, Depth, Embedding, Risk, Verdict};

pub use fault::RevisionFault;

/// All that was done to answer one request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExchangeRecord {
    /// The request id that the client saw as `x-request-id`.
    pub id: String,
    /// The coaching session that the exchange belongs to.
    pub session_id: String,
    /// Whose data this is.
    pub tenant: String,
    /// The end user, as the client named it, hashed.
    pub subject: Option<String>,
    /// The path that was called, such as `/v1/chat/completions`.
    pub endpoint: String,
    /// The `traceparent` that the client sent, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Whether the client asked for a stream.
    pub streamed: bool,
    /// When the request arrived.
    pub started_at: Timestamp,
    /// From arrival to the terminal frame.
    pub duration_ms: f64,
    /// Time that was neither upstream's nor the client's.
    pub overhead_ms: f64,
    /// What came of it.
    pub decision: Decision,
    /// The HTTP status the client got.
    pub status: u16,
    /// Error code, for requests that ended in one.
    pub error: Option<String>,
    /// Why the answer is degraded, if it is.
    pub degraded: Option<String>,
    /// The id of the answer, for outcomes. It is waltz's own.
    pub response_id: Option<String>,
    /// The id that the upstream gave it, which may not be unique.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream_id: Option<String>,
    /// The conversation agent.
    pub agent: String,
    /// Why a named agent answers, in words; `None` where the client asked for a model and got it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route_reason: Option<String>,
    /// The run that the exchange was a task of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunTask>,
    /// The model the client asked for.
    pub model: String,
    /// The agent's variant.
    pub variant: String,
    /// The variants that could have served, with their chances; `None` where nothing was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant_choice: Option<Choice>,
    /// Which version of the program answered; `None` while none is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_choice: Option<ProgramChoice>,
    /// What the choice looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_context: Option<RequestContext>,
    /// What the judge says came of the variant's answer; `None` where nothing is to be learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lesson: Option<VariantOutcome>,
    /// The stage that served: 2 only with trained adapters, whatever was asked for.
    pub stage: u8,
    /// The kind of task.
    pub task_type: String,
    /// How deep the judge was to read.
    pub depth: Depth,
    /// How dangerous the request looked.
    pub risk: Risk,
    /// What the judge really read.
    pub scanned: Scanned,
    /// First 16 hex digits of SHA-256 of the user's request with its personal data masked.
    pub request_hash: String,
    /// The user's request.
    pub user_request: String,
    /// What the masked request means, where a model in this process said so before coaching. The store keeps it
    /// with past coachings and not with the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Embedding>,
    /// What stood around it: earlier turns, tools offered, and the like.
    pub context: Option<Context>,
    /// The verdict on the request.
    pub prompt_verdict: Option<Verdict>,
    /// One entry per choice of the answer.
    pub choices: Vec<ChoiceRecord>,
    /// Calls made upstream, failed ones included.
    pub attempts: Vec<Attempt>,
    /// Tokens of the draft and of coaching.
    pub usage: UsageRecord,
}

/// What stood around a user's request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// The turns before it, and what the operator and tools say.
    pub turns: Vec<Turn>,
    /// The names of the tools on offer.
    pub tools: Vec<String>,
}

/// A turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Who speaks: `operator`, `user`, `assistant` or `tool`.
    pub speaker: Cow<'static, str>,
    /// What is said.
    pub text: String,
}

/// A task of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTask {
    /// The id of the request that asked for the run.
    pub id: String,
    /// The task's own name.
    pub task: String,
}

/// What came of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The first draft was good.
    Released,
    /// A revision was better and was sent: the agent's, or the draft with passages masked or cut.
    Coached,
    /// A reply of waltz's own was sent in place of the whole text.
    Refused,
    /// A stream was ended at a harmful window; what was sent before stays sent.
    Stopped,
    /// waltz was switched off or only annotates.
    Passthrough,
    /// The judge could not do its work; the failure policy answered.
    Degraded,
    /// The request was refused before any upstream call.
    Blocked,
    /// An answer made elsewhere was judged.
    Evaluated,
    /// The request was malformed.
    Invalid,
    /// No answer could be had.
    Failed,
    /// The upstream's stream did not come to its end; what was sent before stays sent.
    Incomplete,
    /// The client hung up.
    ClientGone,
}

impl Decision {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Coached => "coached",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
            Self::Passthrough => "passthrough",
            Self::Degraded => "degraded",
            Self::Blocked => "blocked",
            Self::Evaluated => "evaluated",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
            Self::Incomplete => "incomplete",
            Self::ClientGone => "client_gone",
        }
    }
}

/// What the judge really read, never what was configured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scanned {
    /// Text fields of the request that were read.
    pub request_fields: usize,
    /// Bytes of the request that were read.
    pub request_bytes: usize,
    /// Windows of the answer that were read; a JSON answer is one window.
    pub windows: usize,
    /// Bytes of the answer and its revisions that were read.
    pub answer_bytes: usize,
    /// How the answer was released: `whole`, `paragraph`, `sentence`, or `unread`.
    #[serde(default)]
    pub release: String,
    /// The whole text turned out harmful after its windows had passed one by one.
    #[serde(default)]
    pub late_violation: bool,
    /// Events of the upstream's stream that did not belong to it and were left out.
    #[serde(default)]
    pub anomalies: usize,
    /// Personal data and secrets of the request that the policy acts upon, by kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub request_pii: BTreeMap<String, usize>,
    /// The same of the answer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answer_pii: BTreeMap<String, usize>,
}

/// One choice: its draft and everything that coaching made of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChoiceRecord {
    /// The choice's index in the answer.
    pub index: u32,
    /// What the conversation agent wrote first.
    pub draft: DraftRecord,
    /// The draft after the agent checked it against its own list, where that is switched on.
    pub self_check: Option<DraftRecord>,
    /// Coaching rounds in order.
    pub rounds: Vec<RoundRecord>,
    /// No text was safe, or none answered a person in danger, so that a reply of waltz's own was sent.
    #[serde(default)]
    pub last_resort: bool,
    /// The client got the draft as it was; final text and verdict may then be left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unchanged: bool,
    /// What the client got; read it with [`ChoiceRecord::answered`].
    pub final_text: String,
    /// The verdict on what the client got, `None` when nothing was judged; read it with [`ChoiceRecord::verdict`].
    pub final_verdict: Option<Verdict>,
    /// Shaped score of the final text over the draft, before any user rating.
    pub dir_score: f32,
}

impl ChoiceRecord {
    /// Leaves out what only repeats the draft, which is most of most records.
    pub fn omit_repeated(&mut self) {
        if self.unchanged || (self.final_text == self.draft.text && self.final_verdict == self.draft.verdict)
        {
            self.unchanged = true;
            self.final_text = String::new();
            self.final_verdict = None;
        }
    }

    /// Puts back what [`ChoiceRecord::omit_repeated`] left out, for whoever reads a record as a whole.
    pub fn restore_repeated(&mut self) {
        if self.unchanged {
            self.final_text.clone_from(&self.draft.text);
            self.final_verdict.clone_from(&self.draft.verdict);
        }
    }

    /// What the client got.
    pub fn answered(&self) -> &str {
        if self.unchanged { &self.draft.text } else { &self.final_text }
    }

    /// The verdict on what the client got.
    pub fn verdict(&self) -> Option<&Verdict> {
        if self.unchanged { self.draft.verdict.as_ref() } else { self.final_verdict.as_ref() }
    }
}

/// A text with what is known about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DraftRecord {
    /// The text, tool calls included.
    pub text: String,
    /// Confidence, reasoning and risk.
    pub assessment: Assessment,
    /// The judge's verdict; `None` when the policy asked for none.
    pub verdict: Option<Verdict>,
}

/// Confidence, reasoning and risk of a draft, and who said so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assessment {
    /// Who assessed it.
    pub source: AssessmentSource,
    /// How sure the source is, 0 to 1.
    pub confidence: f32,
    /// Why.
    pub reasoning: String,
    /// Highest risk, 0 to 1.
    pub risk_score: f32,
    /// Categories at risk.
    pub risk_categories: Vec<Category>,
}

/// Who assessed a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssessmentSource {
    /// The conversation agent itself, in its JSON answer.
    Agent,
    /// The judge.
    Judge,
    /// Nobody: the policy asked for no judgement.
    Unjudged,
}

/// One coaching round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// 1 for the first round.
    pub number: u32,
    /// The advice that was handed back.
    pub feedback: String,
    /// Who made the revision.
    pub reviser: Reviser,
    /// The revision with its verdict.
    pub revision: DraftRecord,
    /// Whether the revision was better than what there was and took its place.
    pub kept: bool,
    /// Why the revision is no answer, if it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<RevisionFault>,
    /// The gain the feedback agent expected.
    pub expected_gain: f32,
    /// The shaped score of this revision over its predecessor.
    pub dir_score: f32,
    /// How many similar past coachings the reviser was shown.
    pub similar: usize,
    /// Time of the round.
    pub duration_ms: f64,
}

/// Who made a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reviser {
    /// The conversation agent.
    Agent,
    /// Rules: masked or cut passages.
    Rules,
}

/// One call made upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What it was for: `draft`, `feedback`, `revision`, `self_check`, `embeddings`.
    pub purpose: String,
    /// The upstream's name.
    pub upstream: String,
    /// The model that was asked for, by the upstream's own name.
    #[serde(default)]
    pub model: String,
    /// When it began.
    #[serde(default)]
    pub at: Timestamp,
    /// HTTP status, when one came.
    pub status: Option<u16>,
    /// What went wrong, in a word; an answer can still break off after a good status.
    pub error: Option<String>,
    /// How long it took, to the end of the answer.
    pub duration_ms: f64,
}

/// Tokens as upstreams reported them; absent counts are not guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// Prompt tokens of the draft.
    pub prompt_tokens: u64,
    /// Completion tokens of the draft.
    pub completion_tokens: u64,
    /// All tokens that feedback and revisions added.
    pub coaching_tokens: u64,
}

/// A past coaching that resembles the present request, masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PastCoaching {
    /// The request.
    pub user_request: String,
    /// The advice that was given.
    pub feedback: String,
    /// The answer that was accepted.
    pub accepted: String,
    /// The shaped score it gained.
    pub dir_score: f32,
}
