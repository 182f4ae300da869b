//! How deeply a text can be nested, before anything recursive looks at it.
//!
//! The parser, and each pass after it, recurse with the nesting of the text: a megabyte of `(`, of `!`, of `a=>` or
//! of `1+` would overflow any stack, and an overflow ends the process. So each file gets an upper bound first, from one
//! pass over its bytes; a text whose bound is over [`NESTING_MAX`] is refused. Parsing then runs on a stack that
//! is large enough for [`NESTING_MAX`] levels of the greediest construct.

/// Levels that the stack is sized for. A text of at most so many bytes can't have more.
///
/// Far above what people write: it counts brackets and the tokens of one statement. A process that parsed each construct
/// of the tests at this bound was seen to take 72 MB in all, less than a third of the stack it has.
pub(crate) const NESTING_MAX: usize = 4096;

/// What a `<` counts for. The parser takes it for the start of type arguments until it finds that it isn't, and then
/// reads what follows again: with each `<` inside of others that is over and over. Four hundred are a tenth of a second.
const ANGLE_LEVELS: usize = 8;

/// Is the text surely nested less than [`NESTING_MAX`] levels deep?
pub(crate) fn is_shallow(text: &str) -> bool {
    too_deep_at(text).is_none()
}

/// The byte from which on the text may be nested more than [`NESTING_MAX`] levels deep.
pub(crate) fn too_deep_at(text: &str) -> Option<usize> {
    if text.len() <= NESTING_MAX / ANGLE_LEVELS {
        return None;
    }
    let scan = scanned(text);
    (scan.deepest > NESTING_MAX).then_some(scan.too_deep_at)
}

/// What opened a level.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opened {
    /// The text itself, `{`, `[`.
    Plain,
    /// `(`; true after `if`, `while`, `for` and `with`, where a statement follows the `)`.
    Paren(bool),
    /// `${` in a template.
    Template,
}

struct Level {
    opened: Opened,
    /// Tokens since the last statement or list element ended at this level: each may hold all that follow it.
    tokens: usize,
    /// Those that a `,` does not end: up to the last `<`, since it may stand between type arguments, and up to the last
    /// `if`, `for`, label and the like, which hold a statement.
    kept: usize,
}

/// What a `/` would be after the last token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Value,
    Operator,
    /// It takes a parser to tell.
    Unclear,
}

/// Finds at most how many levels deep any recursive reading of `text` goes. Where the text can't be split into tokens
/// without a real parser, every byte that is left counts as a level.
fn scanned(text: &str) -> Scan<'_> {
    let bytes = text.as_bytes();
    let mut scan = Scan { bytes, at: 0, levels: Vec::new(), open_tokens: 0, deepest: 0, too_deep_at: 0 };
    scan.push(Opened::Plain);
    if scan.run().is_none() {
        scan.deepen(scan.open_tokens + (bytes.len() - scan.at.min(bytes.len())));
    }
    scan
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    levels: Vec<Level>,
    /// The sum of all levels' tokens.
    open_tokens: usize,
    deepest: usize,
    /// Where [`NESTING_MAX`] was passed first.
    too_deep_at: usize,
}

