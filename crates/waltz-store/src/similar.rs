//! Past coaching that resembles a present request: the very same request first, then requests that mean the
//! same, then full text. Only coaching that ended well is ever in these tables; `rows.rs` decides that.
//!
//! Meaning is compared where a model has read both requests (`similar/meaning.rs`); words are the way to
//! coachings that no model, or another one, has read.

mod meaning;

use std::collections::HashSet;

use waltz_exchange::id::request_hash;
use waltz_exchange::{Embedding, PastCoaching};

use crate::sessions::page;
use crate::sql::{Readers, Row, Statement};
use crate::{Error, Store};

const BY_HASH: Statement = Statement::both(include_str!("../sql/similar_by_hash.sql"));
const BY_NUMBER: Statement = Statement::both(include_str!("../sql/past_coaching.sql"));
// Each database has a full-text index of its own kind.
const BY_WORDS: Statement = Statement::each(
    include_str!("../sql/sqlite/similar_by_words.sql"),
    include_str!("../sql/postgres/similar_by_words.sql"),
);

/// The most words of a request that are searched for.
const MAX_WORDS: usize = 24;
/// The most words of a request that PostgreSQL's index holds.
const MAX_INDEXED_WORDS: usize = 2000;
/// The longest word for a tenant. An index entry of PostgreSQL has at most 2046 bytes; a search looks at
/// the tenant itself too.
const MAX_TENANT_KEY: usize = 1000;
/// The newest coachings that are searched by words; the very same request is found at any age.
const SEARCHED: i64 = 20_000;
/// Rows looked at for each row wanted, because some share too little or repeat a request.
const SURPLUS: usize = 8;
/// Words that say nothing about what a request is about.
const STOP_WORDS: [&str; 48] = [
    "the", "and", "for", "are", "but", "not", "you", "your", "with", "this", "that", "from", "have", "has",
    "was", "were", "will", "would", "can", "could", "should", "what", "when", "where", "which", "who", "why",
    "how", "does", "did", "into", "about", "there", "their", "them", "they", "some", "any", "all", "our",
    "out", "its", "his", "her", "please", "tell", "want", "need",
];

impl Store {
    /// At most `limit` past coachings of the tenant that resemble a request, best first. Any text is
    /// a valid request. Without its embedding, only words are compared.
    pub async fn similar(
        &self,
        tenant: &str,
        user_request_masked: &str,
        embedding: Option<&Embedding>,
        limit: usize,
    ) -> Result<Vec<PastCoaching>, Error> {
        let operation = "look for similar coaching";
        if limit == 0 {
            return Ok(Vec::new());
        }
        let hash = request_hash(user_request_masked);
        let same = self
            .readers
            .fetch_all(BY_HASH, &[tenant.into(), hash.as_str().into(), page(limit).into()])
            .await
            .map_err(Error::database(operation))?;
        let mut found = Vec::new();
        for row in &same {
            found.push(past_coaching(row).map_err(Error::database(operation))?);
        }
        let mut seen = HashSet::from([hash.clone()]);
        let mut compared = HashSet::new();
        if let Some(embedding) = embedding.filter(|_| found.len() < limit) {
            let vectors = meaning::compare(&self.readers, tenant, embedding).await?;
            for near in vectors.iter().filter(|vector| vector.is_alike()) {
                if found.len() < limit && seen.insert(near.request_hash.clone()) {
                    let row = self.readers.fetch_optional(BY_NUMBER, &[near.number.into()]).await;
                    let row = row.map_err(Error::database(operation))?;
                    found.extend(
                        row.as_ref().map(past_coaching).transpose().map_err(Error::database(operation))?,
                    );
                }
            }
            compared.extend(vectors.iter().map(|vector| vector.number));
        }
        let wanted = words(user_request_masked, MAX_WORDS);
        if found.len() >= limit || wanted.is_empty() {
            return Ok(found);
        }
        let search = match &self.readers {
            Readers::Sqlite(_) => match_expression(tenant, &wanted),
            Readers::Postgres(_) => word_list(tenant, &wanted),
        };
        let arguments = [
            search.as_str().into(),
            SEARCHED.into(),
            page(same.len() + limit.saturating_mul(SURPLUS)).into(),
            tenant.into(),
            hash.as_str().into(),
        ];
        let alike = self.readers.fetch_all(BY_WORDS, &arguments).await.map_err(Error::database(operation))?;
        for row in &alike {
            let number: i64 = row.try_get("number").map_err(Error::database(operation))?;
            let other: String = row.try_get("request_hash").map_err(Error::database(operation))?;
            let past = past_coaching(row).map_err(Error::database(operation))?;
            // What was compared by meaning was found then, or means something else.
            let open = found.len() < limit && !compared.contains(&number);
            if open && shares_enough(&wanted, &past.user_request) && seen.insert(other) {
                found.push(past);
            }
        }
        Ok(found)
    }
}

