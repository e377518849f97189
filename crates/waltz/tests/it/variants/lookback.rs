//! `waltz variants lookback --agent`: estimates from what the gateway recorded, on both databases.

use serde_json::{Value, json};

use super::{Operated, Site, variant, visits};
use crate::harness::run;

/// `fast` drafts harm to every second question; the agent as it is never does.
const SCRIPT: &str = r#"
[[reply]]
when = { model = "fast", contains = "collapse", coached = false }
style = "unsafe"
[[reply]]
when = { coached = true }
text = "I can't help with that. A locksmith can."
[[reply]]
text = "The harbour was built in 1850 and has two basins."
"#;
/// Half of the traffic is spread evenly whatever is learned, and nothing is applied or rolled back meanwhile.
const EVEN: &str =
    "[variants]\nauto_apply = false\nrule = \"epsilon_greedy\"\nepsilon = 0.5\n[rollback]\nmode = \"off\"\n";
const ASKED: u64 = 200;

#[tokio::test(flavor = "multi_thread")]
async fn an_estimate_is_near_the_mean_of_the_variant_itself() {
    looks_back(&Site::sqlite(SCRIPT, EVEN)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_estimate_is_near_the_mean_of_the_variant_itself_on_postgres() {
    looks_back(&Site::postgres(SCRIPT, EVEN)).await;
}

async fn looks_back(site: &Site) {
    let gateway = site.gateway();
    let look = |more: &[&str]| {
        site.command(&gateway, &[&["variants", "lookback", "--agent", "writer"], more].concat())
    };
    let value = |found: &Value, name: &str| found["estimates"][name].as_f64().unwrap();
    // Nothing but the agent as it is can serve yet: what the other would have earned there is not known.
    let draft = json!({"agent": "writer", "task_type": "docs", "name": "fast", "patch": [{"model": "fast"}]});
    gateway.post("variants", draft).await;
    gateway.ask_many(1000, 7, "harbour").await;
    gateway.learned(7).await;
    let none = look(&["--variant", "fast"]).unwrap_err();
    assert!(none.contains("no logged choice") && none.contains("7 choices were left out"), "{none}");
    let (code, out, told) = table(site, &gateway, &["--agent", "writer", "--variant", "default"]);
    assert!(code == 0 && out.contains("effective sample: 7.0 of 7, too few to decide by"), "{out}{told}");
    gateway.act("enter", "fast").await;
    let mut defaults = Vec::new();
    for number in 0..ASKED {
        let prompt = if number % 2 == 0 { "harbour" } else { "collapse" };
        let (variant, reply) = gateway.ask(&format!("s{number}"), prompt).await;
        if variant == "default" {
            defaults.push(reply.header("x-waltz-response-id").to_owned());
        }
    }
    let board = gateway.learned(7 + ASKED).await;
    let own = |name: &str| variant(&board, name)["q_value"].as_f64().unwrap();
    assert!(own("default") - own("fast") > 0.15, "{board:#}");
    for name in ["default", "fast"] {
        let found = look(&["--variant", name, "--task-type", "docs"]).unwrap();
        let (n, left_out) = if name == "fast" { (ASKED, 7) } else { (ASKED + 7, 0) };
        assert_eq!((&found["estimates"]["n"], &found["left_out"]), (&json!(n), &json!(left_out)), "{found}");
        // SNIPS and DR stay close; IPS spreads as its weights do, of 4 at most.
        for (estimate, most) in [("snips", 0.1), ("dr", 0.1), ("ips", 0.4)] {
            let error = (value(&found, estimate) - own(name)).abs();
            assert!(error < most, "{name}, {estimate}: {} is not near {found}", own(name));
        }
        let effective = value(&found, "effective_n");
        assert!(effective > 0.5 * visits(&board, name) as f64 && effective <= n as f64, "{found}");
        assert_eq!(found["estimates"]["decisive"], effective >= 100.0);
    }
    let mixed = look(&["--policy", "default=0.5,fast=0.5"]).unwrap();
    let (snips, half) = (value(&mixed, "snips"), (own("default") + own("fast")) / 2.0);
    assert!((snips - half).abs() < 0.15, "{mixed}, not {half}");
    // A choice is one choice, whoever speaks of it: what clients report changes its reward and not the number.
    let before = look(&["--variant", "default"]).unwrap();
    for id in defaults {
        let body = json!({"response_id": id, "success": false}).to_string();
        assert_eq!(gateway.gateway.post("/waltz/v1/outcomes", body, &[]).await.status, 200);
    }
    // Seven answers were not reported on; a failure is worth a third of a success or less.
    let fallen =
        |board: &Value| variant(board, "default")["q_value"].as_f64().unwrap() < own("default") / 2.0;
    gateway.until("reports change Q", |board| board.is_object() && fallen(board)).await;
    let after = look(&["--variant", "default"]).unwrap();
    assert_eq!(after["estimates"]["n"], before["estimates"]["n"]);
    let lost = value(&before, "snips") - value(&after, "snips");
    assert!((0.4..0.8).contains(&lost), "{before}, {after}");
    let (code, out, told) = table(site, &gateway, &["--agent", "writer", "--variant", "fast"]);
    assert!(code == 0 && out.contains("left out: 7 choices") && out.contains("| SNIPS | "), "{out}{told}");
    refused(site, &gateway);
}

/// As people read it.
fn table(site: &Site, gateway: &Operated, more: &[&str]) -> (i32, String, String) {
    let folder = gateway.gateway.folder.path();
    let (config, data) = (folder.join("waltz.toml").display().to_string(), gateway.gateway.data());
    let data = data.display().to_string();
    let own = site.environment();
    let environment: Vec<(&str, &str)> =
        own.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let fixed = ["variants", "lookback", "--config", &config, "--data", &data];
    run(&[&fixed[..], more].concat(), "", folder, &environment)
}

fn refused(site: &Site, gateway: &Operated) {
    for (more, part) in [
        (&["--agent", "writer"][..], "--variant or --policy"),
        (&["--agent", "nobody", "--variant", "fast"], "no logged choice"),
        (&["--agent", "writer", "--variant", "unknown"], "no logged choice"),
        (&["--agent", "writer", "--policy", "fast=0.5"], "add up to 1"),
        (&["--agent", "writer", "--variant", "fast", "log.jsonl"], "cannot be used with"),
        (&["--task-type", "docs", "--variant", "fast"], "--agent"),
    ] {
        let (code, _, told) = table(site, gateway, more);
        assert!(code == 2 && told.contains(part), "{more:?}: {code} {told}");
    }
}
