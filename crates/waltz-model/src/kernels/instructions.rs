//! Which vector instructions this CPU has.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "code for instructions that not every CPU has")
)]

use std::sync::OnceLock;

/// The instruction sets that kernels are written for. A value is proof that the CPU has them: it can be
/// made only by asking the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instructions(Level);

/// See [`Instructions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Plain code.
    Scalar,
    /// AVX2, FMA and F16C.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW and VNNI, and all of the above.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Instructions {
    /// The best that this CPU has.
    pub(crate) fn best() -> Self {
        static BEST: OnceLock<Instructions> = OnceLock::new();
        *BEST.get_or_init(|| Self::all().last().copied().unwrap_or(Self(Level::Scalar)))
    }

    /// Everything that this CPU has, plain code first.
    pub(crate) fn all() -> Vec<Self> {
        let mut found = vec![Self(Level::Scalar)];
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
        {
            found.push(Self(Level::Avx2));
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512vnni")
            {
                found.push(Self(Level::Avx512));
            }
        }
        found
    }

    /// Which of them this is.
    pub(crate) fn level(self) -> Level {
        self.0
    }

    /// Runs plain loops compiled for these instructions. Everything that `work` calls must be inlined
    /// into it.
    #[inline(always)]
    pub(crate) fn compiled<R>(self, work: impl FnOnce() -> R) -> R {
        match self.0 {
            Level::Scalar => work(),
            // SAFETY: the level proves that the CPU has the instructions.
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => unsafe { compiled_for_avx2(work) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => unsafe { compiled_for_avx512(work) },
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn compiled_for_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,fma,f16c")]
fn compiled_for_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}
