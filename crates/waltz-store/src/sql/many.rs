//! Statements that write many rows at once. A statement per row would spend most of its time on the way to
//! the database, and a new text for every number of rows would have to be prepared each time: a batch goes
//! in blocks of a few fixed sizes.

use super::{Statement, Transaction, Value};

/// Rows per statement, largest first. The largest stays far below the number of places that either database
/// allows.
const BLOCKS: [usize; 3] = [256, 16, 1];

/// An insert whose text has `{rows}` where the places of the rows go.
pub(crate) struct ManyRows {
    blocks: [Statement; BLOCKS.len()],
}

impl ManyRows {
    /// Writes out the texts. Called once per statement of the program: the texts live as long as it runs.
    pub(crate) fn new(statement: Statement) -> Self {
        let text = |sql: &'static str, rows: usize, place: Place| -> &'static str {
            Box::leak(with_rows(sql, rows, place).into_boxed_str())
        };
        let block = |rows| {
            Statement::each(
                text(statement.sqlite, rows, Place::Bare),
                text(statement.postgres, rows, Place::Numbered),
            )
        };
        Self { blocks: BLOCKS.map(block) }
    }

    /// Writes rows; says how many of them were not there.
    pub(crate) async fn run<const N: usize>(
        &self,
        transaction: &mut Transaction<'_>,
        rows: &[[Value<'_>; N]],
    ) -> Result<usize, sqlx::Error> {
        let mut written = 0;
        let mut left = rows;
        for (statement, size) in self.blocks.iter().zip(BLOCKS) {
            while let Some((block, rest)) = left.split_at_checked(size) {
                written += transaction.write(*statement, block.as_flattened(), N).await?;
                left = rest;
            }
        }
        Ok(usize::try_from(written).unwrap_or(usize::MAX))
    }
}

/// How a text says where an argument goes.
#[derive(Clone, Copy)]
enum Place {
    /// `?`. To SQLite a number is a name, and it looks a name up from the beginning for every argument.
    Bare,
    /// `$1`, the only way that PostgreSQL knows.
    Numbered,
}

/// The text with places for so many rows. The columns are counted from the list in front of the places.
fn with_rows(sql: &str, rows: usize, place: Place) -> String {
    let list = sql.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let columns = list.map_or(0, |(names, _)| names.split(',').count());
    let mut places = String::new();
    for row in 0..rows {
        places.push_str(if row == 0 { "(" } else { ", (" });
        for column in 1..=columns {
            let comma = if column == 1 { "" } else { ", " };
            places.push_str(comma);
            match place {
                Place::Bare => places.push('?'),
                Place::Numbered => places.push_str(&format!("${}", row * columns + column)),
            }
        }
        places.push(')');
    }
    sql.replace("{rows}", &places)
}

#[cfg(test)]
mod tests {
    use super::{Place, with_rows};

    #[test]
    fn places_are_counted_through_all_rows() {
        let sql = "-- One, two\nINSERT INTO a (x, y) VALUES {rows} ON CONFLICT DO NOTHING";
        let numbered = with_rows(sql, 2, Place::Numbered);
        assert_eq!(
            numbered,
            "-- One, two\nINSERT INTO a (x, y) VALUES ($1, $2), ($3, $4) ON CONFLICT DO NOTHING"
        );
        let bare = with_rows(sql, 1, Place::Bare);
        assert_eq!(bare, "-- One, two\nINSERT INTO a (x, y) VALUES (?, ?) ON CONFLICT DO NOTHING");
    }
}
