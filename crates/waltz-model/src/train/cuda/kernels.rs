//! The kernels: loaded once, and how they are started.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, LaunchConfig};
use cudarc::nvrtc::Ptx;

use super::failed;
use crate::Error;

/// What `build.rs` compiled, or nothing.
const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.fatbin"));

macro_rules! kernels {
    ($($name:ident),* $(,)?) => {
        /// The functions of `kernels.cu`, each under its own name.
        pub(super) struct Kernels {
            $(pub(super) $name: CudaFunction,)*
        }

        impl Kernels {
            /// Puts them on the GPU.
            pub(super) fn load(context: &Arc<CudaContext>) -> Result<Self, Error> {
                const LOAD: &str = "load the GPU's kernels";
                if IMAGE.is_empty() {
                    return Err(failed(LOAD)("this program was built without nvcc; build it by `cargo xtask cuda`"));
                }
                let module = context.load_module(Ptx::from_binary(IMAGE.to_vec())).map_err(failed(LOAD))?;
                Ok(Self {
                    $($name: module.load_function(stringify!($name)).map_err(failed(LOAD))?,)*
                })
            }
        }
    };
}

kernels!(
    gather,
    scatter,
    embed_back,
    rms_norm,
    rms_norm_back,
    add_columns,
    gate,
    gate_back,
    turn,
    attend,
    along,
    attend_back_queries,
    attend_back_keys,
    softmax,
    square_sum,
    update,
    layer_norm,
    layer_norm_back,
    gelu,
    gelu_back,
    attend_all,
    attend_all_back_queries,
    attend_all_back_keys,
    keep,
    look_back,
    take,
);

/// How many threads a kernel gets: blocks along both axes, and threads of a block.
#[derive(Clone, Copy)]
pub(super) struct Size {
    blocks: (usize, usize),
    threads: u32,
    shared: usize,
}

impl Size {
    /// At least this many threads, in blocks of 256.
    pub(super) fn threads(count: usize) -> Self {
        Self::blocks(count.div_ceil(256), 256)
    }

    /// This many blocks of so many threads.
    pub(super) fn blocks(blocks: usize, threads: u32) -> Self {
        Self { blocks: (blocks, 1), threads, shared: 0 }
    }

    /// The same for each of some heads.
    pub(super) fn heads(self, heads: usize) -> Self {
        Self { blocks: (self.blocks.0, heads), ..self }
    }

    /// With so many bytes of memory that a block shares.
    pub(super) fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes, ..self }
    }

    /// As the driver wants it.
    pub(super) fn config(self) -> Result<LaunchConfig, Error> {
        let small = |size: usize| {
            let sound = i32::try_from(size).ok().filter(|size| *size > 0).map(i32::cast_unsigned);
            sound.ok_or_else(|| failed("start a kernel")(format!("{size} is no number of blocks")))
        };
        let (x, y) = (small(self.blocks.0)?, small(self.blocks.1)?);
        let shared_mem_bytes = u32::try_from(self.shared).map_err(failed("start a kernel"))?;
        Ok(LaunchConfig { grid_dim: (x, y, 1), block_dim: (self.threads, 1, 1), shared_mem_bytes })
    }
}

/// `launch!(cuda, kernel, size, arguments..)` queues a kernel. Arguments are references, in the kernel's order and of
/// its types; the caller has checked that the buffers are as long as the kernel believes.
macro_rules! launch {
    ($cuda:expr, $kernel:ident, $size:expr, $($argument:expr),* $(,)?) => {{
        let config = $size.config()?;
        let mut call = $cuda.stream.launch_builder(&$cuda.kernels.$kernel);
        $(cudarc::driver::PushKernelArg::arg(&mut call, $argument);)*
        // SAFETY: the arguments are those of the kernel's signature, and the sizes were checked.
        unsafe { call.launch(config) }
            .map(|_| ())
            .map_err($crate::train::cuda::failed(concat!("start the kernel ", stringify!($kernel))))
    }};
}
pub(super) use launch;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_blocks_and_as_many_as_the_driver_takes() {
        let config = Size::threads(1000).heads(3).shared(64).config().unwrap();
        assert_eq!((config.grid_dim, config.block_dim), ((4, 3, 1), (256, 1, 1)));
        assert_eq!(config.shared_mem_bytes, 64);
        assert!(Size::blocks(0, 32).config().is_err() && Size::blocks(1 << 31, 32).config().is_err());
    }
}
