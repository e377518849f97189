//! A very small model of random weights that speaks in bytes, and adapters that teach it to say one thing.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use waltz_model::train::{Cpu, Example, Keep, Lora, Network, Objective, Optimiser, Trainer, Trains, pack};
use waltz_model::{Agent, Gguf, LoraConfig, Message, Role, Template, Threads, Tokenizer};

use crate::harness::run;
use crate::synthetic::{Sizes, Synthetic, Value as Given};

/// The name that it is pulled by.
pub const NAME: &str = "hf:test/tiny";
/// What the chats of the tests begin with.
pub const SYSTEM: &str = "Talk.";

/// A models folder with the model in it.
pub struct Tiny {
    pub folder: TempDir,
}

impl Tiny {
    /// A sound model.
    pub fn new() -> Self {
        Self::with(&sized(SIZES))
    }

    /// Any model file, pulled as people do it.
    pub fn with(file: &Synthetic) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tiny.gguf"), file.bytes()).unwrap();
        let models = folder.path().display().to_string();
        let pull = ["model", "pull", NAME, "--from", "tiny.gguf"];
        let (code, _, told) = run(&pull, "", folder.path(), &[("WALTZ_MODELS", &models)]);
        assert_eq!(code, 0, "{told}");
        Self { folder }
    }

    /// The models folder.
    pub fn models(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn gguf(&self) -> Gguf {
        Gguf::open(&self.folder.path().join("tiny.gguf")).unwrap()
    }

    /// Writes an adapter that answers `question` with `reply`, and returns where it is.
    pub fn teach(&self, folder: &Path, name: &str, question: &str, reply: &str) -> PathBuf {
        self.teach_agent(folder, name, question, reply, Agent::Conversation)
    }

    /// The same for any agent.
    pub fn teach_agent(
        &self,
        folder: &Path,
        name: &str,
        question: &str,
        reply: &str,
        agent: Agent,
    ) -> PathBuf {
        let path = folder.join(name);
        self.teach_words(&path, question, (reply, true), agent);
        path
    }

    /// Writes an adapter that begins to answer `question` with `words` and was not taught to end.
    pub fn teach_to_talk(&self, path: &Path, question: &str, words: &str) {
        self.teach_words(path, question, (words, false), Agent::Conversation);
    }

    fn teach_words(&self, path: &Path, question: &str, (words, ends): (&str, bool), agent: Agent) {
        let gguf = self.gguf();
        let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
        let template = Template::from_gguf(&gguf, &tokenizer).unwrap();
        let message = |role, content: &str| Message { role, content: content.to_owned() };
        let prompt = [message(Role::System, SYSTEM), message(Role::User, question)];
        let prompt = template.encode(&prompt, &tokenizer);
        let mut answer = tokenizer.encode(words);
        answer.extend(ends.then(|| tokenizer.end()));
        let batches = pack(&[Example::answer(&prompt, &answer)], 10_000).unwrap();
        let mut network = Network::from_gguf(Cpu::<f32>::new(Threads::new(2)), &gguf, Trains::No).unwrap();
        let lora = Lora::new(network.device(), network.shape(), LoraConfig::default(), 1).unwrap();
        let optimiser = Optimiser { rate: 1e-2, steps: 200, ..Optimiser::default() };
        let mut trainer = Trainer::new(Some(lora), None, optimiser, Keep::Most).unwrap();
        let mut loss = f64::MAX;
        while loss > 0.02 {
            assert!(trainer.steps() < 400, "it cannot learn to say {words:?}: the loss is {loss}");
            loss = trainer.step(&mut network, &batches, Objective::Likelihood).unwrap().loss;
        }
        let file = trainer.adapter(&network, "one chat", 1).unwrap();
        file.for_agent(agent, network.shape()).write(path, network.shape()).unwrap();
    }
}

/// An upstream table with this model, and adapters as TOML.
pub fn upstream(adapters: &str) -> String {
    format!(
        "[[upstreams]]\nname = \"local\"\nurl = \"local:{NAME}\"\nmodels = [\"tiny\"]\nadapters = {{ {adapters} }}\n"
    )
}

/// A request without chance.
pub fn chat(question: &str, max_tokens: u32) -> Value {
    json!({"model": "tiny", "temperature": 0, "max_tokens": max_tokens, "messages": [
        {"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]})
}

/// Its sizes.
pub const SIZES: Sizes = Sizes { layers: 2, width: 64, hidden: 96, vocabulary: 258, context: 2_048 };

/// The content of a sound model file of any size.
pub fn sized(sizes: Sizes) -> Synthetic {
    vocabulary(|_| ()).language_model(sizes)
}

/// The content of a sound model file, after a change of its tokens.
pub fn file(change: impl FnOnce(&mut Vec<String>)) -> Synthetic {
    vocabulary(change).language_model(SIZES)
}

/// A tokenizer and a chat template.
fn vocabulary(change: impl FnOnce(&mut Vec<String>)) -> Synthetic {
    let mut tokens = letters();
    tokens.extend(["<|im_start|>", "<|im_end|>"].map(str::to_owned));
    let mut kinds = vec![1; 256];
    kinds.extend([3, 3]);
    change(&mut tokens);
    let template = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + \
                    message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}\
                    {{ '<|im_start|>assistant\\n' }}{% endif %}";
    Synthetic::new()
        .with("tokenizer.ggml.model", Given::Text("gpt2".to_owned()))
        .with("tokenizer.ggml.pre", Given::Text("smollm".to_owned()))
        .with("tokenizer.ggml.tokens", Given::Texts(tokens))
        .with("tokenizer.ggml.token_type", Given::I32s(kinds))
        .with("tokenizer.ggml.merges", Given::Texts(Vec::new()))
        .with("tokenizer.ggml.eos_token_id", Given::U32(257))
        .with("tokenizer.chat_template", Given::Text(template.to_owned()))
}

/// Letters of all bytes, as GPT-2 writes them: those that cannot be printed are moved behind the first 256.
fn letters() -> Vec<String> {
    let mut moved = 256;
    let letter = |byte: u32| {
        let printed = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if printed { byte } else { moved };
        moved += u32::from(!printed);
        char::from_u32(code).unwrap().to_string()
    };
    (0..256).map(letter).collect()
}
