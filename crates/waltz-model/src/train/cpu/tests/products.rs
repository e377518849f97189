//! Products of every form against the textbook.

use super::*;

#[test]
fn products_of_all_forms_are_what_the_textbook_says() {
    let cpu = wide();
    let sizes = [(1, 1, 1), (8, 192, 48), (9, 193, 49), (3, 400, 17), (530, 20, 200), (7, 0, 5), (50, 8, 33)];
    for (rows, steps, columns) in sizes {
        for form in [Form::Plain, Form::RightTransposed, Form::LeftTransposed] {
            let left = match form {
                Form::LeftTransposed => Grid { first: 3, rows: steps, columns: rows, stride: rows + 2 },
                _ => Grid { first: 3, rows, columns: steps, stride: steps + 2 },
            };
            let right = match form {
                Form::RightTransposed => Grid { first: 5, rows: columns, columns: steps, stride: steps + 3 },
                _ => Grid { first: 5, rows: steps, columns, stride: columns + 3 },
            };
            let output = Grid { first: 2, rows, columns, stride: columns + 4 };
            let room = |grid: Grid, seed| noise(grid.first + (grid.rows + 1) * grid.stride, seed);
            let (a, b, start) = (room(left, 1), room(right, 2), room(output, 3));
            for keep in [0.0, 1.0] {
                let mut found = start.clone();
                if keep == 0.0 {
                    found[output.first] = f64::NAN;
                }
                halved_product(&cpu, form, (&a, left), (&b, right), keep, (&mut found, output));
                let mut expected = start.clone();
                for row in 0..rows {
                    for column in 0..columns {
                        let sum: f64 = (0..steps)
                            .map(|step| {
                                let (i, j) =
                                    if form == Form::LeftTransposed { (step, row) } else { (row, step) };
                                let (k, l) = if form == Form::RightTransposed {
                                    (column, step)
                                } else {
                                    (step, column)
                                };
                                a[left.first + i * left.stride + j] * b[right.first + k * right.stride + l]
                            })
                            .sum();
                        let place = &mut expected[output.first + row * output.stride + column];
                        *place = f64::from(keep) * *place + 0.5 * sum;
                    }
                }
                // What lies outside of the grid is the same too.
                for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert!(
                        (found - expected).abs() < 1e-11,
                        "{form:?} {rows} x {steps} x {columns}, keep {keep}, number {index}: {found}, {expected}"
                    );
                }
            }
        }
    }
}
