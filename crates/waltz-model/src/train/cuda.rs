//! Training on an NVIDIA GPU: bf16 numbers, f32 masters, gradients and moments, products by cuBLAS, everything else by
//! the kernels beside this file.
//!
//! All work of a [`Cuda`] is queued on one stream, from one thread. Memory comes from the stream's pool, which keeps
//! what a step gave back, so that a step asks the driver for none. The libraries of CUDA are looked for at run time:
//! a program with this module starts on a machine without them.
#![expect(unsafe_code, reason = "kernels and cuBLAS are called through the driver")]

mod attention;
mod encoder;
mod kernels;
mod loss;
pub mod play;
mod products;
mod rows;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::cublas::CudaBlas;
use cudarc::cublas::sys::libraryPropertyType as Property;
use cudarc::driver::result::{device, mem_pool};
use cudarc::driver::sys::CUmemPool_attribute as PoolAttribute;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DeviceRepr};
use half::bf16;

use self::attention::{Attended, Packing, Turns};
use self::kernels::Kernels;
use super::device::{
    AdamW, AttentionShape, Device, Form, Grid, LayerNorm, LogProbabilities, Moments, Sight, Starts,
};
use crate::Error;

/// Numbers on the GPU, rounded to bf16 and kept as its bits.
pub type Numbers = CudaSlice<u16>;
/// Numbers on the GPU in full precision.
pub type Floats = CudaSlice<f32>;

const OPEN: &str = "open the GPU";
/// The major version of CUDA that driver and cuBLAS must have at least.
const CUDA: i32 = 13;

/// One GPU.
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    kernels: Kernels,
    /// Where the sequences of the last batch lie: all layers of a step ask for the same.
    packing: RefCell<Option<Rc<Packing>>>,
    /// Angles of the positions asked for so far.
    turns: RefCell<Option<Rc<Turns>>>,
}

impl Cuda {
    /// Opens the GPU of this number, from 0.
    pub fn new(ordinal: usize) -> Result<Self, Error> {
        // SAFETY: only looks whether the driver's and cuBLAS's libraries can be loaded.
        let found =
            unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::cublas::sys::is_culib_present()) };
        match found {
            (true, true) => {}
            (false, _) => return Err(failed(OPEN)("the NVIDIA driver's library libcuda is not here")),
            (true, false) => {
                let reason = "cuBLAS is not here; LD_LIBRARY_PATH must name the folder of libcublas";
                return Err(failed(OPEN)(reason));
            }
        }
        check_versions()?;
        let context = CudaContext::new(ordinal).map_err(failed(OPEN))?;
        // SAFETY: all work runs on one stream, in order; there is nothing to wait for between streams.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(failed(OPEN))?;
        let blas = CudaBlas::new(stream.clone()).map_err(failed(OPEN))?;
        let kernels = Kernels::load(&context)?;
        let cuda =
            Self { context, stream, blas, kernels, packing: RefCell::default(), turns: RefCell::default() };
        // The pool keeps all memory that it got, instead of giving it back at each wait.
        cuda.set_pool(PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
        Ok(cuda)
    }

    /// What the driver calls the GPU.
    pub fn name(&self) -> Result<String, Error> {
        self.context.name().map_err(failed("name the GPU"))
    }

    /// Waits until everything queued is done.
    pub fn wait(&self) -> Result<(), Error> {
        self.stream.synchronize().map_err(failed("wait for the GPU"))
    }

    /// The most bytes that were in use at once since the last call.
    pub fn peak_memory(&self) -> Result<u64, Error> {
        let attribute = PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        let mut bytes = 0_u64;
        // SAFETY: the device is open, the pool is its own, and the attribute is a u64.
        unsafe {
            device::get_default_mem_pool(self.context.cu_device())
                .and_then(|pool| mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()))
        }
        .map_err(failed("measure the GPU's memory"))?;
        self.set_pool(attribute, 0)?;
        Ok(bytes)
    }

    fn set_pool(&self, attribute: PoolAttribute, mut value: u64) -> Result<(), Error> {
        // SAFETY: the device is open, the pool is its own, and the attributes set here are u64.
        unsafe {
            device::get_default_mem_pool(self.context.cu_device())
                .and_then(|pool| mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()))
        }
        .map_err(failed("set up the GPU's memory"))
    }

    /// Memory as it is: the next operation overwrites all of it.
    fn memory<T: DeviceRepr>(&self, length: usize) -> Result<CudaSlice<T>, Error> {
        // SAFETY: every caller fills the buffer before it is read.
        unsafe { self.stream.alloc(length) }.map_err(failed("take memory of the GPU"))
    }

    fn upload<T: DeviceRepr>(&self, values: &[T]) -> Result<CudaSlice<T>, Error> {
        self.stream.clone_htod(values).map_err(failed("copy to the GPU"))
    }

    fn download<T: DeviceRepr + Default + Clone>(&self, values: &CudaSlice<T>) -> Result<Vec<T>, Error> {
        let copied = self.stream.clone_dtoh(values).map_err(failed("copy from the GPU"))?;
        self.wait()?;
        // An error that a buffer met while it was given back has no other way to be seen.
        self.context.check_err().map_err(failed("use the GPU"))?;
        Ok(copied)
    }
}

