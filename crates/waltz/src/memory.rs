//! What the allocator is told. How long it keeps what is free is set in `.cargo/config.toml`, because it reads that before the
//! program begins.

/// Gives the system back what a configuration needed while it was built, and the allocator would keep for a while.
#[cfg_attr(target_os = "linux", expect(unsafe_code, reason = "the allocator's own call has no safe form"))]
pub(crate) fn hand_back() {
    // The second is for every arena: 4096 is the number that stands for all of them.
    #[cfg(target_os = "linux")]
    for order in [c"thread.tcache.flush", c"arena.4096.purge"] {
        let (nothing, length) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: orders without a value to read or to write; they release memory that holds no allocation.
        unsafe {
            tikv_jemalloc_sys::mallctl(order.as_ptr(), nothing, length, nothing, 0);
        }
    }
}
