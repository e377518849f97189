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
        let highest =
            highest.iter().fold(0.0_f32, |largest, size| if *size > largest { *size } else { largest });
        let scale = highest / 127.0;
        // Below this the reciprocal overflows; such inputs are nothing.
        let inverse = if scale > 1e-37 { 1.0 / scale } else { 0.0 };
        let mut sum = 0;
        for (quant, value) in block.quants.iter_mut().zip(values) {
            // Adding this rounds to a whole number, ties to even, which then stands in the low bits.
            let bits = (value * inverse + 12_582_912.0).to_bits();
            *quant = bits as i8;
            sum += i32::from(*quant);
        }
        block.scale = scale;
        block.offset = -128 * sum;
    }
}

/// Multiplies one panel with `input`, which is (rows, `blocks`), and hands each row's 16 sums to `each`.
/// `scales` and `quants` are one panel of `blocks` blocks.
pub(crate) fn panel(
    instructions: Instructions,
    scales: &[u8],
    quants: &[u8],
    input: &[Block],
    mut each: impl FnMut(usize, &[f32; LANES]),
) {
    let blocks = scales.len() / PANEL_SCALES;
    assert!(blocks > 0 && quants.len() == blocks * PANEL_BLOCK, "a panel's parts fit together");
    let height = match instructions.level() {
        Level::Scalar => 1,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => 2,
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => 8,
    };
    let mut sums = [[0.0; LANES]; 8];
    let mut first = 0;
    for rows in input.chunks(blocks * height) {
        let count = rows.len() / blocks;
        let sums = &mut sums[..count];
        match (instructions.level(), count) {
            (Level::Scalar, _) => plain(scales, quants, rows, &mut sums[0]),
            // SAFETY: the level proves that the CPU has the instructions; `scales` and `quants` hold
            // `blocks` blocks (asserted), `rows` holds `count` rows of `blocks` (by its making).
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, 2) => unsafe { avx2::panel::<2>(scales, quants, rows, blocks, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2, _) => unsafe { avx2::panel::<1>(scales, quants, rows, blocks, sums) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512, count) => unsafe {
                match count {
                    8 => avx512::panel::<8>(scales, quants, rows, blocks, sums),
                    7 => avx512::panel::<7>(scales, quants, rows, blocks, sums),
                    6 => avx512::panel::<6>(scales, quants, rows, blocks, sums),
                    5 => avx512::panel::<5>(scales, quants, rows, blocks, sums),
                    4 => avx512::panel::<4>(scales, quants, rows, blocks, sums),
                    3 => avx512::panel::<3>(scales, quants, rows, blocks, sums),
                    2 => avx512::panel::<2>(scales, quants, rows, blocks, sums),
                    _ => avx512::panel::<1>(scales, quants, rows, blocks, sums),
                }
            },
        }
        for (row, sums) in sums.iter().enumerate() {
            each(first + row, sums);
        }
        first += count;
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
        _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
    };

    use super::{Block, LANES, PANEL_BLOCK, PANEL_SCALES};

    /// # Safety
    /// `scales` and `quants` hold `blocks` blocks, `rows` holds `ROWS` rows of `blocks`, `sums` `ROWS` rows.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn panel<const ROWS: usize>(
        scales: &[u8],
        quants: &[u8],
        rows: &[Block],
        blocks: usize,
        sums: &mut [[f32; LANES]],
    ) {
        let mut totals = [_mm512_setzero_ps(); ROWS];
        for index in 0..blocks {
            // SAFETY: `index` is below `blocks`, and all slices are as long as the caller promises.
            unsafe {
                let inputs: [&Block; ROWS] =
                    std::array::from_fn(|row| rows.get_unchecked(row * blocks + index));
                let mut dots: [__m512i; ROWS] =
                    std::array::from_fn(|row| _mm512_set1_epi32(inputs[row].offset));
                let weights = quants.as_ptr().add(index * PANEL_BLOCK);
                for group in 0..8 {
                    if ROWS > 4 {
                        // Many rows give the memory time to bring the next panel; it may lie beyond the end.
                        let next = weights.wrapping_add(blocks * PANEL_BLOCK + group * 64);
                        _mm_prefetch::<_MM_HINT_T1>(next.cast());
                    }
                    let weights = _mm512_loadu_si512(weights.add(group * 64).cast());
                    for row in 0..ROWS {
                        let four = inputs[row].quants.as_ptr().add(group * 4).cast::<i32>().read_unaligned();
                        dots[row] = _mm512_dpbusd_epi32(dots[row], weights, _mm512_set1_epi32(four));
                    }
                }
                let scales: __m256i = _mm256_loadu_si256(scales.as_ptr().add(index * PANEL_SCALES).cast());
                let scales = _mm512_cvtph_ps(scales);
                for row in 0..ROWS {
                    let scale = _mm512_mul_ps(scales, _mm512_set1_ps(inputs[row].scale));
                    totals[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[row]), scale, totals[row]);
                }
            }
        }
        for (sums, total) in sums.iter_mut().zip(totals) {
            // SAFETY: 16 floats are one register.
            unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), total) };
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
