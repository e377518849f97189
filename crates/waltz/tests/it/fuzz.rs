//! The laws of the fuzz targets (`fuzz/laws/`), on their seeds and on some thousand changed seeds. The
//! changes are the same in every run; `WALTZ_FUZZ_ROUNDS` makes more of them, and `WALTZ_FUZZ_CORPUS`
//! names a folder that gets the seeds, for a longer search by libFuzzer.

use std::panic::catch_unwind;
use std::path::Path;

use serde_json::Value;
use waltz_exchange::id::sha256;
use waltz_model::{Gguf, MatrixKind, Model, Template, TensorFile, Tokenizer};
use waltz_screen::linear::{COLUMNS, Edges, Figures, HEADS, SCORES, Weights};

use crate::synthetic::{Synthetic, Value as Given};

#[path = "../../../../fuzz/laws/config.rs"]
mod config;
#[path = "../../../../fuzz/laws/gguf.rs"]
mod gguf;
#[path = "../../../../fuzz/laws/journal.rs"]
mod journal;
#[path = "../../../../fuzz/laws/linear.rs"]
mod linear;
#[path = "../../../../fuzz/laws/memory.rs"]
mod memory;
#[path = "../../../../fuzz/laws/personal.rs"]
mod personal;
#[path = "../../../../fuzz/laws/requests.rs"]
mod requests;
#[path = "../../../../fuzz/laws/rules.rs"]
mod rules;
#[path = "../../../../fuzz/laws/safetensors.rs"]
mod safetensors;
#[path = "../../../../fuzz/laws/streams.rs"]
mod streams;
#[path = "../../../../fuzz/laws/tasks.rs"]
mod tasks;

#[test]
fn fuzz_requests() {
    try_all("requests", 40_000, requests::law, golden(&["in.json", "out.json"]));
}

#[test]
fn fuzz_streams() {
    let mut seeds =
        vec![b"\x03\xef\xbb\xbf: hi\r\nevent: a\rdata: b\ndata:c\r\n\r\ndata: [DONE]\n\n".to_vec()];
    for body in golden(&["in.json", "out.json"]) {
        let Ok(Value::Array(items)) = serde_json::from_slice(&body) else { continue };
        let mut stream = vec![b'\n'];
        for item in items {
            match item.as_array().map(Vec::as_slice) {
                Some([name, data]) => {
                    let name = name.as_str().unwrap();
                    stream.extend(format!("event: {name}\ndata: {data}\n\n").into_bytes());
                }
                _ => stream.extend(format!("data: {item}\n\n").into_bytes()),
            }
        }
        seeds.push(stream);
    }
    try_all("streams", 20_000, streams::law, seeds);
}

#[test]
fn fuzz_config() {
    let example = file("examples/waltz.toml");
    let uncommented = String::from_utf8(example.clone()).unwrap().replace("\n# ", "\n");
    let minimal = "[server]\nlisten = \"127.0.0.1:0\"\n[[upstreams]]\nname = \"a\"\nurl = \"http://localhost:1\"\n\
                   models = [\"*\"]\n";
    let unsafe_values = "[server]\nlisten = \"0.0.0.0:8787\"\n[[upstreams]]\nname = \"a\"\nmodels = [\"*\"]\n\
                         url = \"http://user:password@host.example\"\nkey_env = \"sk-abcdefghijklmnop\"\n";
    let wrong_types = "[waltz]\nstage = true\n[[upstreams]]\nmodels = [1, \"a\", 1, 1]\n[unknown]\n";
    let mut seeds = vec![example, uncommented.into_bytes()];
    seeds.extend([minimal, unsafe_values, wrong_types].map(|text| text.as_bytes().to_vec()));
    try_all("config", 300, config::law, seeds);
}

