//! The engine's heap: bounded, with a note of whether the bound was ever met, and laid out for being forked.
//!
//! The engine's own limit would do for the bound. But an engine with no memory left to make an error object throws
//! `null`, and only the allocator can tell that from a plugin's own `throw null`.
//!
//! The engine keeps its small blocks in arenas of up to one page, each with a header that every allocation writes to.
//! Every page that a call writes to is copied for it. So an arena gets a page to itself, where the C library would
//! lay it across two; all else is the C library's.

use rquickjs::allocator::Allocator;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

const PAGE_BYTES: usize = 4096;
/// Blocks of this size and more, up to a page, get a page. The smallest of the engine's arenas is larger.
const ARENA_BYTES_MIN: usize = 3585;
/// Address space for pages, not memory; past it the C library serves arenas too.
pub const SPACE_BYTES: usize = 512 * 1024 * 1024;

/// How much the engine may allocate, and whether it ever wanted more.
#[derive(Clone, Default)]
pub struct Bound(Rc<State>);

struct State {
    max_bytes: Cell<usize>,
    used_bytes: Cell<usize>,
    was_met: Cell<bool>,
}

impl Default for State {
    /// Before there is a plugin there is no bound.
    fn default() -> Self {
        Self { max_bytes: Cell::new(usize::MAX), used_bytes: Cell::new(0), was_met: Cell::new(false) }
    }
}

impl Bound {
    pub fn set(&self, max_bytes: u64) {
        self.0.max_bytes.set(usize::try_from(max_bytes).unwrap_or(usize::MAX));
    }

    /// What the engine holds now.
    pub fn used_bytes(&self) -> usize {
        self.0.used_bytes.get()
    }

    /// Was the engine ever refused memory?
    pub fn was_met(&self) -> bool {
        self.0.was_met.get()
    }
}

pub struct Heap {
    bound: Bound,
    pages: Pages,
}

impl Heap {
    pub fn new(bound: Bound) -> Self {
        Self { bound, pages: Pages::reserve() }
    }

    /// Is there room for so many more bytes?
    fn admits(&self, bytes: usize) -> bool {
        let max_bytes = self.bound.0.max_bytes.get();
        let admitted = self.bound.used_bytes().checked_add(bytes).is_some_and(|used| used <= max_bytes);
        if !admitted {
            self.bound.0.was_met.set(true);
        }
        admitted
    }

    fn release(&mut self, bytes: usize) {
        self.bound.0.used_bytes.set(self.bound.used_bytes().saturating_sub(bytes));
    }

    fn count(&mut self, pointer: *mut u8) -> *mut u8 {
        if pointer.is_null() {
            self.bound.0.was_met.set(true);
        } else {
            // SAFETY: the pointer was just given out here.
            self.bound.0.used_bytes.set(self.bound.used_bytes() + unsafe { Self::usable_size(pointer) });
        }
        pointer
    }
}

// SAFETY: every pointer given out is the C library's or a whole page, aligned for any type and of at least the size
// asked for, or null; every pointer taken in is one of these, by the trait's own conditions.
unsafe impl Allocator for Heap {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if size == 0 || !self.admits(size) {
            return std::ptr::null_mut();
        }
        if (ARENA_BYTES_MIN..=PAGE_BYTES).contains(&size)
            && let Some(page) = self.pages.take()
        {
            return self.count(page);
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
            self.release(Self::usable_size(pointer));
            if is_page(pointer) { self.pages.give_back(pointer) } else { libc::free(pointer.cast()) }
        }
    }

    unsafe fn realloc(&mut self, pointer: *mut u8, new_size: usize) -> *mut u8 {
        if pointer.is_null() {
            return self.alloc(new_size);
        }
        // SAFETY: by the trait's conditions the pointer is one that was given out here and not yet taken back.
        let old_size = unsafe { Self::usable_size(pointer) };
        if new_size == 0 {
            // SAFETY: as above.
            unsafe { self.dealloc(pointer) };
            return std::ptr::null_mut();
        }
        if new_size > old_size && !self.admits(new_size - old_size) {
            return std::ptr::null_mut();
        }
        if is_page(pointer) {
            if (ARENA_BYTES_MIN..=PAGE_BYTES).contains(&new_size) {
                return pointer;
            }
            let moved = self.alloc(new_size);
            if !moved.is_null() {
                // SAFETY: both are there, of at least this size each, and apart; the old one is taken back once.
                unsafe {
                    std::ptr::copy_nonoverlapping(pointer, moved, old_size.min(new_size));
                    self.dealloc(pointer);
                }
            }
            return moved;
        }
        // SAFETY: as above; on failure the old block stays as it was.
        let moved = unsafe { libc::realloc(pointer.cast(), new_size) };
        if moved.is_null() {
            self.bound.0.was_met.set(true);
            return std::ptr::null_mut();
        }
        self.release(old_size);
        self.count(moved.cast())
    }

    unsafe fn usable_size(pointer: *mut u8) -> usize {
        if is_page(pointer) {
            return PAGE_BYTES;
        }
        // SAFETY: by the trait's conditions the pointer is one that was given out here and not yet taken back.
        unsafe { libc::malloc_usable_size(pointer.cast()) }
    }
}

