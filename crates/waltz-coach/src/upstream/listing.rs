//! The models that a server says it has, for upstreams that serve any: `GET {url}/models`. Asked for lists of models alone, and
//! remembered for a while; nobody is routed by it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Pieces, Server, Speaker, Upstream};

/// A list is read at most once in this time.
const FRESH: Duration = Duration::from_secs(60);
/// After a failure it is tried again sooner.
const FAILED: Duration = Duration::from_secs(10);
/// Whoever wants a list of models does not wait longer for one upstream, and not longer for somebody else who asks it.
const LIMIT: Duration = Duration::from_secs(2);
/// Longer lists are a fault.
const LONGEST: usize = 4 << 20;
/// What is beyond is left out.
const MOST_MODELS: usize = 2_000;
/// No name of a model has more bytes.
const LONGEST_NAME: usize = 256;

/// What a server said last, and until when that holds.
#[derive(Debug, Default)]
pub(super) struct Listing(tokio::sync::Mutex<Option<(Instant, Vec<String>)>>);

/// The list in both forms.
#[derive(Deserialize)]
struct Listed {
    data: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    id: String,
}

impl Upstream {
    /// The models that it says it has, where it serves any model. Those of an upstream that does not say are none.
    pub async fn listed_models(&self) -> Vec<String> {
        let Speaker::Server(server) = &self.speaker else { return Vec::new() };
        if !self.settings.models.iter().any(|model| model == "*") {
            return Vec::new();
        }
        // Held while the server is asked, so that it is asked once by all who come meanwhile.
        let Ok(mut last) = tokio::time::timeout(LIMIT, server.listing.0.lock()).await else {
            return Vec::new();
        };
        if let Some((until, models)) = &*last
            && Instant::now() < *until
        {
            return models.clone();
        }
        let asked = tokio::time::timeout(LIMIT, server.list()).await;
        let (holds, models) = match asked.unwrap_or_else(|_| Err("it was too slow".to_owned())) {
            Ok(models) => (FRESH, models),
            Err(reason) => {
                tracing::debug!(upstream = %self.settings.name, reason, "an upstream does not list its models");
                (FAILED, Vec::new())
            }
        };
        *last = Some((Instant::now() + holds, models.clone()));
        models
    }
}

impl Server {
    async fn list(&self) -> Result<Vec<String>, String> {
        let sent = self.client.send(&self.models, Bytes::new()).await;
        let answer = sent.map_err(|failure| format!("{failure:?}"))?;
        if !answer.status().is_success() {
            return Err(format!("it answered {}", answer.status()));
        }
        let mut pieces = Pieces::Server(answer.into_body());
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await.map_err(|error| error.to_string())? {
            if whole.len() + piece.len() > LONGEST {
                return Err(format!("the list is longer than {LONGEST} bytes"));
            }
            whole.extend_from_slice(&piece);
        }
        names(&whole)
    }
}

/// The names in a list. What is no name, as words are not, is left out: nobody reads what stands in it.
fn names(list: &[u8]) -> Result<Vec<String>, String> {
    let listed: Listed = serde_json::from_slice(list).map_err(|error| error.to_string())?;
    let is_name = |id: &String| {
        !id.is_empty() && id.len() <= LONGEST_NAME && id.bytes().all(|byte| byte.is_ascii_graphic())
    };
    Ok(listed.data.into_iter().map(|Entry { id }| id).filter(is_name).take(MOST_MODELS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_forms_are_read_and_nothing_else() {
        let openai = br#"{"object":"list","data":[{"id":"a","object":"model"},{"id":"b/c:free"}]}"#;
        assert_eq!(names(openai).unwrap(), ["a", "b/c:free"]);
        let anthropic =
            br#"{"data":[{"type":"model","id":"claude","display_name":"Claude"}],"has_more":false}"#;
        assert_eq!(names(anthropic).unwrap(), ["claude"]);
        let odd = format!(r#"{{"data":[{{"id":"two words"}},{{"id":""}},{{"id":"{}"}}]}}"#, "x".repeat(300));
        assert!(names(odd.as_bytes()).unwrap().is_empty());
        let many: Vec<_> = (0..3_000).map(|number| serde_json::json!({ "id": number.to_string() })).collect();
        let many = serde_json::json!({ "data": many }).to_string();
        assert_eq!(names(many.as_bytes()).unwrap().len(), MOST_MODELS);
        for wrong in ["", "[]", r#"{"data":{}}"#, r#"{"data":[{"name":"a"}]}"#] {
            assert!(names(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
