//! Personal data on its way through the gateway: what the operator's policy says is counted, masked, hashed,
//! replaced until the answer goes out, or refused. Called by `route.rs` for requests, by `coach.rs` for
//! answers, by `respond.rs` and `client.rs` to put values back, and by whatever writes to the store.
//!
//! With the default policy none of this looks at a text, but for the record.

mod data;
mod fields;
mod stream;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};
use waltz_exchange::openai::{Answer, ApiError, Choice, Retry};
use waltz_screen::{Action, Actions, Around, HashKey, PiiFinding, PiiKind, Vault, find_pii, replace};

use fields::{restored, rewrite};
pub use stream::Restoring;

/// What is done with personal data, by direction.
#[derive(Clone, Debug)]
pub struct PersonalPolicy {
    /// On the way to an upstream.
    pub request: Actions,
    /// On the way to the client.
    pub answer: Actions,
    /// In what is stored.
    pub record: Actions,
    /// The key of hashes; there is one where any action is to hash.
    pub key: Option<HashKey>,
}

impl Default for PersonalPolicy {
    fn default() -> Self {
        Self {
            request: Actions::all(Action::Allow),
            answer: Actions::all(Action::Allow),
            record: Actions::all(Action::Mask),
            key: None,
        }
    }
}

impl PersonalPolicy {
    /// A text as it may be stored.
    pub fn stored<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let mut changes = Changes::new(&self.record, self.key.as_ref());
        changes.text(text)
    }
}

/// How many findings of each kind there were, by the names of the kinds.
pub type Counts = BTreeMap<String, usize>;

/// What a policy makes of the texts of one request or answer.
struct Changes<'a> {
    actions: &'a Actions,
    key: Option<&'a HashKey>,
    vault: Vault,
    counts: Counts,
    refused: Option<PiiKind>,
    /// A finding was met that may not stay.
    changes: bool,
}

impl<'a> Changes<'a> {
    fn new(actions: &'a Actions, key: Option<&'a HashKey>) -> Self {
        let (vault, counts) = (Vault::default(), Counts::new());
        Self { actions, key, vault, counts, refused: None, changes: false }
    }

    /// Counts what is in a text, and notes whether anything has to be done.
    fn survey(&mut self, text: &str) {
        for finding in find_pii(text) {
            let action = self.actions.of(finding.kind);
            if action == Action::Allow {
                continue;
            }
            *self.counts.entry(finding.kind.as_str().to_owned()).or_default() += 1;
            self.changes |= action != Action::Tag;
            if action == Action::Refuse {
                self.refused.get_or_insert(finding.kind);
            }
        }
    }

    /// The text as the policy wants it.
    fn text<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        self.value(text, 0)
    }

    /// The text as the policy wants it, in which a value begins behind a label that stays.
    fn value<'t>(&mut self, text: &'t str, label: usize) -> Cow<'t, str> {
        let mut found = find_pii(text);
        found.retain(|finding| finding.span.end > label);
        found.iter_mut().for_each(|finding| finding.span.start = finding.span.start.max(label));
        replace(text, &found, |finding, value| self.other(finding, value))
    }

    /// What stands in place of a finding.
    fn other(&mut self, finding: &PiiFinding, value: &str) -> Option<Cow<'static, str>> {
        let mask = Cow::Borrowed(finding.kind.placeholder());
        match (self.actions.of(finding.kind), self.key) {
            (Action::Allow | Action::Tag, _) => None,
            (Action::Hash, Some(key)) => Some(Cow::Owned(key.token(finding.kind, value))),
            (Action::Placeholder, _) => Some(Cow::Owned(self.vault.put(finding.kind, value).to_owned())),
            (Action::Mask | Action::Refuse | Action::Hash, _) => Some(mask),
        }
    }
}

/// A request after the policy was applied.
#[derive(Debug, Default)]
pub struct Treated {
    /// The top-level fields that changed.
    pub fields: Vec<(String, Value)>,
    /// What was taken out, to be put back into the answer.
    pub vault: Vault,
    /// What was found.
    pub counts: Counts,
}

