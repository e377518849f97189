//! Whether a variant is applied by itself, shown to people, or left alone.

use serde::{Deserialize, Serialize};

use crate::compare::least_lead;
use crate::evidence::ln_e_above;
use crate::guard::Standing;
use crate::settings::DecideSettings;
use crate::value::Value;

/// What is to be done about a variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It serves from now on.
    AutoApply,
    /// People are asked.
    HumanApproval,
    /// Nothing.
    #[default]
    NoAction,
}

/// A decision with its reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantDecision {
    /// What is to be done.
    pub action: Action,
    /// Why, with the numbers.
    pub reasoning: String,
    /// The mean reward.
    pub q_value: f64,
    /// Outcomes behind it.
    pub n_visits: u64,
    /// The evidence that the mean surpasses the floor.
    pub e_value: f64,
}

/// What stands around a variant when it is decided on.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// Whether it can be trusted.
    pub standing: Standing,
    /// What serves now, where that is another variant.
    pub incumbent: Option<&'a Value>,
    /// Why nothing may be applied at the moment, if so.
    pub held: Option<&'static str>,
}

/// What is to be done about a variant, quickly.
pub fn action(value: &Value, around: &Circumstances<'_>, settings: &DecideSettings) -> Action {
    if obstacle(value, around, settings).is_some() {
        return Action::NoAction;
    }
    if doubt(value, around, settings).is_none() { Action::AutoApply } else { Action::HumanApproval }
}

/// The same with reasons.
pub fn decide(value: &Value, around: &Circumstances<'_>, settings: &DecideSettings) -> VariantDecision {
    let (q, n, e) = (value.q(), value.visits, e_value(value, settings));
    let (action, reasoning) = if let Some(obstacle) = obstacle(value, around, settings) {
        (Action::NoAction, obstacle)
    } else if let Some(doubt) = doubt(value, around, settings) {
        let reasoning = format!(
            "Medium confidence: Q-value {q:.3} >= {} with {n} outcomes >= {}, but {doubt}",
            settings.approval_q, settings.approval_visits
        );
        (Action::HumanApproval, reasoning)
    } else {
        let mut reasoning = format!(
            "High confidence: Q-value {q:.3} >= {} with {n} outcomes >= {}, evidence {e:.1} >= {} that it is above {}",
            settings.auto_apply_q, settings.auto_apply_visits, settings.auto_apply_e, settings.floor
        );
        if let Some(incumbent) = around.incumbent {
            reasoning.push_str(&format!(
                ", {:.3} above {:.3} of what serves and at least {:.3}",
                q - incumbent.q(),
                incumbent.q(),
                least_lead(value, incumbent)
            ));
        }
        (Action::AutoApply, reasoning)
    };
    VariantDecision { action, reasoning, q_value: q, n_visits: n, e_value: e }
}

fn e_value(value: &Value, settings: &DecideSettings) -> f64 {
    ln_e_above(value.sum, value.visits as f64, settings.floor).exp()
}

/// Why a variant is not even shown to people.
fn obstacle(value: &Value, around: &Circumstances<'_>, settings: &DecideSettings) -> Option<String> {
    let (q, n) = (value.q(), value.visits);
    let Some(incumbent) = around.incumbent else { return Some("It serves already".to_owned()) };
    if around.standing == Standing::RolledBack {
        return Some("It was rolled back".to_owned());
    }
    if n < settings.approval_visits {
        return Some(format!("Insufficient data: {n} outcomes < {}", settings.approval_visits));
    }
    if q < settings.approval_q {
        return Some(format!("Low confidence: Q-value {q:.3} < {}", settings.approval_q));
    }
    if incumbent.visits < settings.approval_visits {
        let (known, least) = (incumbent.visits, settings.approval_visits);
        return Some(format!(
            "Insufficient data: what serves has {known} outcomes < {least} to compare with"
        ));
    }
    // Latencies alone make two means differ somewhere behind the point. Such a lead is nobody's merit.
    if q - incumbent.q() <= settings.min_gain {
        return Some(format!(
            "Q-value {q:.3} is no better than {:.3} of what serves by more than {}",
            incumbent.q(),
            settings.min_gain
        ));
    }
    None
}

