//! Attention over packed sequences: what its kernels need to know of a batch, and how they are called.

use std::rc::Rc;

use cudarc::driver::{CudaSlice, DeviceRepr};

use super::kernels::{Size, launch};
use super::{Cuda, Floats, Numbers, failed, fits};
use crate::Error;
use crate::kernels::rotations;
use crate::train::device::{AttentionShape, Starts};

/// Numbers of a head that the kernels are written for.
pub(super) const HEAD: usize = 64;
/// Rows of a tile.
pub(super) const TILE: usize = 64;
const ATTEND: &str = "attend";

/// What attention keeps for its way back: each row's sum of exponentials, as a base-2 logarithm (heads, rows).
pub struct Attended(pub(super) Floats);

/// Where the sequences of a batch lie, on the GPU.
pub(super) struct Packing {
    starts: Vec<usize>,
    /// Each row's place in its sequence.
    positions: CudaSlice<u32>,
    /// Tiles of queries, those that see most keys first.
    pub(super) queries: CudaSlice<Tile>,
    /// Tiles of keys, those that most queries see first.
    keys: CudaSlice<Tile>,
    pub(super) tiles: usize,
    longest: usize,
}

/// As the kernels read it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Tile {
    first: u32,
    length: u32,
    block: u32,
    unused: u32,
}

// SAFETY: four u32 in C's order, as `tile` in attention.cu.
unsafe impl DeviceRepr for Tile {}

/// As the kernels read it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Shape {
    rows: usize,
    heads: i32,
    kv_heads: i32,
}

// SAFETY: a size_t and two ints in C's order, as `shape` in attention.cu.
unsafe impl DeviceRepr for Shape {}

/// Cosine and sine of every position and pair: (positions, HEAD / 2, 2).
pub(super) struct Turns {
    base: f32,
    positions: usize,
    pub(super) table: Floats,
}

impl Cuda {
    pub(super) fn attention(
        &self,
        shape: AttentionShape,
        rope_base: f32,
        starts: &Starts,
        rows: &Numbers,
        output: &mut Numbers,
    ) -> Result<Attended, Error> {
        let packing = self.packing(starts)?;
        let of = sizes(shape, packing.rows(), rows, output)?;
        let turned = self.turned(of, rope_base, &packing, rows)?;
        let mut sums: Floats = self.memory(of.rows * shape.heads)?;
        let size = Size::blocks(packing.tiles, 128).heads(shape.heads);
        launch!(self, attend, size, &turned, rows, &packing.queries, output, &mut sums, &of)?;
        Ok(Attended(sums))
    }

    /// `given` are the rows, what they gave, what was kept and the gradient that comes back.
    pub(super) fn attention_back(
        &self,
        shape: AttentionShape,
        rope_base: f32,
        starts: &Starts,
        given: (&Numbers, &Numbers, &Attended, &Numbers),
        to_rows: &mut Numbers,
    ) -> Result<(), Error> {
        let (rows, output, Attended(sums), gradient) = given;
        let packing = self.packing(starts)?;
        let of = sizes(shape, packing.rows(), rows, output)?;
        fits(ATTEND, gradient.len(), output.len())?;
        fits(ATTEND, to_rows.len(), rows.len())?;
        fits(ATTEND, sums.len(), of.rows * shape.heads)?;
        let turned = self.turned(of, rope_base, &packing, rows)?;
        let turns = &self.turns(rope_base, packing.longest)?.table;
        let mut alongs: Floats = self.memory(of.rows * shape.heads)?;
        let size = Size::threads(of.rows * shape.heads * 32);
        launch!(self, along, size, output, gradient, &mut alongs, &of)?;
        let size = Size::blocks(packing.tiles, 128);
        launch!(
            self,
            attend_back_queries,
            size.heads(shape.heads),
            &turned,
            rows,
            &packing.queries,
            gradient,
            sums,
            &alongs,
            turns,
            &mut *to_rows,
            &of,
        )?;
        launch!(
            self,
            attend_back_keys,
            size.heads(shape.kv_heads),
            &turned,
            rows,
            &packing.keys,
            gradient,
            sums,
            &alongs,
            turns,
            &mut *to_rows,
            &of,
        )
    }

