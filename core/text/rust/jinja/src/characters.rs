//! Classes of characters as Python's str methods know them.

use std::sync::OnceLock;

use regex::Regex;

/// Whether Unicode's class `pattern` has the character. The expressions are made once for the process.
fn in_class(cell: &'static OnceLock<Regex>, pattern: &str, character: char) -> bool {
    // The patterns are constants below.
    let class = cell.get_or_init(|| Regex::new(pattern).unwrap_or_else(|_| unreachable!()));
    class.is_match(character.encode_utf8(&mut [0; 4]))
}

macro_rules! class {
    ($name:ident, $pattern:literal, $ascii:expr) => {
        pub fn $name(character: char) -> bool {
            static CLASS: OnceLock<Regex> = OnceLock::new();
            if character.is_ascii() {
                let test: fn(char) -> bool = $ascii;
                return test(character);
            }
            in_class(&CLASS, $pattern, character)
        }
    };
}

class!(is_letter, r"^\p{L}$", |c| c.is_ascii_alphabetic());
class!(is_decimal, r"^\p{Nd}$", |c| c.is_ascii_digit());
class!(is_title_letter, r"^\p{Lt}$", |_| false);
class!(is_word, r"^[\p{L}\p{N}_]$", |c| c.is_ascii_alphanumeric() || c == '_');
class!(is_identifier_part, r"^[\p{L}\p{Nl}\p{Mn}\p{Mc}\p{Nd}\p{Pc}]$", |c| c.is_ascii_alphanumeric() || c == '_');
class!(is_unprintable, r"^[\p{C}\p{Z}]$", |c| c.is_ascii_control());
class!(is_digit, r"^[\p{Nd}²³¹፩-፱៰-៹᧚⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒𐩀-𐩃𐹠-𐹨𑁒-𑁚🄀-🄊]$", |c| c.is_ascii_digit());
class!(
    is_numeric,
    r"^[\p{N}㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆六八十千卄卅卌參叁参叄叐双四壱壹壽弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零]$",
    |c| c.is_ascii_digit()
);

/// The value of a decimal digit of any script: its runs of digits begin with a zero.
pub fn decimal(character: char) -> Option<u32> {
    if character.is_ascii() || !is_decimal(character) {
        return character.to_digit(10);
    }
    let mut first = character as u32;
    while char::from_u32(first - 1).is_some_and(is_decimal) {
        first -= 1;
    }
    Some((character as u32 - first) % 10)
}

pub fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\x1c'..='\x1f').contains(&character)
}

pub fn is_upper(character: char) -> bool {
    character.is_uppercase()
}

pub fn is_lower(character: char) -> bool {
    character.is_lowercase()
}

/// Has a form for each case.
pub fn is_cased(character: char) -> bool {
    is_upper(character) || is_lower(character) || is_title_letter(character)
}

/// Appends a character's form at the beginning of a word.
pub fn push_title(character: char, out: &mut String) {
    match character {
        'Ǆ' | 'ǅ' | 'ǆ' => out.push('ǅ'),
        'Ǉ' | 'ǈ' | 'ǉ' => out.push('ǈ'),
        'Ǌ' | 'ǋ' | 'ǌ' => out.push('ǋ'),
        'Ǳ' | 'ǲ' | 'ǳ' => out.push('ǲ'),
        'ა'..='ჿ' => out.push(character),
        _ => {
            let mut upper = character.to_uppercase();
            out.extend(upper.next());
            upper.for_each(|more| out.extend(more.to_lowercase()));
        }
    }
}

pub fn capitalize(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    if let Some(first) = rest.next() {
        push_title(first, &mut out);
    }
    out + &lower(rest.as_str(), text)
}

/// The end of `whole` in small letters: a sigma knows what stands before it.
fn lower(end: &str, whole: &str) -> String {
    if !end.contains('Σ') {
        return end.to_lowercase();
    }
    let first = whole.chars().next().map_or(0, char::len_utf8);
    let skip = whole[..first].to_lowercase().len();
    whole.to_lowercase().split_off(skip)
}

/// str.title(): a letter after one that has cases is small, any other a title's.
pub fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut within = false;
    for character in text.chars() {
        if within {
            out.extend(character.to_lowercase());
        } else {
            push_title(character, &mut out);
        }
        within = is_cased(character);
    }
    out
}

pub fn swap_case(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if is_upper(character) {
            out.extend(character.to_lowercase());
        } else if is_lower(character) {
            out.extend(character.to_uppercase());
        } else {
            out.push(character);
        }
    }
    out
}

/// What Python compares texts by where cases do not matter.
pub fn case_fold(text: &str) -> String {
    let fold = |character: char, out: &mut String| match character {
        'ı' => out.push('ı'),
        _ => character.to_uppercase().for_each(|upper| out.extend(upper.to_lowercase())),
    };
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|character| fold(character, &mut out));
    out
}

pub fn trim_start(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

pub fn trim_end(text: &str) -> &str {
    text.trim_end_matches(is_space)
}

pub fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// str.splitlines().
pub fn lines(text: &str, keep_ends: bool) -> Vec<&str> {
    let mut out = Vec::new();
    let mut begin = 0;
    let mut rest = text.char_indices().peekable();
    while let Some((at, character)) = rest.next() {
        if !matches!(character, '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}')
        {
            continue;
        }
        let mut end = at + character.len_utf8();
        if character == '\r' && rest.next_if(|next| next.1 == '\n').is_some() {
            end += 1;
        }
        out.push(&text[begin..if keep_ends { end } else { at }]);
        begin = end;
    }
    if begin < text.len() {
        out.push(&text[begin..]);
    }
    out
}
