//! `GET /v1/models` and `GET /v1/models/{id}`.

use axum::response::Response;
use serde_json::{Value, json};

use crate::live::Live;
use crate::{reply, route};

/// Lists every model that can be asked for, as far as it is known.
pub async fn list(live: &Live) -> Response {
    let data: Vec<Value> = live.all_models().await.iter().map(|(id, owner)| model(id, owner)).collect();
    reply::json(&json!({"object": "list", "data": data}))
}

/// Shows one model. An upstream that serves any model vouches for any name.
pub fn show(live: &Live, id: &str) -> Response {
    if let Some((id, owner)) = live.models().iter().find(|(known, _)| known == id) {
        return reply::json(&model(id, owner));
    }
    match live.agent_for(id) {
        Some(agent) => {
            let owner = agent.targets.first().map_or("waltz", |target| target.upstream.name());
            reply::json(&model(id, owner))
        }
        None => reply::error(&route::model_not_found(id)),
    }
}

fn model(id: &str, owner: &str) -> Value {
    json!({"id": id, "object": "model", "created": 0, "owned_by": owner})
}
