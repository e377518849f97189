//! Models in this process as upstreams. They take requests in OpenAI's form and answer in it, JSON or events, so
//! that streams, coaching, time-outs and records treat them like any other upstream.
//!
//! A model is loaded when it is first asked, or by [`LocalModel::warm`]; who asks meanwhile waits for it. One that
//! could not be loaded or broke down is tried again, after a pause.

mod ask;
mod classify;
mod embed;
mod examine;
mod form;
mod speak;

use std::error::Error as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::Instant;
use waltz_exchange::{Embedding, json as strict_json};
use waltz_model::{
    Adapter, Agent, AgentAdapters, Gguf, MatrixKind, MiniLm, Model, ModelName, Models, PinnedFile, Refusal,
    Room, RoomSettings, Shape, Template, Threads, TokenIndex, Tokenizer,
};

use crate::upstream::{Call, Pieces};

pub(crate) use classify::Classifier;
pub use examine::Examiner;

/// Loading reads, and the first time writes, all of a model: a cause that stays must not keep the machine busy.
const PAUSE: Duration = Duration::from_secs(10);

/// Letters of a text that an encoder is given: far more than the tokens that it reads.
const MOST_READ: usize = 8_192;

/// A model of the models folder.
#[derive(Debug)]
pub struct LocalModel {
    name: String,
    /// Name and beginning of the hash of the weights: what it makes of a text hangs on no other.
    identity: String,
    files: Files,
    last: Arc<Mutex<Option<Try>>>,
    /// How long after a try the next one may begin.
    pause: Duration,
}

/// An attempt to load a model: when it ended, and how.
type Try = (Instant, Result<Loaded, String>);

#[derive(Clone, Debug, PartialEq)]
enum Files {
    Language { gguf: PinnedFile, folder: PathBuf },
    Embeddings { weights: PinnedFile, vocabulary: PinnedFile },
}

#[derive(Clone, Debug)]
enum Loaded {
    Language(Arc<Language>),
    Embeddings(Arc<Embeddings>),
}

/// A language model that is ready.
#[derive(Debug)]
struct Language {
    room: Room,
    tokenizer: Arc<Tokenizer>,
    template: Template,
    /// Made when the first answer must keep to a form.
    index: OnceLock<Arc<TokenIndex>>,
    seats: Arc<Semaphore>,
    shape: Shape,
    /// SHA-256 of the model's file.
    base: String,
}

/// A model for embeddings that is ready.
#[derive(Debug)]
struct Embeddings {
    model: MiniLm,
    threads: Threads,
    seats: Arc<Semaphore>,
}

/// The head of an answer, and its body as it is written.
pub(crate) type Response = http::Response<Pieces>;

