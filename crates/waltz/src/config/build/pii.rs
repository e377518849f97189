//! Checks the section that says what is done with personal data.

use waltz_gateway::personal::PersonalPolicy;
use waltz_screen::{Action, Actions, HashKey, PiiKind};

use super::{Check, is_variable_name};
use crate::config::raw;

/// Fewer bytes than this can be found by trying.
const LEAST_KEY_BYTES: usize = 16;

/// A direction: its name, and what may be done there.
struct Direction {
    name: &'static str,
    allowed: &'static [raw::PiiAction],
    all: fn(&raw::Pii) -> raw::PiiAction,
    one: fn(&raw::PiiKindActions) -> Option<raw::PiiAction>,
}

use raw::PiiAction::{Allow, Hash, Mask, Placeholder, Refuse, Tag};

const REQUEST: Direction = Direction {
    name: "request",
    allowed: &[Allow, Tag, Mask, Hash, Placeholder, Refuse],
    all: |pii| pii.request,
    one: |kind| kind.request,
};
const ANSWER: Direction = Direction {
    name: "answer",
    allowed: &[Allow, Tag, Mask, Hash, Refuse],
    all: |pii| pii.answer,
    one: |kind| kind.answer,
};
const RECORD: Direction = Direction {
    name: "record",
    allowed: &[Allow, Mask, Hash],
    all: |pii| pii.record,
    one: |kind| kind.record,
};

impl Check<'_> {
    pub(super) fn pii(&mut self, raw: &raw::Pii) -> PersonalPolicy {
        let kinds: Vec<&str> = PiiKind::ALL.iter().map(|kind| kind.as_str()).collect();
        for name in raw.kinds.keys().filter(|name| PiiKind::parse(name).is_none()) {
            self.mistake(format!("pii.kinds.{name}"), format!("must be one of {}", kinds.join(", ")));
        }
        let request = self.direction(raw, &REQUEST);
        let answer = self.direction(raw, &ANSWER);
        let record = self.direction(raw, &RECORD);
        let hashes = [&request, &answer, &record].iter().any(|actions| actions.any(Action::Hash));
        let key = self.hash_key(raw.hash_key_env.as_deref(), hashes);
        PersonalPolicy { request, answer, record, key }
    }

    fn direction(&mut self, raw: &raw::Pii, direction: &Direction) -> Actions {
        let Direction { name, .. } = direction;
        let action = self.action(&format!("pii.{name}"), (direction.all)(raw), direction);
        let mut actions = Actions::all(action);
        for (kind_name, kind) in &raw.kinds {
            if let (Some(kind), Some(one)) = (PiiKind::parse(kind_name), (direction.one)(kind)) {
                let action = self.action(&format!("pii.kinds.{kind_name}.{name}"), one, direction);
                actions.set(kind, action);
            }
        }
        actions
    }

    fn action(&mut self, key: &str, written: raw::PiiAction, direction: &Direction) -> Action {
        if !direction.allowed.contains(&written) {
            let names: Vec<String> =
                direction.allowed.iter().map(|action| format!("{action:?}").to_lowercase()).collect();
            self.mistake(key, format!("must be one of {}", names.join(", ")));
        }
        match written {
            Allow => Action::Allow,
            Tag => Action::Tag,
            Mask => Action::Mask,
            Hash => Action::Hash,
            Placeholder => Action::Placeholder,
            Refuse => Action::Refuse,
        }
    }

    fn hash_key(&mut self, variable: Option<&str>, hashes: bool) -> Option<HashKey> {
        let place = "pii.hash_key_env";
        let Some(name) = variable else {
            if hashes {
                self.mistake(place, "must name the environment variable of a key where an action is hash");
            }
            return None;
        };
        if !is_variable_name(name) {
            self.mistake(place, "must be the name of an environment variable, not a key");
            return None;
        }
        let Some(secret) = self.variable(name) else {
            self.mistake(place, format!("the environment variable {name} is not set"));
            return None;
        };
        if secret.len() < LEAST_KEY_BYTES {
            self.mistake(place, format!("the key in {name} must have at least {LEAST_KEY_BYTES} bytes"));
            return None;
        }
        Some(HashKey::new(secret.as_bytes()))
    }
}
