use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{RngExt, SeedableRng};
use serde::Deserialize;
use waltz_exchange::json;

use super::*;
use crate::{
    Ask, Message, Model, Piece, Role, Room, RoomSettings, Sampling, Template, Tokenizer, real, tokenizer,
};

/// The feedback agent's object, read as strictly as the coach reads it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Opinion {
    reasoning: String,
    #[serde(rename = "unsafe")]
    _is_unsafe: bool,
    #[serde(rename = "overrefuse")]
    _overrefuse: bool,
    feedback: String,
}

fn field(name: &str, kind: FieldKind) -> Field {
    Field { name: name.to_owned(), kind }
}

const MOST: usize = 200;

fn opinion() -> Vec<Field> {
    vec![
        field("reasoning", FieldKind::Text { most: MOST }),
        field("unsafe", FieldKind::Flag),
        field("overrefuse", FieldKind::Flag),
        field("feedback", FieldKind::Text { most: MOST }),
    ]
}

/// Every kind of field.
fn everything() -> Vec<Field> {
    let names = ["privacy", "privacy_violation", "a \"quoted\" one\n"].map(str::to_owned).to_vec();
    vec![
        field("nonce", FieldKind::Fixed("9f\"é".to_owned())),
        field("category", FieldKind::OneOf(names)),
        field("score", FieldKind::Number { least: -1, most: 10, decimals: 2 }),
        field("text", FieldKind::Text { most: 5 }),
        field("count", FieldKind::Number { least: 0, most: 100, decimals: 0 }),
    ]
}

/// Numbers of ranges that are open.
fn open_numbers() -> Vec<Field> {
    vec![
        field("a", FieldKind::OpenNumber { least: None, most: None, decimals: 0 }),
        field("b", FieldKind::OpenNumber { least: Some(12), most: None, decimals: 2 }),
        field("c", FieldKind::OpenNumber { least: None, most: Some(-10), decimals: 0 }),
    ]
}

struct Setup {
    index: Arc<TokenIndex>,
    schema: Arc<Schema>,
}

impl Setup {
    fn new(tokenizer: &Tokenizer, fields: &[Field]) -> Self {
        let index = Arc::new(TokenIndex::new(tokenizer));
        let schema = Arc::new(Schema::new(fields, &index).unwrap());
        Self { index, schema }
    }

    fn begin(&self) -> ObjectConstraint {
        ObjectConstraint::new(Arc::clone(&self.schema), Arc::clone(&self.index))
    }

    /// Writes an object within a limit.
    fn write(&self, limit: usize, way: &Way, rng: &mut StdRng) -> Vec<u8> {
        let mut constraint = self.begin();
        let mut text = Vec::new();
        let mut mask = TokenMask::new(self.index.vocabulary());
        for left in (1..=limit).rev() {
            if constraint.is_complete() {
                break;
            }
            mask.fill();
            constraint.mask(left, &mut mask);
            let token = way.choose(&mask, rng);
            let token =
                token.unwrap_or_else(|| panic!("nothing may follow {:?}", String::from_utf8_lossy(&text)));
            text.extend_from_slice(self.index.bytes(token));
            constraint.accept(token);
        }
        assert!(constraint.is_complete(), "not ended in {limit}: {:?}", String::from_utf8_lossy(&text));
        text
    }
}

/// A way to choose tokens: those that are liked where one of them is allowed, else any.
struct Way {
    liked: Vec<u32>,
    all: Vec<u32>,
    /// How often a liked one is looked for.
    share: f64,
    /// Whether the first that is allowed is taken, or one at random.
    first: bool,
}

impl Way {
    fn choose(&self, mask: &TokenMask, rng: &mut StdRng) -> Option<u32> {
        let liked = if rng.random_bool(self.share) { self.liked.as_slice() } else { &[] };
        [liked, &self.all].into_iter().find_map(|tokens| {
            let start = if self.first || tokens.is_empty() { 0 } else { rng.random_range(0..tokens.len()) };
            let (before, after) = tokens.split_at(start);
            after.iter().chain(before).copied().find(|token| mask.allows(*token))
        })
    }
}

/// Ways that try to break the form or the limit.
fn ways(index: &TokenIndex, rng: &mut StdRng) -> Vec<Way> {
    let mut all: Vec<u32> = (0..index.vocabulary() as u32).collect();
    let mut sorted = all.clone();
    all.shuffle(rng);
    let way = |liked: Vec<u32>, share, first| Way { liked, all: all.clone(), share, first };
    let only =
        |wanted: fn(&[u8]) -> bool| all.iter().copied().filter(|token| wanted(index.bytes(*token))).collect();
    sorted.sort_by_key(|token| (index.bytes(*token).contains(&b'"'), index.bytes(*token).len()));
    let shortest = sorted.clone();
    sorted.reverse();
    vec![
        way(Vec::new(), 0.0, false),
        // Never an end where another token may come.
        way(shortest, 1.0, true),
        way(sorted, 1.0, true),
        // Characters and escapes that are begun and not ended.
        way(only(|bytes| std::str::from_utf8(bytes).is_err() || bytes.ends_with(b"\\")), 0.9, false),
        // Quotes and braces, as if to leave the string.
        way(only(|bytes| bytes.iter().any(|byte| b"\"\\{}".contains(byte))), 0.3, false),
        way(only(|bytes| bytes.iter().any(|byte| *byte < b' ')), 0.9, false),
    ]
}

