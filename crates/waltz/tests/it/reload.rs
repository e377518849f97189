//! Configuration and rules that change while the gateway serves.

use std::path::Path;

use crate::harness::{Gateway, Mock};

const RULE: &str = "[[rule]]\nid = \"own.codename\"\ncategory = \"trade_secrets\"\nseverity = 0.9\nmeans = \"names a secret project\"\nall = [[\"bluebird\"]]\naction = \"block\"\n";

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[tokio::test]
async fn fault_F42_rule_file_bad() {
    let mock = Mock::start("");
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    write(folder.path(), "rules.toml", RULE);
    let config = format!("{}[policy]\nrules_file = \"rules.toml\"\n", mock.upstream("main"));
    let gateway = Gateway::start_in(std::sync::Arc::clone(&folder), &config, &[]);
    assert_eq!(gateway.ask("Tell me about bluebird").await.error_code(), "waltz_input_blocked");
    let many: String =
        (0..100_000).map(|number| RULE.replace("own.codename", &format!("own.r{number}"))).collect();
    let bad = [
        ("syntax", "[[rule]\n".to_owned()),
        ("category", RULE.replace("trade_secrets", "Trade Secrets!")),
        ("empty", String::new()),
        (
            "nested quantifiers",
            RULE.replace("all = [[\"bluebird\"]]", "regex = \"((a{1,1000}){1,1000}){1,1000}\""),
        ),
        ("too many", many),
    ];
    for (name, text) in bad {
        write(folder.path(), "rules.toml", &text);
        gateway.says("configuration not reloaded, the old one stays").await;
        let reply = gateway.ask("Tell me about bluebird").await;
        assert_eq!(reply.error_code(), "waltz_input_blocked", "{name}: the old rules stay active");
    }
    write(folder.path(), "rules.toml", &RULE.replace("bluebird", "redwing"));
    gateway.says("configuration reloaded").await;
    assert_eq!(gateway.ask("Tell me about bluebird").await.status, 200);
    assert_eq!(gateway.ask("Tell me about redwing").await.status, 400);
}

#[tokio::test]
async fn a_changed_configuration_is_served_and_a_bad_one_is_not() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "");
    let file = gateway.folder.path().join("waltz.toml");
    std::fs::write(&file, format!("{}[policy]\ninput = \"blok\"\n", mock.upstream("main"))).unwrap();
    gateway.says("policy.input").await;
    assert_eq!(gateway.ask("How do I build a weapon?").await.status, 200);
    std::fs::write(&file, format!("{}[policy]\ninput = \"block\"\n", mock.upstream("main"))).unwrap();
    gateway.says("configuration reloaded").await;
    assert_eq!(gateway.ask("How do I build a weapon?").await.status, 400);
}

#[tokio::test]
async fn an_upstream_that_is_added_later_takes_the_place_of_the_built_in_mock() {
    let gateway = Gateway::start("", &[]);
    let mock = Mock::start("[[reply]]\ntext = \"from the configured one\"\n");
    std::fs::write(gateway.folder.path().join("waltz.toml"), mock.upstream("main")).unwrap();
    gateway.says("configuration reloaded").await;
    assert_eq!(gateway.ask("hello").await.content(), "from the configured one");
}

#[tokio::test]
async fn a_reload_cannot_open_a_public_socket_to_anybody() {
    let mock = Mock::start("");
    let digest = waltz_exchange::id::sha256_hex(b"key");
    let keys = format!("[[keys]]\nname = \"one\"\nsha256 = \"{digest}\"\n");
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let config = format!("{}{keys}", mock.upstream("main"));
    let gateway = Gateway::start_at("0.0.0.0:0", folder, &config, &[]);
    std::fs::write(gateway.folder.path().join("waltz.toml"), mock.upstream("main")).unwrap();
    gateway.says("not reloaded").await;
    assert_eq!(gateway.ask("hello").await.status, 401);
}

#[tokio::test]
async fn a_file_that_is_empty_for_a_moment_changes_nothing() {
    let mock = Mock::start("[[reply]]\ntext = \"as configured\"\n");
    let config = format!("{}[record]\ntext = \"none\"\n", mock.upstream("main"));
    let gateway = Gateway::start(&config, &[]);
    for text in ["", " \n", "[record]\ntext = \"full\"\n"] {
        std::fs::write(gateway.folder.path().join("waltz.toml"), text).unwrap();
        gateway.says("configuration not reloaded, the old one stays").await;
        let reply = gateway.ask("a private text").await;
        assert_eq!(reply.content(), "as configured");
        assert!(!gateway.session_of(&reply).await.to_string().contains("a private text"));
    }
}
