// Characters of a name: short enough for every file system, long enough to recognise the note.
const LENGTH_MAX = 60;

/**
 * A file name made from a title: letters and digits of any script, all else becomes one '-'.
 *
 * `save_note` keeps only a to z, so "日記" and "???" both become "-" and the second overwrites the first. Here "日記"
 * stays as it is, and a title without any letter or digit is refused.
 */
export function fileName(title: string): string {
  const name = title
    .normalize("NFC")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-+|-+$/g, "");
  if (name === "") throw new TypeError("title must hold at least one letter or digit");
  // By code points, so that no character is cut in half.
  return [...name].slice(0, LENGTH_MAX).join("").replace(/-+$/, "");
}