/// A tenant as one word of the full-text index: letters and digits only, so that no tenant name can
/// change a search.
pub(crate) fn tenant_key(tenant: &str) -> String {
    let mut key = String::from("t");
    for byte in tenant.bytes() {
        key.push_str(&format!("{byte:02x}"));
    }
    key
}

/// What PostgreSQL's index keeps of a request. The program splits the words, because a server would do
/// it by its own language.
pub(crate) fn index_words(tenant: &str, user_request: &str) -> String {
    word_list(tenant, &words(user_request, MAX_INDEXED_WORDS))
}

/// The first distinct words of a text that are worth searching for, in lower case.
fn words(text: &str, most: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    for word in text.split(|letter: char| !letter.is_alphanumeric()) {
        let word = word.to_lowercase();
        // One letter says little, except in scripts that do not separate words.
        let long_enough = word.chars().count() > 2 || !word.is_ascii();
        if long_enough
            && !word.is_empty()
            && !STOP_WORDS.contains(&word.as_str())
            && seen.insert(word.clone())
        {
            words.push(word);
        }
        if words.len() == most {
            break;
        }
    }
    words
}

/// A search in SQLite's index. Every word is quoted and holds only letters and digits, so that none of them
/// can be read as an operator.
fn match_expression(tenant: &str, words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    format!("tenant_key : \"{}\" AND user_request : ({})", tenant_key(tenant), quoted.join(" OR "))
}

/// The tenant and the beginnings of words with spaces between them, as PostgreSQL's index and a search
/// in it have them. All are letters and digits. The beginnings take care of endings, which SQLite's
/// index does by the rules of English.
fn word_list(tenant: &str, words: &[String]) -> String {
    let mut list: String = tenant_key(tenant).chars().take(MAX_TENANT_KEY).collect();
    for word in words {
        list.push(' ');
        list.push_str(&stem(word));
    }
    list
}

/// One word in common is chance: a third of the shorter request's words must be shared. Words count as
/// shared when their first five letters agree, which takes care of endings.
fn shares_enough(wanted: &[String], other: &str) -> bool {
    let others: HashSet<String> = words(other, MAX_WORDS).iter().map(|word| stem(word)).collect();
    let shared = wanted.iter().filter(|word| others.contains(&stem(word))).count();
    let shorter = wanted.len().min(others.len());
    shared > 0 && shared * 3 >= shorter
}

fn stem(word: &str) -> String {
    word.chars().take(5).collect()
}

fn past_coaching(row: &Row) -> Result<PastCoaching, sqlx::Error> {
    let dir_score: f64 = row.try_get("dir_score")?;
    Ok(PastCoaching {
        user_request: row.free_text("user_request")?,
        feedback: row.free_text("feedback")?,
        accepted: row.free_text("accepted")?,
        dir_score: dir_score as f32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_holds_no_operators() {
        let wanted = words("pick\" OR tenant_key:* NEAR(lock) -- AND", MAX_WORDS);
        assert_eq!(
            match_expression("a\"b", &wanted),
            "tenant_key : \"t612262\" AND user_request : (\"pick\" OR \"tenant\" OR \"key\" OR \"near\" OR \"lock\")"
        );
        assert_eq!(word_list("a\"b", &wanted), "t612262 pick tenan key near lock");
        assert!(words("?!  \0 \"\" '", MAX_WORDS).is_empty());
    }

    #[test]
    fn chance_is_not_similarity() {
        let wanted = words("how do I pick the lock of my own front door", MAX_WORDS);
        assert!(shares_enough(&wanted, "picking a lock on my front door, how?"));
        assert!(!shares_enough(&wanted, "bake bread in front of guests with yeast flour salt water"));
    }
}
