//! The filter wordwrap: lines as Python's textwrap breaks them.

use crate::characters::{is_letter, is_word, lines};
use crate::error::{fail, Kind, Result};
use crate::filters::number;
use crate::value::{Args, Value};

fn is_blank(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\x0b' | '\x0c' | '\r' | ' ')
}

/// A character within a word, or that ends one: dashes after it are dashes between words.
fn is_word_end(character: char) -> bool {
    is_word(character) || "!\"'&.,?".contains(character)
}

fn is_plain_letter(character: char) -> bool {
    is_letter(character)
}

pub fn filter(text: &str, args: Args) -> Result<String> {
    let names = ["width", "break_long_words", "wrapstring", "break_on_hyphens"];
    let [width, long, string, hyphens] = args.bind("wordwrap", names, 0)?;
    let width = number(width, 79)?;
    let long = long.is_none_or(|long| long.is_true());
    let hyphens = hyphens.is_none_or(|hyphens| hyphens.is_true());
    let string = match string {
        None | Some(Value::None) => "\n".to_string(),
        Some(string) => string.text()?,
    };
    let mut out = Vec::new();
    for line in lines(text, false) {
        let line: Vec<char> = line.chars().collect();
        let Ok(width) = usize::try_from(width) else {
            return fail(Kind::Value, format!("invalid width {width} (must be > 0)"));
        };
        if width == 0 {
            return fail(Kind::Value, "invalid width 0 (must be > 0)");
        }
        out.push(wrap(chunks(&line, hyphens), width, long, hyphens).join(&string));
    }
    Ok(out.join(&string))
}

/// Blanks, words, and parts of words with hyphens.
fn chunks(line: &[char], hyphens: bool) -> Vec<Vec<char>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let end = if hyphens { chunk_end(line, at) } else { run_end(line, at) };
        out.push(line[at..end].to_vec());
        at = end;
    }
    out
}

fn run_end(line: &[char], at: usize) -> usize {
    let blank = is_blank(line[at]);
    (at..line.len()).find(|&end| is_blank(line[end]) != blank).unwrap_or(line.len())
}

fn chunk_end(line: &[char], at: usize) -> usize {
    let has = |at: usize, test: fn(char) -> bool| line.get(at).copied().is_some_and(test);
    let dashes = |at: usize| line[at..].iter().take_while(|&&character| character == '-').count();
    if is_blank(line[at]) {
        return run_end(line, at);
    }
    if at > 0 && is_word_end(line[at - 1]) {
        // The pattern takes as many dashes as leave a word after them.
        let count = dashes(at);
        if count >= 2 && has(at + count, is_word) {
            return at + count;
        }
    }
    for end in at + 1..=line.len() {
        // After a hyphen with letters around.
        if has(end, |character| character == '-') {
            let two = end >= 2 && is_plain_letter(line[end - 1]) && is_plain_letter(line[end - 2]);
            let one =
                end >= 3 && is_plain_letter(line[end - 3]) && line[end - 2] == '-' && is_word_end(line[end - 1]);
            let next = end + 1 + usize::from(has(end + 2, |character| character == '-'));
            if (two || one) && has(end + 1, is_plain_letter) && has(next + 1, is_plain_letter) {
                return end + 1;
            }
        }
        if end == line.len() || is_blank(line[end]) {
            return end;
        }
        if is_word_end(line[end - 1]) && dashes(end) >= 2 && has(end + dashes(end), is_word) {
            return end;
        }
        if is_blank(line[end]) {
            break;
        }
    }
    line.len()
}

fn wrap(chunks: Vec<Vec<char>>, width: usize, long: bool, hyphens: bool) -> Vec<String> {
    let mut rest: Vec<Vec<char>> = chunks.into_iter().rev().collect();
    let blank = |chunk: &Vec<char>| chunk.iter().all(|&character| is_blank(character));
    let mut out = Vec::new();
    while !rest.is_empty() {
        if !out.is_empty() && rest.last().is_some_and(blank) {
            rest.pop();
        }
        let mut line: Vec<Vec<char>> = Vec::new();
        let mut length = 0;
        while let Some(chunk) = rest.pop_if(|chunk| length + chunk.len() <= width) {
            length += chunk.len();
            line.push(chunk);
        }
        if let Some(chunk) = rest.last_mut().filter(|chunk| chunk.len() > width) {
            let space = width - length;
            if long {
                let mut end = space.max(if width < 1 { 1 } else { 0 });
                if hyphens && chunk.len() > space {
                    let dash = chunk[..space].iter().rposition(|&character| character == '-');
                    if let Some(dash) = dash.filter(|&dash| dash > 0 && chunk[..dash].iter().any(|&c| c != '-')) {
                        end = dash + 1;
                    }
                }
                let tail = chunk.split_off(end);
                line.push(std::mem::replace(chunk, tail));
            } else if line.is_empty() {
                line.extend(rest.pop());
            }
        }
        if line.last().is_some_and(blank) {
            line.pop();
        }
        if !line.is_empty() {
            out.push(line.concat().into_iter().collect());
        }
    }
    out
}
