//! Logged choices among variants with what was learned of them, for estimates that look back.

use futures_util::TryStreamExt as _;
use serde::Deserialize;
use waltz_exchange::variant::{Choice, Lesson, VariantOutcome};

use crate::rollout::decode;
use crate::sql::{Row, Statement};
use crate::{Error, Store};

const LEARNED_CHOICES: Statement = Statement::both(include_str!("../sql/learned_choices.sql"));

/// A choice of a variant, and what was learned of the answer: from the client where it reported, else from the judge.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnedChoice {
    /// The exchange.
    pub exchange_id: String,
    /// Which variant served, and with which chance.
    pub choice: Choice,
    /// What came of it.
    pub outcome: VariantOutcome,
}

/// What is read of a record.
#[derive(Deserialize)]
struct Chosen {
    variant_choice: Option<Choice>,
}

impl Store {
    /// Hands over every choice of an agent, for one kind of task or for all, of which something was learned; in the order
    /// of their exchanges' ids. Answers that nobody saw are not among them: no choice brought them about. One exchange is
    /// held at a time, however many there are.
    pub async fn each_learned_choice<E: From<Error>>(
        &self,
        agent: &str,
        task_type: Option<&str>,
        mut each: impl FnMut(LearnedChoice) -> Result<(), E>,
    ) -> Result<(), E> {
        let arguments = [agent.into(), task_type.into()];
        let mut rows = self.readers.fetch(LEARNED_CHOICES, &arguments);
        let mut held: Option<LearnedChoice> = None;
        while let Some(row) = rows.try_next().await.map_err(Error::database("read learned choices"))? {
            let (exchange_id, outcome) = learned(&row)?;
            match &held {
                // The client, whose word comes first and counts.
                Some(same) if same.exchange_id == exchange_id => {}
                _ => {
                    let next = chosen(&row, &exchange_id)?.map(|choice| LearnedChoice {
                        exchange_id,
                        choice,
                        outcome,
                    });
                    if let Some(done) = std::mem::replace(&mut held, next) {
                        each(done)?;
                    }
                }
            }
        }
        held.map_or(Ok(()), each)
    }
}

fn learned(row: &Row) -> Result<(String, VariantOutcome), Error> {
    let operation = "read a learned choice";
    let exchange_id: String = row.try_get("exchange_id").map_err(Error::database(operation))?;
    let json: &str = row.try_get("lesson").map_err(Error::database(operation))?;
    let Lesson { outcome, .. } = decode("lesson", &exchange_id, json)?;
    Ok((exchange_id, outcome))
}

fn chosen(row: &Row, exchange_id: &str) -> Result<Option<Choice>, Error> {
    let json: &str = row.try_get("record").map_err(Error::database("read a learned choice"))?;
    let Chosen { variant_choice } = decode("exchange", exchange_id, json)?;
    Ok(variant_choice)
}
