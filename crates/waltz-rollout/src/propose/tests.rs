use super::*;
use crate::{Change, Error, Value, patch, review};

fn at() -> Timestamp {
    "2025-11-19T14:30:00Z".parse().unwrap()
}

/// A board whose variants have these means over these counts.
fn board(variants: &[(&str, f64, u64)]) -> Board {
    let mut board = Board::new("architect", "security-audit", "seed");
    for (name, mean, visits) in variants {
        if *name != "default" {
            let change = Change::Add { name: (*name).into(), patch: Vec::new(), live: true, prior: None };
            board.change(change, "ann", board.version, at(), &Settings::default()).unwrap();
        }
        let value = Value { visits: *visits, sum: mean * *visits as f64, ..Value::default() };
        board.entries.get_mut(*name).unwrap().value = value;
    }
    board
}

fn kinds(variants: &[(&str, f64, u64)]) -> Vec<(ProposalType, String, f64)> {
    propose(&board(variants), &[], at(), &Settings::default())
        .into_iter()
        .map(|proposal| (proposal.proposal_type, proposal.variant, proposal.confidence))
        .collect()
}

#[test]
fn each_trigger_makes_its_proposal() {
    use ProposalType::{
        CreateSpecializedVariant as Create, ModifyVariantParameters as Modify,
        PromoteVariantToDefault as Promote, RetireUnderperformingVariant as Retire,
    };
    assert_eq!(kinds(&[("default", 0.5, 49)]), [], "too few");
    assert_eq!(kinds(&[("default", 0.8, 500)]), [], "all is well");
    assert_eq!(kinds(&[("default", 0.6, 500)]), [], "not below the line");
    let weak = kinds(&[("default", 0.5, 67)]);
    assert_eq!(weak[0], (Create, "security-audit-specialized".into(), 0.7));
    assert_eq!(weak[1], (Modify, "default-modified".into(), 0.7));
    assert_eq!(kinds(&[("default", 0.5, 500)])[0].2, 0.75, "creation is never surer than that");
    assert_eq!(
        kinds(&[("default", 0.5, 40), ("other", 0.5, 40)]),
        [],
        "another exists, and the default has few"
    );
    assert_eq!(kinds(&[("default", 0.65, 60), ("best", 0.9, 10)]), [(Promote, "best".into(), 0.7)]);
    assert_eq!(kinds(&[("default", 0.62, 60), ("best", 0.95, 50)]), [(Promote, "best".into(), 1.0)]);
    assert_eq!(kinds(&[("default", 0.45, 60), ("best", 0.65, 10)]).len(), 1, "0.20 is not more than 0.20");
    assert_eq!(kinds(&[("default", 0.5, 49), ("other", 0.5, 1)]), [], "the default has too few");
    assert_eq!(kinds(&[("default", 0.9, 100), ("poor", 0.5, 50)]), [(Retire, "poor".into(), 0.85)]);
    assert_eq!(kinds(&[("default", 0.9, 100), ("poor", 0.5, 49)]), [], "too few to retire");
    assert_eq!(kinds(&[("default", 0.9, 100), ("near", 0.88, 60)]), [], "it may be as good");
}

