//! Bad input and hostile clients.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{Gateway, Mock, Reply, client};

fn request(body: &str, headers: &str) -> Vec<u8> {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

const HELLO: &str = r#"{"model":"mock","messages":[{"role":"user","content":"hi"}]}"#;

#[tokio::test]
async fn fault_F19_header_injection() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "");
    let split = gateway.raw(&request(HELLO, "x-waltz-session-id: a\rx-evil: 1\r\n"));
    assert!(split.starts_with("HTTP/1.1 400") || split.is_empty(), "{split}");
    let nul = gateway.raw(&request(HELLO, "x-waltz-session-id: a\0b\r\n"));
    assert!(nul.starts_with("HTTP/1.1 400") || nul.is_empty(), "{nul}");
    assert!(mock.requests().await.is_empty());
    for value in ["a b", "a\u{e9}", "a\"b", "", "../../etc"] {
        let body = json!({"model": "mock", "messages": [{"role": "user", "content": "hi"}], "metadata": {"session_id": value}});
        let reply = gateway.chat(body).await;
        assert_eq!(
            (reply.status, reply.json()["error"]["param"].as_str()),
            (400, Some("metadata.session_id")),
            "{value:?}"
        );
    }
    let task = json!({"messages": [{"role": "user", "content": "hi"}], "metadata": {"task_type": "a\u{0}b"}});
    assert_eq!(gateway.chat(task).await.status, 400);
    let embedding = json!({"model": "a\u{0}b", "input": "x"}).to_string();
    assert_eq!(gateway.post("/v1/embeddings", embedding, &[]).await.status, 400);
    for model in ["a\r\nx-evil: 1", "a\u{0}b"] {
        let reply =
            gateway.chat(json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})).await;
        assert_eq!(reply.status, 400);
        assert!(reply.headers.get("x-evil").is_none());
    }
    let unknown = Gateway::start(&mock.upstream("main").replace("url =", "models = [\"mock\"]\nurl ="), &[]);
    let reply =
        unknown.chat(json!({"model": "é\u{202e}x", "messages": [{"role": "user", "content": "hi"}]})).await;
    assert_eq!((reply.status, reply.error_code().as_str()), (404, "model_not_found"));
}

#[tokio::test]
async fn fault_F20_hop_by_hop_and_auth_forwarding() {
    let mock = Mock::start("");
    let config = mock.upstream("main").replace("url =", "key_env = \"TEST_UPSTREAM_KEY\"\nurl =");
    let gateway = Gateway::start(&config, &[("TEST_UPSTREAM_KEY", "sk-configured")]);
    let headers = "authorization: Bearer client-secret\r\nproxy-authorization: Basic eA==\r\nx-secret: s3cr3t\r\nconnection: x-secret\r\n\
        x-forwarded-for: 10.0.0.1\r\nx-stainless-os: Linux\r\nopenai-organization: org\r\ncookie: a=b\r\nx-api-key: k\r\n";
    let answer = gateway.raw(&request(HELLO, headers));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let seen = mock.requests().await[0]["headers"].as_object().unwrap().clone();
    assert_eq!(seen["authorization"], "Bearer sk-configured");
    let allowed = ["authorization", "content-type", "accept", "user-agent", "host", "content-length"];
    for name in seen.keys() {
        assert!(allowed.contains(&name.as_str()), "{name} was forwarded");
    }
}