    /// Queries and keys turned by their positions.
    fn turned(&self, of: Shape, rope_base: f32, packing: &Packing, rows: &Numbers) -> Result<Numbers, Error> {
        let turns = self.turns(rope_base, packing.longest)?;
        let length = rows.len() / (of.heads + 2 * of.kv_heads) as usize * (of.heads + of.kv_heads) as usize;
        let mut turned: Numbers = self.memory(length)?;
        launch!(
            self,
            turn,
            Size::threads(length / 8),
            rows,
            &packing.positions,
            &turns.table,
            &mut turned,
            &of,
        )?;
        Ok(turned)
    }

    /// The angles of at least so many positions.
    pub(super) fn turns(&self, base: f32, positions: usize) -> Result<Rc<Turns>, Error> {
        if let Some(turns) = self.turns.borrow().as_ref()
            && turns.base == base
            && turns.positions >= positions
        {
            return Ok(turns.clone());
        }
        let positions = positions.next_power_of_two();
        let table: Vec<f32> = (0..positions).flat_map(|position| rotations(position, HEAD, base)).collect();
        let turns = Rc::new(Turns { base, positions, table: self.upload(&table)? });
        *self.turns.borrow_mut() = Some(turns.clone());
        Ok(turns)
    }

    pub(super) fn packing(&self, starts: &Starts) -> Result<Rc<Packing>, Error> {
        if let Some(packing) = self.packing.borrow().as_ref()
            && packing.starts == starts
        {
            return Ok(packing.clone());
        }
        let ascending = starts.windows(2).all(|pair| pair[0] < pair[1]);
        let last = starts.last().copied().unwrap_or(0);
        if starts.first() != Some(&0) || !ascending || last == 0 || u32::try_from(last).is_err() {
            return Err(failed(ATTEND)("the starts of sequences do not ascend from 0"));
        }
        let (mut positions, mut tiles, mut longest) = (Vec::with_capacity(last), Vec::new(), 0);
        for pair in starts.windows(2) {
            let length = pair[1] - pair[0];
            longest = longest.max(length);
            positions.extend(0..length as u32);
            let blocks = 0..length.div_ceil(TILE) as u32;
            tiles.extend(blocks.map(|block| Tile {
                first: pair[0] as u32,
                length: length as u32,
                block,
                unused: 0,
            }));
        }
        tiles.sort_by_key(|tile| std::cmp::Reverse(tile.block));
        let queries = self.upload(&tiles)?;
        tiles.sort_by_key(|tile| std::cmp::Reverse(tile.length.div_ceil(TILE as u32) - tile.block));
        let packing = Rc::new(Packing {
            starts: starts.to_vec(),
            positions: self.upload(&positions)?,
            queries,
            keys: self.upload(&tiles)?,
            tiles: tiles.len(),
            longest,
        });
        *self.packing.borrow_mut() = Some(packing.clone());
        Ok(packing)
    }
}

impl Shape {
    /// Sizes as kernels take them.
    pub(super) fn new(rows: usize, heads: usize, kv_heads: usize) -> Result<Self, Error> {
        let small = |count: usize| i32::try_from(count).map_err(failed(ATTEND));
        Ok(Self { rows, heads: small(heads)?, kv_heads: small(kv_heads)? })
    }
}

impl Packing {
    /// Rows of the batch.
    pub(super) fn rows(&self) -> usize {
        self.positions.len()
    }
}

fn sizes(shape: AttentionShape, rows: usize, given: &Numbers, output: &Numbers) -> Result<Shape, Error> {
    let AttentionShape { heads, kv_heads, head } = shape;
    if head != HEAD || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        return Err(failed(ATTEND)(format!("{shape:?}; expected heads of {HEAD} that share keys evenly")));
    }
    fits(ATTEND, given.len(), rows * (heads + 2 * kv_heads) * HEAD)?;
    fits(ATTEND, output.len(), rows * heads * HEAD)?;
    Shape::new(rows, heads, kv_heads)
}
