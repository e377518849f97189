//! Variants, proposals, rollbacks and releases, for whoever has the admin token. What is done is in [`crate::admin`];
//! here it is read from requests and written into replies.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::{get, post};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use waltz_exchange::openai::{ApiError, Retry};
use waltz_exchange::proposal::ProposalStatus;
use waltz_exchange::rollback::RollbackStatus;
use waltz_rollout::learned::Learned;
use waltz_rollout::release::Command;
use waltz_rollout::review;
use waltz_store::BoardKey;

use crate::admin::{Act, Add, Decide, Desk, Error, Judgement, KnownAgent, Start};
use crate::api::body;
use crate::api::outcomes::unavailable;
use crate::intake::read_body;
use crate::live::{Gateway, Live, Version};
use crate::receive::checked_word;
use crate::router::{Admitted, Named};
use crate::{reply, variants};

type Shared = State<Arc<Gateway>>;
type Words = Query<HashMap<String, String>>;

/// The paths.
pub fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/waltz/v1/variants", get(list_boards).post(add))
        .route("/waltz/v1/variants/{agent}/{task_type}", get(show_board).post(act))
        .route("/waltz/v1/variants/{agent}/{task_type}/history", get(history))
        .route("/waltz/v1/variants/{agent}/{task_type}/comparison", get(compare))
        .route("/waltz/v1/learned", get(export).post(import))
        .route("/waltz/v1/proposals", get(list_proposals).post(propose))
        .route("/waltz/v1/proposals/{id}", post(decide))
        .route("/waltz/v1/rollbacks", get(list_rollbacks))
        .route("/waltz/v1/rollbacks/{id}", post(judge))
        .route("/waltz/v1/releases", get(list_releases).post(start))
        .route("/waltz/v1/releases/{id}", get(show_release).post(steer))
}

/// What is asked of a release, or of all.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Steer {
    command: Command,
    #[serde(default)]
    reason: Option<String>,
}

/// A caller with the admin token.
struct Operator {
    gateway: Arc<Gateway>,
    live: Arc<Live>,
    agents: Vec<KnownAgent>,
    /// The version of the program itself that is configured.
    candidate: Option<Version>,
    by: String,
}

impl Operator {
    fn new(gateway: Arc<Gateway>, admitted: &Admitted) -> Result<Self, ApiError> {
        if !admitted.caller.admin {
            return Err(ApiError {
                status: 403,
                kind: "permission_error".into(),
                message: "this needs the admin token: send it as `Authorization: Bearer TOKEN`".to_owned(),
                param: None,
                code: "admin_only".into(),
                retry: Retry::Never,
            });
        }
        let by = match admitted.headers.get("x-waltz-by").map(|value| value.to_str().unwrap_or("\u{fffd}")) {
            Some(name) => checked_word("x-waltz-by", name)?,
            None => "admin".to_owned(),
        };
        let live = Arc::clone(&admitted.live);
        let models: BTreeSet<String> =
            live.upstreams.iter().flat_map(|upstream| upstream.models()).cloned().collect();
        let agents = live.agents.iter().map(|agent| {
            let (name, setup) = (agent.name.clone(), variants::setup(agent));
            let known = live.router.agent(&name);
            let abilities = known.into_iter().flat_map(|known| known.task_types.iter().chain(&known.skills));
            KnownAgent { abilities: abilities.cloned().collect(), name, setup, models: models.clone() }
        });
        let agents = agents.collect();
        let candidate = gateway.live.load().candidate.as_ref().and_then(|live| live.version.clone());
        Ok(Self { gateway, live, agents, candidate, by })
    }

    fn desk(&self) -> Desk<'_> {
        Desk {
            store: &self.gateway.store,
            settings: &self.live.settings.variants,
            agents: &self.agents,
            candidate: self.candidate.as_ref().map(|version| version.name.as_str()),
            by: &self.by,
            at: Timestamp::now(),
        }
    }

    /// The reply to a change, which this gateway heeds from now on; others see it within a second.
    async fn changed(&self, result: Result<impl Serialize, Error>) -> Result<Response, ApiError> {
        let value = result.map_err(told)?;
        self.gateway.refresh().await.map_err(told)?;
        Ok(reply::json(&value))
    }
}