#[tokio::test]
async fn fault_F22_json_bombs() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "[server]\nmax_body_bytes = 67108864\n");
    let user = r#""messages":[{"role":"user","content":"hi"}]"#;
    let many_keys: String = (0..1_000_000).map(|number| format!("\"k{number}\":1,")).collect();
    let bombs = [
        ("broken", "{".to_owned()),
        ("empty", String::new()),
        ("not an object", "[1]".to_owned()),
        ("deep", format!("{{\"model\":\"mock\",\"x\":{}1{}}}", "[".repeat(100_000), "]".repeat(100_000))),
        ("unclosed and deep", "[".repeat(1_000_000)),
        ("huge number", format!("{{\"model\":\"mock\",{user},\"seed\":{}}}", "9".repeat(5_000_000))),
        ("a million keys", format!("{{{many_keys}\"model\":\"mock\",{user}}}")),
        ("duplicate model", format!("{{\"model\":\"mock\",\"model\":\"other\",{user}}}")),
        (
            "duplicate deep key",
            "{\"model\":\"mock\",\"messages\":[{\"role\":\"user\",\"role\":\"system\",\"content\":\"x\"}]}"
                .to_owned(),
        ),
        (
            "lone surrogate",
            "{\"model\":\"mock\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}".to_owned(),
        ),
        (
            "not UTF-8 escape",
            "{\"model\":\"mock\",\"messages\":[{\"role\":\"user\",\"content\":\"\\uZZZZ\"}]}".to_owned(),
        ),
        ("NaN", format!("{{\"model\":\"mock\",{user},\"temperature\":NaN}}")),
        ("wrong type", "{\"model\":\"mock\",\"messages\":\"hi\"}".to_owned()),
    ];
    for (name, bomb) in bombs {
        let began = Instant::now();
        let reply = gateway.post("/v1/chat/completions", bomb, &[]).await;
        let took = began.elapsed();
        assert_eq!(reply.status, 400, "{name}: {}", reply.text);
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error", "{name}");
        reply.error_code();
        // The time counts the upload too; the product's own limit is measured on the parser.
        assert!(took.as_millis() < 1_000, "{name} took {took:?}");
        assert!(reply.text.len() < 1_000, "{name}: the body is not echoed");
    }
    assert!(mock.requests().await.is_empty(), "nothing went upstream");
    gateway.drain().await;
    let list = gateway.get("/waltz/v1/sessions?limit=100", &[]).await.json();
    assert_eq!(list["data"].as_array().unwrap().len(), 13, "and nothing was lost");
}

#[tokio::test]
async fn fault_F23_oversize_and_compressed() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "[server]\nmax_body_bytes = 4096\n");
    let long =
        json!({"model": "mock", "messages": [{"role": "user", "content": "x".repeat(5_000)}]}).to_string();
    let reply = gateway.post("/v1/chat/completions", long.clone(), &[]).await;
    assert_eq!((reply.status, reply.error_code().as_str()), (413, "request_too_large"));
    // An announced length is refused before a byte of the body is read.
    let announced = gateway.raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 99999999999\r\n\r\n");
    assert!(announced.starts_with("HTTP/1.1 413"), "{announced}");
    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n",
        long.len()
    );
    assert!(gateway.raw(chunked.as_bytes()).starts_with("HTTP/1.1 413"));
    let gzip =
        gateway.post("/v1/chat/completions", vec![0x1f, 0x8b, 8, 0], &[("content-encoding", "gzip")]).await;
    assert_eq!(gzip.status, 415);
    let headers = format!("x-long: {}\r\n", "y".repeat(100_000));
    let answer = gateway.raw(&request(HELLO, &headers));
    assert!(answer.starts_with("HTTP/1.1 431") || answer.is_empty(), "{}", &answer[..answer.len().min(80)]);
    assert!(mock.requests().await.is_empty());
    assert_eq!(gateway.ask("hi").await.status, 200);
}