impl Scan<'_> {
    fn deepen(&mut self, levels: usize) {
        if levels > NESTING_MAX && self.deepest <= NESTING_MAX {
            self.too_deep_at = self.at.min(self.bytes.len());
        }
        self.deepest = self.deepest.max(levels);
    }

    fn push(&mut self, opened: Opened) {
        self.levels.push(Level { opened, tokens: 0, kept: 0 });
    }

    fn token(&mut self) {
        self.tokens(1);
    }

    fn tokens(&mut self, count: usize) {
        if let Some(level) = self.levels.last_mut() {
            level.tokens += count;
            self.open_tokens += count;
            self.deepen(self.open_tokens);
        }
    }

    /// All tokens so far stay open past a `,`.
    fn keep(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            level.kept = level.tokens;
        }
    }

    /// A `,`: what stood before it at this level is over, but for what is kept.
    fn end_element(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            self.open_tokens -= level.tokens - level.kept;
            level.tokens = level.kept;
        }
    }

    /// A statement or a class's member is over.
    fn end_statement(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            self.open_tokens -= level.tokens;
            level.tokens = 0;
            level.kept = 0;
        }
    }

    fn pop(&mut self) -> Opened {
        if self.levels.len() < 2 {
            return Opened::Plain;
        }
        let level = self.levels.pop().expect("there are at least two");
        self.open_tokens -= level.tokens;
        level.opened
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn starts_with(&self, text: &[u8]) -> bool {
        self.bytes[self.at..].starts_with(text)
    }

    /// A line's end at the current byte: `\n`, `\r`, or one of Unicode's two.
    fn at_line_end(&self) -> bool {
        matches!(self.peek(0), b'\n' | b'\r') || self.starts_with(b"\xe2\x80\xa8") || self.starts_with(b"\xe2\x80\xa9")
    }

    /// `None` where the text can't be split further with certainty.
    fn run(&mut self) -> Option<()> {
        let mut before = Before::Operator;
        // The word that is the last token, and whether the last token is `.` or `?.`.
        let mut word: &[u8] = b"";
        let mut after_dot = false;
        let mut line_start = true;
        // The last token is `;`, or a `}` that ends more than a template's hole.
        let mut ended = false;
        // A word here would start a statement, and a `:` after it make it a label.
        let mut starts = true;
        let mut may_be_label = false;
        if self.starts_with(b"#!") {
            self.skip_line();
        }
        while self.at < self.bytes.len() {
            let byte = self.peek(0);
            if self.at_line_end() {
                line_start = true;
                self.at += 1;
                continue;
            }
            if byte.is_ascii_whitespace() || byte == 0x0b {
                self.at += 1;
                continue;
            }
            if byte == b'/' && self.peek(1) == b'/' {
                self.skip_line();
                continue;
            }
            if byte == b'/' && self.peek(1) == b'*' {
                self.skip_block_comment();
                continue;
            }
            // Comments of another age, in scripts only.
            if self.starts_with(b"<!--") || (line_start && self.starts_with(b"-->")) {
                return None;
            }
            line_start = false;
            if is_word(byte) || (byte == b'.' && self.peek(1).is_ascii_digit()) {
                let start = self.at;
                let number = byte.is_ascii_digit() || byte == b'.';
                self.at += 1;
                while self.at < self.bytes.len() && (is_word(self.peek(0)) || (number && self.peek(0) == b'.')) {
                    // Unicode's line ends are made of the same bytes as letters.
                    if self.at_line_end() {
                        break;
                    }
                    self.at += 1;
                }
                let found = &self.bytes[start..self.at];
                if std::mem::take(&mut ended) && !continues(found) {
                    self.end_statement();
                }
                self.token();
                may_be_label = starts;
                starts = matches!(found, b"else" | b"do") && !after_dot;
                if matches!(found, b"if" | b"else" | b"for" | b"while" | b"do" | b"with") {
                    self.keep();
                }
                before = if after_dot || number { Before::Value } else { before_slash(found) };
                word = if after_dot { b"" } else { found };
                after_dot = false;
                continue;
            }
            let semicolon_before = std::mem::take(&mut ended) && before == Before::Operator;
            if semicolon_before {
                self.end_statement();
            }
            let label_word = std::mem::take(&mut may_be_label);
            starts = false;
            let last_word = std::mem::take(&mut word);
            after_dot = false;
            match byte {
                b'"' | b'\'' => {
                    self.skip_string(byte);
                    self.token();
                    before = Before::Value;
                }
                b'`' => {
                    self.token();
                    self.at += 1;
                    before = self.template();
                }
                b'/' => match before {
                    Before::Unclear => return None,
                    Before::Operator => {
                        self.skip_regex();
                        self.token();
                        before = Before::Value;
                    }
                    Before::Value => {
                        self.at += 1;
                        self.token();
                        before = Before::Operator;
                    }
                },
                b'(' | b'[' | b'{' => {
                    self.at += 1;
                    self.token();
                    let statement = matches!(last_word, b"if" | b"while" | b"for" | b"with");
                    self.push(if byte == b'(' { Opened::Paren(statement) } else { Opened::Plain });
                    starts = byte == b'{';
                    before = Before::Operator;
                }
                b')' | b']' | b'}' => {
                    self.at += 1;
                    before = match (self.pop(), byte) {
                        (Opened::Template, b'}') => self.template(),
                        (Opened::Paren(true), b')') => {
                            starts = true;
                            Before::Operator
                        }
                        (_, b'}') => {
                            ended = true;
                            starts = true;
                            Before::Unclear
                        }
                        _ => Before::Value,
                    };
                }
                b';' => {
                    self.at += 1;
                    ended = true;
                    starts = true;
                    before = Before::Operator;
                }
                b',' => {
                    self.at += 1;
                    self.end_element();
                    before = Before::Operator;
                }
                b'.' => {
                    self.token();
                    after_dot = self.peek(1) != b'.';
                    self.at += if after_dot { 1 } else { 3 };
                    before = Before::Operator;
                }
                b'?' if self.peek(1) == b'.' && !self.peek(2).is_ascii_digit() => {
                    self.token();
                    self.at += 2;
                    after_dot = true;
                    before = Before::Operator;
                }
                _ => {
                    self.tokens(if byte == b'<' { ANGLE_LEVELS } else { 1 });
                    let label = byte == b':' && label_word;
                    if byte == b'<' || label {
                        self.keep();
                    }
                    // After `case x:` too.
                    starts = byte == b':';
                    before = match (byte, self.peek(1)) {
                        (b'+', b'+') | (b'-', b'-') => Before::Unclear,
                        (b'=', b'>') => Before::Operator,
                        (b'>', _) => Before::Unclear,
                        (b'!', _) if before != Before::Operator => Before::Unclear,
                        _ => Before::Operator,
                    };
                    let pair = matches!((byte, self.peek(1)), (b'+', b'+') | (b'-', b'-') | (b'=', b'>'));
                    self.at += 1 + usize::from(pair);
                }
            }
        }
        Some(())
    }

    fn skip_line(&mut self) {
        while self.at < self.bytes.len() && !self.at_line_end() {
            self.at += 1;
        }
    }

    fn skip_block_comment(&mut self) {
        self.at += 2;
        while self.at < self.bytes.len() && !self.starts_with(b"*/") {
            self.at += 1;
        }
        self.at += 2;
    }

    fn skip_string(&mut self, quote: u8) {
        self.at += 1;
        while self.at < self.bytes.len() {
            match self.peek(0) {
                b'\\' => self.at += if self.peek(1) == b'\r' && self.peek(2) == b'\n' { 3 } else { 2 },
                b'\n' | b'\r' => return,
                other => {
                    self.at += 1;
                    if other == quote {
                        return;
                    }
                }
            }
        }
    }

    fn skip_regex(&mut self) {
        self.at += 1;
        let mut in_class = false;
        while self.at < self.bytes.len() && !self.at_line_end() {
            match self.peek(0) {
                b'\\' => self.at += 1,
                b'[' => in_class = true,
                b']' => in_class = false,
                b'/' if !in_class => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
    }

    /// Inside a template, up to its end or its next `${`.
    fn template(&mut self) -> Before {
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'\\', _) => self.at += 2,
                (b'`', _) => {
                    self.at += 1;
                    return Before::Value;
                }
                (b'$', b'{') => {
                    self.at += 2;
                    self.token();
                    self.push(Opened::Template);
                    return Before::Operator;
                }
                _ => self.at += 1,
            }
        }
        Before::Value
    }
}