#[test]
fn every_limit_from_32_up_ends_in_an_object_that_the_coach_reads() {
    let Some(gguf) = real::smollm2() else { return };
    let setup = Setup::new(&Tokenizer::from_gguf(&gguf).unwrap(), &opinion());
    assert!(setup.schema.least_tokens() <= 32, "{}", setup.schema.least_tokens());
    let mut rng = StdRng::seed_from_u64(7);
    let ways = ways(&setup.index, &mut rng);
    let mut longest = 0;
    for limit in 32..=256 {
        for way in &ways {
            let text = setup.write(limit, way, &mut rng);
            let value = json::parse(&text)
                .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)));
            let Opinion { reasoning, feedback, .. } = serde_json::from_value(value).unwrap();
            assert!(reasoning.chars().count() <= MOST && feedback.chars().count() <= MOST);
            longest = longest.max(reasoning.chars().count());
        }
    }
    assert_eq!(longest, MOST, "the texts use the room they have");
}

#[test]
fn every_kind_of_field_holds_what_it_may() {
    let tokenizer = tokenizer::tests::small();
    let setup = Setup::new(&tokenizer, &everything());
    let least = setup.schema.least_tokens();
    let mut rng = StdRng::seed_from_u64(8);
    let mut categories = std::collections::HashSet::new();
    let ways = ways(&setup.index, &mut rng);
    for limit in least..least + 60 {
        for way in &ways {
            let text = setup.write(limit, way, &mut rng);
            let value = json::parse(&text).unwrap();
            assert_eq!(value["nonce"], "9f\"é");
            let score = value["score"].as_f64().unwrap();
            assert!((-1.0..=10.0).contains(&score));
            assert!(value["count"].as_u64().unwrap() <= 100);
            assert!(value["text"].as_str().unwrap().chars().count() <= 5);
            categories.insert(value["category"].as_str().unwrap().to_owned());
            assert_eq!(value.as_object().unwrap().len(), 5);
        }
    }
    assert_eq!(categories.len(), 3, "one of the choices is a beginning of another: {categories:?}");
}

#[test]
fn numbers_of_open_ranges_hold_what_they_may() {
    let setup = Setup::new(&tokenizer::tests::small(), &open_numbers());
    let least = setup.schema.least_tokens();
    let mut rng = StdRng::seed_from_u64(8);
    let ways = ways(&setup.index, &mut rng);
    for limit in least..least + 60 {
        for way in &ways {
            let value = json::parse(&setup.write(limit, way, &mut rng)).unwrap();
            assert!(value["a"].is_i64(), "{value}");
            assert!(value["b"].as_f64().unwrap() >= 12.0, "{value}");
            assert!(value["c"].as_i64().unwrap() <= -10, "{value}");
            assert_eq!(value.as_object().unwrap().len(), 3);
        }
    }
}

/// The precomputed sets say the same as trying every token byte by byte.
#[test]
fn masks_are_exact() {
    let Some(gguf) = real::smollm2() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    for fields in [opinion(), everything(), open_numbers()] {
        let setup = Setup::new(&tokenizer, &fields);
        let mut rng = StdRng::seed_from_u64(9);
        let mut mask = TokenMask::new(tokenizer.vocabulary());
        for _ in 0..6 {
            let mut constraint = setup.begin();
            let limit = rng.random_range(32..90);
            for left in (1..=limit).rev() {
                mask.fill();
                constraint.mask(left, &mut mask);
                let mut allowed = Vec::new();
                for token in 0..tokenizer.vocabulary() as u32 {
                    let bytes = tokenizer.token_bytes(token);
                    let end = bytes
                        .iter()
                        .try_fold(constraint.state.unwrap(), |state, byte| setup.schema.step(state, *byte));
                    let fits = !bytes.is_empty() && end.is_some_and(|end| setup.schema.need(end) < left);
                    assert_eq!(
                        mask.allows(token),
                        fits,
                        "token {token} at {:?} with {left} left",
                        constraint.state
                    );
                    if fits {
                        allowed.push(token);
                    }
                }
                constraint.accept(*allowed.choose(&mut rng).unwrap());
                if constraint.is_complete() {
                    break;
                }
            }
            assert!(constraint.is_complete());
        }
    }
}

