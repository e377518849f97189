//! Upstreams that cannot be reached, are slow, fail, drift or lie, and clients that leave them waiting.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{Semaphore, oneshot};

use crate::harness::{Gateway, Mock, WITHOUT_LEVEL_2, attempts, run};
use crate::wire::{self, Wire, completion};

#[tokio::test]
async fn fault_F01_upstream_refused() {
    // Bound and never listened on: nobody else gets the port, and every connection is refused.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = closed.local_addr().unwrap();
    let upstream = format!("[[upstreams]]\nname = \"gone\"\nurl = \"http://{address}/v1\"\n");
    let gateway = Gateway::start(&format!("{upstream}[retry]\nmax_retries = 2\npause_ms = 1\n"), &[]);
    let reply = gateway.ask("hi").await;
    assert_eq!(reply.error(), (502, "upstream_unavailable".to_owned()));
    assert!(!reply.header("retry-after-ms").is_empty());
    let record = gateway.record_of(&reply).await;
    assert_eq!(attempts(&record), [(None, Some("unreachable")); 3], "one call and two retries");
    assert_eq!((&record["decision"], &record["status"]), (&json!("failed"), &json!(502)));
    // A retry for which the deadline leaves no time is not waited for.
    let hasty = format!("{upstream}total_timeout_ms = 1000\n[retry]\nmax_retries = 5\npause_ms = 2000\n");
    let gateway = Gateway::start(&hasty, &[]);
    let reply = gateway.ask("hi").await;
    assert_eq!(reply.error(), (502, "upstream_unavailable".to_owned()));
    assert_eq!(attempts(&gateway.record_of(&reply).await), [(None, Some("unreachable"))]);
}

#[tokio::test]
async fn fault_F02_upstream_slow_headers() {
    for limit in ["first_byte_timeout_ms", "total_timeout_ms"] {
        let (sender, hung_up) = oneshot::channel();
        let sender = std::sync::Mutex::new(Some(sender));
        let wire = Wire::start(move |_, mut call| {
            let first = sender.lock().unwrap().take();
            async move {
                match first {
                    Some(sender) => {
                        call.hung_up().await;
                        sender.send(()).unwrap();
                    }
                    None => assert!(call.send(completion("ok")).await),
                }
            }
        })
        .await;
        let config = format!("{}max_concurrent = 1\n{limit} = 1000\n", wire.upstream("main"));
        let gateway = Gateway::start(&config, &[]);
        let reply = gateway.ask("hi").await;
        assert_eq!(reply.error(), (504, "upstream_timeout".to_owned()));
        assert!(!reply.header("retry-after-ms").is_empty());
        hung_up.await.unwrap();
        let record = gateway.record_of(&reply).await;
        assert_eq!(attempts(&record), [(None, Some("timeout"))], "the next call would be as slow");
        assert_eq!(gateway.ask("hi").await.content(), "ok", "the only slot is free again");
    }
}