#[tokio::test]
async fn keys_are_checked_and_tenants_do_not_see_each_other() {
    let mock = Mock::start("");
    let digest = |key: &str| waltz_exchange::id::sha256_hex(key.as_bytes());
    let config = format!(
        "[[keys]]\nname = \"one\"\nsha256 = \"{}\"\n[[keys]]\nname = \"two\"\nsha256 = \"{}\"\n",
        digest("key-1"),
        digest("key-2")
    );
    let gateway = Gateway::over(&mock, &config);
    for (headers, status) in [
        (vec![], 401),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "Bearer key-1")], 200),
        (vec![("x-api-key", "key-2")], 200),
    ] {
        let reply = gateway.post("/v1/chat/completions", HELLO, &headers).await;
        assert_eq!(reply.status, status, "{headers:?}");
        if status == 401 {
            assert_eq!(reply.error_code(), "invalid_api_key");
        }
    }
    assert_eq!(mock.requests().await.len(), 2);
    let mine = gateway
        .post(
            "/v1/chat/completions",
            HELLO,
            &[("authorization", "Bearer key-1"), ("x-waltz-session-id", "mine")],
        )
        .await;
    let id = mine.response_id();
    let outcome = json!({"response_id": id, "rating": 1}).to_string();
    let foreign =
        gateway.post("/waltz/v1/outcomes", outcome.clone(), &[("authorization", "Bearer key-2")]).await;
    assert_eq!(foreign.status, 404);
    assert_eq!(
        gateway.post("/waltz/v1/outcomes", outcome, &[("authorization", "Bearer key-1")]).await.status,
        200
    );
    assert_eq!(
        gateway.get("/waltz/v1/sessions/mine", &[("authorization", "Bearer key-2")]).await.status,
        404
    );
    assert_eq!(
        gateway.get("/waltz/v1/sessions/mine", &[("authorization", "Bearer key-1")]).await.status,
        200
    );
    let log = gateway.log_text();
    let token = log.lines().find_map(|line| line.strip_prefix("admin token, shown this once: ")).unwrap();
    let bearer = format!("Bearer {token}");
    assert_eq!(gateway.get("/waltz/v1/sessions/mine", &[("authorization", &bearer)]).await.status, 200);
    // An outcome belongs to whoever got the answer, whoever tells it.
    let told = json!({"response_id": id, "rating": 5}).to_string();
    assert_eq!(gateway.post("/waltz/v1/outcomes", told, &[("authorization", &bearer)]).await.status, 200);
    let settled = gateway.get("/waltz/v1/sessions/nobody", &[("authorization", "Bearer key-1")]).await;
    assert_eq!(settled.status, 404, "what was told before is in the database now");
    let session = gateway.get("/waltz/v1/sessions/mine", &[("authorization", "Bearer key-1")]).await.json();
    let ratings: Vec<&Value> = session["exchanges"][0]["outcomes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|told| &told["outcome"]["rating"])
        .collect();
    assert_eq!(ratings, [1, 5], "{session}");
    assert!(!std::fs::read_to_string(gateway.data().join("admin_token.sha256")).unwrap().contains(token));
}

#[tokio::test]
async fn the_admin_token_reads_the_session_of_the_tenant_that_it_names() {
    let mock = Mock::start("");
    let digest = |key: &str| waltz_exchange::id::sha256_hex(key.as_bytes());
    let config = format!(
        "[[keys]]\nname = \"one\"\nsha256 = \"{}\"\n[[keys]]\nname = \"two\"\nsha256 = \"{}\"\n",
        digest("key-1"),
        digest("key-2")
    );
    let gateway = Gateway::over(&mock, &config);
    let log = gateway.log_text();
    let token = log.lines().find_map(|line| line.strip_prefix("admin token, shown this once: ")).unwrap();
    for key in ["key-1", "key-2", token] {
        let headers = [("x-api-key", key), ("x-waltz-session-id", "shared")];
        assert_eq!(gateway.post("/v1/chat/completions", HELLO, &headers).await.status, 200);
    }
    let get = async |key: &str, path: &str| {
        gateway.get(&format!("/waltz/v1/sessions{path}"), &[("x-api-key", key)]).await
    };
    // What is asked for alone waits for the database; then the list has all of it.
    for (key, tenant) in
        [(token, "one"), (token, "two"), (token, "local"), ("key-1", "one"), ("key-2", "two")]
    {
        let session = get(key, &format!("/shared?tenant={tenant}")).await;
        assert_eq!(session.status, 200, "{tenant}: {}", session.text);
        let session = session.json();
        assert_eq!(session["summary"]["tenant"], tenant);
        assert_eq!(session["exchanges"].as_array().unwrap().len(), 1, "{session}");
        let list = get(key, &format!("?tenant={tenant}&limit=10")).await.json();
        let data = list["data"].as_array().unwrap();
        assert!(data.len() == 1 && data[0]["tenant"] == tenant, "{list}");
    }
    assert_eq!(get(token, "").await.json()["data"].as_array().unwrap().len(), 3);
    assert_eq!(get("key-1", "").await.json()["data"].as_array().unwrap().len(), 1);
    // Without a name it is the one that was active last, and each key's own.
    assert_eq!(get(token, "/shared").await.json()["summary"]["tenant"], "local");
    assert_eq!(get("key-1", "/shared").await.json()["summary"]["tenant"], "one");
    assert_eq!(get(token, "/shared?tenant=three").await.error(), (404, "session_not_found".to_owned()));
    assert_eq!(get(token, "?tenant=three").await.json()["data"], json!([]));
    for path in ["/shared", ""] {
        let foreign = get("key-1", &format!("{path}?tenant=two")).await;
        assert_eq!(foreign.error(), (403, "admin_only".to_owned()), "{}", foreign.text);
        for wrong in ["tenant=", "tenant=a%20b", "tenants=two"] {
            let reply = get(token, &format!("{path}?{wrong}")).await;
            assert_eq!(reply.error(), (400, "invalid_request".to_owned()), "{wrong}: {}", reply.text);
            assert_eq!(reply.json()["error"]["param"], wrong.split('=').next().unwrap());
        }
    }
}

