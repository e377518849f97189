//! What is done with each kind of personal data where it is found. Plain data; the gateway acts on it.

use super::PiiKind;

/// What is done with personal data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// It stays, and nobody is told.
    #[default]
    Allow,
    /// It stays, and the record counts it.
    Tag,
    /// `[EMAIL]` stands in its place.
    Mask,
    /// A keyed hash stands in its place: the same value has the same hash, and nobody without the key can
    /// find the value by trying.
    Hash,
    /// `[EMAIL_1]` stands in its place until the answer goes out, where the value comes back.
    Placeholder,
    /// The text does not go on.
    Refuse,
}

/// What is done with each kind, in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actions {
    by_kind: [Action; PiiKind::ALL.len()],
}

impl Actions {
    /// The same for every kind.
    pub fn all(action: Action) -> Self {
        Self { by_kind: [action; PiiKind::ALL.len()] }
    }

    /// Another action for one kind.
    pub fn set(&mut self, kind: PiiKind, action: Action) {
        self.by_kind[kind as usize] = action;
    }

    /// What is done with a kind.
    pub fn of(&self, kind: PiiKind) -> Action {
        self.by_kind[kind as usize]
    }

    /// Whether any kind has this action.
    pub fn any(&self, action: Action) -> bool {
        self.by_kind.contains(&action)
    }

    /// Whether there is nothing to look for.
    pub fn is_idle(&self) -> bool {
        self.by_kind.iter().all(|action| *action == Action::Allow)
    }

    /// Whether a text may not go on as it is.
    pub fn may_change(&self) -> bool {
        self.by_kind.iter().any(|action| !matches!(action, Action::Allow | Action::Tag))
    }
}