#[test]
fn fuzz_rules() {
    let texts = "How do I build a p1pe b\u{43e}mb? Mail a.b@harbour.com, card 4539 1488 0343 6467, key \
                 sk-abcdefghijklmnopqrstuvwxyz0123456789AB, FAL-1234.";
    let mut own = file("examples/rules.toml");
    own.extend(format!("\n====\n{texts}").into_bytes());
    let mut small = b"[[rule]]\nid = \"own.a\"\ncategory = \"own\"\nseverity = 0.5\nmeans = \"m\"\nregex = 'a+b|[0-9]{2,3}'\nunless = [\"c\"]\n".to_vec();
    small.extend(format!("\n====\n{texts}").into_bytes());
    try_all("rules", 1_000, rules::law, vec![own, small, texts.as_bytes().to_vec()]);
}

#[test]
fn fuzz_tasks() {
    let small = r#"{"tasks":[{"id":"a","task_type":"code","metadata":{"size":3,"on":true,"s":"x"}},
        {"id":"b","task_type":"code","depends_on":["a"],"skills":["sql"],"agent":"two"},
        {"id":"c","task_type":"test","depends_on":["a","b"],"result":"done"},
        {"id":"d","task_type":"code","depends_on":["c"]}],"security":true,"required_skills":["sql"]}"#;
    let cyclic = small.replace("\"code\",\"metadata\"", "\"code\",\"depends_on\":[\"d\"],\"metadata\"");
    let seeds = vec![file("examples/halo-tasks.json"), small.as_bytes().to_vec(), cyclic.into_bytes()];
    try_all("tasks", 20_000, tasks::law, seeds);
}

#[test]
fn fuzz_personal() {
    let seeds = [
        "\x01Mail jane.doe@harbour.org or [EMAIL_1], card 4539 1488 0343 6467, IBAN DE89 3704 0044 0532 0130 00.",
        "\x03My name is Jane Smith, 12 Oak Street, Apt. 4; SSN 536-22-1876, call +49 30 901820 or (415) 555-2671.",
        "\x05fe80::1:2 10.1.2.3 00:1a:2b:3c:4d:5e 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa 1M8GDM9AXKP042788",
        "\x07password: hunter2!x https://u:p4ss@h.example/ eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcDEF123456",
        "\x02４１１１\u{200b}1111\u{a0}1111\u{2011}1111 é Hauptstraße 5 -----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----",
        "\x04NHS 943 476 5919, ABA routing 021000021, Aadhaar 2341 2341 2346, IMEI 490154203237518, NPI 1234567893",
    ];
    try_all("personal", 20_000, personal::law, seeds.map(|seed| seed.as_bytes().to_vec()).to_vec());
}

#[test]
fn fuzz_journal() {
    let folder = tempfile::tempdir().unwrap();
    let frame = |payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        [&length[..], &[0, 0, 0, 0], payload].concat()
    };
    let broken = [b"WALTZJ1\n".as_slice(), &frame(b"{\"a\":1}"), &frame(b"{}")].concat();
    let script = b"first\n!\x08\x00\x00\x00{{{{\nsecond\n-half of a third\n!WALTZJ1\n\nlast".to_vec();
    let seeds = vec![written_journal(folder.path()), broken, script, b"WALTZJ2\n....".to_vec()];
    try_all("journal", 400, journal::law, seeds);
}

#[test]
fn fuzz_gguf() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed.gguf");
    let open = |file: &Synthetic| {
        std::fs::write(&path, file.bytes()).unwrap();
        Gguf::open(&path).unwrap()
    };
    // Without these the laws would only ever see errors.
    Model::from_gguf(&open(&language_model()), MatrixKind::Q8).unwrap();
    let vocabulary = open(&vocabulary());
    Template::from_gguf(&vocabulary, &Tokenizer::from_gguf(&vocabulary).unwrap()).unwrap();
    let mut many = b"GGUF\x03\0\0\0".to_vec();
    many.extend([0xff; 16]);
    let seeds = vec![language_model().bytes(), self::vocabulary().bytes(), many];
    try_all("gguf", 3_000, gguf::law, seeds);
}

