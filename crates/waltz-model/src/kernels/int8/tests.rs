use super::*;

/// Bytes that look random and are the same each time.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// A panel whose bytes cover the whole range, extremes often.
fn weights(blocks: usize, seed: u64) -> (Vec<u8>, Vec<u8>) {
    let mut next = noise(seed);
    let quants = (0..blocks * PANEL_BLOCK)
        .map(|_| match next() % 4 {
            0 => 0,
            1 => 255,
            _ => next() as u8,
        })
        .collect();
    let scales = (0..blocks * LANES)
        .flat_map(|_| half::f16::from_f32((next() % 2001) as f32 / 1000.0 - 1.0).to_le_bytes())
        .collect();
    (scales, quants)
}

fn inputs(rows: usize, blocks: usize, seed: u64) -> Vec<Block> {
    let mut next = noise(seed);
    let values: Vec<f32> = (0..rows * blocks * BLOCK)
        .map(|_| match next() % 5 {
            0 => 1.0,
            1 => -1.0,
            _ => (next() % 20_001) as f32 / 10_000.0 - 1.0,
        })
        .collect();
    let mut quantised = vec![Block::default(); rows * blocks];
    quantise(Instructions::best(), &values, &mut quantised);
    quantised
}

#[test]
fn all_instruction_sets_give_the_same_bits_for_any_number_of_rows() {
    for blocks in [1, 2, 3, 18, 48] {
        let (scales, quants) = weights(2 * blocks, blocks as u64);
        for rows in [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 19] {
            let input = inputs(rows, blocks, rows as u64);
            let mut expected = vec![[[0.0; LANES]; 2]; rows];
            for (row, sums) in expected.iter_mut().enumerate() {
                let input = &input[row * blocks..][..blocks];
                for (panel, sums) in sums.iter_mut().enumerate() {
                    let scales = &scales[panel * blocks * PANEL_SCALES..][..blocks * PANEL_SCALES];
                    let quants = &quants[panel * blocks * PANEL_BLOCK..][..blocks * PANEL_BLOCK];
                    plain(scales, quants, input, sums);
                }
            }
            for (instructions, count) in Instructions::all().into_iter().flat_map(|set| [(set, 1), (set, 2)])
            {
                let scales = &scales[..count * blocks * PANEL_SCALES];
                let quants = &quants[..count * blocks * PANEL_BLOCK];
                let mut seen = 0;
                panels(instructions, count, scales, quants, &input, |row, panel, sums| {
                    assert_eq!(
                        sums, &expected[row][panel],
                        "{instructions:?}, {blocks} blocks, row {row} of {rows}, panel {panel} of {count}"
                    );
                    seen += 1;
                });
                assert_eq!(seen, rows * count);
            }
        }
    }
}

#[test]
fn a_panel_is_the_product_of_its_numbers() {
    let blocks = 3;
    let (scales, quants) = weights(blocks, 7);
    let input = inputs(1, blocks, 8);
    let mut sums = [0.0; LANES];
    plain(&scales, &quants, &input, &mut sums);
    for (lane, sum) in sums.iter().enumerate() {
        let mut exact = 0.0_f64;
        for block in 0..blocks {
            let at = 2 * (block * LANES + lane);
            let scale = half::f16::from_le_bytes([scales[at], scales[at + 1]]).to_f64();
            for column in 0..BLOCK {
                let stored = quants[block * PANEL_BLOCK + column / 4 * 64 + lane * 4 + column % 4];
                let weight = (f64::from(stored) - 128.0) * scale;
                exact += weight * f64::from(input[block].scale) * f64::from(input[block].quants[column]);
            }
        }
        assert!((f64::from(*sum) - exact).abs() <= 1e-5 * exact.abs().max(1.0), "{sum} is not {exact}");
    }
}

#[test]
fn quantised_inputs_are_near_and_equal_on_all_instruction_sets() {
    let mut next = noise(3);
    let mut values: Vec<f32> = (0..8 * BLOCK).map(|_| next() as f32 / 1e6 - 1000.0).collect();
    values[..BLOCK].fill(0.0);
    values[BLOCK..2 * BLOCK].fill(1e-42);
    values[2 * BLOCK] = f32::MAX;
    values[3 * BLOCK..4 * BLOCK].fill(-3.5);
    let mut expected = vec![Block::default(); 8];
    quantise_blocks(&values, &mut expected);
    for (values, block) in values.chunks(BLOCK).zip(&expected) {
        let sum: i32 = block.quants.iter().map(|quant| i32::from(*quant)).sum();
        assert_eq!(block.offset, -128 * sum);
        for (value, quant) in values.iter().zip(block.quants) {
            let error = f64::from(*value) - f64::from(block.scale) * f64::from(quant);
            assert!(error.abs() <= 0.501 * f64::from(block.scale) + 1e-36, "{value} became {quant}");
        }
    }
    for instructions in Instructions::all() {
        let mut blocks = vec![Block::default(); 8];
        quantise(instructions, &values, &mut blocks);
        for (block, expected) in blocks.iter().zip(&expected) {
            assert_eq!(block.quants, expected.quants);
            assert_eq!((block.scale, block.offset), (expected.scale, expected.offset));
        }
    }
}
