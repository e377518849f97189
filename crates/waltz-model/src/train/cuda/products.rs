//! Matrix products, by cuBLAS: factors in bf16, sums in f32.

use cudarc::cublas::result::gemm_ex;
use cudarc::cublas::sys::{
    cublasComputeType_t as Compute, cublasGemmAlgo_t as Algorithm, cublasOperation_t as Operation,
    cudaDataType as Kind,
};
use cudarc::driver::{CudaSlice, DevicePtr, DevicePtrMut};

use super::{Cuda, Numbers, failed};
use crate::Error;
use crate::train::device::{Form, Grid};

/// What a product can be written as.
pub(super) trait Written {
    const KIND: Kind;
}

/// The bits of bf16.
impl Written for u16 {
    const KIND: Kind = Kind::CUDA_R_16BF;
}

impl Written for f32 {
    const KIND: Kind = Kind::CUDA_R_32F;
}

const MULTIPLY: &str = "multiply matrices";

impl Cuda {
    /// `output = keep * output + scale * left x right`.
    pub(super) fn product<T: Written>(
        &self,
        form: Form,
        scale: f32,
        left: (&Numbers, Grid),
        right: (&Numbers, Grid),
        keep: f32,
        output: (&mut CudaSlice<T>, Grid),
    ) -> Result<(), Error> {
        let (rows, columns) = (output.1.rows, output.1.columns);
        let (left_size, right_size, steps) = match form {
            Form::Plain => ((rows, left.1.columns), (left.1.columns, columns), left.1.columns),
            Form::RightTransposed => ((rows, left.1.columns), (columns, left.1.columns), left.1.columns),
            Form::LeftTransposed => ((left.1.rows, rows), (left.1.rows, columns), left.1.rows),
        };
        inside(left.1, left_size, left.0.len())?;
        inside(right.1, right_size, right.0.len())?;
        inside(output.1, (rows, columns), output.0.len())?;
        // cuBLAS counts along columns first: in its eyes each of our matrices is transposed, so that the product
        // has its factors the other way round.
        let (of_right, of_left) = match form {
            Form::Plain => (Operation::CUBLAS_OP_N, Operation::CUBLAS_OP_N),
            Form::RightTransposed => (Operation::CUBLAS_OP_T, Operation::CUBLAS_OP_N),
            Form::LeftTransposed => (Operation::CUBLAS_OP_N, Operation::CUBLAS_OP_T),
        };
        let size = |size: usize| i32::try_from(size).map_err(failed(MULTIPLY));
        let (left_at, _left) = left.0.device_ptr(&self.stream);
        let (right_at, _right) = right.0.device_ptr(&self.stream);
        let (output_at, _output) = output.0.device_ptr_mut(&self.stream);
        let bytes = size_of::<u16>() as u64;
        // SAFETY: all three rectangles lie inside of their buffers, which live until the stream is done with them.
        unsafe {
            gemm_ex(
                *self.blas.handle(),
                of_right,
                of_left,
                size(columns)?,
                size(rows)?,
                size(steps)?,
                (&raw const scale).cast(),
                (right_at + right.1.first as u64 * bytes) as *const _,
                Kind::CUDA_R_16BF,
                size(right.1.stride)?,
                (left_at + left.1.first as u64 * bytes) as *const _,
                Kind::CUDA_R_16BF,
                size(left.1.stride)?,
                (&raw const keep).cast(),
                (output_at + output.1.first as u64 * size_of::<T>() as u64) as *mut _,
                T::KIND,
                size(output.1.stride)?,
                Compute::CUBLAS_COMPUTE_32F,
                Algorithm::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(failed(MULTIPLY))
    }
}

/// Refuses a rectangle of another size, or one that does not lie inside of its buffer.
fn inside(grid: Grid, (rows, columns): (usize, usize), length: usize) -> Result<(), Error> {
    let end = (grid.rows.max(1) - 1) * grid.stride + grid.columns + grid.first;
    let sound = grid.rows == rows && grid.columns == columns && rows * columns > 0;
    match sound && grid.columns <= grid.stride && end <= length {
        true => Ok(()),
        false => {
            let reason = format!("{grid:?} in a buffer of {length} numbers; expected {rows} x {columns}");
            Err(failed(MULTIPLY)(reason))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rectangle_must_lie_inside_of_its_buffer() {
        let whole = Grid::whole(4, 6);
        inside(whole, (4, 6), 24).unwrap();
        inside(whole.columns(2, 3), (4, 3), 24).unwrap();
        inside(whole.rows(1, 3), (3, 6), 24).unwrap();
        // The last row may end where the buffer does, though another whole row would not fit.
        inside(whole.columns(0, 2), (4, 2), 20).unwrap();
        let refused = [
            (whole, (4, 6), 23),
            (whole, (6, 4), 24),
            (whole.rows(2, 3), (3, 6), 24),
            (Grid { columns: 7, ..whole }, (4, 7), 100),
            (whole.rows(0, 0), (0, 6), 24),
        ];
        for (grid, size, length) in refused {
            assert!(inside(grid, size, length).is_err(), "{grid:?} as {size:?} in {length}");
        }
    }
}
