//! Numbers as files store them, and the 8-bit form that serves.

use half::{bf16, f16};

use crate::TensorType;
use crate::kernels::BLOCK;

/// Decodes the bytes of a tensor. Bytes that do not fill a block are left out: the reader has checked
/// that there are none.
pub(crate) fn dequantise(kind: TensorType, bytes: &[u8]) -> Vec<f32> {
    let blocks = bytes.chunks_exact(kind.block_bytes());
    let mut values = Vec::with_capacity(blocks.len() * kind.block_elements());
    for block in blocks {
        match kind {
            TensorType::F32 => values.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            TensorType::F16 => values.push(half_at(block, 0)),
            TensorType::Bf16 => values.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            TensorType::Q4_1 => {
                let (scale, minimum) = (half_at(block, 0), half_at(block, 2));
                let packed = &block[4..];
                values.extend(packed.iter().map(|byte| f32::from(byte & 15) * scale + minimum));
                values.extend(packed.iter().map(|byte| f32::from(byte >> 4) * scale + minimum));
            }
            TensorType::Q8_0 => {
                let scale = half_at(block, 0);
                values.extend(block[2..].iter().map(|byte| f32::from(*byte as i8) * scale));
            }
        }
    }
    values
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// 32 numbers as a scale and bytes from -127 to 127.
pub(crate) fn quantise(values: &[f32]) -> (f16, [i8; BLOCK]) {
    let highest = values.iter().fold(0.0_f32, |highest, value| highest.max(value.abs()));
    let scale = highest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut bytes = [0; BLOCK];
    for (byte, value) in bytes.iter_mut().zip(values) {
        *byte = (value * inverse).round() as i8;
    }
    (f16::from_f32(scale), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_decoded_as_its_format_says() {
        assert_eq!(dequantise(TensorType::F32, &1.5_f32.to_le_bytes()), [1.5]);
        assert_eq!(dequantise(TensorType::F16, &f16::from_f32(-0.25).to_le_bytes()), [-0.25]);
        assert_eq!(dequantise(TensorType::Bf16, &bf16::from_f32(3.0).to_le_bytes()), [3.0]);
        let mut block = [f16::from_f32(0.5).to_le_bytes(), f16::from_f32(-1.0).to_le_bytes()].concat();
        block.extend((0..16).map(|index| index | (15 - index) << 4));
        let values = dequantise(TensorType::Q4_1, &block);
        for index in 0..16 {
            assert_eq!(values[index], index as f32 * 0.5 - 1.0);
            assert_eq!(values[16 + index], (15 - index) as f32 * 0.5 - 1.0);
        }
        let mut block = f16::from_f32(0.125).to_le_bytes().to_vec();
        block.extend((0..32).map(|index| (index * 8 - 128) as i8 as u8));
        let values = dequantise(TensorType::Q8_0, &block);
        assert_eq!(values[0], -16.0);
        assert_eq!(values[31], 15.0);
        assert_eq!(values.len(), 32);
    }

    #[test]
    fn quantised_numbers_are_near_and_quantising_twice_changes_nothing() {
        let values: Vec<f32> = (0..BLOCK).map(|index| (index as f32 - 15.3) * 0.071).collect();
        let (scale, bytes) = quantise(&values);
        for (value, byte) in values.iter().zip(bytes) {
            // Half a step, and the rounding of the scale to f16.
            assert!((f32::from(byte) * scale.to_f32() - value).abs() < 0.57 * scale.to_f32());
        }
        let again: Vec<f32> = bytes.iter().map(|byte| f32::from(*byte) * scale.to_f32()).collect();
        assert_eq!(quantise(&again), (scale, bytes));
        assert_eq!(quantise(&[0.0; BLOCK]), (f16::ZERO, [0; BLOCK]));
    }
}
