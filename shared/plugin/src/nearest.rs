//! What somebody probably meant.

/// Characters of a name that are compared; longer names are no typing errors.
const COMPARED_MAX: usize = 64;

/// The candidate that is few typing errors away from `text`, if one is.
pub(crate) fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if text.len() > COMPARED_MAX {
        return None;
    }
    let allowed = (text.chars().count() / 3).clamp(1, 4);
    candidates
        .filter(|candidate| candidate.len() <= COMPARED_MAX)
        .map(|candidate| (distance(&text.to_lowercase(), &candidate.to_lowercase()), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// How many characters to insert, delete or replace to get from one to the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_near() {
        let names = ["session.post", "session.messages", "fetch"];
        assert_eq!(nearest("sesion.post", names.into_iter()), Some("session.post"));
        assert_eq!(nearest("Fetch", names.into_iter()), Some("fetch"));
        assert_eq!(nearest("workspace", names.into_iter()), None);
    }
}