/// Why a model gives no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    /// The request cannot be answered by this model, and why.
    #[error("{0}")]
    Invalid(String),
    /// Too much waits already.
    #[error("it is busy")]
    Busy,
    /// The model is broken, and how.
    #[error("{0}")]
    Broken(String),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Busy { .. } => Self::Busy,
            Refusal::Stopped | Refusal::Deadline | Refusal::NotFinite => Self::Broken(refusal.to_string()),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl LocalModel {
    /// Finds a model that was pulled. Nothing is read yet but sizes.
    pub fn find(models: &Models, name: &ModelName) -> Result<Self, waltz_model::Error> {
        let stored = models.stored(name)?;
        let weights = |ending: &str| stored.files.iter().find(|file| file.name.ends_with(ending));
        let hash = weights(".gguf").or(weights(".safetensors")).map_or("", |file| &file.sha256);
        let identity = format!("{}-{}", stored.name, hash.get(..12).unwrap_or(hash));
        let files = if weights(".gguf").is_some() {
            let gguf = models.file(name, ".gguf")?;
            Files::Language { gguf, folder: models.folder().join(name.folder()) }
        } else {
            let vocabulary = models.file(name, ".txt")?;
            Files::Embeddings { weights: models.file(name, ".safetensors")?, vocabulary }
        };
        Ok(Self { name: stored.name, identity, files, last: Arc::default(), pause: PAUSE })
    }

    /// Name and beginning of the hash of the weights.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Loads the model if it is not there.
    pub async fn warm(&self) -> Result<(), String> {
        self.ready().await.map(|_| ())
    }

    /// Whether it is made for embeddings and cannot chat.
    pub fn is_encoder(&self) -> bool {
        matches!(self.files, Files::Embeddings { .. })
    }

    /// What a text means to it; of a long text, what its beginning means. Only an encoder knows.
    pub async fn embedding(&self, text: &str) -> Result<Embedding, String> {
        let Loaded::Embeddings(embeddings) = self.ready().await? else {
            return Err(format!("`{}` is no encoder", self.name));
        };
        let beginning = text.chars().take(MOST_READ).collect();
        let embedded = embed::embed_all(&embeddings, vec![beginning], None).await;
        let (vectors, _) = embedded.map_err(|trouble| trouble.to_string())?;
        let vector = vectors.into_iter().next().unwrap_or_default();
        Ok(Embedding { model: self.identity.clone(), vector })
    }

    /// Whether it can go on in the place of another: it is the same model of the same files, and loading it did not
    /// fail, which may go better the next time.
    pub fn stands_for(&self, other: &Self) -> bool {
        let has_failed = self.last.try_lock().is_ok_and(|last| matches!(&*last, Some((_, Err(_)))));
        !has_failed && (&self.identity, &self.files) == (&other.identity, &other.files)
    }

    /// Opens trained adapters for its agents. The weights need not be loaded for it, but the model's file is read as
    /// a whole: call it on a thread that may wait.
    pub fn adapters(
        &self,
        conversation: Option<&Path>,
        feedback: Option<&Path>,
    ) -> Result<AgentAdapters, waltz_model::Error> {
        let gguf = match &self.files {
            Files::Language { gguf, .. } => Gguf::open(&gguf.path)?,
            Files::Embeddings { weights, .. } => {
                let reason = "it makes embeddings, and adapters are for models that write".to_owned();
                return Err(waltz_model::Error::Malformed { path: weights.path.clone(), reason });
            }
        };
        let (shape, base) = (Shape::from_gguf(&gguf)?, gguf.sha256());
        let open = |agent: Agent, path: Option<&Path>| {
            let open = |path| Adapter::open_for(agent, path, &shape, &base).map(Arc::new);
            path.map(open).transpose()
        };
        Ok(AgentAdapters {
            conversation: open(Agent::Conversation, conversation)?,
            feedback: open(Agent::Feedback, feedback)?,
        })
    }

    /// Answers a request as the agent that is called, with its adapter. The answer's head is returned at once, its
    /// body follows as it is written.
    pub(crate) async fn answer(
        &self,
        call: Call,
        adapters: &AgentAdapters,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<Response, Trouble> {
        let body = strict_json::parse_object(body)
            .map_err(|error| Trouble::Invalid(format!("the request is not valid JSON: {error}")))?;
        match (self.ready().await.map_err(Trouble::Broken)?, call) {
            (Loaded::Language(language), Call::Chat) => {
                speak::speak(&language, &self.name, adapters.conversation.clone(), body, deadline).await
            }
            (Loaded::Language(language), Call::Feedback) => {
                speak::speak(&language, &self.name, adapters.feedback.clone(), body, deadline).await
            }
            (Loaded::Language(language), Call::Embeddings) => {
                embed::by_language(&language, &self.name, &body, deadline).await
            }
            (Loaded::Embeddings(model), Call::Embeddings) => {
                embed::by_model(&model, &self.name, &body, deadline).await
            }
            (_, Call::CountTokens) => Err(Trouble::Invalid(format!("`{}` counts no tokens", self.name))),
            (Loaded::Embeddings(_), Call::Chat | Call::Feedback) => {
                Err(Trouble::Invalid(format!("`{}` makes embeddings and cannot chat", self.name)))
            }
        }
    }

    /// The model, loaded. Whoever waits for it may give up; loading goes on for the next one.
    async fn ready(&self) -> Result<Loaded, String> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        match &*last {
            Some((_, Ok(loaded))) if loaded.is_open() => return Ok(loaded.clone()),
            Some((ended, outcome)) if ended.elapsed() < self.pause => {
                return Err(outcome.as_ref().err().map_or("it broke down", |reason| reason).to_owned());
            }
            _ => {}
        }
        let files = self.files.clone();
        let loading = tokio::spawn(async move {
            let loaded = tokio::task::spawn_blocking(move || load(&files)).await;
            let outcome = loaded.unwrap_or_else(|_| Err("loading it failed".to_owned()));
            *last = Some((Instant::now(), outcome.clone()));
            outcome
        });
        loading.await.unwrap_or_else(|_| Err("loading it was given up".to_owned()))
    }
}