fn told(error: Error) -> ApiError {
    let (status, code) = match &error {
        Error::Store(error) => return unavailable(error),
        Error::Unknown { .. } | Error::Refused(waltz_rollout::Error::UnknownVariant(_)) => (404, "not_found"),
        Error::Silent => (503, "store_unavailable"),
        Error::Busy | Error::Refused(waltz_rollout::Error::Stale { .. }) => (409, "conflict"),
        Error::Refused(waltz_rollout::Error::Proposal { .. } | waltz_rollout::Error::Release { .. }) => {
            (409, "conflict")
        }
        Error::Refused(_) | Error::Invalid(_) => (400, "invalid_request"),
    };
    let mut told = ApiError::invalid(error.to_string(), None).with_code(code);
    told.status = status;
    told
}

fn show(value: Result<impl Serialize, Error>) -> Result<Response, ApiError> {
    Ok(reply::json(&value.map_err(told)?))
}

fn list(value: Result<impl Serialize, Error>) -> Result<Response, ApiError> {
    Ok(reply::json(&json!({"object": "list", "data": value.map_err(told)?})))
}

async fn read<T: DeserializeOwned>(admitted: &Admitted, sent: Body) -> Result<T, ApiError> {
    body::read(&read_body(admitted, sent).await?)
}

fn word<T: DeserializeOwned>(words: &HashMap<String, String>, name: &str) -> Result<Option<T>, ApiError> {
    let Some(word) = words.get(name) else { return Ok(None) };
    let read = serde_json::from_value(json!(word));
    read.map(Some).map_err(|error| ApiError::invalid(format!("`{name}` cannot be read: {error}"), Some(name)))
}

/// Answers with what `work` makes, or with why it was refused.
async fn answer<F>(
    gateway: Arc<Gateway>,
    admitted: Admitted,
    work: impl FnOnce(Operator, Admitted) -> F,
) -> Response
where
    F: Future<Output = Result<Response, ApiError>>,
{
    let done = match Operator::new(gateway, &admitted) {
        Ok(operator) => work(operator, admitted).await,
        Err(error) => Err(error),
    };
    done.unwrap_or_else(|error| reply::error(&error))
}

async fn list_boards(State(gateway): Shared, admitted: Admitted) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| list(operator.desk().boards().await)).await
}

async fn add(State(gateway): Shared, admitted: Admitted, sent: Body) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let add: Add = read(&admitted, sent).await?;
        operator.changed(operator.desk().add(&add).await).await
    })
    .await
}

fn key((agent, task_type): (String, String)) -> BoardKey {
    BoardKey { agent, task_type }
}

async fn show_board(
    State(gateway): Shared,
    admitted: Admitted,
    Named(path): Named<(String, String)>,
) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| show(operator.desk().explained(&key(path)).await))
        .await
}

async fn act(
    State(gateway): Shared,
    admitted: Admitted,
    Named(path): Named<(String, String)>,
    sent: Body,
) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let act: Act = read(&admitted, sent).await?;
        operator.changed(operator.desk().act(&key(path), &act).await).await
    })
    .await
}

async fn history(
    State(gateway): Shared,
    admitted: Admitted,
    Named(path): Named<(String, String)>,
) -> Response {
    let (agent, task_type) = path;
    answer(gateway, admitted, async |operator: Operator, _| {
        list(operator.desk().history(Some(&agent), Some(&task_type)).await)
    })
    .await
}

async fn compare(
    State(gateway): Shared,
    admitted: Admitted,
    Named(path): Named<(String, String)>,
    Query(words): Words,
) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| {
        let name = |name: &str| {
            let missing = || ApiError::invalid(format!("`{name}` must name a variant"), Some(name));
            words.get(name).cloned().ok_or_else(missing)
        };
        show(operator.desk().compare(&key(path), &name("first")?, &name("second")?).await)
    })
    .await
}

