//! The built-in pattern files, embedded in the binary.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::family::Family;
use crate::finding::Kind;
use crate::pii::PiiKind;
use crate::rules::parse;

/// Lists that all files share; it stands before each file when that is read.
const LISTS: &str = include_str!("../patterns/lists.toml");
const HARMFUL: &str = include_str!("../patterns/harmful.toml");
const MALICIOUS: &str = include_str!("../patterns/malicious.toml");
const PRIVACY: &str = include_str!("../patterns/privacy.toml");
const REFUSAL: &str = include_str!("../patterns/refusal.toml");

/// The families that make findings.
pub(crate) fn finding_families() -> Result<Vec<Family>, Error> {
    let mut families = builtin(HARMFUL, Kind::Harm)?;
    families.extend(builtin(MALICIOUS, Kind::Malicious)?);
    families.extend(builtin(PRIVACY, Kind::Privacy)?);
    Ok(families)
}

/// The families that recognise refusals; their severity is the weight of the phrase.
pub(crate) fn refusal_families() -> Result<Vec<Family>, Error> {
    builtin(REFUSAL, Kind::Harm)
}

/// The ids of all of them, and those under which personal data is found.
pub(crate) fn ids() -> Result<BTreeSet<String>, Error> {
    let families = finding_families()?.into_iter().chain(refusal_families()?);
    Ok(families.map(|family| family.info.id).chain(PiiKind::ALL.map(PiiKind::family)).collect())
}

fn builtin(file: &str, kind: Kind) -> Result<Vec<Family>, Error> {
    parse(&format!("{LISTS}\n{file}"), "family", (kind, &BTreeSet::new()))
}
