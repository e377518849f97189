//! A and B of an adapter as bytes: a quarter of the size.

use ::safetensors::Dtype;

use super::AdapterFile;
use crate::Shape;
use crate::weights::Site;

/// A tensor as a file holds it: name, kind, size and bytes.
pub(super) type Stored = (String, Dtype, Vec<usize>, Vec<u8>);

impl AdapterFile {
    /// The same with A and B rounded to what bytes can hold: a quarter of the size.
    pub fn quantised(mut self, shape: &Shape) -> Self {
        let rank = self.note.lora.map_or(1, |lora| lora.rank);
        for (layer, pairs) in self.layers.iter_mut().enumerate() {
            for (site, (a, b)) in Site::of_layer(shape, layer).iter().zip(pairs) {
                for row in a.chunks_exact_mut(site.columns) {
                    let scale = scale_of(row.iter());
                    row.iter_mut().for_each(|value| *value = f32::from(rounded(*value, scale)) * scale);
                }
                let mut first = 0;
                for (_, rows) in &site.parts {
                    let part = &mut b[first * rank..][..rows * rank];
                    for direction in 0..rank {
                        let scale = scale_of(part.iter().skip(direction).step_by(rank));
                        for value in part.iter_mut().skip(direction).step_by(rank) {
                            *value = f32::from(rounded(*value, scale)) * scale;
                        }
                    }
                    first += rows;
                }
            }
        }
        self.note.quantised = true;
        self.note.content = self.content(shape);
        self
    }

    /// Name, kind, size and bytes of each tensor as the file holds it.
    pub(super) fn stored(&self, shape: &Shape) -> Vec<Stored> {
        let mut stored = Vec::new();
        for (name, size, bytes) in self.tensors(shape) {
            let by_row = name.ends_with(".lora_a");
            if !self.note.quantised || !(by_row || name.ends_with(".lora_b")) {
                stored.push((name, Dtype::F32, size, bytes));
                continue;
            }
            let (numbers, _) = bytes.as_chunks::<4>();
            let values: Vec<f32> = numbers.iter().map(|four| f32::from_le_bytes(*four)).collect();
            let (directions, columns) = if by_row { (size[0], size[1]) } else { (size[1], size[1]) };
            let scales: Vec<f32> = (0..directions)
                .map(|direction| match by_row {
                    true => scale_of(values[direction * columns..][..columns].iter()),
                    false => scale_of(values.iter().skip(direction).step_by(columns)),
                })
                .collect();
            let direction = |index: usize| if by_row { index / columns } else { index % columns };
            let quants = values
                .iter()
                .enumerate()
                .map(|(index, value)| rounded(*value, scales[direction(index)]).cast_unsigned());
            stored.push((name.clone(), Dtype::I8, size, quants.collect()));
            let scales: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
            stored.push((format!("{name}.scale"), Dtype::F32, vec![directions], scales));
        }
        stored
    }
}

/// What one step of a byte is worth: the largest number is 127 steps.
fn scale_of<'a>(values: impl Iterator<Item = &'a f32>) -> f32 {
    let largest = values.fold(0.0_f32, |largest, value| largest.max(value.abs()));
    if largest == 0.0 { 1.0 } else { largest / 127.0 }
}

fn rounded(value: f32, scale: f32) -> i8 {
    (value / scale).round().clamp(-127.0, 127.0) as i8
}