/// Refuses libraries that are too old: their missing functions would be noticed only when they are called, by a panic.
fn check_versions() -> Result<(), Error> {
    let (mut driver, mut blas) = (0, 0);
    // SAFETY: both only write one int, exist in every version, and the libraries are there.
    let answers = unsafe {
        (
            cudarc::driver::sys::cuDriverGetVersion(&raw mut driver).result().map_err(failed(OPEN)),
            cudarc::cublas::sys::cublasGetProperty(Property::MAJOR_VERSION, &raw mut blas)
                .result()
                .map_err(failed(OPEN)),
        )
    };
    answers.0.and(answers.1)?;
    // The driver says 13000 for 13.0.
    new_enough("the NVIDIA driver", driver / 1000)?;
    new_enough("cuBLAS", blas)
}

fn new_enough(what: &str, major: i32) -> Result<(), Error> {
    match major >= CUDA {
        true => Ok(()),
        false => Err(failed(OPEN)(format!("{what} is of CUDA {major}; expected {CUDA} or newer"))),
    }
}

/// Wraps what CUDA said for `map_err`.
fn failed<E: ToString>(operation: &'static str) -> impl Fn(E) -> Error {
    move |reason| Error::Device { operation, reason: reason.to_string() }
}

/// Refuses sizes that do not fit each other: a kernel would read past the end of a buffer.
fn fits(operation: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    match found == expected {
        true => Ok(()),
        false => Err(failed(operation)(format!("a buffer has {found} numbers; expected {expected}"))),
    }
}

impl Device for Cuda {
    type Numbers = Numbers;
    type Floats = Floats;
    type Attended = Attended;

    fn rounds(&self) -> bool {
        true
    }

    fn numbers(&self, length: usize) -> Result<Numbers, Error> {
        self.stream.alloc_zeros(length).map_err(failed("take memory of the GPU"))
    }

    fn unset(&self, length: usize) -> Result<Numbers, Error> {
        self.memory(length)
    }

    fn floats(&self, length: usize) -> Result<Floats, Error> {
        self.stream.alloc_zeros(length).map_err(failed("take memory of the GPU"))
    }

    fn load(&self, values: &[f32]) -> Result<Numbers, Error> {
        let rounded: Vec<u16> = values.iter().map(|value| bf16::from_f32(*value).to_bits()).collect();
        self.upload(&rounded)
    }

    fn load_floats(&self, values: &[f32]) -> Result<Floats, Error> {
        self.upload(values)
    }

    fn read(&self, numbers: &Numbers) -> Result<Vec<f32>, Error> {
        Ok(self.download(numbers)?.into_iter().map(|bits| bf16::from_bits(bits).to_f32()).collect())
    }

    fn read_floats(&self, floats: &Floats) -> Result<Vec<f32>, Error> {
        self.download(floats)
    }

    fn clear(&self, floats: &mut Floats) -> Result<(), Error> {
        self.stream.memset_zeros(floats).map_err(failed("clear a buffer"))
    }

    fn copy(&self, from: &Numbers, to: &mut Numbers) -> Result<(), Error> {
        fits("copy a buffer", from.len(), to.len())?;
        self.stream.memcpy_dtod(from, to).map_err(failed("copy a buffer"))
    }

    fn multiply(
        &self,
        form: Form,
        scale: f32,
        left: (&Numbers, Grid),
        right: (&Numbers, Grid),
        keep: f32,
        output: (&mut Numbers, Grid),
    ) -> Result<(), Error> {
        self.product(form, scale, left, right, keep, output)
    }

    fn accumulate(
        &self,
        form: Form,
        scale: f32,
        left: (&Numbers, Grid),
        right: (&Numbers, Grid),
        output: (&mut Floats, Grid),
    ) -> Result<(), Error> {
        self.product(form, scale, left, right, 1.0, output)
    }

    fn embed_back(
        &self,
        gradient: &Numbers,
        width: usize,
        tokens: &[u32],
        table: &mut Floats,
    ) -> Result<(), Error> {
        self.add_by_token(gradient, width, tokens, table)
    }