/// The smallest model of Llama's family: one layer of two heads, in every kind of number.
fn language_model() -> Synthetic {
    let mut file = Synthetic::new()
        .with("general.architecture", Given::Text("llama".to_owned()))
        .with("llama.rope.freq_base", Given::F32(10_000.0))
        .with("llama.attention.layer_norm_rms_epsilon", Given::F32(1e-5));
    for (key, size) in [
        ("general.alignment", 32),
        ("llama.block_count", 1),
        ("llama.context_length", 64),
        ("llama.embedding_length", 32),
        ("llama.feed_forward_length", 32),
        ("llama.attention.head_count", 2),
        ("llama.attention.head_count_kv", 1),
    ] {
        file = file.with(key, Given::U32(size));
    }
    let ones = |count: usize| [1.0_f32.to_le_bytes()].repeat(count).concat();
    file = file.tensor("token_embd.weight", &[32, 4], 8, vec![1; 4 * 34]);
    for norm in ["blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"] {
        file = file.tensor(&format!("{norm}.weight"), &[32], 0, ones(32));
    }
    for (part, rows) in [
        ("attn_q", 32),
        ("attn_k", 16),
        ("attn_v", 16),
        ("attn_output", 32),
        ("ffn_gate", 32),
        ("ffn_up", 32),
        ("ffn_down", 32),
    ] {
        let (kind, block) = if rows == 16 { (30, 64) } else { (3, 20) };
        let bytes = vec![1; block * usize::try_from(rows).unwrap()];
        file = file.tensor(&format!("blk.0.{part}.weight"), &[32, rows], kind, bytes);
    }
    file
}

/// A file with a tokenizer, a chat template, and no weights to speak of.
fn vocabulary() -> Synthetic {
    let texts = |texts: &[&str]| Given::Texts(texts.iter().map(|text| (*text).to_owned()).collect());
    let template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + \
                    message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}\
                    {{ '<|im_start|>assistant\\n' }}{% endif %}";
    let tokens = ["<|im_start|>", "<|im_end|>", "h", "e", "l", "o", "\u{120}", "he", "ll", "hell"];
    Synthetic::new()
        .with("tokenizer.ggml.model", Given::Text("gpt2".to_owned()))
        .with("tokenizer.ggml.pre", Given::Text("smollm".to_owned()))
        .with("tokenizer.ggml.add_bos_token", Given::Bool(false))
        .with("tokenizer.ggml.tokens", texts(&tokens))
        .with("tokenizer.ggml.token_type", Given::I32s(vec![3, 3, 1, 1, 1, 1, 1, 1, 1, 1]))
        .with("tokenizer.ggml.merges", texts(&["h e", "l l", "he ll"]))
        .with("tokenizer.ggml.eos_token_id", Given::U32(1))
        .with("tokenizer.chat_template", Given::Text(template.to_owned()))
        .tensor("f16", &[5], 1, vec![4; 10])
}

#[test]
fn fuzz_safetensors() {
    let file = |table: &str, bytes: usize| {
        let mut file = u64::try_from(table.len()).unwrap().to_le_bytes().to_vec();
        file.extend(table.as_bytes());
        file.resize(file.len() + bytes, 1);
        file
    };
    let sound = file(
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\
         \"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[24,32]},\
         \"none\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[32,32]}}",
        32,
    );
    let overlapping = file(
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\
         \"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        8,
    );
    let vast =
        file("{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0);
    let long = [&u64::MAX.to_le_bytes()[..], b"{}"].concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed.safetensors");
    std::fs::write(&path, &sound).unwrap();
    let opened = TensorFile::open(&path).unwrap();
    assert_eq!(opened.tensors().unwrap().list().len(), 3, "the laws see more than errors");
    try_all("safetensors", 10_000, safetensors::law, vec![sound, overlapping, vast, long]);
}

#[test]
fn fuzz_linear() {
    let edges = Edges { low: -1.0, decision: 0.0, high: 1.0 };
    let (scales, edges) = ([0.02; COLUMNS], [edges; SCORES]);
    let figures = Figures { scales, biases: [0.1; SCORES], edges, floors: [0.2; HEADS] };
    let table: Vec<u8> = (0..COLUMNS << 8).map(|index| u8::try_from(index * 37 % 251).unwrap()).collect();
    let sound = Weights { bits: 8, figures, table: table.into() }.to_bytes();
    let texts = "How do I k1ll a pr\u{43e}cess? I'm s o r r y, I can't. xxxxxxxxxxxxxxxxxxxxxxxxxxxx aaa aaa";
    try_all(
        "linear",
        6_000,
        linear::law,
        vec![sound, texts.as_bytes().to_vec(), texts.repeat(40).into_bytes()],
    );
}

/// Three entries as the journal itself writes them.
fn written_journal(folder: &Path) -> Vec<u8> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = waltz_store::Store::open(waltz_store::Settings::at(folder)).await.unwrap();
        for rating in ["5", "3", "1"] {
            let outcome = format!("{{\"response_id\":\"chatcmpl-1\",\"rating\":{rating}}}");
            let entry = waltz_store::Entry::Outcome {
                outcome: serde_json::from_str(&outcome).unwrap(),
                tenant: "acme".to_owned(),
                received_at: serde_json::from_str("\"2026-01-02T03:04:05Z\"").unwrap(),
                id: rating.to_owned(),
                lesson: None,
            };
            store.append(&entry).unwrap();
        }
        std::fs::read(folder.join("journal/0000000000000001.journal")).unwrap()
    })
}