/// Can the word go on with a statement after `;`, or after `}` with an expression, type or declaration?
fn continues(word: &[u8]) -> bool {
    matches!(
        word,
        b"else"
            | b"while"
            | b"catch"
            | b"finally"
            | b"from"
            | b"as"
            | b"satisfies"
            | b"in"
            | b"of"
            | b"instanceof"
            | b"extends"
            | b"implements"
            | b"with"
            | b"is"
    )
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'\\') || byte >= 0x80
}

fn before_slash(word: &[u8]) -> Before {
    match word {
        b"return" | b"typeof" | b"case" | b"do" | b"else" | b"in" | b"instanceof" | b"new" | b"delete" | b"void"
        | b"throw" | b"extends" | b"default" => Before::Operator,
        b"of" | b"yield" | b"await" => Before::Unclear,
        _ => Before::Value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> usize {
        scanned(text).deepest
    }

    #[test]
    fn the_place_is_where_it_gets_too_deep() {
        let brackets = "(".repeat(NESTING_MAX + 9);
        // A bracket's level begins behind it.
        assert_eq!(too_deep_at(&format!("a;\n{brackets}")), Some(4 + NESTING_MAX));
        assert_eq!(too_deep_at(&"a;".repeat(NESTING_MAX)), None);
    }

    #[test]
    fn what_nests_is_counted() {
        let deep = 1000;
        for unit in [
            "(",
            "[",
            "{",
            "!",
            "a=>",
            "1+",
            "- ",
            "a?b:",
            "if(1)",
            "x=",
            "`${",
            "f(",
            "A<x,",
            "new ",
            "a.",
            "a:",
            "else if(a)b;",
            "()=>{",
            "/*)*/(",
            "')'+(",
            "/)/[",
            "if(a)/)/+(",
            "do do a;while((",
            "if(1)if(1)a,(",
            "keyof keyof A<x,",
            "case 1:a:b,(",
            "for(;;)a,[",
            "if(a){}else ",
            "try{}finally{}(",
            "class extends ",
        ] {
            let text = unit.repeat(deep);
            assert!(bound(&text) >= deep, "{unit}: {}", bound(&text));
        }
    }

    #[test]
    fn code_as_people_write_it_is_shallow() {
        let code = "export function f(a, b) {\n  const re = /[/\"']\\//g; // it's (fine\n  if (a / b > 2) { return `x${a}y`; }\n  \
                    return [a, b, { c: 'd(' }];\n}\n";
        let text = code.repeat(20_000);
        assert!(bound(&code.repeat(2)) < 100);
        assert!(text.len() > NESTING_MAX && is_shallow(&text), "{}", bound(&text));
        let plain =
            "const a = b(1)\nexport class A {\n  x = 1\n  m() { return { a: 1 } }\n  n() { }\n}\nif (a) {\n  b()\n}\n";
        assert!(is_shallow(&plain.repeat(5_000)), "{}", bound(&plain.repeat(5_000)));
        let minified = "function a(b){switch(b){case 1:return c<d?e:f;default:g()}}class h{i(){}j(){}}";
        assert!(is_shallow(&minified.repeat(10_000)), "{}", bound(&minified.repeat(10_000)));
        let list = format!("const x = [{}];", "'a(', 1 + 2, f(3), ".repeat(50_000));
        assert!(is_shallow(&list));
    }

    #[test]
    fn what_could_be_type_arguments_for_ever_is_too_deep() {
        assert!(!is_shallow(&"write<a".repeat(500)));
        // Comparisons, and types of a size that people write.
        assert!(is_shallow(&"a<b&&".repeat(300)));
        assert!(is_shallow(&"type A = Map<string, Array<B<C>>>;\n".repeat(5_000)));
        assert!(is_shallow(&format!("interface A {{\n{}}}", "  a: Map<string, B<C>>;\n".repeat(5_000))));
    }

    #[test]
    fn nothing_hides_nesting() {
        let brackets = "(".repeat(NESTING_MAX + 1);
        for hide in [
            "<!-- `\n",
            "a++ /\"/ \n",
            "// \u{2028}",
            "}/`/\n",
            "x\u{2028}",
            "1. /'/1\n",
            "'\\\r\n'",
            "a! /`/ 1\n",
            "f<T>/`/1\n",
        ] {
            assert!(!is_shallow(&format!("{hide}{brackets}")), "{hide:?}");
        }
        // Many levels that hold a little, each behind something that could seem to end it.
        for (unit, behind) in [
            ("if(1)", "a,(function(){"),
            ("do ", "a,(function(){"),
            ("a:", "a,(function(){"),
            ("case 1:a:", "a,(function(){"),
            ("do ", "a;while(function(){"),
            ("if(1)", "a;else (function(){"),
            ("keyof ", "A<b,"),
            ("!", "A<b,"),
        ] {
            let text = format!("{}{behind}", unit.repeat(90)).repeat(100);
            assert!(!is_shallow(&text), "{unit} {behind}: {}", bound(&text));
        }
    }
}
