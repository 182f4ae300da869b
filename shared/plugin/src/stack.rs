//! Places of the engine turned into the author's.

use crate::problem::Place;
use oxc_sourcemap::SourceMap;
use std::collections::HashMap;
use toolfleet_protocol::Bundle;

/// Bytes of a stack that are looked at; what a plugin makes its own stack of may be anything.
const STACK_BYTES_MAX: usize = 64 * 1024;

/// A stack as the engine writes it (`at f (src/weather.ts:3:9)`), with each place in a file of the bundle turned into
/// the place in the author's file. All else stays as it is.
pub fn map_stack(bundle: &Bundle, stack: &str) -> String {
    let mut maps = HashMap::new();
    let mut mapped = String::with_capacity(stack.len());
    let end = (0..=stack.len().min(STACK_BYTES_MAX)).rev().find(|at| stack.is_char_boundary(*at)).unwrap_or(0);
    for line in stack[..end].split_inclusive('\n') {
        match find(bundle, line) {
            Some(found) => {
                let (line_number, column) = map(bundle, &mut maps, &found).unwrap_or((found.line, found.column));
                mapped.push_str(&line[..found.start]);
                mapped.push_str(&format!("{}:{line_number}:{column}", found.path));
                mapped.push_str(&line[found.end..]);
            }
            None => mapped.push_str(line),
        }
    }
    mapped
}

/// The places in files of the bundle that a stack names, innermost first.
pub(crate) fn places(bundle: &Bundle, stack: &str) -> Vec<Place> {
    let place = |found: Found<'_>| Place { file: found.path.to_owned(), line: found.line, column: found.column };
    stack.lines().filter_map(|line| find(bundle, line)).map(place).collect()
}

struct Found<'a> {
    path: &'a str,
    line: u32,
    column: u32,
    /// Where it stands in the line's text.
    start: usize,
    end: usize,
}

/// `PATH:LINE:COLUMN` (or without a column) at the end of a stack's line, perhaps in parentheses.
fn find<'a>(bundle: &'a Bundle, line: &str) -> Option<Found<'a>> {
    let text = line.trim_end();
    let text = text.strip_suffix(')').unwrap_or(text);
    let end = text.len();
    let (rest, last) = number_at_end(text)?;
    let (path, line_number, column) = match number_at_end(rest) {
        Some((path, line_number)) => (path, line_number, last),
        None => (rest, last, 1),
    };
    // The longest file name that the text ends with, after a space or parenthesis.
    let (path, start) = bundle
        .files
        .keys()
        .filter_map(|file| {
            let start = path.len().checked_sub(file.len())?;
            let before = path.as_bytes().get(start.wrapping_sub(1)).copied();
            let apart = start == 0 || matches!(before, Some(b' ' | b'(' | b'@'));
            (path.ends_with(file.as_str()) && apart).then_some((file.as_str(), start))
        })
        .max_by_key(|(file, _)| file.len())?;
    Some(Found { path, line: line_number, column, start, end })
}

fn number_at_end(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.rsplit_once(':')?;
    let number = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    Some((rest, number))
}

/// The author's line and column for one of the engine's, both from 1.
fn map<'a>(
    bundle: &'a Bundle,
    maps: &mut HashMap<&'a str, Option<SourceMap<'a>>>,
    found: &Found<'a>,
) -> Option<(u32, u32)> {
    let file = bundle.files.get(found.path)?;
    let map = maps.entry(found.path).or_insert_with(|| SourceMap::from_json_string(&file.source_map).ok()).as_ref()?;
    let line = found.line.checked_sub(1)?;
    // The engine counts bytes, from 0 in the first line and from 1 in the others; source maps count UTF-16 units from 0.
    let bytes = if line == 0 { found.column } else { found.column.saturating_sub(1) } as usize;
    let text = file.code.split('\n').nth(line as usize)?;
    let bytes = (0..=bytes.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let column = text[..bytes].encode_utf16().count() as u32;
    let table = map.generate_lookup_table();
    let token = map.lookup_token(&table, line, column)?;
    Some((token.get_src_line() + 1, token.get_src_col() + 1))
}
