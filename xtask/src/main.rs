//! Development tasks, called as `cargo xtask TASK`.

fn main() {}