#[tokio::test]
async fn fault_F03_upstream_dies_mid_json() {
    let whole = String::from_utf8(completion("A text that is cut in its midst.")).unwrap();
    let half = whole.len() - 60;
    let chunked = whole.replace("content-length", "transfer-encoding: chunked\r\nx-length");
    let body = chunked.find("\r\n\r\n").unwrap() + 4;
    let chunked = format!("{}1000\r\n{}", &chunked[..body], &chunked[body..half]);
    let unbounded = whole[..half].replace("content-length", "x-length");
    // Without a length a cut cannot be told from the end, so that it is the JSON that shows it.
    let cases = [
        ("length", whole[..half].to_owned(), "upstream_unavailable", "broken_off"),
        ("chunked", chunked, "upstream_unavailable", "broken_off"),
        ("unbounded", unbounded, "upstream_invalid_answer", "unusable"),
    ];
    let served = cases.clone();
    let wire = Wire::start(move |_, mut call| {
        let name = call.model.trim_end_matches("-reset").to_owned();
        let bytes = served.iter().find(|(case, ..)| *case == name).unwrap().1.clone();
        async move {
            call.send(bytes).await;
            if call.model.ends_with("-reset") {
                call.reset();
            }
        }
    })
    .await;
    let gateway = Gateway::start(&wire.upstream("main"), &[]);
    for (name, _, code, word) in cases {
        for resets in [false, true] {
            let model = if resets { format!("{name}-reset") } else { name.to_owned() };
            for stream in [false, true] {
                let body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]});
                let reply = gateway.chat(body).await;
                // A reset can overtake the bytes before it, and is an error of the connection in any case.
                let codes = if resets { vec!["upstream_unavailable", code] } else { vec![code] };
                if reply.header("content-type").starts_with("text/event-stream") {
                    assert!(codes.contains(&reply.stream_error().as_str()), "{name}: {}", reply.text);
                } else {
                    assert_eq!(reply.status, 502, "{name}: {}", reply.text);
                    assert!(codes.contains(&reply.error().1.as_str()), "{name}: {}", reply.text);
                }
                assert!(!reply.text.contains("A text that"), "{name}: {}", reply.text);
                let record = gateway.record_of(&reply).await;
                assert_eq!((&record["decision"], &record["choices"]), (&json!("failed"), &json!([])));
                if !resets {
                    assert_eq!(attempts(&record), [(Some(200), Some(word))], "{name}");
                    let told = reply.text.contains("broke off in the middle of its answer");
                    assert_eq!(told, word == "broken_off", "{name}: {}", reply.text);
                    assert!(!reply.text.contains("cannot be reached"), "{name}: {}", reply.text);
                }
            }
        }
    }
    let told = gateway.get("/metrics", &[]).await.text;
    for (kind, least) in [("broken_off", 4), ("unusable", 2)] {
        let head = format!(r#"waltz_upstream_errors_total{{upstream="main",kind="{kind}"}} "#);
        let count = told.lines().find_map(|line| line.strip_prefix(&head)).unwrap();
        assert!(count.parse::<u64>().unwrap() >= least, "{head}{count}");
    }
}