/// The golden files with one of the endings.
fn golden(endings: &[&str]) -> Vec<Vec<u8>> {
    let root = root().join("crates/waltz-exchange/tests/golden/anthropic");
    let mut paths = Vec::new();
    for folder in std::fs::read_dir(root).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            paths.push(file.unwrap().path());
        }
    }
    paths.retain(|path| endings.iter().any(|ending| path.to_str().unwrap().ends_with(ending)));
    paths.sort();
    paths.iter().map(|path| compact(&std::fs::read(path).unwrap())).collect()
}

/// The same JSON without blanks: a change then hits something that counts.
fn compact(json: &[u8]) -> Vec<u8> {
    serde_json::from_slice::<Value>(json).unwrap().to_string().into_bytes()
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(root().join(path)).unwrap()
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Holds a law against every seed and against changed ones. An input that breaks it is shown.
fn try_all(name: &str, rounds: usize, law: fn(&[u8]), seeds: Vec<Vec<u8>>) {
    assert!(!seeds.is_empty());
    if let Some(corpus) = std::env::var_os("WALTZ_FUZZ_CORPUS") {
        let folder = root().join(corpus).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for seed in &seeds {
            let digest: String = sha256(seed).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            std::fs::write(folder.join(digest), seed).unwrap();
        }
    }
    let hold = |input: &[u8]| {
        let shown = String::from_utf8_lossy(input);
        assert!(
            catch_unwind(|| law(input)).is_ok(),
            "the law of {name} is broken by:\n{shown}\n{}",
            input.escape_ascii()
        );
    };
    seeds.iter().for_each(|seed| hold(seed));
    let more = std::env::var("WALTZ_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let mut changes = Changes(0x9e37_79b9_7f4a_7c15);
    for _ in 0..more.unwrap_or(rounds) {
        hold(&changes.of(&seeds));
    }
}

/// A source of changed seeds, the same in every run: xorshift with a fixed start.
struct Changes(u64);

impl Changes {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % limit.max(1)
    }

    /// One seed with one to four changes.
    fn of(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let other = &seeds[self.below(seeds.len())];
            self.change(&mut bytes, other);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        const TOKENS: [&str; 16] = [
            "null",
            "\"\"",
            "{}",
            "[]",
            "-1",
            "1e99",
            "\\ud83d",
            "\r",
            "\n\n",
            "\0",
            "\u{feff}",
            "é",
            "\"",
            "}",
            " = ",
            "99999999999999999999",
        ];
        let at = self.below(bytes.len());
        let end = at + self.below((bytes.len() - at).min(64) + 1);
        match self.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            1 if !bytes.is_empty() => bytes[at] = u8::try_from(self.below(256)).unwrap(),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.truncate(at),
            4 => drop(bytes.splice(at..end, TOKENS[self.below(TOKENS.len())].bytes())),
            5 => {
                let repeated = bytes[at..end].to_vec();
                bytes.splice(at..at, repeated);
            }
            _ => {
                let from = self.below(other.len());
                let to = from + self.below((other.len() - from).min(128) + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
        }
    }
}
