//! Levels 0 and 1 of the judge: text in, findings and scores out, in microseconds.
//!
//! [`Screen`] is compiled once and shared; [`Screen::read`] is a pure function of the text, does no
//! I/O and runs on whichever thread calls it. Patterns are data (`patterns/*.toml`); operators add
//! their own in the same form through [`Rules`]. Personal data and secrets are found by [`find_pii`].
//! Level 1 is [`linear`].

mod encoded;
mod error;
mod family;
mod finding;
pub mod linear;
mod matched;
mod matching;
mod normalise;
mod overlap;
mod patterns;
mod pii;
mod proximity;
mod refusal;
mod rules;
mod screen;
mod search;
mod secret;
mod settings;
mod starts;
mod trie;
mod window;
mod words;

pub use error::{Error, RuleMistake, WeightsError};
pub use family::FamilyInfo;
pub use finding::{Finding, Kind, Reading, Side};
pub use matched::Matched;
pub use normalise::{Normalised, normalise};
pub use pii::{
    Action, Actions, Around, HashKey, Masked, PiiFinding, PiiKind, Restorer, Vault, find_pii, mask, replace,
};
pub use rules::Rules;
pub use screen::Screen;
pub use settings::{Settings, Switch};
pub use window::{Due, Pace, Window};