/// Why a variant that people may apply is not applied by itself.
fn doubt(value: &Value, around: &Circumstances<'_>, settings: &DecideSettings) -> Option<String> {
    let (q, n) = (value.q(), value.visits);
    if !settings.auto_apply {
        return Some("nothing is applied without a person".to_owned());
    }
    if let Some(held) = around.held {
        return Some(held.to_owned());
    }
    if around.standing != Standing::Ok {
        return Some("its last window was degraded".to_owned());
    }
    if q < settings.auto_apply_q {
        return Some(format!("Q-value {q:.3} < {}", settings.auto_apply_q));
    }
    if n < settings.auto_apply_visits {
        return Some(format!("{n} outcomes < {}", settings.auto_apply_visits));
    }
    // The interval is made for one look, and here is one after every outcome. That the lead must surpass a gain, and not
    // only 0, keeps chance from reaching it in the long run.
    let lead = around.incumbent.map_or(f64::INFINITY, |incumbent| least_lead(value, incumbent));
    if lead <= settings.min_gain {
        return Some(format!("its lead on what serves may be {lead:.3} <= {}", settings.min_gain));
    }
    let e = e_value(value, settings);
    (e < settings.auto_apply_e)
        .then(|| format!("evidence {e:.1} < {} that it is above {}", settings.auto_apply_e, settings.floor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(sum: f64, visits: u64) -> Value {
        Value { sum, visits, ..Value::default() }
    }

    #[test]
    fn the_matrix_of_decisions() {
        let weak = value(5.0, 10);
        let around = Circumstances { standing: Standing::Ok, incumbent: Some(&weak), held: None };
        let suspect = Circumstances { standing: Standing::Suspect, ..around };
        let held = Circumstances { held: Some("it is too soon after a rollback"), ..around };
        let strong = value(9.9, 10);
        let rivalled = Circumstances { incumbent: Some(&strong), ..around };
        let serving = Circumstances { incumbent: None, ..around };
        let (nearly, hardly) = (value(9.5, 10), value(0.0, 4));
        let close = Circumstances { incumbent: Some(&nearly), ..around };
        let new = Circumstances { incumbent: Some(&hardly), ..around };
        let settings = DecideSettings::default();
        for (sum, visits, circumstances, action_wanted, words) in [
            (10.0, 10, around, Action::AutoApply, "High confidence: Q-value 1.000 >= 0.9 with 10 outcomes"),
            (9.0, 10, around, Action::HumanApproval, "evidence 2.2 < 10"),
            (27.0, 30, around, Action::AutoApply, "evidence 14.8 >= 10"),
            (9.0, 9, around, Action::HumanApproval, "9 outcomes < 10"),
            (8.5, 10, around, Action::HumanApproval, "Q-value 0.850 < 0.9"),
            (10.0, 10, suspect, Action::HumanApproval, "its last window was degraded"),
            (10.0, 10, held, Action::HumanApproval, "too soon after a rollback"),
            (3.5, 5, around, Action::HumanApproval, "Medium confidence: Q-value 0.700 >= 0.7 with 5"),
            (4.0, 4, around, Action::NoAction, "Insufficient data: 4 outcomes < 5"),
            (6.9, 10, around, Action::NoAction, "Low confidence: Q-value 0.690 < 0.7"),
            (9.5, 10, rivalled, Action::NoAction, "no better than 0.990"),
            (10.0, 10, serving, Action::NoAction, "serves already"),
            (10.0, 10, rivalled, Action::NoAction, "no better than 0.990 of what serves by more than 0.02"),
            (10.0, 10, close, Action::HumanApproval, "its lead on what serves may be -0.0"),
            (100.0, 100, new, Action::NoAction, "what serves has 4 outcomes < 5"),
            (10.0, 10, around, Action::AutoApply, "0.500 above 0.500 of what serves and at least 0.36"),
        ] {
            let decision = decide(&value(sum, visits), &circumstances, &settings);
            assert_eq!(decision.action, action_wanted, "{sum} of {visits}: {}", decision.reasoning);
            assert_eq!(action(&value(sum, visits), &circumstances, &settings), action_wanted);
            assert!(decision.reasoning.contains(words), "{}", decision.reasoning);
        }
    }

    #[test]
    fn the_cautious_profile_wants_more() {
        let weak = value(5.0, 10);
        let around = Circumstances { standing: Standing::Ok, incumbent: Some(&weak), held: None };
        let cautious = crate::Settings::profile("cautious").unwrap().decide;
        assert_eq!(action(&value(19.0, 19), &around, &cautious), Action::HumanApproval);
        assert_eq!(action(&value(20.0, 20), &around, &cautious), Action::AutoApply);
        assert_eq!(action(&value(18.8, 20), &around, &cautious), Action::HumanApproval);
        assert!(crate::Settings::profile("bold").is_none());
    }
}
