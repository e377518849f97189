//! Products of 8-bit weights with 8-bit inputs, both in blocks of 32 numbers with one scale each (Q8_0).
//!
//! Weights lie in panels of 16 rows. A panel is, per block of 32 columns, 8 groups of 16 x 4 bytes: four
//! columns of row 0, the same four of row 1 and so on, so that one register holds a group and one
//! multiplication serves 16 rows. Bytes are stored with 128 added: the VNNI instruction multiplies
//! unsigned with signed bytes, and what the 128 adds depends on the input alone, so that it is taken
//! off before the weights are read.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector instructions"))]

use super::LANES;
use super::instructions::{Instructions, Level};
use super::rows::highest_of;

/// Numbers that share a scale.
pub(crate) const BLOCK: usize = 32;
/// Bytes of one block of a panel.
pub(crate) const PANEL_BLOCK: usize = BLOCK * LANES;
/// Bytes of the scales of one block of a panel: 16 f16.
pub(crate) const PANEL_SCALES: usize = 2 * LANES;

/// 32 inputs as bytes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Block {
    /// What a step of one is worth.
    scale: f32,
    /// -128 times the sum of `quants`.
    offset: i32,
    /// From -127 to 127.
    quants: [i8; BLOCK],
}

/// Writes `input` as blocks.
pub(crate) fn quantise(instructions: Instructions, input: &[f32], blocks: &mut [Block]) {
    instructions.compiled(
        #[inline(always)]
        || quantise_blocks(input, blocks),
    );
}

#[inline(always)]
fn quantise_blocks(input: &[f32], blocks: &mut [Block]) {
    for (values, block) in input.chunks_exact(BLOCK).zip(blocks) {
        let mut highest = [0.0_f32; LANES];
        for half in values.chunks_exact(LANES) {
            for lane in 0..LANES {
                let size = half[lane].abs();
                highest[lane] = if size > highest[lane] { size } else { highest[lane] };
            }
        }
        let highest = highest_of(highest);
        let scale = highest / 127.0;
        // Below this the reciprocal overflows; such inputs are nothing.
        let inverse = if scale > 1e-37 { 1.0 / scale } else { 0.0 };
        let mut sum = 0_i32;
        for (quant, value) in block.quants.iter_mut().zip(values) {
            // Adding this rounds to a whole number, ties to even, which then stands in the low bits.
            let bits = (value * inverse + 12_582_912.0).to_bits();
            *quant = bits as i8;
            // Checked for overflow, which cannot be, the loop would not become vector code.
            sum = i32::wrapping_add(sum, i32::from(*quant));
        }
        block.scale = scale;
        block.offset = -128 * sum;
    }
}

/// Multiplies one panel or two neighbours with `input`, which is (rows, blocks), and hands the number of each row, that
/// of the panel and their 16 sums to `each`. `scales` and `quants` hold all blocks of the first panel, then those of
/// the second. Two at once read the input once.
pub(crate) fn panels(
    instructions: Instructions,
    count: usize,
    scales: &[u8],
    quants: &[u8],
    input: &[Block],
    mut each: impl FnMut(usize, usize, &[f32; LANES]),
) {
    assert!(matches!(count, 1 | 2), "one panel or two");
    let blocks = scales.len() / PANEL_SCALES / count;
    assert!(
        blocks > 0
            && scales.len() == count * blocks * PANEL_SCALES
            && quants.len() == count * blocks * PANEL_BLOCK,
        "a panel's parts fit together"
    );
    #[cfg(target_arch = "x86_64")]
    if instructions.level() == Level::Avx512 {
        return wide(count, scales, quants, (input, blocks), each);
    }
    let parts = scales.chunks_exact(blocks * PANEL_SCALES).zip(quants.chunks_exact(blocks * PANEL_BLOCK));
    for (panel, (scales, quants)) in parts.enumerate() {
        narrow(instructions, scales, quants, (input, blocks), |row, sums| each(row, panel, sums));
    }
}

/// One panel, without AVX-512.
fn narrow(
    instructions: Instructions,
    scales: &[u8],
    quants: &[u8],
    (input, blocks): (&[Block], usize),
    mut each: impl FnMut(usize, &[f32; LANES]),
) {
    let height = if instructions.level() == Level::Scalar { 1 } else { 2 };
    let mut sums = [[0.0; LANES]; 2];
    for (turn, rows) in input.chunks(blocks * height).enumerate() {
        let sums = &mut sums[..rows.len() / blocks];
        match (instructions.level(), sums.len()) {
            // SAFETY: the level proves that the CPU has the instructions; `scales` and `quants` hold
            // `blocks` blocks (asserted), `rows` holds as many rows of `blocks` as `sums` has.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, 2) => unsafe { avx2::panel::<2>(scales, quants, rows, blocks, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, _) => unsafe { avx2::panel::<1>(scales, quants, rows, blocks, sums) },
            _ => plain(scales, quants, rows, &mut sums[0]),
        }
        for (row, sums) in sums.iter().enumerate() {
            each(turn * height + row, sums);
        }
    }
}