    fn gather(&self, from: &Numbers, width: usize, rows: &[u32], output: &mut Numbers) -> Result<(), Error> {
        self.gather_rows(from, width, rows, output)
    }

    fn scatter(&self, from: &Numbers, width: usize, rows: &[u32], output: &mut Numbers) -> Result<(), Error> {
        self.scatter_rows(from, width, rows, output)
    }

    fn norm(
        &self,
        input: &Numbers,
        gain: (&Numbers, usize),
        epsilon: f32,
        output: &mut Numbers,
    ) -> Result<(), Error> {
        self.rms_norm(input, gain, epsilon, output)
    }

    fn norm_back(
        &self,
        input: &Numbers,
        gain: (&Numbers, usize),
        epsilon: f32,
        gradient: &Numbers,
        to_input: &mut Numbers,
        to_gain: Option<&mut Floats>,
    ) -> Result<(), Error> {
        self.rms_norm_back(input, gain, epsilon, gradient, to_input, to_gain)
    }

    fn layer_norm(
        &self,
        input: &Numbers,
        norm: LayerNorm<'_, Self>,
        output: &mut Numbers,
    ) -> Result<(), Error> {
        self.normed(input, &norm, output)
    }

    fn layer_norm_back(
        &self,
        input: &Numbers,
        norm: LayerNorm<'_, Self>,
        gradient: &Numbers,
        to_input: &mut Numbers,
        to_norm: Option<(&mut Floats, &mut Floats)>,
    ) -> Result<(), Error> {
        self.normed_back(input, &norm, gradient, to_input, to_norm)
    }

    fn gelu(&self, input: &Numbers, output: &mut Numbers) -> Result<(), Error> {
        self.bent(input, output)
    }

    fn gelu_back(&self, input: &Numbers, gradient: &Numbers, to_input: &mut Numbers) -> Result<(), Error> {
        self.bent_back(input, gradient, to_input)
    }

    fn attend(
        &self,
        shape: AttentionShape,
        sight: Sight,
        starts: &Starts,
        rows: &Numbers,
        output: &mut Numbers,
    ) -> Result<Attended, Error> {
        match sight {
            Sight::Past { rope_base } => self.attention(shape, rope_base, starts, rows, output),
            Sight::All => self.attention_to_all(shape, starts, rows, output),
        }
    }

    fn attend_back(
        &self,
        shape: AttentionShape,
        sight: Sight,
        starts: &Starts,
        rows: &Numbers,
        output: &Numbers,
        kept: &Attended,
        gradient: &Numbers,
        to_rows: &mut Numbers,
    ) -> Result<(), Error> {
        let given = (rows, output, kept, gradient);
        match sight {
            Sight::Past { rope_base } => self.attention_back(shape, rope_base, starts, given, to_rows),
            Sight::All => self.attention_to_all_back(shape, starts, given, to_rows),
        }
    }

    fn gate(&self, both: &Numbers, hidden: usize, output: &mut Numbers) -> Result<(), Error> {
        self.silu_gate(both, hidden, output)
    }

    fn gate_back(
        &self,
        both: &Numbers,
        hidden: usize,
        gradient: &Numbers,
        to_both: &mut Numbers,
    ) -> Result<(), Error> {
        self.silu_gate_back(both, hidden, gradient, to_both)
    }

    fn log_probabilities(&self, head: LogProbabilities<'_, Self>) -> Result<Vec<f64>, Error> {
        self.softmax_in_pieces(head)
    }

    fn square_sum(&self, floats: &[&Floats]) -> Result<f64, Error> {
        self.sum_of_squares(floats)
    }

    fn update(&self, step: &AdamW, tensor: Moments<'_, Self>) -> Result<(), Error> {
        self.adam_w(step, tensor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_libraries_are_refused_by_name() {
        new_enough("cuBLAS", 13).unwrap();
        let error = new_enough("cuBLAS", 12).unwrap_err().to_string();
        assert!(error.contains("cuBLAS is of CUDA 12; expected 13 or newer"), "{error}");
    }

    /// What a user sees on a machine without a GPU. On one that has it, `gpu operations` checks the device itself.
    #[test]
    fn what_is_missing_is_said() {
        match Cuda::new(0) {
            Ok(cuda) => assert!(!cuda.name().unwrap().is_empty()),
            Err(error) => {
                let text = error.to_string();
                let known = ["libcuda", "LD_LIBRARY_PATH", "cargo xtask cuda", "CUDA_ERROR", "or newer"];
                assert!(known.iter().any(|part| text.contains(part)), "{text}");
            }
        }
    }
}