#[tokio::test]
async fn the_log_and_the_metrics_name_upstreams_that_fail_and_nothing_else() {
    let script = "[[reply]]\nwhen = { contains = \"locked\" }\nstatus = 401\n\
        [[reply]]\nwhen = { contains = \"broken\" }\nstatus = 503\n\
        [[reply]]\nwhen = { contains = \"garbage\" }\nraw = \"answer-of-nobody\"\n";
    let mock = Mock::start(script);
    let config = format!("{}key_env = \"HOUSE_KEY\"\n[retry]\nmax_retries = 0\n", mock.upstream("house"));
    let gateway = Gateway::start(&config, &[("HOUSE_KEY", "key-of-the-house")]);
    let told = gateway.get("/metrics", &[]).await.text;
    let zero = r#"waltz_upstream_errors_total{upstream="house",kind="status"} 0"#;
    assert!(told.contains(zero), "a rate needs the zero before the first failure: {told}");
    assert_eq!(gateway.ask("prompt-of-somebody").await.status, 200);
    for word in ["locked", "locked", "locked", "broken", "garbage"] {
        let reply = gateway.ask(&format!("{word} prompt-of-somebody")).await;
        assert_eq!(reply.status, 502, "{}", reply.text);
    }
    let log = gateway.says("unusable").await;
    let lines = log.lines().filter(|line| line.contains("a call of an upstream failed"));
    let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    let said = |line: &Value| {
        let fields = &line["fields"];
        assert_eq!((&line["level"], &fields["upstream"]), (&json!("WARN"), &json!("house")), "{line}");
        (fields["kind"].as_str().unwrap().to_owned(), fields["status"].clone())
    };
    let kinds = [("status", 401), ("status", 503), ("unusable", 200)];
    let expected = kinds.map(|(kind, status)| (kind.to_owned(), json!(status)));
    assert_eq!(lines.iter().map(said).collect::<Vec<_>>(), expected, "each trouble once");
    for private in ["prompt-of", "answer-of", "key-of", "HOUSE_KEY"] {
        assert!(!log.contains(private), "{log}");
    }
    let told = gateway.get("/metrics", &[]).await.text;
    for (kind, count) in [("status", 4), ("unusable", 1), ("unreachable", 0)] {
        let line = format!(r#"waltz_upstream_errors_total{{upstream="house",kind="{kind}"}} {count}"#);
        assert!(told.contains(&line), "{line} is not in {told}");
    }
}

#[tokio::test]
async fn fault_F05_upstream_500_then_ok() {
    let mock = Mock::start("[[reply]]\ntimes = 2\nstatus = 500\n[[reply]]\ntext = \"ok\"\n");
    let gateway = Gateway::over(&mock, "[retry]\nmax_retries = 2\npause_ms = 1\n");
    let troubled = gateway.ask("hi").await;
    assert_eq!((troubled.status, troubled.content().as_str()), (200, "ok"));
    let record = gateway.record_of(&troubled).await;
    assert_eq!(
        attempts(&record),
        [(Some(500), Some("status")), (Some(500), Some("status")), (Some(200), None)]
    );
    // Trouble of the infrastructure is no trouble of the agent: all that an agent is rated by is as good as
    // without it.
    let smooth = gateway.ask("hi").await;
    let smooth = gateway.record_of(&smooth).await;
    assert_eq!(attempts(&smooth), [(Some(200), None)]);
    for name in ["decision", "status", "error", "degraded"] {
        assert_eq!(record[name], smooth[name], "{name}");
    }
    for name in ["dir_score", "final_text"] {
        assert_eq!(record["choices"][0][name], smooth["choices"][0][name], "{name}");
    }
    let scores = |record: &Value| record["choices"][0]["final_verdict"]["safety_score"].clone();
    assert_eq!(scores(&record), scores(&smooth));
    // What stays broken is a failure of its own class, and leaves no answer to be rated.
    let broken = Gateway::over(&Mock::start("[[reply]]\nstatus = 500\n"), "[retry]\npause_ms = 1\n");
    let reply = broken.ask("hi").await;
    assert_eq!(reply.error(), (502, "upstream_unavailable".to_owned()));
    let record = broken.record_of(&reply).await;
    assert_eq!((&record["decision"], &record["choices"]), (&json!("failed"), &json!([])));
}

#[tokio::test]
async fn fault_F06_upstream_429() {
    for (header, milliseconds, seconds) in
        [("retry-after = \"7\"", "7000", "7"), ("retry-after-ms = \"1500\"", "1500", "2")]
    {
        let mock = Mock::start(&format!("[[reply]]\nstatus = 429\nheaders = {{ {header} }}\n"));
        let gateway = Gateway::over(&mock, "[retry]\nmax_retries = 5\npause_ms = 1\n");
        for stream in [false, true] {
            let reply = gateway
                .chat(json!({"stream": stream, "messages": [{"role": "user", "content": "hi"}]}))
                .await;
            assert_eq!(reply.error(), (429, "rate_limit_exceeded".to_owned()));
            assert_eq!(
                (reply.header("retry-after-ms"), reply.header("retry-after")),
                (milliseconds, seconds)
            );
            assert_eq!(reply.json()["error"]["message"], "scripted failure");
            let record = gateway.record_of(&reply).await;
            assert_eq!(attempts(&record), [(Some(429), Some("status"))], "a limit is not run against again");
        }
        assert_eq!(mock.requests().await.len(), 2);
    }
    // Where retries are allowed, they stay a tenth of the traffic beyond a reserve of ten.
    let mock = Mock::start("[[reply]]\nstatus = 500\n");
    let gateway = Gateway::over(&mock, "[retry]\nmax_retries = 5\npause_ms = 1\n");
    for _ in 0..100 {
        assert_eq!(gateway.ask("hi").await.status, 502);
    }
    let calls = mock.requests().await.len();
    assert!((110..=120).contains(&calls), "{calls} calls for 100 requests");
}

#[tokio::test]
async fn fault_F10_upstream_redirect() {
    let other = Wire::saying(completion("from elsewhere")).await;
    let targets = [other.url.clone(), other.url.replace("http:", "https:"), "//evil.example/v1".to_owned()];
    let mut cases = Vec::new();
    for status in ["301", "302", "303", "307", "308"] {
        for (number, target) in targets.iter().enumerate() {
            let answer = format!(
                "HTTP/1.1 {status} Elsewhere\r\nlocation: {target}/chat/completions\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            cases.push((format!("{status}-{number}"), answer.into_bytes()));
        }
    }
    let names: Vec<String> = cases.iter().map(|(name, _)| name.clone()).collect();
    let wire = Wire::models(cases).await;
    let config = format!("{}key_env = \"TEST_UPSTREAM_KEY\"\n", wire.upstream("main"));
    let gateway = Gateway::start(&config, &[("TEST_UPSTREAM_KEY", "sk-secret")]);
    for (number, model) in names.iter().enumerate() {
        let reply =
            gateway.chat(json!({"model": model, "messages": [{"role": "user", "content": "hi"}]})).await;
        assert_eq!(reply.error(), (502, "upstream_invalid_answer".to_owned()), "{model}");
        assert_eq!(wire.calls(), number + 1, "{model}: it is not asked again either");
    }
    assert_eq!(other.calls(), 0, "nobody was sent there, and no key with them");
}

/// A name that moves after the start is tested where names are looked up, in `upstream/address.rs`.
#[tokio::test]
async fn fault_F11_dns_and_rebind() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("waltz.toml");
    let check = |config: &str| {
        std::fs::write(&file, config).unwrap();
        run(&["config", "check", "--config", "waltz.toml"], "", folder.path(), &[])
    };
    for host in ["169.254.169.254", "2852039166", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "[fd00:ec2::254]"] {
        let upstream = format!("[[upstreams]]\nname = \"cloud\"\nurl = \"http://{host}/v1\"\n");
        let (code, out, err) = check(&upstream);
        assert_eq!(code, 2, "{host}: {out}{err}");
        let said = format!("{out}{err}");
        assert!(said.contains("upstreams[0].url") && said.contains("allow_metadata_addresses"), "{said}");
        let (code, out, err) = check(&format!("{upstream}allow_metadata_addresses = true\n"));
        assert_eq!(code, 0, "{host}: {out}{err}");
    }
    // Ordinary names and private addresses are what upstreams are reached by.
    let wire = Wire::saying(completion("found by name")).await;
    let config = wire.upstream("main").replace("127.0.0.1", "localhost");
    assert_eq!(Gateway::start(&config, &[]).ask("hi").await.content(), "found by name");
}

#[tokio::test]
async fn fault_F14_latency_spike_brownout() {
    const SLOTS: usize = 4;
    // Nobody is answered until the spike is over, however long that takes.
    let over = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&over);
    let wire = Wire::start(move |_, mut call| {
        let over = Arc::clone(&over);
        async move {
            over.acquire().await.unwrap().forget();
            call.send(completion("late")).await;
        }
    })
    .await;
    let config = format!("{}max_concurrent = {SLOTS}\n", wire.upstream("main"));
    let gateway = Arc::new(Gateway::start(&config, &[]));
    let waiting: Vec<_> = (0..SLOTS)
        .map(|_| {
            let gateway = Arc::clone(&gateway);
            tokio::spawn(async move { gateway.ask("hi").await })
        })
        .collect();
    while wire.calls() < SLOTS {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        let shed = gateway.ask("hi").await;
        assert_eq!(shed.error(), (503, "overloaded".to_owned()));
        assert!(!shed.header("retry-after-ms").is_empty());
        assert_eq!(attempts(&gateway.record_of(&shed).await), [(None, Some("shed"))]);
    }
    assert_eq!(wire.calls(), SLOTS, "what is shed never reaches the upstream");
    open.add_permits(1000);
    for call in waiting {
        assert_eq!(call.await.unwrap().content(), "late");
    }
    for _ in 0..20 {
        assert_eq!(gateway.ask("hi").await.content(), "late", "it recovers by itself");
    }
}