#[tokio::test]
async fn without_keys_a_web_page_cannot_use_the_gateway() {
    let gateway = Gateway::over(&Mock::start(""), "");
    for headers in [[("host", "evil.example")], [("origin", "https://evil.example")], [("origin", "null")]] {
        let reply = gateway.post("/v1/chat/completions", HELLO, &headers).await;
        assert_eq!((reply.status, reply.error_code().as_str()), (403, "loopback_only"), "{headers:?}");
    }
    assert_eq!(
        gateway.post("/v1/chat/completions", HELLO, &[("origin", "http://localhost:3000")]).await.status,
        200
    );
}

#[tokio::test]
async fn where_an_object_is_meant_a_list_is_refused_in_plain_words() {
    let gateway = Gateway::over(&Mock::start(""), "");
    let log = gateway.log_text();
    let token = log.lines().find_map(|line| line.strip_prefix("admin token, shown this once: ")).unwrap();
    let bearer = format!("Bearer {token}");
    let paths = [
        "evaluate",
        "outcomes",
        "plan",
        "run",
        "variants",
        "variants/writer/docs",
        "learned",
        "proposals",
        "proposals/x",
        "rollbacks/x",
        "releases",
        "releases/x",
    ];
    // Each has what the fields of a body would be, in their order.
    let lists = [
        json!([null, "a prompt", "an answer", false, null, null, null]),
        json!(["resp_x", true, 5, null, [], null, null]),
        json!([1, []]),
        json!(["approved", null, null]),
        json!([]),
    ];
    for path in paths {
        for list in lists.iter().map(Value::to_string).chain(["5".to_owned(), "\"text\"".to_owned()]) {
            let path = format!("/waltz/v1/{path}");
            let reply = gateway.post(&path, list.clone(), &[("authorization", &bearer)]).await;
            assert_eq!(reply.error(), (400, "invalid_request".to_owned()), "{path} {list}: {}", reply.text);
            assert!(reply.text.contains("the body must be a JSON object"), "{path} {list}: {}", reply.text);
        }
    }
    // Further in too.
    let task = json!(["a", "code", "Do it."]);
    let value = json!(["writer", "docs", "v1", 1, 0.5]);
    let variant =
        |change: Value| json!({"agent": "writer", "task_type": "docs", "name": "v1", "patch": [change]});
    for (path, body, words) in [
        ("outcomes", json!({"response_id": "x", "candidates": [[0, 5]]}), "expected an object, not an array"),
        ("plan", json!({"tasks": [task]}), "expected an object, not an array"),
        ("run", json!({"tasks": [task]}), "expected an object, not an array"),
        ("learned", json!({"format": 1, "values": [value]}), "expected an object, not an array"),
        ("variants", variant(json!([null, "append", "Be kind."])), "invalid type: sequence, expected a map"),
        ("variants", variant(json!({"operation": "append"})), "missing field `content`"),
    ] {
        let path = format!("/waltz/v1/{path}");
        let reply = gateway.post(&path, body.to_string(), &[("authorization", &bearer)]).await;
        assert_eq!(reply.error(), (400, "invalid_request".to_owned()), "{path}: {}", reply.text);
        assert!(reply.text.contains(words) && !reply.text.contains("struct"), "{path}: {}", reply.text);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_answer_in_the_same_form() {
    let gateway = Gateway::over(&Mock::start(""), "");
    for path in ["/", "/v1/nothing", "/waltz/v1/sessions/none", "/v1/models/%00"] {
        let reply = gateway.get(path, &[]).await;
        assert!(matches!(reply.status, 404 | 200), "{path}: {}", reply.status);
        if reply.status == 404 {
            reply.error_code();
        }
    }
    assert_eq!(gateway.get("/v1/chat/completions", &[]).await.error_code(), "unknown_url");
    let message = |reply: &Reply| reply.json()["error"]["message"].as_str().unwrap().to_owned();
    let nowhere = gateway.get("/v1/nosuch", &[]).await;
    assert!(message(&nowhere).starts_with("there is no path `/v1/nosuch`;"), "{}", nowhere.text);
    for (path, post) in [("/v1/chat/completions", false), ("/v1/messages", false), ("/v1/models", true)] {
        let reply = if post { gateway.post(path, "{}", &[]).await } else { gateway.get(path, &[]).await };
        let expected = format!("this method does not go with `{path}`;");
        assert!(message(&reply).starts_with(&expected), "{}", reply.text);
    }
    // Anthropic's clients get their own form wherever they call, and nobody else does.
    let long = "y".repeat(70_000);
    for (path, is_anthropic) in [
        ("/v1/messages", true),
        ("/v1/messages/count_tokens", true),
        ("/v1/messages/batches", true),
        ("/v1/messagesx", false),
        ("/v1/nosuch", false),
    ] {
        let large = gateway.post(path, "{}", &[("x-long", &long)]).await;
        assert_eq!(large.status, 431, "{path}: {}", large.text);
        for reply in [large, gateway.get(path, &[]).await] {
            let body = reply.json();
            assert_eq!(body["type"] == "error", is_anthropic, "{path}: {body}");
            assert_eq!(body["error"].get("code").is_none(), is_anthropic, "{path}: {body}");
        }
    }
    assert_eq!(gateway.get("/waltz/v1/sessions?limit=0", &[]).await.status, 400);
    assert_eq!(gateway.get("/waltz/v1/sessions?before=x", &[]).await.status, 400);
    let description = gateway.get("/openapi.json", &[]).await.json();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let concrete = path.replace("{id}", "x");
        for method in methods.as_object().unwrap().keys() {
            let reply = if method == "get" {
                gateway.get(&concrete, &[]).await
            } else {
                gateway.post(&concrete, "{}", &[]).await
            };
            assert!(!reply.text.contains("unknown_url"), "{method} {path}");
        }
        // What a path does not have it says, with what it has, in the form of its interface.
        let sent = client().delete(format!("{}{concrete}", gateway.url)).send().await.unwrap();
        let named = |method: &String| match method.as_str() {
            "get" => "GET,HEAD".to_owned(),
            other => other.to_uppercase(),
        };
        let mut allowed: Vec<String> = methods.as_object().unwrap().keys().map(named).collect();
        allowed.sort();
        let allow = sent.headers().get("allow").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!((sent.status().as_u16(), allow), (404, Some(allowed.join(","))), "{path}");
        let error: Value = serde_json::from_str(&sent.text().await.unwrap()).unwrap();
        let (field, word) = match path.as_str() {
            "/v1/messages" | "/v1/messages/count_tokens" => ("type", "not_found_error"),
            _ => ("code", "unknown_url"),
        };
        assert_eq!(error["error"][field], word, "{path}: {error}");
    }
}

#[tokio::test]
async fn without_keys_the_host_of_a_whole_address_counts() {
    let mock = Mock::start("");
    let gateway = Gateway::over(&mock, "");
    let asked = |host: &str| {
        let request = String::from_utf8(request(HELLO, "")).unwrap();
        request.replacen("POST /v1", &format!("POST http://{host}/v1"), 1).into_bytes()
    };
    let answer = gateway.raw(&asked("evil.example"));
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("loopback_only"), "{answer}");
    assert!(mock.requests().await.is_empty());
    assert!(gateway.raw(&asked("localhost")).starts_with("HTTP/1.1 200"));
}
