//! Copies out of the engine's memory. The engine hands out pointers that hold until JavaScript runs again; these
//! copy at once.

use rquickjs::{CString, Error, Result, String as JsString, TypedArray};

/// A string as UTF-8; each half of a character without its other half becomes U+FFFD. Fails as out of memory, and never
/// gives something else in its place.
pub fn text(string: &JsString<'_>) -> Result<String> {
    let chars = CString::from_string(string.clone()).map_err(|_| Error::Allocation)?;
    // SAFETY: the engine keeps `len` bytes there for as long as `chars` lives, and no JavaScript runs meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(chars.as_ptr().cast::<u8>(), chars.len()) };
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => lossy(bytes),
    })
}

/// The engine writes a lone surrogate as the three bytes that UTF-8 forbids; each becomes one replacement.
fn lossy(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Err(error) = std::str::from_utf8(rest) {
        let (good, bad) = rest.split_at(error.valid_up_to());
        out.push_str(&String::from_utf8_lossy(good));
        out.push('\u{fffd}');
        rest = bad.get(3..).unwrap_or_default();
    }
    out.push_str(&String::from_utf8_lossy(rest));
    out
}

/// The bytes of a view; nothing if its buffer is detached.
pub fn bytes(view: &TypedArray<'_, u8>) -> Option<Vec<u8>> {
    // SAFETY: no JavaScript runs before the copy is made.
    unsafe { view.as_bytes() }.map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_characters_are_replaced_one_by_one() {
        assert_eq!(lossy(b"a\xed\xa0\x80b\xed\xbf\xbf"), "a\u{fffd}b\u{fffd}");
    }
}
