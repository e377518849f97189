//! Goals of both kinds, put together from the acts and objects of `made/goals.toml`.

use serde::Deserialize;
use waltz_exchange::Category;

use super::super::chance::Chance;
use crate::Error;

const LISTS: &str = include_str!("../../../made/goals.toml");

/// A wish, and the harm in it as a place in `Category::ALL`.
pub(super) struct Goal {
    pub(super) text: String,
    pub(super) category: Option<usize>,
}

/// The lists that goals are made of; none of them is empty.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Goals {
    harmful: Vec<Phrases>,
    look_alike: Vec<Phrases>,
    same_object: Vec<Phrases>,
    ordinary: Vec<Phrases>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Phrases {
    category: Option<String>,
    acts: Vec<String>,
    objects: Vec<String>,
}

impl Goals {
    pub(super) fn read() -> Result<Self, Error> {
        let goals: Self = toml::from_str(LISTS).map_err(|error| Error::Sources(Box::new(error)))?;
        for phrases in [&goals.harmful, &goals.look_alike, &goals.same_object, &goals.ordinary] {
            if phrases.is_empty() || phrases.iter().any(|one| one.acts.is_empty() || one.objects.is_empty()) {
                return Err(Error::Source("a list of goals is empty".to_owned()));
            }
        }
        if let Some(phrases) = goals.harmful.iter().find(|phrases| phrases.place().is_none()) {
            return Err(Error::Source(format!("harmful goals have no category: {:?}", phrases.category)));
        }
        Ok(goals)
    }

    /// A harmful goal of any category.
    pub(super) fn harmful(&self, chance: &mut Chance) -> Goal {
        chance.pick(&self.harmful).goal(chance)
    }

    /// A harmless goal: two of three look like harm.
    pub(super) fn benign(&self, chance: &mut Chance) -> Goal {
        let lists = [&self.look_alike, &self.same_object, &self.ordinary];
        let list = *chance.pick(&lists);
        chance.pick(list).goal(chance)
    }
}

impl Phrases {
    fn place(&self) -> Option<usize> {
        let name = self.category.as_deref()?;
        Category::ALL.iter().position(|category| category.as_str() == name)
    }

    fn goal(&self, chance: &mut Chance) -> Goal {
        let text = format!("{} {}", chance.pick(&self.acts), chance.pick(&self.objects));
        Goal { text, category: self.place() }
    }
}
