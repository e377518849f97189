//! Compares what requests mean: the direction of a model's vectors. A model that reads requests comes from
//! outside of this crate; here are only its numbers.

use waltz_exchange::Embedding;
use waltz_exchange::embedding::{cosine, from_bytes};

use crate::Error;
use crate::sql::{Readers, Statement};

const NEWEST_VECTORS: Statement = Statement::both(include_str!("../../sql/newest_vectors.sql"));

/// The newest coachings of a tenant whose meaning is compared: about 3 MB are read for a search.
const COMPARED: i64 = 2_000;
/// The least cosine of requests that mean the same. To all-MiniLM-L6-v2 most rewordings of a question are
/// nearer, and questions that only share their words are hardly ever.
const ALIKE: f32 = 0.5;

/// How near a past coaching's request is.
pub(super) struct Compared {
    pub(super) number: i64,
    pub(super) request_hash: String,
    nearness: f32,
}

impl Compared {
    /// Whether it means the same.
    pub(super) fn is_alike(&self) -> bool {
        self.nearness >= ALIKE
    }
}

/// The newest coachings that the same model has read, nearest first, the newer of two equals first.
pub(super) async fn compare(
    readers: &Readers,
    tenant: &str,
    wanted: &Embedding,
) -> Result<Vec<Compared>, Error> {
    let operation = "compare past coaching";
    let arguments = [tenant.into(), wanted.model.as_str().into(), COMPARED.into()];
    let rows = readers.fetch_all(NEWEST_VECTORS, &arguments).await.map_err(Error::database(operation))?;
    let vector = wanted.vector.clone();
    let compare = move || {
        let mut compared = Vec::with_capacity(rows.len());
        for row in rows {
            let bytes: Vec<u8> = row.try_get("vector")?;
            let nearness = from_bytes(&bytes).map_or(0.0, |other| cosine(&vector, &other));
            let (number, request_hash) = (row.try_get("number")?, row.try_get("request_hash")?);
            compared.push(Compared { number, request_hash, nearness });
        }
        compared.sort_by(|left, right| right.nearness.total_cmp(&left.nearness));
        Ok(compared)
    };
    let compared = tokio::task::spawn_blocking(compare).await.map_err(|_| Error::Worker { operation })?;
    compared.map_err(Error::database(operation))
}