fn load(files: &Files) -> Result<Loaded, String> {
    // With what the system said, such as that the disk is full: the error's own text names the file alone.
    let told = |error: waltz_model::Error| match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    };
    match files {
        Files::Language { gguf, folder } => {
            let model = Arc::new(Model::open(gguf, folder).map_err(told)?);
            let file = Gguf::open(&gguf.path).map_err(told)?;
            let tokenizer = Arc::new(Tokenizer::from_gguf(&file).map_err(told)?);
            let template = Template::from_gguf(&file, &tokenizer).map_err(told)?;
            let (shape, base) = (*model.shape(), model.base().to_owned());
            let room = Room::start(model, Arc::clone(&tokenizer), RoomSettings::default()).map_err(told)?;
            let (index, seats) = (OnceLock::new(), seats());
            let language = Language { room, tokenizer, template, index, seats, shape, base };
            Ok(Loaded::Language(Arc::new(language)))
        }
        Files::Embeddings { weights, vocabulary } => {
            let model = MiniLm::open(weights, vocabulary, MatrixKind::Q8).map_err(told)?;
            let threads = Threads::for_this_machine();
            Ok(Loaded::Embeddings(Arc::new(Embeddings { model, threads, seats: seats() })))
        }
    }
}

impl Loaded {
    /// Whether it answers still: the thread of a language model ends with a panic.
    fn is_open(&self) -> bool {
        match self {
            Self::Language(language) => language.room.is_open(),
            Self::Embeddings(_) => true,
        }
    }
}

impl Language {
    fn index(&self) -> &Arc<TokenIndex> {
        self.index.get_or_init(|| Arc::new(TokenIndex::new(&self.tokenizer)))
    }
}

impl Trouble {
    /// The error body that an upstream would send.
    pub(crate) fn body(message: &str) -> Bytes {
        let error = json!({"message": message, "type": "invalid_request_error", "param": null, "code": null});
        Bytes::from(json!({ "error": error }).to_string())
    }
}

/// How much of a model's work goes on apart: as many requests as a room takes on.
fn seats() -> Arc<Semaphore> {
    let RoomSettings { running, queue, .. } = RoomSettings::default();
    Arc::new(Semaphore::new(running + queue))
}

/// Does work that takes a while where it holds up nobody. Whoever gives up waiting for it does not end it, so that it
/// keeps its seat until it ends.
async fn apart<T: Send + 'static>(
    seats: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Trouble> {
    let seat = Arc::clone(seats).try_acquire_owned().map_err(|_| Trouble::Busy)?;
    let worked = tokio::task::spawn_blocking(move || {
        let _seat = seat;
        work()
    });
    worked.await.unwrap_or_else(|_| Err(Trouble::Broken("it broke down".to_owned())))
}

