//! Training small models: the operations of a step and the devices that compute them.

#[cfg(feature = "cuda")]
pub mod cuda;
pub mod device;