async fn export(State(gateway): Shared, admitted: Admitted) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| show(operator.desk().export().await)).await
}

async fn import(State(gateway): Shared, admitted: Admitted, sent: Body) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let learned: Learned = read(&admitted, sent).await?;
        operator.changed(operator.desk().import(&learned).await).await
    })
    .await
}

async fn list_proposals(State(gateway): Shared, admitted: Admitted, Query(words): Words) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| {
        let all = words.get("status").is_some_and(|status| status == "all");
        let status: Option<ProposalStatus> = if all { None } else { word(&words, "status")? };
        if words.get("format").is_some_and(|format| format == "csv") {
            let sheet = review::csv(&operator.desk().proposals(status).await.map_err(told)?);
            let mut headers = http::HeaderMap::new();
            headers.insert(CONTENT_TYPE, http::HeaderValue::from_static("text/csv; charset=utf-8"));
            return Ok(reply::response(StatusCode::OK, headers, sheet.into()));
        }
        show(operator.desk().queue(status, all).await)
    })
    .await
}

async fn propose(State(gateway): Shared, admitted: Admitted, sent: Body) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let bytes = read_body(&admitted, sent).await?;
        if !bytes.is_empty() && !body::object(&bytes)?.is_empty() {
            let message = "this takes no wishes: it proposes what the numbers of all boards suggest. Send an empty \
                body or `{}`; a variant of your own is declared with `POST /waltz/v1/variants`";
            return Err(ApiError::invalid(message.to_owned(), None));
        }
        operator.changed(operator.desk().propose_now().await).await
    })
    .await
}

async fn decide(
    State(gateway): Shared,
    admitted: Admitted,
    Named(id): Named<String>,
    sent: Body,
) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let decide: Decide = read(&admitted, sent).await?;
        operator.changed(operator.desk().decide(&id, &decide).await).await
    })
    .await
}

async fn list_rollbacks(State(gateway): Shared, admitted: Admitted, Query(words): Words) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| {
        let status: Option<RollbackStatus> = word(&words, "status")?;
        list(operator.desk().rollbacks(status).await)
    })
    .await
}

async fn judge(State(gateway): Shared, admitted: Admitted, Named(id): Named<String>, sent: Body) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let judgement: Judgement = read(&admitted, sent).await?;
        operator.changed(operator.desk().judge(&id, &judgement).await).await
    })
    .await
}

async fn list_releases(State(gateway): Shared, admitted: Admitted) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| {
        let paused = operator.desk().paused().await.map_err(told)?;
        let data = operator.desk().releases().await.map_err(told)?;
        Ok(reply::json(&json!({"object": "list", "paused": paused, "data": data})))
    })
    .await
}

async fn start(State(gateway): Shared, admitted: Admitted, sent: Body) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let start: Start = read(&admitted, sent).await?;
        operator.changed(operator.desk().start(&start).await).await
    })
    .await
}

async fn show_release(State(gateway): Shared, admitted: Admitted, Named(id): Named<String>) -> Response {
    answer(gateway, admitted, async |operator: Operator, _| {
        let releases = operator.desk().releases().await.map_err(told)?;
        let found = releases.into_iter().find(|view| view.release.id == id);
        show(found.ok_or(Error::Unknown { what: "release", name: id }))
    })
    .await
}

async fn steer(State(gateway): Shared, admitted: Admitted, Named(id): Named<String>, sent: Body) -> Response {
    answer(gateway, admitted, async |operator: Operator, admitted| {
        let Steer { command, reason } = read(&admitted, sent).await?;
        let desk = operator.desk();
        if id != "all" {
            return operator.changed(desk.steer(&id, command).await).await;
        }
        let done = match command {
            Command::Pause => desk.pause_all(reason.as_deref()).await,
            Command::Resume => desk.resume_all(reason.as_deref()).await,
            _ => Err(Error::Invalid("all releases can only be paused or resumed".to_owned())),
        };
        operator.changed(done.map(|()| json!({"paused": command == Command::Pause}))).await
    })
    .await
}