#[test]
fn a_proposal_has_the_older_form_and_is_made_once() {
    let board = board(&[("default", 0.5, 67)]);
    let proposals = propose(&board, &[], at(), &Settings::default());
    let json = serde_json::to_value(&proposals[0]).unwrap();
    assert!(json["proposal_id"].as_str().unwrap().starts_with("prop-20251119-"), "{json}");
    assert_eq!(json["proposal_type"], "crl_create_specialized_variant");
    assert_eq!((&json["agent_name"], &json["status"]), (&json!("architect"), &json!("pending")));
    assert_eq!(json["supporting_data"]["n_invocations"], 67);
    assert_eq!(json["recommended_modifications"][0]["section"], "Core Identity");
    assert_eq!(json["recommended_modifications"][1]["parameter"], "temperature");
    assert!(propose(&board, &proposals, at(), &Settings::default()).is_empty());
    let setup = patch::Setup { prompt: "# Core Identity\nHelp.".into(), ..patch::Setup::default() };
    let patched = patch::apply(&proposals[0].recommended_modifications, &setup).unwrap();
    assert!(patched.prompt.contains("Special focus on security-audit"), "{patched:?}");
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F67_only_what_was_approved_is_carried_out() {
    let mut board = board(&[("default", 0.65, 60), ("best", 0.9, 10)]);
    let settings = Settings::default();
    let proposal = propose(&board, &[], at(), &settings).remove(0);
    let version = board.version;
    assert!(
        matches!(board.enact(&proposal, None, version, at(), &settings), Err(Error::Proposal { .. })),
        "pending"
    );
    let digest = review::digest(&proposal);
    let decision = review::Decision {
        status: ProposalStatus::Approved,
        by: "ann",
        reason: None,
        digest: &digest,
        allow_self_approval: false,
    };
    let approved = review::review(&proposal, decision, at()).unwrap();
    let mut forged = approved.clone();
    forged.variant = "default".into();
    let message = board.enact(&forged, None, version, at(), &settings).unwrap_err().to_string();
    assert!(message.contains("changed after it was approved"), "{message}");
    board.enact(&approved, None, version, at(), &settings).unwrap();
    // It does not serve everybody: it is released, under the digest of what was approved.
    assert_eq!(board.serving, "default");
    let release = board.release.as_ref().unwrap().release.clone();
    assert_eq!((release.candidate.as_str(), release.digest), ("best", Some(digest)));
    assert_eq!(release.id, approved.proposal_id.replacen("prop", "rel", 1));
    let version = board.version;
    let again = board.enact(&approved, None, version, at(), &settings).unwrap_err().to_string();
    assert!(again.contains("another release is under way"), "{again}");
}

#[test]
fn a_new_variant_begins_as_a_draft_on_its_way_and_is_proposed_once() {
    let mut board = board(&[("default", 0.5, 67)]);
    let settings = Settings::default();
    let proposals = propose(&board, &[], at(), &settings);
    let decided = |proposal: &Proposal, status, days: i64| {
        let digest = review::digest(proposal);
        let (by, reason) = ("ann", Some("seen"));
        let decision = review::Decision { status, by, reason, digest: &digest, allow_self_approval: false };
        review::review(proposal, decision, at() + SignedDuration::from_hours(24 * days)).unwrap()
    };
    // What was rejected stays known for as long as it would have waited.
    let rejected = decided(&proposals[0], ProposalStatus::Rejected, 0);
    let known = [rejected, proposals[1].clone()];
    assert_eq!(propose(&board, &known, at(), &settings), []);
    let later = at() + SignedDuration::from_hours(24 * 14);
    assert_eq!(propose(&board, &known, later, &settings).len(), 1);
    // What was approved is there, and is not proposed under another name.
    let approved = decided(&proposals[1], ProposalStatus::Approved, 0);
    assert_eq!(approved.proposal_type, ProposalType::ModifyVariantParameters);
    let prior = Some(crate::Prior { mean: 0.7, weight: 3.0 });
    let version = board.version;
    board.enact(&approved, prior, version, at(), &settings).unwrap();
    let made = board.entry("default-modified").unwrap();
    assert_eq!((&made.variant.patch, made.value.prior), (&approved.recommended_modifications, prior));
    assert_eq!(board.choose("unit", &Default::default(), &settings).variant, "default", "it is in shadow");
    assert_eq!(propose(&board, std::slice::from_ref(&approved), at(), &settings), []);
    // A patch that did not help is not put on top of itself.
    let version = board.version;
    board.change(Change::Apply("default-modified".into()), "ann", version, at(), &settings).unwrap();
    board.entries.get_mut("default-modified").unwrap().value = board.entry("default").unwrap().value.clone();
    let kinds: Vec<_> = propose(&board, &[approved], at(), &settings)
        .into_iter()
        .map(|proposal| proposal.proposal_type)
        .collect();
    assert_eq!(kinds, []);
}

#[test]
fn people_are_asked_once_about_what_only_they_may_apply() {
    let settings = Settings::default();
    // Too few outcomes for the weekly look, and enough to ask.
    let board = board(&[("default", 0.65, 8), ("better", 0.8, 6), ("worse", 0.6, 6)]);
    let asked = ask(&board, &[], at(), &settings);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(
        (asked[0].proposal_type, asked[0].variant.as_str()),
        (ProposalType::PromoteVariantToDefault, "better")
    );
    assert!(asked[0].reasoning.starts_with("Medium confidence"), "{}", asked[0].reasoning);
    assert_eq!(propose(&board, &[], at(), &settings).len(), 1, "the weekly look sees it too");
    assert_eq!(ask(&board, &asked, at(), &settings), []);
    // Where another release is under way, nobody could approve it.
    let mut busy = board.clone();
    let (id, variant, profile) = ("rel-1".to_owned(), "worse".to_owned(), "7day".to_owned());
    let change = Change::Release { id, variant, profile, digest: None };
    let version = busy.version;
    busy.change(change, "ann", version, at(), &settings).unwrap();
    assert_eq!(ask(&busy, &[], at(), &settings), []);
}
