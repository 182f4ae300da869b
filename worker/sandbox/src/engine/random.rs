//! Random numbers for plugin code. A fork copies the generator, so it is seeded anew in every process.

use std::cell::RefCell;
use std::rc::Rc;

/// Bytes from the kernel, some at a time.
#[derive(Clone, Default)]
pub struct Random(Rc<RefCell<Pool>>);

const POOL_BYTES: usize = 256;

struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self { bytes: [0; POOL_BYTES], used: POOL_BYTES }
    }
}

impl Random {
    /// Throws away what a parent may have seen too.
    pub fn forget(&self) {
        let mut pool = self.0.borrow_mut();
        pool.bytes = [0; POOL_BYTES];
        pool.used = POOL_BYTES;
    }

    /// Fills `buffer`.
    pub fn fill(&self, buffer: &mut [u8]) {
        let mut pool = self.0.borrow_mut();
        for byte in buffer {
            if pool.used == POOL_BYTES {
                from_kernel(&mut pool.bytes);
                pool.used = 0;
            }
            let at = pool.used;
            // Taken bytes are cleared, so that nothing read later tells what was given out.
            *byte = std::mem::take(&mut pool.bytes[at]);
            pool.used += 1;
        }
    }

    /// Uniform in [0, 1), 53 bits of it.
    pub fn fraction(&self) -> f64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        (u64::from_le_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A version 4 UUID.
    pub fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

fn from_kernel(buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::rand::getrandom(&mut buffer[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            // Predictable numbers would be worse than none.
            Err(_) => crate::process::exit_now(crate::call::EXIT_NO_RANDOM),
        }
    }
}