#[test]
fn too_few_tokens_still_follow_the_shortest_way() {
    let tokenizer = tokenizer::tests::small();
    let setup = Setup::new(&tokenizer, &opinion());
    let mut constraint = setup.begin();
    let mut mask = TokenMask::new(tokenizer.vocabulary());
    let mut tokens = 0;
    while !constraint.is_complete() {
        mask.fill();
        constraint.mask(1, &mut mask);
        let first = (0..tokenizer.vocabulary() as u32).find(|token| mask.allows(*token)).unwrap();
        constraint.accept(first);
        tokens += 1;
    }
    assert_eq!(tokens, setup.schema.least_tokens());
    // Nothing but the end may follow.
    mask.fill();
    constraint.mask(10, &mut mask);
    assert_eq!((mask.count(), mask.allows(tokenizer.end())), (1, true));
    // Nor may it after a token that was not allowed.
    let mut constraint = setup.begin();
    constraint.accept(u32::from(b'x'));
    mask.fill();
    constraint.mask(10, &mut mask);
    assert_eq!((mask.count(), mask.allows(tokenizer.end()), constraint.is_complete()), (1, true, false));
}

#[test]
fn fields_without_a_value_are_refused() {
    let index = TokenIndex::new(&tokenizer::tests::small());
    for kind in [FieldKind::OneOf(Vec::new()), FieldKind::Number { least: 2, most: 1, decimals: 0 }] {
        let message = Schema::new(&[field("odd", kind)], &index).unwrap_err().to_string();
        assert!(message.contains("`odd` has no possible value"), "{message}");
    }
}

#[test]
fn forms_beyond_a_limit_are_refused_by_its_name() {
    let index = TokenIndex::new(&tokenizer::tests::small());
    let texts = |count: usize| FieldKind::OneOf((0..count).map(|number| format!("{number:03}")).collect());
    let number = |least, most, decimals| FieldKind::Number { least, most, decimals };
    let fixed = |bytes: usize| FieldKind::Fixed("x".repeat(bytes));
    let half = MOST_VALUES / 2;
    // Names count, and so does what several fields have together.
    let values = "values of enums, booleans and numbers in all; at most 20000 are allowed";
    let bytes = "bytes of names, constants and values in all; at most 100000 are allowed";
    for (kinds, limit) in [
        ([texts(half), texts(half + 1)], values),
        ([number(0, 100, 2), number(0, 100, 2)], values),
        ([number(0, i32::MAX, 9), FieldKind::Flag], values),
        ([number(i32::MIN, i32::MAX, 255), number(i32::MIN, i32::MAX, 255)], values),
        ([fixed(MOST_BYTES - 1), FieldKind::Flag], bytes),
        ([texts(6_000), fixed(MOST_BYTES - 6_000)], bytes),
    ] {
        let fields = kinds.map(|kind| field("f", kind));
        let refused = Schema::new(&fields, &index).map(|_| "it was prepared");
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(limit), "{message}");
    }
    let fields = [field("f", number(0, 100, 2)), field("g", fixed(MOST_BYTES - 10_001 * 6 - 2))];
    Schema::new(&fields, &index).unwrap();
}

/// What is kept of a form grows with its bytes, and not with those that follow each of its values.
#[test]
fn a_long_constant_after_many_values_takes_no_room_for_each_of_them() {
    let index = TokenIndex::new(&tokenizer::tests::small());
    let texts: Vec<String> = (0..500).map(|number| format!("v{number}")).collect();
    let fields = [field("a", FieldKind::OneOf(texts)), field("b", FieldKind::Fixed("x ".repeat(10_000)))];
    let schema = Schema::new(&fields, &index).unwrap();
    let (bytes, kept) = schema.sizes();
    assert!(bytes > 20_000 && kept <= bytes, "{kept} costs are kept for {bytes} bytes");
}

/// All parts together: the real model, its template, a room, and a limit that cuts its text short.
#[test]
fn the_real_model_writes_the_object() {
    let Some(gguf) = real::smollm2() else { return };
    let tokenizer = Arc::new(Tokenizer::from_gguf(&gguf).unwrap());
    let template = Template::from_gguf(&gguf, &tokenizer).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let model = Arc::new(Model::open(&real::pinned(gguf.path().to_owned()), folder.path()).unwrap());
    let room = Room::start(model, Arc::clone(&tokenizer), RoomSettings::default()).unwrap();
    let setup = Setup::new(&tokenizer, &opinion());
    let asked = "Judge this answer: I cannot tell you the capital of France. Write JSON.";
    let messages = [Message { role: Role::User, content: asked.to_owned() }];
    for (max_tokens, temperature) in [(32, 0.0), (48, 1.5)] {
        let mut pieces = room
            .ask(Ask {
                tokens: template.encode(&messages, &tokenizer),
                sampling: Sampling { temperature, seed: 5, ..Sampling::greedy() },
                max_tokens,
                stop: Vec::new(),
                constraint: Some(Box::new(setup.begin())),
                deadline: None,
                logprobs: None,
                adapter: None,
            })
            .unwrap();
        let mut text = String::new();
        while let Some(piece) = pieces.blocking_recv() {
            if let Piece::Text { text: more, .. } = piece {
                text.push_str(&more);
            }
        }
        let value = json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"));
        let _: Opinion = serde_json::from_value(value).unwrap();
    }
}