/// With AVX-512: the caller has looked at the level and at the lengths.
#[cfg(target_arch = "x86_64")]
fn wide(
    count: usize,
    scales: &[u8],
    quants: &[u8],
    (input, blocks): (&[Block], usize),
    mut each: impl FnMut(usize, usize, &[f32; LANES]),
) {
    // Dots and totals of eight, so that the compiler needs no memory for them.
    let height = 8 / count;
    let mut sums = [[0.0; LANES]; 8];
    for (turn, rows) in input.chunks(blocks * height).enumerate() {
        let sums = &mut sums[..rows.len() / blocks * count];
        // SAFETY: `panels` calls this only where the CPU has the instructions, and has asserted that `scales` and
        // `quants` hold `count` times `blocks` blocks; `rows` holds as many rows of `blocks` as are named.
        unsafe {
            match (count, rows.len() / blocks) {
                (2, 4) => avx512::panels::<4, 2>(scales, quants, rows, blocks, sums),
                (2, 3) => avx512::panels::<3, 2>(scales, quants, rows, blocks, sums),
                (2, 2) => avx512::panels::<2, 2>(scales, quants, rows, blocks, sums),
                (2, _) => avx512::panels::<1, 2>(scales, quants, rows, blocks, sums),
                (_, 8) => avx512::panels::<8, 1>(scales, quants, rows, blocks, sums),
                (_, 7) => avx512::panels::<7, 1>(scales, quants, rows, blocks, sums),
                (_, 6) => avx512::panels::<6, 1>(scales, quants, rows, blocks, sums),
                (_, 5) => avx512::panels::<5, 1>(scales, quants, rows, blocks, sums),
                (_, 4) => avx512::panels::<4, 1>(scales, quants, rows, blocks, sums),
                (_, 3) => avx512::panels::<3, 1>(scales, quants, rows, blocks, sums),
                (_, 2) => avx512::panels::<2, 1>(scales, quants, rows, blocks, sums),
                _ => avx512::panels::<1, 1>(scales, quants, rows, blocks, sums),
            }
        }
        for (at, sums) in sums.iter().enumerate() {
            each(turn * height + at / count, at % count, sums);
        }
    }
}