/// Where pages are given out, for all heaps of the process: `usable_size` is asked without one.
static SPACE_START: AtomicUsize = AtomicUsize::new(usize::MAX);

fn is_page(pointer: *mut u8) -> bool {
    // Below the start it wraps around, to far more than the space.
    (pointer as usize).wrapping_sub(SPACE_START.load(Ordering::Relaxed)) < SPACE_BYTES
}

/// Pages out of one stretch of address space, which is the first heap's of the process.
struct Pages {
    next: usize,
    end: usize,
    /// Given back; each holds the address of the one before it.
    free: *mut u8,
}

impl Pages {
    fn reserve() -> Self {
        let none = Self { next: 0, end: 0, free: std::ptr::null_mut() };
        let protection = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let flags = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::NORESERVE;
        // SAFETY: new memory at a place of the kernel's choice.
        let mapped = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), SPACE_BYTES, protection, flags) };
        let Ok(start) = mapped else { return none };
        let first = SPACE_START.compare_exchange(usize::MAX, start as usize, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_err() {
            // SAFETY: it was mapped just now and nothing points into it.
            let _ = unsafe { rustix::mm::munmap(start, SPACE_BYTES) };
            return none;
        }
        Self { next: start as usize, end: start as usize + SPACE_BYTES, free: std::ptr::null_mut() }
    }

    fn take(&mut self) -> Option<*mut u8> {
        if !self.free.is_null() {
            let page = self.free;
            // SAFETY: a page that was given back holds nothing but the address of the one before it.
            self.free = unsafe { page.cast::<*mut u8>().read() };
            return Some(page);
        }
        let page = self.next;
        (page < self.end).then(|| {
            self.next += PAGE_BYTES;
            page as *mut u8
        })
    }

    /// # Safety
    /// `page` was given out here and is nobody's any more.
    unsafe fn give_back(&mut self, page: *mut u8) {
        // SAFETY: the caller's promise; a page is aligned for an address.
        unsafe { page.cast::<*mut u8>().write(self.free) };
        self.free = page;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_ends_at_its_bound_and_says_so() {
        let bound = Bound::default();
        bound.set(10_000);
        let mut heap = Heap::new(bound.clone());
        let first = heap.alloc(6_000);
        assert!(!first.is_null() && !bound.was_met());
        assert!(heap.alloc(6_000).is_null() && bound.was_met());
        // SAFETY: `first` was given out above and is taken back once.
        unsafe { heap.dealloc(first) };
        assert_eq!(heap.bound.used_bytes(), 0);
        let again = heap.calloc(3, 2_000);
        assert!(!again.is_null());
        // SAFETY: `again` was given out above; on success it is taken back and `grown` stands for it.
        unsafe {
            let grown = heap.realloc(again, 9_000);
            assert!(!grown.is_null());
            assert!(heap.realloc(grown, 11_000).is_null());
            heap.dealloc(grown);
        }
        assert_eq!(heap.bound.used_bytes(), 0);
    }

    #[test]
    fn an_arena_is_a_page_and_is_used_again() {
        let mut heap = Heap::new(Bound::default());
        // Another test's heap may have the process's pages; then there is nothing to see here but plain blocks.
        let (first, second) = (heap.alloc(4_000), heap.alloc(4_096));
        assert!(!first.is_null() && !second.is_null() && first != second);
        if is_page(first) {
            assert_eq!((first as usize % PAGE_BYTES, second as usize % PAGE_BYTES), (0, 0));
            // SAFETY: both were given out above; a page of 4,096 bytes is written to its end, and moved.
            unsafe {
                first.write_bytes(7, PAGE_BYTES);
                let moved = heap.realloc(first, 100);
                assert!(!is_page(moved));
                assert_eq!(std::slice::from_raw_parts(moved, 100), [7; 100]);
                assert_eq!(heap.alloc(4_000), first);
                heap.dealloc(moved);
                heap.dealloc(first);
            }
        }
        // SAFETY: given out above, taken back once.
        unsafe { heap.dealloc(second) };
        assert_eq!(heap.bound.used_bytes(), 0);
    }
}
