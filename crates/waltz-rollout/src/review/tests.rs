use proptest::prelude::*;
use waltz_exchange::proposal::{ProposalType, SupportingData};

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn proposal(id: &str, confidence: f64) -> Proposal {
    Proposal {
        proposal_id: id.into(),
        timestamp: at(0),
        agent_name: "architect".into(),
        task_type: "api-design".into(),
        proposal_type: ProposalType::PromoteVariantToDefault,
        variant: "fast".into(),
        reasoning: "better, by \"far\"".into(),
        confidence,
        supporting_data: SupportingData::default(),
        recommended_modifications: Vec::new(),
        proposed_by: "bob".into(),
        expires_at: at(1000),
        status: ProposalStatus::Pending,
        decision: None,
    }
}

fn decide(
    proposal: &Proposal,
    status: ProposalStatus,
    by: &str,
    reason: Option<&str>,
    seconds: i64,
) -> Result<Proposal, Error> {
    let digest = digest(proposal);
    review(
        proposal,
        Decision { status, by, reason, digest: &digest, allow_self_approval: false },
        at(seconds),
    )
}

#[test]
#[expect(non_snake_case, reason = "the fault's number")]
fn fault_F67_exactly_one_decision_is_made() {
    use ProposalStatus::{Approved, Deferred, Expired, Pending, Rejected};
    let open = proposal("p", 0.7);
    let approved = decide(&open, Approved, "ann", None, 1).unwrap();
    let rejected = decide(&open, Rejected, "ann", Some("too early"), 1).unwrap();
    let deferred = decide(&open, Deferred, "ann", None, 1).unwrap();
    let expired = expire(&open, at(1000)).unwrap();
    assert_eq!(rejected.decision.as_ref().unwrap().reason.as_deref(), Some("too early"));
    for done in [&approved, &rejected, &expired] {
        for status in [Pending, Approved, Rejected, Deferred, Expired] {
            assert!(decide(done, status, "ann", Some("x"), 2).is_err(), "{:?} to {status:?}", done.status);
        }
    }
    assert_eq!(decide(&deferred, Approved, "ann", None, 2).unwrap().status, Approved);
    assert!(
        decide(&open, Pending, "ann", None, 1).is_err() && decide(&open, Expired, "ann", None, 1).is_err()
    );
    assert!(decide(&open, Rejected, "ann", Some(" "), 1).is_err(), "no reason");
    assert!(decide(&open, Approved, "ann", None, 1000).is_err(), "expired");
    assert!(decide(&open, Approved, "bob", None, 1).is_err(), "by whoever proposed it");
    let digest_seen = digest(&open);
    let own = Decision {
        status: Approved,
        by: "bob",
        reason: None,
        digest: &digest_seen,
        allow_self_approval: true,
    };
    assert!(review(&open, own, at(1)).is_ok(), "where policy allows it");
    let changed = Proposal { variant: "other".into(), ..open.clone() };
    assert!(review(&changed, own, at(1)).is_err(), "not what was looked at");
    assert!(expire(&approved, at(5000)).is_none() && expire(&open, at(999)).is_none());
}

proptest! {
    #[test]
    fn the_digest_is_that_of_the_content(confidence in 0.0_f64..1.0, other in 0.0_f64..1.0) {
        let one = proposal("p", confidence);
        let decided = decide(&one, ProposalStatus::Deferred, "ann", Some("later"), 1).unwrap();
        prop_assert_eq!(digest(&one), digest(&decided));
        prop_assert_eq!(digest(&one) == digest(&proposal("p", other)), confidence == other);
    }
}

#[test]
fn the_sheet_begins_with_the_surest_and_holds_no_formula() {
    let mut sly = proposal("p2", 0.9);
    sly.agent_name = "=HYPERLINK(1)".into();
    let sheet = csv(&[proposal("p1", 0.7), sly, proposal("p0", 0.7)]);
    let ids: Vec<&str> = sheet.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(ids, ["p2", "p0", "p1"]);
    assert!(sheet.contains(",'=HYPERLINK(1),") && sheet.contains("\"better, by \"\"far\"\"\""), "{sheet}");
}