/// A head for a body that arrives now or later.
fn response(media_type: &'static str, body: mpsc::Receiver<io::Result<Bytes>>) -> Response {
    let mut response = Response::new(Pieces::Local(body));
    let value = http::HeaderValue::from_static(media_type);
    response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    response
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use waltz_model::{Ask, Constraint, Sampling, TokenMask};

    use super::*;

    /// An encoder with these weights, which is tried again after a pause.
    fn encoder(weights: &Path, pause: Duration) -> LocalModel {
        let file = PinnedFile { path: weights.to_owned(), sha256: String::new() };
        let files = Files::Embeddings { weights: file.clone(), vocabulary: file };
        let (name, identity) = ("m".to_owned(), "m-0".to_owned());
        LocalModel { name, identity, files, last: Arc::default(), pause }
    }

    /// The real model, if it was pulled.
    fn smollm2(pause: Duration) -> Option<LocalModel> {
        let folder = std::env::var_os("WALTZ_MODELS").map(Models::new);
        let found = folder.and_then(|models| LocalModel::find(&models, &"smollm2".parse().unwrap()).ok());
        if found.is_none() {
            assert!(std::env::var_os("CI").is_none(), "CI needs the model: `waltz model pull smollm2`");
            println!("skipped: `waltz model pull smollm2` and set WALTZ_MODELS to run this test");
        }
        found.map(|model| LocalModel { pause, ..model })
    }

    /// Whoever gives up waiting, at a time limit or because a client hung up, does not make the next one wait
    /// for all of it again.
    #[tokio::test]
    async fn a_waiter_who_gives_up_does_not_stop_the_loading() {
        let model = Arc::new(encoder(Path::new("no such file"), PAUSE));
        tokio::select! {
            biased;
            told = model.embedding("a text") => unreachable!("{told:?} before the files were looked at"),
            () = std::future::ready(()) => {}
        }
        let last = model.last.lock().await;
        let Some((_, Err(told))) = &*last else { panic!("it was not loaded to the end: {last:?}") };
        assert!(told.contains("no such file"), "{told}");
    }

    #[tokio::test]
    async fn a_failure_lasts_no_longer_than_the_pause() {
        let folder = tempfile::tempdir().unwrap();
        let weights = folder.path().join("weights");
        let patient = Arc::new(encoder(&weights, Duration::MAX));
        let eager = Arc::new(encoder(&weights, Duration::ZERO));
        for model in [&patient, &eager] {
            assert!(model.warm().await.unwrap_err().contains("No such file"));
        }
        std::fs::write(&weights, "").unwrap();
        assert!(patient.warm().await.unwrap_err().contains("No such file"), "the files were looked at again");
        assert!(eager.warm().await.unwrap_err().contains("it is empty"));
    }

    #[tokio::test]
    async fn a_model_is_loaded_after_a_failure_and_again_after_it_broke_down() {
        let Some(mut model) = smollm2(Duration::ZERO) else { return };
        let Files::Language { gguf, .. } = &mut model.files else { panic!("it is a language model") };
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join(gguf.path.file_name().unwrap());
        let real = std::mem::replace(&mut gguf.path, link.clone());
        let model = Arc::new(model);
        assert!(model.warm().await.unwrap_err().contains("cannot open"));
        std::os::unix::fs::symlink(real, link).unwrap();
        let Loaded::Language(first) = model.ready().await.unwrap() else { panic!("it is a language model") };
        let Loaded::Language(again) = model.ready().await.unwrap() else { panic!("it is a language model") };
        assert!(Arc::ptr_eq(&first, &again), "it is loaded once");
        let ask = Ask {
            tokens: vec![1],
            sampling: Sampling::greedy(),
            max_tokens: 1,
            stop: Vec::new(),
            constraint: Some(Box::new(Breaking)),
            deadline: None,
            logprobs: None,
            adapter: None,
        };
        assert_eq!(first.room.ask(ask).unwrap().recv().await, None, "the model's thread broke down");
        while first.room.is_open() {
            tokio::task::yield_now().await;
        }
        let body = Bytes::from(r#"{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}"#);
        let (untaught, deadline) = (AgentAdapters::default(), Instant::now() + Duration::from_secs(600));
        let answer = model.answer(Call::Chat, &untaught, &body, deadline).await.unwrap();
        let answer = answer.into_body().next().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("chat.completion"));
    }

    /// Breaks whatever asks it.
    struct Breaking;

    impl Constraint for Breaking {
        fn mask(&mut self, _left: usize, _mask: &mut TokenMask) {
            panic!("on purpose");
        }

        fn accept(&mut self, _token: u32) {}

        fn is_complete(&self) -> bool {
            false
        }
    }

    /// A client that hangs up frees its slot of the upstream, but not the thread that works for it.
    #[tokio::test]
    async fn work_that_nobody_waits_for_keeps_its_seat_until_it_ends() {
        let seats = Arc::new(Semaphore::new(1));
        let (release, held) = std::sync::mpsc::channel::<()>();
        {
            let work = move || held.recv().map_err(|_| Trouble::Busy);
            let mut waiting = pin!(apart(&seats, work));
            assert!(waiting.as_mut().now_or_never().is_none());
        }
        assert!(matches!(apart(&seats, || Ok(1)).await, Err(Trouble::Busy)));
        release.send(()).unwrap();
        drop(seats.acquire().await.unwrap());
        assert!(matches!(apart(&seats, || Ok(1)).await, Ok(1)));
        // Nor does work that breaks down keep it.
        let broken = apart(&seats, || -> Result<(), Trouble> { panic!("on purpose") });
        assert!(matches!(broken.await, Err(Trouble::Broken(_))));
        assert!(matches!(apart(&seats, || Ok(1)).await, Ok(1)));
    }

    /// With the only thread for long work taken, a form is not read by the thread that everybody waits for.
    #[test]
    fn a_form_is_prepared_apart_from_the_async_threads() {
        let Some(model) = smollm2(PAUSE).map(Arc::new) else { return };
        let properties = json!({"a": {"type": "boolean"}});
        let format = json!({"type": "json_schema", "json_schema": {"schema": {"properties": properties}}});
        let messages = json!([{"role": "user", "content": "Is it?"}]);
        let body = json!({"messages": messages, "max_tokens": 20, "response_format": format}).to_string();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(async {
            model.warm().await.unwrap();
            let (release, held) = std::sync::mpsc::channel::<()>();
            let holding = tokio::task::spawn_blocking(move || held.recv());
            let (body, deadline) = (Bytes::from(body), Instant::now() + Duration::from_secs(600));
            let untaught = AgentAdapters::default();
            let mut answer = pin!(model.answer(Call::Chat, &untaught, &body, deadline));
            assert!(answer.as_mut().now_or_never().is_none(), "it was read at once, by this thread");
            release.send(()).unwrap();
            holding.await.unwrap().unwrap();
            let answer = answer.await.unwrap().into_body().next().await.unwrap().unwrap();
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
            assert!(matches!(text, r#"{"a": true}"# | r#"{"a": false}"#), "{answer}");
        });
    }
}