/// Applies the policy to the body of a request; the error names what is refused, and the field that holds it.
pub fn treat_request(body: &Map<String, Value>, policy: &PersonalPolicy) -> (Treated, Option<ApiError>) {
    let mut treated = Treated::default();
    if policy.request.is_idle() {
        return (treated, None);
    }
    let mut changes = Changes::new(&policy.request, policy.key.as_ref());
    // Most requests hold nothing, and are only read.
    let texts = |visit: &mut dyn FnMut(&str)| {
        body.iter().for_each(|(name, value)| fields::visit(name, value, false, visit));
    };
    let mut error = None;
    for (name, value) in body {
        fields::visit(name, value, false, &mut |text| changes.survey(text));
        if let (Some(kind), None) = (changes.refused, &error) {
            error = Some(refused(kind, name));
        }
    }
    if error.is_some() {
        treated.counts = changes.counts;
        return (treated, error);
    }
    if changes.changes {
        texts(&mut |text| changes.vault.reserve(text));
        for (name, value) in body {
            let mut value = value.clone();
            if rewrite(name, &mut value, false, &mut changes) {
                treated.fields.push((name.clone(), value));
            }
        }
    }
    treated.counts = changes.counts;
    treated.vault = changes.vault;
    (treated, None)
}

/// What the policy made of a choice of an answer.
#[derive(Debug, Default)]
pub struct TreatedChoice {
    /// What was found.
    pub counts: Counts,
    /// The choice is another one now.
    pub changed: bool,
    /// It holds what must not go out.
    pub refused: bool,
}

/// Applies the policy to a choice of an answer; the first one answers for the fields around the choices. `may_change` is off
/// where it went out already, or must stay as it is.
pub fn treat_choice(
    answer: &mut Answer,
    position: usize,
    policy: &PersonalPolicy,
    is_json: bool,
    may_change: bool,
) -> TreatedChoice {
    let mut treated = TreatedChoice::default();
    if policy.answer.is_idle() {
        return treated;
    }
    let Answer { head, choices } = answer;
    let Some(Choice { message, rest, .. }) = choices.get_mut(position) else { return treated };
    let mut nothing = Map::new();
    let mut parts = [message, rest, if position == 0 { head } else { &mut nothing }];
    let mut changes = Changes::new(&policy.answer, policy.key.as_ref());
    for part in &parts {
        fields::visit_fields(part, is_json, &mut |text| changes.survey(text));
    }
    treated.refused = changes.refused.is_some() && may_change;
    if changes.changes && may_change && !treated.refused {
        for part in &mut parts {
            treated.changed |= fields::rewrite_fields(part, is_json, &mut changes);
        }
        if treated.changed {
            // The tokens of the text that was.
            parts[1].insert("logprobs".to_owned(), Value::Null);
        }
    }
    treated.counts = changes.counts;
    treated
}

/// Takes out of a draft what is only to be masked or hashed, so that no answer is coached for what it is not
/// going to say. What is to be refused stays for [`treat_choice`], and so do the counts of what stays.
pub fn mask_draft(
    answer: &mut Answer,
    position: usize,
    policy: &PersonalPolicy,
    is_json: bool,
) -> TreatedChoice {
    let takes_out = |action: Action| matches!(action, Action::Mask | Action::Hash);
    if !policy.answer.any(Action::Mask) && !policy.answer.any(Action::Hash) {
        return TreatedChoice::default();
    }
    let mut treated = treat_choice(answer, position, policy, is_json, true);
    if treated.refused {
        return TreatedChoice::default();
    }
    treated
        .counts
        .retain(|name, _| PiiKind::parse(name).is_some_and(|kind| takes_out(policy.answer.of(kind))));
    treated
}

/// Puts the values of a request back into its answer. Returns whether any was there.
pub fn restore_answer(answer: &mut Answer, vault: &Vault, is_json: bool) -> bool {
    if vault.is_empty() {
        return false;
    }
    let mut changed = false;
    for choice in &mut answer.choices {
        for (name, value) in &mut choice.message {
            changed |= restored(name, value, vault, is_json);
        }
    }
    changed
}

/// What a placeholder of the answer stands in, by the name of its field.
fn around(name: &str, is_json: bool) -> Around {
    if name == "arguments" || (name == "content" && is_json) { Around::Json } else { Around::Text }
}

fn refused(kind: PiiKind, field: &str) -> ApiError {
    ApiError {
        status: 400,
        kind: "invalid_request_error".into(),
        message: format!(
            "the request holds {}, which the operator's policy does not let through",
            kind.description()
        ),
        param: Some(field.to_owned()),
        code: "waltz_personal_data".into(),
        retry: Retry::Never,
    }
}

#[cfg(test)]
mod tests;
