//! The engine's heap: the C library's, counted and bounded, and a note of whether the bound was ever met.
//!
//! The engine's own limit would do for the bound. But an engine with no memory left to make an error object throws
//! `null`, and only the allocator can tell that from a plugin's own `throw null`.

use rquickjs::allocator::Allocator;
use std::cell::Cell;
use std::rc::Rc;

/// Set once the engine was refused memory.
pub type Refused = Rc<Cell<bool>>;

pub struct Heap {
    used_bytes: usize,
    max_bytes: usize,
    refused: Refused,
}

impl Heap {
    pub fn new(max_bytes: u64, refused: Refused) -> Self {
        Self { used_bytes: 0, max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX), refused }
    }

    /// Is there room for so many more bytes?
    fn admits(&self, bytes: usize) -> bool {
        let admitted = self.used_bytes.checked_add(bytes).is_some_and(|used| used <= self.max_bytes);
        if !admitted {
            self.refused.set(true);
        }
        admitted
    }

    fn count(&mut self, pointer: *mut u8) -> *mut u8 {
        if pointer.is_null() {
            self.refused.set(true);
        } else {
            // SAFETY: the pointer was just given out by the C library's allocator.
            self.used_bytes += unsafe { libc::malloc_usable_size(pointer.cast()) };
        }
        pointer
    }
}

// SAFETY: every pointer given out is the C library's, aligned for any type and of at least the size asked for, or
// null; every pointer taken in is one of these, by the trait's own conditions.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if size == 0 || !self.admits(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: no memory is read or written.
        let pointer = unsafe { libc::malloc(size) };
        self.count(pointer.cast())
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        let admitted = count.checked_mul(size).is_some_and(|bytes| bytes > 0 && self.admits(bytes));
        if !admitted {
            return std::ptr::null_mut();
        }
        // SAFETY: no memory is read, and the C library checks the product again.
        let pointer = unsafe { libc::calloc(count, size) };
        self.count(pointer.cast())
    }

    unsafe fn dealloc(&mut self, pointer: *mut u8) {
        if pointer.is_null() {
            return;
        }
        // SAFETY: by the trait's conditions the pointer is one that was given out here and not yet taken back.
        unsafe {
            self.used_bytes = self.used_bytes.saturating_sub(libc::malloc_usable_size(pointer.cast()));
            libc::free(pointer.cast());
        }
    }

    unsafe fn realloc(&mut self, pointer: *mut u8, new_size: usize) -> *mut u8 {
        if pointer.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: by the trait's conditions the pointer is one that was given out here and not yet taken back.
        let old_size = unsafe { libc::malloc_usable_size(pointer.cast()) };
        if new_size == 0 {
            // SAFETY: as above.
            unsafe { self.dealloc(pointer) };
            return std::ptr::null_mut();
        }
        if new_size > old_size && !self.admits(new_size - old_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above; on failure the old block stays as it was.
        let moved = unsafe { libc::realloc(pointer.cast(), new_size) };
        if moved.is_null() {
            self.refused.set(true);
            return std::ptr::null_mut();
        }
        self.used_bytes = self.used_bytes.saturating_sub(old_size);
        self.count(moved.cast())
    }

    unsafe fn usable_size(pointer: *mut u8) -> usize {
        // SAFETY: by the trait's conditions the pointer is one that was given out here and not yet taken back.
        unsafe { libc::malloc_usable_size(pointer.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_ends_at_its_bound_and_says_so() {
        let refused = Refused::default();
        let mut heap = Heap::new(10_000, Rc::clone(&refused));
        let first = heap.alloc(6_000);
        assert!(!first.is_null() && !refused.get());
        assert!(heap.alloc(6_000).is_null() && refused.get());
        // SAFETY: `first` was given out above and is taken back once.
        unsafe { heap.dealloc(first) };
        assert_eq!(heap.used_bytes, 0);
        let again = heap.calloc(3, 2_000);
        assert!(!again.is_null());
        // SAFETY: `again` was given out above; on success it is taken back and `grown` stands for it.
        unsafe {
            let grown = heap.realloc(again, 9_000);
            assert!(!grown.is_null());
            assert!(heap.realloc(grown, 11_000).is_null());
            heap.dealloc(grown);
        }
        assert_eq!(heap.used_bytes, 0);
    }
}