/// One row, in plain code: what the other kernels are tested against.
fn plain(scales: &[u8], quants: &[u8], row: &[Block], sums: &mut [f32; LANES]) {
    *sums = [0.0; LANES];
    let panels = scales.chunks_exact(PANEL_SCALES).zip(quants.chunks_exact(PANEL_BLOCK));
    for ((scales, quants), block) in panels.zip(row) {
        for (lane, sum) in sums.iter_mut().enumerate() {
            let mut dot = block.offset;
            for (group, inputs) in block.quants.chunks_exact(4).enumerate() {
                let weights = &quants[group * 64 + lane * 4..][..4];
                for (weight, input) in weights.iter().zip(inputs) {
                    dot += i32::from(*weight) * i32::from(*input);
                }
            }
            let scale = half::f16::from_le_bytes([scales[2 * lane], scales[2 * lane + 1]]).to_f32();
            *sum = (dot as f32).mul_add(scale * block.scale, *sum);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{
        __m256i, __m512i, _MM_HINT_T1, _mm_prefetch, _mm256_loadu_si256, _mm512_cvtepi32_ps, _mm512_cvtph_ps,
        _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32,
        _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
    };

    use super::{Block, LANES, PANEL_BLOCK, PANEL_SCALES};

    /// # Safety
    /// `scales` and `quants` hold `blocks` blocks of each of `PANELS` panels, `rows` holds `ROWS` rows of `blocks`,
    /// `sums` is (`ROWS`, `PANELS`).
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn panels<const ROWS: usize, const PANELS: usize>(
        scales: &[u8],
        quants: &[u8],
        rows: &[Block],
        blocks: usize,
        sums: &mut [[f32; LANES]],
    ) {
        let mut totals = [[_mm512_setzero_ps(); PANELS]; ROWS];
        for index in 0..blocks {
            // SAFETY: `index` is below `blocks`, and all slices are as long as the caller promises.
            unsafe {
                let inputs: [&Block; ROWS] =
                    std::array::from_fn(|row| rows.get_unchecked(row * blocks + index));
                let mut dots: [[__m512i; PANELS]; ROWS] =
                    std::array::from_fn(|row| [_mm512_set1_epi32(inputs[row].offset); PANELS]);
                let weights = quants.as_ptr().add(index * PANEL_BLOCK);
                for group in 0..8 {
                    let mut columns = [_mm512_setzero_si512(); PANELS];
                    for (panel, column) in columns.iter_mut().enumerate() {
                        let at = weights.add(panel * blocks * PANEL_BLOCK + group * 64);
                        if ROWS > 4 {
                            // Many rows give the memory time to bring the next panels, which may lie beyond the end.
                            let next = at.wrapping_add(PANELS * blocks * PANEL_BLOCK);
                            _mm_prefetch::<_MM_HINT_T1>(next.cast());
                        }
                        *column = _mm512_loadu_si512(at.cast());
                    }
                    for row in 0..ROWS {
                        let four = inputs[row].quants.as_ptr().add(group * 4).cast::<i32>().read_unaligned();
                        let four = _mm512_set1_epi32(four);
                        for (dot, column) in dots[row].iter_mut().zip(columns) {
                            *dot = _mm512_dpbusd_epi32(*dot, column, four);
                        }
                    }
                }
                for panel in 0..PANELS {
                    let at = scales.as_ptr().add((panel * blocks + index) * PANEL_SCALES);
                    let scales = _mm512_cvtph_ps(_mm256_loadu_si256(at.cast::<__m256i>()));
                    for row in 0..ROWS {
                        let scale = _mm512_mul_ps(scales, _mm512_set1_ps(inputs[row].scale));
                        let dot = _mm512_cvtepi32_ps(dots[row][panel]);
                        totals[row][panel] = _mm512_fmadd_ps(dot, scale, totals[row][panel]);
                    }
                }
            }
        }
        for (sums, total) in sums.iter_mut().zip(totals.as_flattened()) {
            // SAFETY: 16 floats are one register.
            unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), *total) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_loadu_si128, _mm256_abs_epi8, _mm256_add_epi32, _mm256_cvtepi32_ps, _mm256_cvtph_ps,
        _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_maddubs_epi16, _mm256_mul_ps,
        _mm256_set1_epi8, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps,
        _mm256_setzero_si256, _mm256_sign_epi8, _mm256_storeu_ps, _mm256_xor_si256,
    };

    use super::{Block, LANES, PANEL_BLOCK, PANEL_SCALES};

    /// Multiplies signed bytes: sizes of weights times inputs with the weights' signs. The sums of two
    /// products stay below 2 x 128 x 127 and so within 16 bits.
    ///
    /// # Safety
    /// As for the AVX-512 kernel.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn panel<const ROWS: usize>(
        scales: &[u8],
        quants: &[u8],
        rows: &[Block],
        blocks: usize,
        sums: &mut [[f32; LANES]],
    ) {
        let (sign, ones) = (_mm256_set1_epi8(i8::MIN), _mm256_set1_epi16(1));
        let mut totals = [[_mm256_setzero_ps(); 2]; ROWS];
        for index in 0..blocks {
            // SAFETY: `index` is below `blocks`, and all slices are as long as the caller promises.
            unsafe {
                let inputs: [&Block; ROWS] =
                    std::array::from_fn(|row| rows.get_unchecked(row * blocks + index));
                let mut dots = [[_mm256_setzero_si256(); 2]; ROWS];
                let weights = quants.as_ptr().add(index * PANEL_BLOCK);
                for group in 0..8 {
                    for half in [0, 1] {
                        let stored: __m256i = _mm256_loadu_si256(weights.add(group * 64 + half * 32).cast());
                        let signed = _mm256_xor_si256(stored, sign);
                        let sizes = _mm256_abs_epi8(signed);
                        for row in 0..ROWS {
                            let four =
                                inputs[row].quants.as_ptr().add(group * 4).cast::<i32>().read_unaligned();
                            let turned = _mm256_sign_epi8(_mm256_set1_epi32(four), signed);
                            let products = _mm256_madd_epi16(_mm256_maddubs_epi16(sizes, turned), ones);
                            dots[row][half] = _mm256_add_epi32(dots[row][half], products);
                        }
                    }
                }
                for half in [0, 1] {
                    let scales = scales.as_ptr().add(index * PANEL_SCALES + half * 16);
                    let scales = _mm256_cvtph_ps(_mm_loadu_si128(scales.cast()));
                    for row in 0..ROWS {
                        let scale = _mm256_mul_ps(scales, _mm256_set1_ps(inputs[row].scale));
                        let dot = _mm256_cvtepi32_ps(dots[row][half]);
                        totals[row][half] = _mm256_fmadd_ps(dot, scale, totals[row][half]);
                    }
                }
            }
        }
        for (sums, total) in sums.iter_mut().zip(totals) {
            // SAFETY: 16 floats are two registers.
            unsafe {
                _mm256_storeu_ps(sums.as_mut_ptr(), total[0]);
                _mm256_storeu_ps(sums.as_mut_ptr().add(8), total[1]);
            }
        }
    }
}

#[cfg(test)]
#[path = "int8/tests.rs"]
mod tests;