#[tokio::test]
async fn a_second_upstream_answers_when_the_first_cannot() {
    let broken = Mock::start("[[reply]]\nstatus = 500\n");
    let good = Mock::start("[[reply]]\ntext = \"from the second\"\n");
    let config = format!(
        "{}{}[retry]\nmax_retries = 2\npause_ms = 1\n",
        broken.upstream("first"),
        good.upstream("second")
    );
    let gateway = Gateway::start(&config, &[]);
    let reply = gateway.ask("hi").await;
    assert_eq!(reply.content(), "from the second");
    assert_eq!(broken.requests().await.len(), 3, "one call and two retries");
    let session = gateway.session_of(&reply).await;
    let attempts = session["exchanges"][0]["record"]["attempts"].as_array().unwrap().clone();
    assert_eq!(
        attempts.iter().map(|attempt| attempt["status"].clone()).collect::<Vec<Value>>(),
        [500, 500, 500, 200]
    );
}

#[tokio::test]
async fn errors_of_the_gateways_own_making_and_of_the_clients_are_told_apart() {
    for (status, told, code) in
        [(401, 502, "upstream_auth"), (403, 502, "upstream_auth"), (400, 400, "scripted")]
    {
        let gateway = Gateway::over(&Mock::start(&format!("[[reply]]\nstatus = {status}\n")), "");
        assert_eq!(gateway.ask("hi").await.error(), (told, code.to_owned()));
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_is_recorded_and_frees_the_upstream() {
    let mock = Mock::start("[[reply]]\ntimes = 1\ndelay_ms = 60000\n[[reply]]\ntext = \"ok\"\n");
    let gateway = Gateway::over(&mock, "max_concurrent = 1\n");
    let url = format!("{}/v1/chat/completions", gateway.url);
    let body = json!({"model": "mock", "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let call = crate::harness::client().post(url).header("x-waltz-session-id", "gone").body(body).send();
    let hung_up = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(hung_up.is_err());
    // The slot is free again as soon as the gateway noticed.
    let mut answer = gateway.ask("hi").await;
    for _ in 0..100 {
        if answer.status == 200 {
            break;
        }
        answer = gateway.ask("hi").await;
    }
    assert_eq!(answer.content(), "ok");
    gateway.drain().await;
    let session = gateway.get("/waltz/v1/sessions/gone", &[]).await.json();
    assert_eq!(session["exchanges"][0]["record"]["decision"], "client_gone");
}

#[tokio::test]
async fn a_client_that_reads_nothing_frees_its_slot_and_is_recorded() {
    let text = "A harmless sentence about the old harbour and its many ships. ".repeat(200_000);
    let mock = Mock::start(&format!(
        "[[reply]]\nwhen = {{ contains = \"long\" }}\ntext = \"{text}\"\nchunk_letters = 4000\n[[reply]]\ntext = \"ok\"\n"
    ));
    let gateway = Gateway::over(
        &mock,
        &format!("max_concurrent = 1\n[server]\nclient_timeout_ms = 300\n{WITHOUT_LEVEL_2}"),
    );
    let body =
        json!({"model": "mock", "stream": true, "messages": [{"role": "user", "content": "a long one"}]})
            .to_string();
    let mut slow = std::net::TcpStream::connect(gateway.url.trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-waltz-session-id: slow\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut slow, head.as_bytes()).unwrap();
    let began = std::time::Instant::now();
    loop {
        if gateway.get("/waltz/v1/sessions/slow", &[]).await.text.contains("client_gone") {
            break;
        }
        assert!(began.elapsed().as_secs() < 20, "never given up");
    }
    assert_eq!(gateway.ask("hi").await.content(), "ok");
    drop(slow);
    let stalled = gateway
        .raw(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{");
    assert!(stalled.starts_with("HTTP/1.1 408"), "{stalled}");
}

#[tokio::test]
async fn an_error_as_a_whole_answer_is_the_upstreams_failure() {
    let cases = [
        (json!({"error": {"message": "busy", "type": "server_error"}}), (502, "upstream_unavailable"), true),
        (json!({"error": {"message": "slowly", "code": 429}}), (429, "rate_limit_exceeded"), true),
        (json!({"error": {"message": "no", "code": 400}}), (400, "upstream_rejected"), false),
    ];
    for (body, (status, code), goes_on) in cases {
        let broken = Wire::saying(wire::reply("application/json", body.to_string())).await;
        let good = Wire::saying(completion("All is well.")).await;
        let once = "[retry]\nmax_retries = 0\n";
        let gateway = Gateway::start(&format!("{}{once}", broken.upstream("first")), &[]);
        let reply = gateway.ask("hi").await;
        assert_eq!(reply.error(), (status, code.to_owned()), "{body}: {}", reply.text);
        let tables = format!("{}{}{once}", broken.upstream("first"), good.upstream("second"));
        let reply = Gateway::start(&tables, &[]).ask("hi").await;
        assert_eq!((reply.status == 200, good.calls()), (goes_on, usize::from(goes_on)), "{}", reply.text);
    }
}
