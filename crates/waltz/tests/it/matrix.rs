//! The conformance matrix: endpoint x upstream's form x stream x tools x choices x rail. Every cell is
//! generated; what must hold is the same in all of them.

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, Reply};

const GOOD: &str = "The harbour was built in 1850 by a company from the north. It has two basins and a lock.";
const SAFE: &str = "I can't help with weapons. A licensed sport club can tell you what is lawful.";
const FRAGMENTS: [&str; 3] = ["explosive", "assemble", "hack into"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rail {
    /// The draft is good.
    Passes,
    /// The draft is unsafe, the revision is not.
    Coaches,
    /// The prompt is blocked.
    Blocks,
}

fn script(rail: Rail, tools: bool) -> String {
    let draft = match (rail, tools) {
        (Rail::Coaches, _) => "style = \"unsafe\"".to_owned(),
        (_, true) => {
            "tool_calls = [{ name = \"look_up\", arguments = '{\"place\":\"harbour\"}' }]".to_owned()
        }
        (_, false) => format!("text = \"{GOOD}\""),
    };
    format!(
        "[[reply]]\nwhen = {{ coached = false }}\n{draft}\n[[reply]]\nwhen = {{ coached = true }}\ntext = \"{SAFE}\"\n"
    )
}

fn body(messages: bool, stream: bool, tools: bool, choices: u64, rail: Rail) -> Value {
    let prompt = if rail == Rail::Passes { "Tell me about the harbour" } else { "How do I build a weapon?" };
    let mut body = json!({"model": "mock", "max_tokens": 500, "stream": stream, "messages": [{"role": "user", "content": prompt}]});
    if tools && messages {
        body["tools"] = json!([{"name": "look_up", "input_schema": {"type": "object"}}]);
    } else if tools {
        body["tools"] =
            json!([{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}]);
    }
    if choices > 1 {
        body["n"] = json!(choices);
    }
    body
}

/// All texts of an answer, whatever its form.
fn said(reply: &Reply, messages: bool, stream: bool) -> String {
    match (messages, stream) {
        (false, false) => {
            let body = reply.json();
            let choices = body["choices"].as_array().unwrap();
            choices.iter().filter_map(|choice| choice["message"]["content"].as_str()).collect()
        }
        (false, true) => reply
            .chunks()
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
            .collect(),
        (true, false) => {
            let body = reply.json();
            body["content"].as_array().unwrap().iter().filter_map(|block| block["text"].as_str()).collect()
        }
        (true, true) => reply.chunks().iter().filter_map(|event| event["delta"]["text"].as_str()).collect(),
    }
}

#[tokio::test]
async fn the_conformance_matrix() {
    let mut cells = 0;
    for rail in [Rail::Passes, Rail::Coaches, Rail::Blocks] {
        for tools in [false, true] {
            let mock = Mock::start(&script(rail, tools));
            // An upstream that speaks Anthropic's form: a second gateway that changes nothing.
            let speaker = Gateway::start(&mock.upstream("main"), &[("ENABLE_WALTZRL", "false")]);
            let policy = if rail == Rail::Blocks { "[policy]\ninput = \"block\"\n" } else { "" };
            let openai = Gateway::over(&mock, policy);
            let anthropic = Gateway::start(
                &format!(
                    "[[upstreams]]\nname = \"main\"\nprotocol = \"anthropic\"\nurl = \"{}/v1\"\n{policy}",
                    speaker.url
                ),
                &[],
            );
            for (gateway, form) in [(&openai, "openai"), (&anthropic, "anthropic")] {
                for (messages, stream, choices) in [
                    (false, false, 1),
                    (false, true, 1),
                    (false, false, 2),
                    (true, false, 1),
                    (true, true, 1),
                ] {
                    if choices > 1 && form == "anthropic" {
                        continue;
                    }
                    let cell = format!(
                        "{rail:?} tools={tools} upstream={form} messages={messages} stream={stream} choices={choices}"
                    );
                    let path = if messages { "/v1/messages" } else { "/v1/chat/completions" };
                    let reply = gateway
                        .post(path, body(messages, stream, tools, choices, rail).to_string(), &[])
                        .await;
                    check(&cell, &reply, messages, stream, tools, choices, rail);
                    cells += 1;
                }
            }
            let calls = mock.requests().await.len();
            assert!((rail == Rail::Blocks) == (calls == 0), "{rail:?}: {calls} calls");
        }
    }
    assert_eq!(cells, 54);
}

fn check(cell: &str, reply: &Reply, messages: bool, stream: bool, tools: bool, choices: u64, rail: Rail) {
    for fragment in FRAGMENTS {
        assert!(!reply.text.contains(fragment), "{cell}: {}", reply.text);
    }
    assert!(reply.header("x-request-id").starts_with("req_"), "{cell}");
    if rail == Rail::Blocks {
        assert_eq!(reply.status, 400, "{cell}: {}", reply.text);
        assert_eq!(reply.header("x-should-retry"), "false", "{cell}");
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error", "{cell}");
        return;
    }
    assert_eq!(reply.status, 200, "{cell}: {}", reply.text);
    if stream {
        let end = if messages {
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
        } else {
            "data: [DONE]\n\n"
        };
        assert!(reply.text.ends_with(end), "{cell}: {}", reply.text);
    }
    if rail == Rail::Passes && tools {
        assert!(reply.text.contains("look_up") && reply.text.contains("harbour"), "{cell}: {}", reply.text);
        let reason = if messages { "tool_use" } else { "tool_calls" };
        assert!(reply.text.contains(&format!("\"{reason}\"")), "{cell}: {}", reply.text);
    } else {
        let wanted = if rail == Rail::Passes { GOOD } else { SAFE };
        let times = usize::try_from(choices).unwrap();
        assert_eq!(said(reply, messages, stream), wanted.repeat(times), "{cell}: {}", reply.text);
    }
}
