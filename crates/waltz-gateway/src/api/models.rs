//! `GET /v1/models` and `GET /v1/models/{id}`, in the form that the client speaks.

use axum::response::Response;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::live::Live;
use crate::{reply, route};

/// The path.
pub const MODELS: &str = "/v1/models";

/// Lists every model that can be asked for, as far as it is known.
pub async fn list(live: &Live, headers: &HeaderMap) -> Response {
    let dialect = Dialect::spoken(MODELS, headers);
    let models = live.all_models().await;
    let data: Vec<Value> = models.iter().map(|(id, owner)| model(&dialect, id, owner)).collect();
    let end = |last: Option<&(String, String)>| last.map(|(id, _)| id.clone());
    reply::json(&match dialect {
        Dialect::OpenAi => json!({"object": "list", "data": data}),
        // All of them are on the first page.
        Dialect::Anthropic(_) => {
            json!({"data": data, "has_more": false, "first_id": end(models.first()), "last_id": end(models.last())})
        }
    })
}

/// Shows one model. An upstream that serves any model vouches for any name.
pub fn show(live: &Live, id: &str, headers: &HeaderMap) -> Response {
    let dialect = Dialect::spoken(MODELS, headers);
    if let Some((id, owner)) = live.models().iter().find(|(known, _)| known == id) {
        return reply::json(&model(&dialect, id, owner));
    }
    match live.agent_for(id) {
        Some(agent) => {
            let owner = agent.targets.first().map_or("waltz", |target| target.upstream.name());
            reply::json(&model(&dialect, id, owner))
        }
        None => dialect.reply_error(&route::model_not_found(live, id)),
    }
}

/// When a model was made is not known here; both forms want a time.
fn model(dialect: &Dialect, id: &str, owner: &str) -> Value {
    match dialect {
        Dialect::OpenAi => json!({"id": id, "object": "model", "created": 0, "owned_by": owner}),
        Dialect::Anthropic(_) => {
            json!({"type": "model", "id": id, "display_name": id, "created_at": "1970-01-01T00:00:00Z"})
        }
    }
}
